"""A sidecar whose settings are wrong must not end: it would make vLLM's pod not ready,
or hold it back.
"""

import contextlib
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.certificates import Authority
from support.commands import run, started
from support.exporter import Metrics, RunningExporter, request, running_exporter
from support.ports import free_port
from support.programs import answers, eventually
from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.serve import command as serve
from vllm_specdec_exporter.settings import configuration as config

pytestmark = pytest.mark.full

WAIT = "--startup.on-error=wait"


@contextlib.contextmanager
def sidecar(*flags: str, port: int = 0) -> Iterator[RunningExporter]:
    """The real process, asked to wait; at the end it has to end as it is told to."""
    address = f"127.0.0.1:{port or free_port()}"
    with running_exporter(
        "--web.listen-address", address, WAIT, *flags, fast=False
    ) as running:
        yield running
        assert running.terminate()[0] == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--config.file=/nowhere.yml"], "/nowhere.yml"),
        (
            ["--vllm.url=https://127.0.0.1:1", "--vllm.ca-file=/nowhere.pem"],
            "/nowhere.pem",
        ),
        (["--web.config.file=/nowhere.yml"], "/nowhere.yml"),
        (["--no-such-flag"], "--no-such-flag"),
        (["--cost.file={deep}"], "deep.yml"),
        # The guard does not fall by a misspelling of itself.
        (["--startup.on-error=Wiat"], "allowed: exit, wait"),
    ],
    ids=["file", "certificates", "web-config", "flag", "deep", "wait"],
)
def test_wrong_settings_do_not_end_it(
    tmp_path: Path, wrong: list[str], message: str
) -> None:
    """It lives, answers the probes, tells the metrics that its configuration is none,
    and the log why.
    """
    # deeper than the recursion limit of Python
    deep = tmp_path / "deep.yml"
    deep.write_text("[" * 2000)
    with sidecar(*(word.replace("{deep}", str(deep)) for word in wrong)) as running:
        assert running.get("/-/healthy").status == 200
        metrics = running.get("/metrics").text
        assert "\nvllm_specdec_config_last_reload_successful 0.0\n" in f"\n{metrics}"
        assert "vllm_specdec_up" not in metrics
        assert running.get("/metrics", Accept="text/plain;version=x").text == metrics
        accept = "application/openmetrics-text;version=1.0.0"
        openmetrics = running.get("/metrics", Accept=accept)
        assert openmetrics.text.endswith("# EOF\n")
        assert eventually(lambda: message in running.log())
        assert running.log().count("standing by") == 1


@pytest.mark.parametrize("part", ["web configuration", "tap"])
def test_files_that_break_while_it_starts(tmp_path: Path, part: str) -> None:
    """They are read twice; the second time, too, is one that waiting is for, and
    nothing listens yet.
    """
    file = tmp_path / "file"
    flags = {"web.config.file": str(file)}
    if part == "tap":
        certificate, key = Authority(tmp_path, "authority").issue("127.0.0.1")
        file.write_bytes(Path(certificate).read_bytes())
        flags = {
            "vllm.url": ["https://127.0.0.1:1"],
            "tap.listen-address": "127.0.0.1:0",
            "vllm.cert-file": str(file),
            "vllm.key-file": key,
        }
    else:
        file.write_text("{}")

    def load() -> config.ServeConfig:
        loaded = config.load(flags, {}, "")
        # between the two readings
        file.write_text("[")
        return loaded

    with pytest.raises(ConfigError, match=re.escape(f'"{file}"')):
        serve._prepare(load)


def test_elsewhere_they_end_it() -> None:
    """Without being asked to wait, or for a check, it exits with 2 and one line."""
    wrong = "--spec.config={"
    outcomes = [run(wrong), run(wrong, VLLM_SPECDEC_EXPORTER_STARTUP_ON_ERROR="exit")]
    refused = (wrong, "--no-such-flag", "--startup.on-error=Wiat")
    outcomes += [run(WAIT, flag, "--config.check") for flag in refused]
    for outcome in outcomes:
        assert outcome.code == 2, outcome
        assert outcome.err.count("\n") == 1, outcome


def test_what_is_wrong_is_where_people_look() -> None:
    """The page of the exporter says it, and so does the health check, which stays in
    order.
    """
    with sidecar("--spec.config={") as running:
        page = running.get("/")
        health = run("health", f"--web.listen-address={running.address}")

    assert page.status == 503
    assert "kubectl logs" in page.text
    assert health.code == 0
    assert "standing by" in health.out


def test_it_starts_once_the_file_is_mended(tmp_path: Path) -> None:
    """A file of a ConfigMap that is mended counts without a restart; asked by the
    environment this time.

    Until then it answers where the file says that it listens, whatever else is wrong in
    it.
    """
    url = f"http://127.0.0.1:{free_port()}"
    file = tmp_path / "config.yml"
    file.write_text(f"web: {{listen_address: '{url[7:]}'}}\npoll: {{interval: soon}}\n")
    with started(
        f"--config.file={file}", VLLM_SPECDEC_EXPORTER_STARTUP_ON_ERROR="wait"
    ) as process:
        eventually(lambda: answers(f"{url}/-/healthy"))
        file.write_text(file.read_text().replace("soon", "1s"))
        process.send_signal(signal.SIGHUP)
        eventually(lambda: answers(f"{url}/config"))
        metrics = Metrics(request(f"{url}/metrics").text)
        process.terminate()
        assert process.wait(30) == 0

    assert metrics.value("config_last_reload_successful") == 1
    assert metrics.value("up") == 0
