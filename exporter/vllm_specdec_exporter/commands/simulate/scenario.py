"""Scenarios: scripts of phases, built in or from a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...config.files import YAMLFileError, read_yaml
from .phases import Phase, ScenarioError, make_phase

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


_SCENARIO_KEYS = ("name", "loop", "phases")


@dataclass(frozen=True)
class Scenario:
    """A script of phases.

    Attributes:
        name: Its name.
        phases: At least one phase.
        loop: Whether it starts again after the last phase; otherwise that one continues.
    """

    name: str
    phases: tuple[Phase, ...]
    loop: bool = True


def parse_scenario(document: object, default_name: str) -> Scenario:
    """Return the scenario of a YAML document.

    Raises:
        ScenarioError: The document is not a valid scenario.
    """
    if not isinstance(document, dict):
        raise ScenarioError(f"a scenario is a mapping with {', '.join(_SCENARIO_KEYS)}")
    for key in document:
        if key not in _SCENARIO_KEYS:
            raise ScenarioError(f"unknown key {key!r}; a scenario has {', '.join(_SCENARIO_KEYS)}")
    name = document.get("name", default_name)
    if not isinstance(name, str):
        raise ScenarioError(f"name must be a text, not {name!r}")
    loop = document.get("loop", True)
    if not isinstance(loop, bool):
        raise ScenarioError(f"loop must be true or false, not {loop!r}")
    entries = document.get("phases")
    if not isinstance(entries, list) or not entries:
        raise ScenarioError("phases must be a list of at least one phase")
    phases = tuple(_parse_phase(number, entry) for number, entry in enumerate(entries, 1))
    return Scenario(name, phases, loop)


def _parse_phase(number: int, entry: object) -> Phase:
    if not isinstance(entry, dict) or "phase" not in entry:
        raise ScenarioError(
            f"phase {number} must be a mapping with phase, seconds and parameters, not {entry!r}"
        )
    given: dict[str, Any] = {str(key): value for key, value in entry.items()}
    name = given.pop("phase")
    if "seconds" not in given:
        raise ScenarioError(f"phase {number} ({name}) lacks seconds")
    seconds = given.pop("seconds")
    try:
        if seconds is None:
            raise ScenarioError("seconds must be a number above 0, not None")
        return make_phase(name, given, seconds)
    except ScenarioError as error:
        raise ScenarioError(f"phase {number}: {error}") from None


def _built_in(name: str, *phases: tuple[str, float, dict[str, object]]) -> Scenario:
    return Scenario(name, tuple(make_phase(kind, given, s) for kind, s, given in phases))


_SCENARIOS = (
    _built_in(
        "tour",
        ("healthy", 120, {}),
        ("slow_decay", 180, {}),
        ("collapse", 90, {}),
        ("healthy", 60, {}),
        ("idle", 60, {}),
        ("bypass", 60, {}),
        ("variable_drafts", 90, {}),
        ("saturation", 120, {}),
        ("repetition", 60, {}),
        ("restart", 60, {}),
        ("k_change", 90, {"num_speculative_tokens": 8}),
        ("off", 60, {}),
        ("k_change", 30, {"num_speculative_tokens": 0}),
    ),
    _built_in("healthy", ("healthy", 3600, {})),
    _built_in("slow_decay", ("healthy", 60, {}), ("slow_decay", 300, {})),
    _built_in("collapse", ("healthy", 120, {}), ("collapse", 180, {})),
    _built_in("idle", ("healthy", 60, {}), ("idle", 120, {})),
    _built_in("bypass", ("healthy", 60, {}), ("bypass", 120, {})),
    _built_in("restart", ("healthy", 60, {}), ("restart", 60, {})),
    _built_in(
        "k_change",
        ("k_change", 90, {"num_speculative_tokens": 2}),
        ("k_change", 90, {"num_speculative_tokens": 8}),
    ),
    _built_in("saturation", ("healthy", 60, {}), ("saturation", 180, {})),
    _built_in("variable_drafts", ("variable_drafts", 3600, {})),
    _built_in("repetition", ("healthy", 60, {}), ("repetition", 120, {})),
    _built_in("off", ("off", 3600, {"downtime_seconds": 0})),
)

#: The built-in scenarios by name.
SCENARIOS: Mapping[str, Scenario] = MappingProxyType({s.name: s for s in _SCENARIOS})


def find_scenario(name: str) -> Scenario:
    """Return a built-in scenario; raises ScenarioError."""
    if name not in SCENARIOS:
        raise ScenarioError(f"unknown scenario {name!r}; the scenarios are {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


_MAX_FILE_BYTES = 1_000_000


def load_scenario(path: Path) -> Scenario:
    """Read a scenario from a YAML file.

    Raises:
        ScenarioError: The file cannot be read, or is not a valid scenario.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
        if len(text) > _MAX_FILE_BYTES:
            raise ScenarioError(f"{path}: larger than {_MAX_FILE_BYTES} bytes")
        document = read_yaml(text)
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from None
    except YAMLFileError as error:
        raise ScenarioError(f"{path}: not valid YAML: {error}") from None
    try:
        return parse_scenario(document, path.stem)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None
