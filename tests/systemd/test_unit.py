"""The systemd unit: what systemd says of it, what it starts, and how docs/deployment.md
installs it.
"""

import json
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
import yaml

from support.commands import run, run_here
from support.exporter import running_exporter
from support.programs import COMMAND, find_program, printed, simulator
from support.repository import ROOT, text_of
from systemd.unit import ENVIRONMENT, UNIT, environment, offered, only, unit_here
from vllm_specdec_exporter.settings.option_table import OPTIONS

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

LISTEN = "VLLM_SPECDEC_EXPORTER_WEB_LISTEN_ADDRESS"
#: Out of 100, where systemd says "OK" up to 49; an unconfined service has 96.
MOST_EXPOSED = 15


def test_systemd_finds_little_to_attack(tmp_path: Path) -> None:
    """What remains is what an exporter needs: the network, and its own program."""
    analyze = find_program("systemd-analyze", "systemd")
    flags = f"security --offline=yes --no-pager --threshold={MOST_EXPOSED}".split()
    said = printed(analyze, *flags, unit_here(tmp_path))
    assert "Overall exposure level" in said


@pytest.mark.parametrize(
    "text", [text_of(ENVIRONMENT), offered()], ids=["in force", "offered in comments"]
)
def test_every_variable_is_a_setting_that_the_exporter_takes(text: str) -> None:
    """As systemd reads it."""
    variables = environment(text)
    spec = json.loads(variables["VLLM_SPECDEC_EXPORTER_SPEC_CONFIG"])
    assert spec["method"] == "eagle3"
    assert set(variables) <= {option.variable for option in OPTIONS}
    assert "$" not in "".join(variables.values())
    # The check would find the port taken, and no file in /etc.
    del variables[LISTEN]
    baseline = variables.pop("VLLM_SPECDEC_EXPORTER_BASELINE_FILE", "/etc/")
    assert baseline.startswith("/etc/")
    outcome = run_here("--config.check", **variables)
    assert outcome.code == 0, outcome.err


def test_it_writes_nothing_sees_no_home_and_is_served_to_this_machine() -> None:
    assert only("ProtectSystem") == "strict"
    assert only("ProtectHome") == "yes"
    # What would make a folder that it may write to.
    unit = text_of(UNIT)
    assert not re.search(r"(?m)^(ReadWritePaths|\w+Directory)=", unit)
    assert environment(text_of(ENVIRONMENT))[LISTEN] == "127.0.0.1:9850"


def test_it_serves_reloads_and_ends() -> None:
    """The unit's program, settings and signals, beside a simulated vLLM."""
    argv = shlex.split(only("ExecStart"))
    assert Path(argv[0]).name == Path(COMMAND).name
    variables = environment(text_of(ENVIRONMENT))
    assert variables["VLLM_SPECDEC_EXPORTER_VLLM_URL"] == "http://127.0.0.1:8000"
    with simulator("--scenario", "healthy") as server:
        variables["VLLM_SPECDEC_EXPORTER_VLLM_URL"] = server
        with running_exporter(*argv[1:], env=variables, fast=False) as exporter:
            exporter.wait_for(
                lambda metrics: metrics.value("info", method="eagle3"), "info"
            )
            reloaded = "config_last_reload_success_timestamp_seconds"
            reloaded_at = exporter.metrics(reloaded).value(reloaded)
            signalled = re.fullmatch(r"/bin/kill -(\w+) \$MAINPID", only("ExecReload"))
            exporter.send(getattr(signal, f"SIG{signalled[1]}"))
            exporter.wait_for(
                lambda metrics: metrics.value(reloaded) > reloaded_at, reloaded
            )
            assert exporter.terminate()[0] == 0


def test_a_wrong_configuration_ends_with_the_code_that_is_not_restarted() -> None:
    """RestartPreventExitStatus is the exporter's code for bad usage."""
    outcome = run(VLLM_SPECDEC_EXPORTER_POLL_INTERVAL="soon")
    assert str(outcome.code) == only("RestartPreventExitStatus")


# --- docs/deployment.md: its commands, run with other folders


TEXT = text_of("docs/deployment.md")
#: What makes the wheel, without its own set-up of a virtual environment: `make wheel`
#: in Makefile.
MAKE_WHEEL = "python3 -m hatchling build -t wheel -d dist"


def lines(section: str) -> list[str]:
    """Return the commands of a section's first block."""
    block = re.search(
        rf"^## {section}\n.*?^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL
    )
    return block[1].splitlines()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that stands for the root of a machine on which the commands of the page
    were run.
    """
    folder = tmp_path_factory.mktemp("machine")
    for name in ("etc/systemd/system", "etc/default", "dist"):
        (folder / name).mkdir(parents=True)
    here = (
        ("^sudo ", ""),
        (r"(?<![\w.])/(opt|etc)/", rf"{folder}/\1/"),
        ("make wheel", MAKE_WHEEL),
        (r"(?<= )dist\b", f"{folder}/dist"),
        ("^python3 -m hatchling", f"{shlex.quote(sys.executable)} -m hatchling"),
    )
    for line in (*lines("Install with pip"), *lines("As a service")):
        command = line
        for pattern, replacement in here:
            command = re.sub(pattern, replacement, command)
        if "systemctl" not in command:
            printed("bash", "-c", command, cwd=ROOT)
    return folder


def test_what_was_installed_is_what_the_unit_starts(root: Path) -> None:
    """In the folder that the unit names, it watches a vLLM and says that it is
    healthy.
    """
    program = Path(f"{root}{only('ExecStart')}")
    with (
        simulator("--scenario", "healthy") as server,
        running_exporter(
            "--vllm.url", server, command=(str(program),), fast=False
        ) as exporter,
    ):
        exporter.wait_until_up()
        listening = {"VLLM_SPECDEC_EXPORTER_WEB_LISTEN_ADDRESS": exporter.address}
        asked = run("health", command=(str(program),), **listening)
        assert asked.code == 0, asked.err


def test_the_files_are_where_systemd_looks(root: Path) -> None:
    """The unit, and the file that it reads settings from; that may hold what not
    everybody should read.
    """
    assert (root / "etc/systemd/system" / UNIT.name).read_bytes() == UNIT.read_bytes()
    settings = Path(f"{root}{only('EnvironmentFile').removeprefix('-')}")
    assert settings.read_bytes() == ENVIRONMENT.read_bytes()
    assert settings.stat().st_mode & 0o777 == 0o640


def test_the_prometheus_job_is_the_one_of_the_rules() -> None:
    """And the address the one that the environment file has."""
    (block,) = re.findall(
        r"^```yaml\n# prometheus.yml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL
    )
    jobs = {
        job["job_name"]: job["static_configs"][0]["targets"]
        for job in yaml.safe_load(block)["scrape_configs"]
    }
    assert jobs == {
        "vllm-specdec-exporter": ["127.0.0.1:9850"],
        "vllm": ["127.0.0.1:8000"],
    }
    assert "LISTEN_ADDRESS=127.0.0.1:9850" in text_of(ENVIRONMENT)


def test_limits_are_those_of_the_unit() -> None:
    """Half a core and 256 MiB."""
    assert (only("CPUQuota"), only("MemoryMax")) == ("50%", "256M")
    assert "half a core and 256 MiB" in TEXT
