"""docker-compose.yml: what can be told from its text."""

import json
import re

import pytest

from docker.compose import (
    COMPOSE,
    DOTENV,
    document,
    dotenv,
    names,
    raw,
    schema_errors,
    services,
    value_of,
)
from support.commands import run_here
from support.repository import ROOT, text_of
from vllm_specdec_exporter.commands.simulate.simulation import SCENARIOS

#: The ports that the images listen on.
PORTS = {
    "exporter": 9850,
    "act": 9851,
    "prometheus": 9090,
    "alertmanager": 9093,
    "grafana": 3000,
}
PORTS |= {"simulator": 8000, "vllm-gpu": 8000, "sglang-gpu": 8000}

EVERY = document()["services"]
each = pytest.mark.parametrize("name", EVERY)


def test_it_is_a_compose_file() -> None:
    """By the schema of the Compose Specification."""
    assert schema_errors("compose-spec", raw()) == []


@pytest.mark.parametrize(
    ("profile", "name"),
    [("simulator", "simulator"), ("gpu", "vllm-gpu"), ("sglang", "sglang-gpu")],
)
def test_exactly_one_service_is_vllm(profile: str, name: str) -> None:
    """Two would answer in turns, and take each other's port."""
    answering = [
        key
        for key, service in services(profile).items()
        if "vllm" in names(key, service)
    ]
    assert answering == [name]
    assert EVERY[name]["ports"] == EVERY["vllm-gpu"]["ports"]


@each
def test_images_are_pinned(name: str) -> None:
    """By version and digest; ours is built here and never pulled, because there is none
    of the name.
    """
    service = EVERY[name]
    image, _, tag = service["image"].partition(":")
    assert "." not in image, "a registry host"
    # Built once: builders that work side by side on one name get into each other's way.
    assert ("build" in service) == (name == "exporter")
    if image != "vllm-specdec-exporter":
        assert re.fullmatch(r"v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}", tag)
        assert "pull_policy" not in service
        return
    assert re.fullmatch(r"\d+\.\d+\.\d+", tag)
    if name == "exporter":
        assert service["pull_policy"] == "build"
    else:
        assert service["pull_policy"] == "never"
        assert service["depends_on"] == ["exporter"]


@each
def test_ports_are_on_loopback(name: str) -> None:
    """Nothing here asks who is there. act, which takes orders, has no port outside at
    all.
    """
    published = EVERY[name].get("ports", [])
    assert len(published) == (name != "act")
    form = rf"127\.0\.0\.1:\d+:{PORTS[name]}"
    assert all(re.fullmatch(form, port) for port in published), published


@each
def test_services_are_confined(name: str) -> None:
    """Read-only, without capabilities and new privileges; engines, which compile
    kernels, only the last.
    """
    service = EVERY[name]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    if not name.endswith("-gpu"):
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
    # The image's own user is none that could do harm.
    assert not {"privileged", "user"} & set(service)


@each
def test_what_is_mounted_exists_and_cannot_be_changed(name: str) -> None:
    """Files of the repository are read-only; volumes are declared."""
    for volume in EVERY[name].get("volumes", []):
        source, *_, options = volume.split(":")
        if source.startswith("./"):
            assert (ROOT / source).exists(), source
            # z: with SELinux, a container sees nothing else.
            assert options == "ro,z", source
        else:
            assert source in raw()["volumes"], source


def test_vllm_and_exporter_get_the_same_speculative_config() -> None:
    """Else the exporter judges by the cost of another method."""
    text = value_of(EVERY["exporter"], "--spec.config")
    config = json.loads(text)
    k = str(config["num_speculative_tokens"])
    vllm = EVERY["vllm-gpu"]
    assert text == dotenv()["VLLM_SPECULATIVE_CONFIG"]
    assert value_of(vllm, "--speculative-config") == text
    simulator = EVERY["simulator"]
    assert value_of(simulator, "--num-speculative-tokens") == k
    assert value_of(simulator, "--model") == vllm["command"][0]
    sglang = EVERY["sglang-gpu"]
    assert value_of(sglang, "--model-path") == vllm["command"][0]
    assert value_of(sglang, "--speculative-algorithm").lower() == config["method"]
    assert value_of(sglang, "--speculative-draft-model-path") == config["model"]
    assert value_of(sglang, "--speculative-num-steps") == k


(PROPOSED,) = re.findall(r"(?m)^# .*n-gram.*: (\{.*\})$", text_of(DOTENV))


@pytest.mark.parametrize("config", [dotenv()["VLLM_SPECULATIVE_CONFIG"], PROPOSED])
def test_the_exporter_takes_its_command(config: str) -> None:
    """By its own check of the configuration, also with what .env proposes."""
    command = services(VLLM_SPECULATIVE_CONFIG=config)["exporter"]["command"]
    outcome = run_here(*command, "--config.check")
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("name", ["act", "simulator"])
def test_the_other_commands_have_flags_that_there_are(name: str) -> None:
    """Of all words, one that is no flag is the only one that is refused."""
    error = run_here(*services()[name]["command"], "--no-such-flag").err
    assert "error: unrecognized arguments: --no-such-flag (see" in error


def test_the_settings_file_is_used_and_holds_no_secret() -> None:
    """Its variables are those of the compose file; HF_TOKEN comes from the shell."""
    used = set(re.findall(r"\$\{(\w+)", text_of(COMPOSE)))
    assert used | {"COMPOSE_PROFILES"} == set(dotenv())
    assert EVERY["vllm-gpu"]["environment"] == ["HF_TOKEN"]
    assert not re.search("(?m)PASSWORD|SECRET|KEY|TOKEN$", "\n".join(dotenv()))
    assert dotenv()["SIMULATOR_SCENARIO"] in SCENARIOS


def test_without_the_settings_file_compose_says_what_is_missing() -> None:
    """What has no default names .env; everything else has the default of .env."""
    text = text_of(COMPOSE)
    needed = set(re.findall(r"\$\{(\w+):\?is set in \.env\}", text))
    defaults = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", text))
    assert needed == {"VLLM_MODEL", "VLLM_SPECULATIVE_CONFIG"}
    assert defaults == {
        name: value for name, value in dotenv().items() if name in defaults
    }
    assert needed | set(defaults) | {"COMPOSE_PROFILES"} == set(dotenv())


def test_the_documented_addresses_are_those_that_are_published() -> None:
    """docs/deployment.md lists every published port, each with its default of .env."""
    text = text_of("docs/deployment.md")
    said = set(re.findall(r"(?m)^\| http://(127\.0\.0\.1:\d+)", text))
    published = set()
    for service in services().values():
        published |= {port.rpartition(":")[0] for port in service.get("ports", [])}
    assert said == published
