"""The systemd unit: what systemd says of it, and what it starts."""

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from support.commands import run, run_here
from support.exporter import running_exporter
from support.programs import COMMAND, find_program, simulator
from systemd.unit import ENVIRONMENT, UNIT, environment, offered, only
from vllm_specdec_exporter.serve.option_table import OPTIONS

pytestmark = pytest.mark.full

LISTEN = "VLLM_SPECDEC_EXPORTER_WEB_LISTEN_ADDRESS"
#: Out of 100, where systemd says "OK" up to 49; an unconfined service has 96.
MOST_EXPOSED = 15


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with the program of this environment in the place of that in /opt."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text("utf-8").replace(only("ExecStart"), COMMAND), encoding="utf-8")
    return path


def test_systemd_knows_every_setting(unit: Path) -> None:
    """Unknown ones are only warned of, and without effect; the programs exist."""
    analyze = find_program("systemd-analyze", "systemd")
    done = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, timeout=60)
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


def test_systemd_finds_little_to_attack(unit: Path) -> None:
    """What remains is what an exporter needs: the network, and its own program."""
    analyze = find_program("systemd-analyze", "systemd")
    command = [analyze, "security", "--offline=yes", "--no-pager", f"--threshold={MOST_EXPOSED}", unit]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert "Overall exposure level" in done.stdout


def test_every_variable_is_a_setting_that_the_exporter_takes() -> None:
    """As systemd reads it, also those that are offered in comments; files are put in where they name one."""
    for text in (ENVIRONMENT.read_text("utf-8"), offered()):
        found = environment(text)
        assert json.loads(found["VLLM_SPECDEC_EXPORTER_SPEC_CONFIG"])["method"] == "eagle3"
        assert set(found) <= {option.variable for option in OPTIONS}
        assert "$" not in "".join(found.values())
        del found[LISTEN]
        if name := found.pop("VLLM_SPECDEC_EXPORTER_BASELINE_FILE", ""):
            assert name.startswith("/etc/")
        outcome = run_here("--config.check", **found)
        assert outcome.code == 0, outcome.err


def test_it_serves_reloads_and_ends() -> None:
    """The unit's program, settings and signals, beside a simulated vLLM."""
    argv = shlex.split(only("ExecStart"))
    assert Path(argv[0]).name == Path(COMMAND).name
    found = environment(ENVIRONMENT.read_text("utf-8"))
    assert found["VLLM_SPECDEC_EXPORTER_VLLM_URL"] == "http://127.0.0.1:8000"
    with simulator("--scenario", "healthy") as server:
        found["VLLM_SPECDEC_EXPORTER_VLLM_URL"] = server
        with running_exporter(*argv[1:], env=found, fast=False) as exporter:
            exporter.wait_for(lambda metrics: metrics.value("info", method="eagle3"), "info")
            reloaded = "config_last_reload_success_timestamp_seconds"
            before = exporter.metrics(reloaded).value(reloaded)
            signalled = re.fullmatch(r"/bin/kill -(\w+) \$MAINPID", only("ExecReload"))
            assert signalled is not None
            exporter.send(getattr(signal, f"SIG{signalled[1]}"))
            exporter.wait_for(lambda metrics: metrics.value(reloaded) > before, reloaded)
            assert exporter.terminate()[0] == 0


def test_a_wrong_configuration_ends_with_the_code_that_is_not_restarted() -> None:
    """RestartPreventExitStatus is the exporter's code for bad usage."""
    outcome = run(VLLM_SPECDEC_EXPORTER_POLL_INTERVAL="soon")
    assert str(outcome.code) == only("RestartPreventExitStatus")
