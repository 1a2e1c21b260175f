"""Scenarios, and the simulated server that plays one: its engines and its restarts. No clock."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import chain
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...config.yaml_text import YAMLTextError, read_yaml
from .engine import Engine
from .phases import Phase, ScenarioError, make_phase
from .render import render
from .speculation import EngineConfig, Totals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_SCENARIO_KEYS = ("name", "loop", "phases")


@dataclass(frozen=True)
class Scenario:
    """A script of at least one phase. It starts again with `loop`; otherwise the last phase continues."""

    name: str
    phases: tuple[Phase, ...]
    loop: bool = True


def parse_scenario(document: object, default_name: str) -> Scenario:
    """Return the scenario of a YAML document, or raise ScenarioError."""
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


def find_scenario(name: str) -> Scenario:
    """Return a built-in scenario; raises ScenarioError."""
    if name not in SCENARIOS:
        raise ScenarioError(f"unknown scenario {name!r}; the scenarios are {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


_MAX_FILE_BYTES = 1_000_000


def load_scenario(path: Path) -> Scenario:
    """Read a scenario from a YAML file, or raise ScenarioError."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
        if len(text) > _MAX_FILE_BYTES:
            raise ScenarioError(f"larger than {_MAX_FILE_BYTES} bytes")
        return parse_scenario(read_yaml(text), path.stem)
    except OSError as error:
        reason = error.strerror
    except YAMLTextError as error:
        reason = f"not valid YAML: {error}"
    except ScenarioError as error:
        reason = str(error)
    raise ScenarioError(f"{path}: {reason}")


def _built_in() -> dict[str, Scenario]:
    documents = read_yaml((files(__package__) / "data" / "scenarios.yaml").read_bytes())
    assert isinstance(documents, dict)
    return {name: parse_scenario(document, name) for name, document in documents.items()}


#: The built-in scenarios by name.
SCENARIOS: Mapping[str, Scenario] = MappingProxyType(_built_in())


# How often acceptance is updated in a phase in which it changes.
_RAMP_SECONDS = 0.5
_RESOLUTION = 1e-9


@dataclass(frozen=True)
class SimulationConfig:
    """What is simulated."""

    models: Sequence[str] = ("meta-llama/Llama-3.1-8B-Instruct",)  # served models; each has its own engines
    engines: int = 1  # engines per model
    num_speculative_tokens: int = 4  # K; 0 for a server without speculation
    scenario: Scenario = SCENARIOS["healthy"]  # the phases
    loop: bool | None = None  # whether the scenario starts again; None for the value of the scenario
    method: str = "eagle3"  # name of the speculation method; only reported
    engine: EngineConfig = field(default_factory=EngineConfig)  # properties of the engines
    start_time: float = 1_800_000_000.0  # Unix time at which the simulation starts, in seconds


class ServerDownError(RuntimeError):
    """The simulated server is down."""


class Simulation:
    """A simulated server. Its time passes only in `advance`."""

    def __init__(self, config: SimulationConfig | None = None, seed: int | None = None) -> None:
        self.config = config or SimulationConfig()
        self.elapsed = 0.0  # simulated seconds
        self.restarts = 0
        self._seed = Random().getrandbits(64) if seed is None else seed  # noqa: S311
        #: K of the running server, or None without speculation.
        self.num_speculative_tokens = self.config.num_speculative_tokens or None
        self._last_k = self.config.num_speculative_tokens
        self._down_until = 0.0
        self.unavailable = "refused"  # the response while the server is down: `refused` or `503`
        self._started_at = 0.0
        self._past = Totals()
        self._engines = self._start_engines()
        self._index = 0
        self._manual: Phase | None = None
        self._phase_began = 0.0
        first = self.phase
        if not first.kind.speculates or self.config.num_speculative_tokens == 0:
            self._configure(None)
        elif first.kind.restarts:
            # The server starts with the K of the phase, without a restart.
            self._configure(self._wanted_k(first))

    @property
    def phase(self) -> Phase:
        """The present phase."""
        return self._manual or self.config.scenario.phases[self._index]

    @property
    def phase_elapsed(self) -> float:
        """Simulated seconds since the present phase began."""
        return self.elapsed - self._phase_began

    @property
    def serving(self) -> bool:
        """Whether the server is up."""
        return self.elapsed >= self._down_until - _RESOLUTION

    @property
    def truth(self) -> Totals:
        """Exact totals over all engines since the simulation began, across restarts."""
        total = deepcopy(self._past)
        for engine in self._all_engines():
            total.add(engine.totals)
        return total

    def advance(self, seconds: float) -> None:
        """Simulate seconds."""
        if seconds < 0:
            raise ValueError("time does not run backwards")
        end = self.elapsed + seconds
        while end - self.elapsed > _RESOLUTION:
            step = end - self.elapsed
            if not self.serving:
                step = min(step, self._down_until - self.elapsed)
            phase = self.phase
            remaining = self._phase_remaining()
            if remaining is not None:
                step = min(step, remaining)
            if phase.kind.ramps:
                step = min(step, _RAMP_SECONDS)
            if self.serving:
                conditions = phase.conditions(self.phase_elapsed)
                for engine in self._all_engines():
                    engine.advance(step, conditions)
            self.elapsed += step
            if remaining is not None and remaining - step <= _RESOLUTION:
                if self._manual is None:
                    self._index = (self._index + 1) % len(self.config.scenario.phases)
                self._manual = None
                self._begin_phase()

    def set_phase(self, name: str, /, *, seconds: float | None = None, **parameters: object) -> None:
        """Begin a phase in place of the scenario's, for `seconds` or without end, or raise ScenarioError."""
        self._manual = make_phase(name, parameters, seconds)
        self._begin_phase()

    def render(self, dialect: str = "vllm") -> bytes:
        """Return the response to GET /metrics in a dialect of `DIALECTS`, or raise ServerDownError."""
        if not self.serving:
            raise ServerDownError("the simulated server is restarting")
        return render(self._engines, self.config.start_time + self._started_at, dialect)

    def _phase_remaining(self) -> float | None:
        """Return the seconds to the end of the phase; None if it has no end."""
        scenario = self.config.scenario
        loop = scenario.loop if self.config.loop is None else self.config.loop
        last = not loop and self._manual is None and self._index == len(scenario.phases) - 1
        if self.phase.seconds is None or last:
            return None
        return max(0.0, self.phase.seconds - self.phase_elapsed)

    def _begin_phase(self) -> None:
        """Begin a phase, with a restart of the server if the phase needs it."""
        self._phase_began = self.elapsed
        phase = self.phase
        wanted = self._wanted_k(phase)
        if phase.kind.restarts or wanted != self.num_speculative_tokens:
            self._restart(wanted, phase.parameters.get("downtime_seconds", 3.0))
            self.unavailable = phase.parameters.get("unavailable", "refused")

    def _wanted_k(self, phase: Phase) -> int | None:
        """Return the K of the server in a phase."""
        if not phase.kind.speculates or self.config.num_speculative_tokens == 0:
            return None
        k: int | None = phase.parameters.get("num_speculative_tokens")
        return self._last_k if k is None else k or self.config.num_speculative_tokens

    def _configure(self, num_speculative_tokens: int | None) -> None:
        self.num_speculative_tokens = num_speculative_tokens
        if num_speculative_tokens is not None:
            self._last_k = num_speculative_tokens
        self._engines = self._start_engines()

    def _restart(self, num_speculative_tokens: int | None, downtime: float) -> None:
        self._past = self.truth
        self.restarts += 1
        self._down_until = self._started_at = self.elapsed + downtime
        self._configure(num_speculative_tokens)

    def _start_engines(self) -> Mapping[str, list[Engine]]:
        # Each engine has its own random stream, independent of the others.
        return {
            model: [
                Engine(
                    self.config.engine,
                    self.num_speculative_tokens,
                    Random(f"{self._seed}/{self.restarts}/{model}/{index}"),  # noqa: S311
                )
                for index in range(self.config.engines)
            ]
            for model in self.config.models
        }

    def _all_engines(self) -> Iterator[Engine]:
        return chain.from_iterable(self._engines.values())
