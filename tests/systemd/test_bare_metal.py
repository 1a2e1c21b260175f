"""docs/deployment.md: its commands, run with other folders, and what they installed."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.commands import run
from support.exporter import running_exporter
from support.programs import simulator
from systemd.unit import ENVIRONMENT, UNIT, only

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "deployment.md").read_text("utf-8")
#: What makes the wheel, without its own set-up of a virtual environment: `make wheel` in Makefile.
MAKE_WHEEL = "python3 -m hatchling build -t wheel -d dist"


def lines(section: str) -> list[str]:
    """Return the commands of a section's first block."""
    found = re.search(rf"^## {section}\n.*?^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].splitlines()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that stands for the root of a machine on which the commands of the page were run."""
    folder = tmp_path_factory.mktemp("machine")
    for name in ("etc/systemd/system", "etc/default", "dist"):
        (folder / name).mkdir(parents=True)
    for line in [
        *lines("Install with pip"),
        *(one for one in lines("As a service") if "systemctl" not in one),
    ]:
        command = re.sub(r"(?<![\w.])/(opt|etc)/", rf"{folder}/\1/", line.removeprefix("sudo "))
        command = re.sub(r"(?<= )dist\b", f"{folder}/dist", command.replace("make wheel", MAKE_WHEEL))
        command = re.sub(r"^python3 -m hatchling", f"{shlex.quote(sys.executable)} -m hatchling", command)
        done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return folder


def test_what_was_installed_is_what_the_unit_starts(root: Path) -> None:
    """In the folder that the unit names, it watches a vLLM and says that it is healthy."""
    program = Path(f"{root}{only('ExecStart')}")
    with (
        simulator("--scenario", "healthy") as server,
        running_exporter("--vllm.url", server, command=(str(program),), fast=False) as exporter,
    ):
        exporter.wait_until_up()
        listening = {"VLLM_SPECDEC_EXPORTER_WEB_LISTEN_ADDRESS": exporter.address}
        asked = run("health", command=(str(program),), **listening)
        assert asked.code == 0, asked.err


def test_the_files_are_where_systemd_looks(root: Path) -> None:
    """The unit, and the file that it reads settings from; that may hold what not everybody should read."""
    assert (root / "etc/systemd/system" / UNIT.name).read_bytes() == UNIT.read_bytes()
    settings = Path(f"{root}{only('EnvironmentFile').removeprefix('-')}")
    assert settings.read_bytes() == ENVIRONMENT.read_bytes()
    assert settings.stat().st_mode & 0o777 == 0o640


def test_the_prometheus_job_is_the_one_of_the_rules() -> None:
    """And the address the one that the environment file has."""
    (block,) = re.findall(r"^```yaml\n# prometheus.yml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    jobs = {
        job["job_name"]: job["static_configs"][0]["targets"]
        for job in yaml.safe_load(block)["scrape_configs"]
    }
    assert jobs == {"vllm-specdec-exporter": ["127.0.0.1:9850"], "vllm": ["127.0.0.1:8000"]}
    assert "LISTEN_ADDRESS=127.0.0.1:9850" in ENVIRONMENT.read_text("utf-8")


def test_limits_are_those_of_the_unit() -> None:
    """Half a core and 256 MiB."""
    assert (only("CPUQuota"), only("MemoryMax")) == ("50%", "256M")
    assert "half a core and 256 MiB" in TEXT
