"""docs/machine.md: its commands, addresses and numbers are those of the files."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import urllib.request

import pytest

from docker.compose import document, dotenv, services
from docker.dockerfile import ROOT, stages
from support.commands import run_here
from support.programs import simulator
from vllm_specdec_exporter import __version__

pytestmark = pytest.mark.full

TEXT = (ROOT / "docs" / "machine.md").read_text("utf-8")


def commands() -> list[list[str]]:
    """Return every command of the page, without what a shell would add."""
    blocks = re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


def test_addresses_are_those_that_compose_publishes() -> None:
    """The table names every published port, and each is the default of .env."""
    said = set(re.findall(r"^\| http://(127\.0\.0\.1:\d+)", TEXT, re.MULTILINE))
    published = {
        port.rpartition(":")[0] for service in services().values() for port in service.get("ports", [])
    }
    assert said == published


def test_build_commands_set_what_the_dockerfile_takes() -> None:
    """Each build argument is declared there, or one that BuildKit knows by itself."""
    (build,) = (one for one in commands() if one[:3] == ["docker", "buildx", "build"])
    said = {word.partition("=")[0] for flag, word in itertools.pairwise(build) if flag == "--build-arg"}
    declared = {one.text.partition("=")[0] for stage in stages() for one in stage.all("ARG")}
    assert said == declared == {"VERSION", "REVISION", "CREATED", "SOURCE_DATE_EPOCH"}
    assert "linux/amd64,linux/arm64" in build


def test_versions_are_current() -> None:
    """Of the image wherever it is named."""
    named = re.findall(r"vllm-specdec-exporter:([\w.]+)", TEXT)
    assert set(named) == {__version__}
    assert f"VERSION={__version__}" in TEXT


def test_the_exporter_takes_the_command_beside_your_own_vllm() -> None:
    """What follows the image are its flags."""
    (run,) = (one for one in commands() if one[:2] == ["docker", "run"])
    after = run[run.index(f"vllm-specdec-exporter:{__version__}") + 1 :]
    outcome = run_here(*after, "--config.check")
    assert (bool(after), outcome.code) == (True, 0), outcome.err


def test_compose_commands_name_profiles_and_services_that_there_are() -> None:
    """A profile that does not exist would start everything but a vLLM, without an error."""
    used = [one[one.index("compose") + 1 :] for one in commands() if "compose" in one]
    profiles = {one[1] for one in used if one[0] == "--profile"}
    known = {name for service in document()["services"].values() for name in service.get("profiles", [])}
    assert profiles == {"gpu"}
    assert profiles <= known
    (logs,) = (one for one in used if one[0] == "logs")
    assert logs[-1] in services()


def test_the_simulator_takes_the_command_that_makes_trouble() -> None:
    """The address and the phase of the page, and the one that ends the trouble."""
    (curl,) = (one for one in commands() if one[0] == "curl")
    _, _, method, url, _, body = curl
    assert url.startswith(f"http://127.0.0.1:{dotenv()['VLLM_PORT']}/")
    (end,) = re.findall(r"`(\{.*\})` ends the trouble", TEXT)
    with simulator("--scenario", "healthy") as server:
        address = server + url[url.index("/", len("http://")) :]
        for said in (body, end):
            request = urllib.request.Request(address, said.encode(), method=method)
            with urllib.request.urlopen(request, timeout=5):
                pass
            with urllib.request.urlopen(f"{server}/simulator", timeout=5) as answer:
                assert json.load(answer)["phase"] == json.loads(said)["phase"]
