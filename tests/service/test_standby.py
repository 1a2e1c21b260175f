"""A sidecar whose settings are wrong must not end: it would make vLLM's pod not ready, or hold it back."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.certificates import Authority
from support.exporter import exporter
from support.faulty_server import FaultyServer, answer
from support.ports import free_port
from support.programs import COMMAND, answers, clean_environment
from vllm_specdec_exporter import config, serve
from vllm_specdec_exporter.options import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.full

#: Longer than the time between two attempts.
_PATIENCE = 20.0


class Sidecar:
    """The real process."""

    def __init__(self, process: subprocess.Popen[bytes], address: str, log: Path) -> None:
        self.process = process
        self.address = address
        self._log = log

    @property
    def log(self) -> str:
        """What it logged so far."""
        return self._log.read_text()

    def metrics(self, **headers: str) -> str:
        """Its metrics."""
        request = urllib.request.Request(f"http://{self.address}/metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=5) as answer:
            return str(answer.read().decode())

    def becomes(self, what: Callable[[], bool]) -> None:
        """Wait until it is so."""
        end = time.monotonic() + _PATIENCE
        while not what():
            assert self.process.poll() is None, f"it ended: {self.log}"
            assert time.monotonic() < end, self.log
            time.sleep(0.1)

    def end(self) -> int:
        """Ask it to end, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(5)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Sidecar]]:
    """Start the exporter, on a port that may be given or where its flags make it listen."""
    with contextlib.ExitStack() as stack:

        def begin(*flags: str, port: int = 0, address: str = "", **variables: str) -> Sidecar:
            if not address:
                address = f"127.0.0.1:{port or free_port()}"
                flags = (f"--web.listen-address={address}", *flags)
            log = tmp_path / "log"
            process = subprocess.Popen(
                [COMMAND, *flags],
                stdout=subprocess.DEVNULL,
                stderr=stack.enter_context(log.open("wb")),
                env=clean_environment(**variables),
            )
            stack.callback(process.wait, 5)
            stack.callback(process.kill)
            return Sidecar(process, address, log)

        yield begin


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--spec.config={"], "--spec.config"),
        (["--config.file=/nowhere.yml"], "/nowhere.yml"),
        (["--vllm.url=https://127.0.0.1:1", "--vllm.ca-file=/nowhere.pem"], "/nowhere.pem"),
        (["--web.config.file=/nowhere.yml"], "/nowhere.yml"),
        (["--no-such-flag"], "--no-such-flag"),
        (["--cost.file={deep}"], "deep.yml"),
    ],
    ids=["value", "file", "certificates", "web-config", "flag", "deep"],
)
def test_wrong_settings_do_not_end_it(
    start: Callable[..., Sidecar], tmp_path: Path, wrong: list[str], told: str
) -> None:
    """It lives, answers the probes, tells the metrics that its configuration is none, and the log why."""
    deep = tmp_path / "deep.yml"
    deep.write_text("[" * 2000)
    sidecar = start("--startup.on-error=wait", *(word.replace("{deep}", str(deep)) for word in wrong))
    sidecar.becomes(lambda: answers(f"http://{sidecar.address}/-/healthy"))

    metrics = sidecar.metrics()
    assert "\nvllm_specdec_config_last_reload_successful 0.0\n" in f"\n{metrics}"
    assert "vllm_specdec_up" not in metrics
    assert sidecar.metrics(Accept="text/plain;version=x") == metrics
    assert sidecar.metrics(Accept="application/openmetrics-text;version=1.0.0").endswith("# EOF\n")
    assert told in sidecar.log
    assert sidecar.log.count("standing by") == 1
    assert sidecar.end() == 0


@pytest.mark.parametrize("part", ["web configuration", "tap"])
def test_files_that_break_while_it_starts(tmp_path: Path, part: str) -> None:
    """They are read twice; the second time, too, is one that waiting is for, and nothing listens yet."""
    file = tmp_path / "file"
    flags = {"web.config.file": str(file)}
    if part == "tap":
        certificate, key = Authority(tmp_path, "authority").issue("127.0.0.1")
        file.write_bytes(Path(certificate).read_bytes())
        flags = {"tap.listen-address": "127.0.0.1:0", "tap.cert-file": str(file), "tap.key-file": key}
    else:
        file.write_text("{}")

    def load() -> config.Config:
        found = config.load(flags, {}, "")
        file.write_text("[")
        return found

    with pytest.raises(ConfigError, match=re.escape(f'"{file}"')):
        serve._prepare(load)


@pytest.mark.parametrize("variables", [{}, {"VLLM_SPECDEC_EXPORTER_STARTUP_ON_ERROR": "exit"}])
def test_elsewhere_they_end_it(start: Callable[..., Sidecar], variables: dict[str, str]) -> None:
    """Without being asked to wait, it exits with 2 and one line."""
    sidecar = start("--spec.config={", **variables)

    assert sidecar.process.wait(_PATIENCE) == 2
    assert len(sidecar.log.splitlines()) == 1


def test_a_wrong_word_for_waiting(start: Callable[..., Sidecar]) -> None:
    """The guard does not fall by a misspelling of itself."""
    sidecar = start("--startup.on-error=Wiat")
    sidecar.becomes(lambda: answers(f"http://{sidecar.address}/-/healthy"))

    assert "allowed: exit, wait" in sidecar.log
    assert sidecar.end() == 0


@pytest.mark.parametrize("wrong", ["--no-such-flag", "--spec.config={", "--startup.on-error=Wiat"])
def test_a_check_never_waits(start: Callable[..., Sidecar], wrong: str) -> None:
    """With the very flags of a sidecar, it ends and says what is wrong."""
    sidecar = start("--startup.on-error=wait", wrong, "--config.check")

    assert sidecar.process.wait(_PATIENCE) == 2
    assert wrong.partition("=")[0] in sidecar.log


def test_what_is_wrong_is_where_people_look(start: Callable[..., Sidecar]) -> None:
    """The page of the exporter says it, and so does the health check, which stays in order."""
    sidecar = start("--startup.on-error=wait", "--spec.config={")
    sidecar.becomes(lambda: answers(f"http://{sidecar.address}/-/healthy"))

    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://{sidecar.address}/", timeout=5)
    with caught.value as page:
        assert page.code == 503
        assert "kubectl logs" in page.read().decode()
    health = subprocess.run(
        [COMMAND, "health", f"--web.listen-address={sidecar.address}"],
        capture_output=True,
        text=True,
        env=clean_environment(),
    )
    assert health.returncode == 0
    assert "standing by" in health.stdout


def test_it_starts_once_the_file_is_mended(start: Callable[..., Sidecar], tmp_path: Path) -> None:
    """A file of a ConfigMap that is mended counts without a restart; asked by the environment this time."""
    file = tmp_path / "config.yml"
    file.write_text("poll: {interval: soon}\n")
    sidecar = start(f"--config.file={file}", VLLM_SPECDEC_EXPORTER_STARTUP_ON_ERROR="wait")
    sidecar.becomes(lambda: answers(f"http://{sidecar.address}/-/healthy"))

    file.write_text("poll: {interval: 1s}\n")
    sidecar.process.send_signal(signal.SIGHUP)
    sidecar.becomes(lambda: answers(f"http://{sidecar.address}/config"))

    assert "\nvllm_specdec_config_last_reload_successful 1.0\n" in sidecar.metrics()
    assert "\nvllm_specdec_up 0.0\n" in sidecar.metrics()
    assert sidecar.end() == 0


def test_it_starts_by_itself_too(start: Callable[..., Sidecar], tmp_path: Path) -> None:
    """Nobody has to ask for another attempt."""
    token = tmp_path / "token"
    sidecar = start("--startup.on-error=wait", f"--vllm.bearer-token-file={token}")
    sidecar.becomes(lambda: answers(f"http://{sidecar.address}/-/ready"))
    assert not answers(f"http://{sidecar.address}/config")
    token.write_text("secret")

    sidecar.becomes(lambda: answers(f"http://{sidecar.address}/config"))
    assert sidecar.end() == 0


def test_a_port_that_is_taken(start: Callable[..., Sidecar]) -> None:
    """Two vLLM in the host's network: the second sidecar waits until the port is free."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        sidecar = start("--startup.on-error=wait", port=other.getsockname()[1])
        sidecar.becomes(lambda: "cannot listen" in sidecar.log)
        assert sidecar.process.poll() is None
    sidecar.becomes(lambda: answers(f"http://{sidecar.address}/-/ready"))

    assert sidecar.end() == 0


def test_reloading_while_the_port_is_taken(start: Callable[..., Sidecar]) -> None:
    """SIGHUP then changes nothing: it does not end, and does not poll twice as often later."""
    healthy = answer(b"vllm:num_requests_running 0\n")
    with FaultyServer(healthy) as vllm, socket.create_server(("127.0.0.1", 0)) as other:
        flags = ("--startup.on-error=wait", f"--vllm.url={vllm.url}", "--poll.interval=1s")
        sidecar = start(*flags, port=other.getsockname()[1])
        sidecar.becomes(lambda: "cannot listen" in sidecar.log)
        sidecar.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        other.close()
        sidecar.becomes(lambda: answers(f"http://{sidecar.address}/-/ready"))
        before, begin = len(vllm.requests), time.monotonic()
        time.sleep(5.5)
        seconds = time.monotonic() - begin  # as many as polls; a busy machine sleeps longer
        polls = sum(request.path == "/metrics" for request in vllm.requests[before:])
        assert 2 <= polls <= 1.4 * seconds + 1
        assert sidecar.end() == 0


def test_the_address_of_a_file_with_another_fault(start: Callable[..., Sidecar], tmp_path: Path) -> None:
    """Whatever else is wrong, it answers where the file says that it listens."""
    address = f"127.0.0.1:{free_port()}"
    file = tmp_path / "config.yml"
    file.write_text(f"web: {{listen_address: '{address}'}}\npoll: {{interval: soon}}\n")
    sidecar = start("--startup.on-error=wait", f"--config.file={file}", address=address)
    sidecar.becomes(lambda: answers(f"http://{address}/-/healthy"))

    assert sidecar.end() == 0


def test_wrong_settings_and_a_taken_port(start: Callable[..., Sidecar]) -> None:
    """It answers once the port is free."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        sidecar = start("--startup.on-error=wait", "--spec.config={", port=other.getsockname()[1])
        sidecar.becomes(lambda: "without an answer" in sidecar.log)
    sidecar.becomes(lambda: answers(f"http://{sidecar.address}/-/healthy"))

    assert sidecar.end() == 0


def test_ending_while_the_port_is_taken(start: Callable[..., Sidecar]) -> None:
    """SIGTERM ends the waiting at once."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        sidecar = start("--startup.on-error=wait", port=other.getsockname()[1])
        sidecar.becomes(lambda: "cannot listen" in sidecar.log)
        assert sidecar.end() == 0


def test_right_settings_are_none_of_its_business() -> None:
    """Asked to wait and without reason to, it is the exporter as always."""
    with exporter("--startup.on-error=wait") as address:
        assert answers(f"http://{address}/config")
