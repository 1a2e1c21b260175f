"""The systemd unit: what systemd says of it, and what it starts."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.ports import free_port
from support.programs import COMMAND, answers, clean_environment, simulator
from systemd.unit import ENVIRONMENT, UNIT, environment, offered, only, settings
from vllm_specdec_exporter.option_table import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.full

#: A unit named like ours, in a folder of its own, is all that the checks need; no systemd has to run.
ANALYZE = shutil.which("systemd-analyze") or ""
needs_systemd = pytest.mark.skipif(
    not ANALYZE, reason="systemd-analyze is missing, and only it can judge a unit: Debian package systemd"
)
LISTEN = "VLLM_SPECDEC_EXPORTER_WEB_LISTEN_ADDRESS"
#: Out of 100, where systemd says "OK" up to 49; an unconfined service has 96.
MOST_EXPOSED = 15


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with the program of this environment in the place of that in /opt."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text("utf-8").replace(only("ExecStart"), COMMAND), encoding="utf-8")
    return path


@needs_systemd
def test_systemd_knows_every_setting(unit: Path) -> None:
    """Unknown ones are only warned of, and without effect; the programs exist."""
    done = subprocess.run([ANALYZE, "verify", "--man=no", unit], capture_output=True, text=True, timeout=60)
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


@needs_systemd
def test_systemd_finds_little_to_attack(unit: Path) -> None:
    """What remains is what an exporter needs: the network, and its own program."""
    command = [ANALYZE, "security", "--offline=yes", "--no-pager", f"--threshold={MOST_EXPOSED}", unit]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert "Overall exposure level" in done.stdout


def test_the_service_starts_and_ends_as_systemd_expects() -> None:
    """A failed start is seen, a reload is SIGHUP, a wrong configuration is not tried again and again."""
    assert only("Type") == "exec"
    assert only("ExecReload") == "/bin/kill -HUP $MAINPID"
    assert only("Restart") == "always"
    assert only("RestartPreventExitStatus") == "2"
    assert only("EnvironmentFile") == "-/etc/default/vllm-specdec-exporter"
    assert settings("Install") == {"WantedBy": ["multi-user.target"]}


def test_it_may_not_write_anywhere() -> None:
    """The exporter keeps nothing on disk, so there is nothing that it would need."""
    assert only("DynamicUser") == "yes"
    assert only("ProtectSystem") == "strict"
    assert "User" not in settings()
    writable = {"ReadWritePaths", "StateDirectory", "CacheDirectory", "LogsDirectory", "RuntimeDirectory"}
    assert writable & set(settings()) == set()


@pytest.mark.parametrize("text", [ENVIRONMENT.read_text("utf-8"), offered()], ids=["as it is", "as offered"])
def test_every_variable_is_a_setting_that_the_exporter_takes(text: str, tmp_path: Path) -> None:
    """Also those that are offered in comments; files are put in where they name one."""
    found = environment(text)
    assert set(found) <= {option.variable for option in OPTIONS}
    assert "$" not in "".join(found.values())
    del found[LISTEN]
    if name := found.get("VLLM_SPECDEC_EXPORTER_BASELINE_FILE"):
        assert name.startswith("/etc/")
        del found["VLLM_SPECDEC_EXPORTER_BASELINE_FILE"]
    done = subprocess.run(
        [COMMAND, "--config.check"],
        capture_output=True,
        text=True,
        env=clean_environment(**found),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_it_serves_reloads_and_ends() -> None:
    """The unit's program, settings and signals, beside a simulated vLLM."""
    argv = shlex.split(only("ExecStart"))
    assert Path(argv[0]).name == Path(COMMAND).name
    address = f"127.0.0.1:{free_port()}"
    with simulator("--scenario", "healthy") as server:
        found = environment(ENVIRONMENT.read_text("utf-8"))
        assert found["VLLM_SPECDEC_EXPORTER_VLLM_URL"] == "http://127.0.0.1:8000"
        found |= {LISTEN: address, "VLLM_SPECDEC_EXPORTER_VLLM_URL": server}
        process = subprocess.Popen(
            [COMMAND, *argv[1:]],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=clean_environment(**found),
        )
        try:
            _wait(lambda: answers(f"http://{address}/-/ready"))
            _wait(lambda: 'method="eagle3"' in _get(f"http://{address}/metrics"))
            before = _reloaded(address)
            signalled = re.fullmatch(r"/bin/kill -(\w+) \$MAINPID", only("ExecReload"))
            assert signalled is not None
            process.send_signal(getattr(signal, f"SIG{signalled[1]}"))
            _wait(lambda: _reloaded(address) > before)
            process.terminate()
            assert process.wait(int(only("TimeoutStopSec"))) == 0
        finally:
            process.kill()
            process.wait()


def test_a_wrong_configuration_ends_with_the_code_that_is_not_restarted(tmp_path: Path) -> None:
    """RestartPreventExitStatus is the exporter's code for bad usage."""
    wrong = clean_environment(VLLM_SPECDEC_EXPORTER_POLL_INTERVAL="soon")
    done = subprocess.run([COMMAND], capture_output=True, text=True, env=wrong, cwd=tmp_path, timeout=30)
    assert str(done.returncode) == only("RestartPreventExitStatus")


def test_quotes_are_read_as_systemd_does() -> None:
    """JSON in single quotes keeps its double quotes."""
    config = environment(ENVIRONMENT.read_text("utf-8"))["VLLM_SPECDEC_EXPORTER_SPEC_CONFIG"]
    assert json.loads(config)["method"] == "eagle3"


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def _reloaded(address: str) -> float:
    text = _get(f"http://{address}/metrics")
    found = re.search(
        r"^vllm_specdec_config_last_reload_success_timestamp_seconds (\S+)$", text, re.MULTILINE
    )
    assert found is not None
    return float(found[1])


def _wait(what: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)
