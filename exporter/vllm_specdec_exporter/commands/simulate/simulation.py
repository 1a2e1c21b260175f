"""Scenarios, and the simulated server that plays one: its engines and its restarts.

No clock.
"""

import json
import math
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from ...config.files import read_file
from .engine import Engine
from .phases import KChangeParameters, Phase, ScenarioError, make_phase, read_data
from .render import render
from .speculation import EngineConfig, Totals


class Scenario(Struct, frozen=True):
    """A script of at least one phase, which starts again at its end."""

    name: str
    phases: tuple[Phase, ...]


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    """A scenario in YAML: each phase has its name, its seconds, and its parameters."""

    phases: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    name: str = ""


def parse_scenario(document: object, default_name: str) -> Scenario:
    """Return the scenario of a YAML document, or raise ScenarioError."""
    try:
        script = msgspec.convert(document, _Document)
    except msgspec.ValidationError as error:
        raise ScenarioError(
            f"a scenario is a mapping with phases, a list: {error}"
        ) from error
    phases = []
    for number, entry in enumerate(script.phases, 1):
        parameters = dict(entry)
        try:
            name = parameters.pop("phase")
            # Without seconds a phase would have no end.
            seconds = parameters.pop("seconds") or 0
            phases.append(make_phase(name, parameters, seconds))
        except KeyError as error:
            raise ScenarioError(
                f"phase {number} must be a mapping with phase, seconds and parameters"
            ) from error
        except ScenarioError as error:
            raise ScenarioError(f"phase {number}: {error}") from None
    return Scenario(script.name or default_name, tuple(phases))


def load_scenario(path: Path) -> Scenario:
    """Read a scenario from a YAML file, or raise ConfigError."""
    flag = "--scenario.file"
    document = read_file(str(path), flag)
    try:
        return parse_scenario(document, path.stem)
    except ScenarioError as error:
        raise ScenarioError(f"{flag} {json.dumps(str(path))}: {error}") from error


#: The built-in scenarios by name.
SCENARIOS: Mapping[str, Scenario] = {
    name: parse_scenario(document, name)
    for name, document in read_data("scenarios.yaml").items()
}


# How often acceptance is updated, which changes within a phase.
_STEP_SECONDS = 0.5
_RESOLUTION = 1e-9


class SimulationConfig(Struct, frozen=True):
    """What is simulated."""

    model: str = "meta-llama/Llama-3.1-8B-Instruct"  # the served model
    engines: int = 1  # engines that serve it
    num_speculative_tokens: int = 4  # K; 0 for a server without speculation
    scenario: Scenario = SCENARIOS["healthy"]  # the phases
    #: Properties of the engines.
    engine: EngineConfig = field(default_factory=EngineConfig)
    #: Unix time at which the simulation starts, in seconds.
    start_time: float = 1_800_000_000.0


class ServerDownError(RuntimeError):
    """The simulated server is down."""


class Simulation:
    """A simulated server. Its time passes only in `advance`."""

    def __init__(
        self, config: SimulationConfig | None = None, seed: int | None = None
    ) -> None:
        self.config = config or SimulationConfig()
        self.elapsed = 0.0  # simulated seconds
        self.restarts = 0
        self._seed = Random().getrandbits(64) if seed is None else seed  # noqa: S311
        #: K of the running server, or None without speculation.
        self.num_speculative_tokens: int | None = None
        self._last_k = self.config.num_speculative_tokens
        self._down_until = 0.0
        self._started_at = 0.0
        self._past = Totals()
        self._index = 0
        self._manual: Phase | None = None
        self._phase_began = 0.0
        # with the K of the first phase, without a restart
        self._start_engines(self._k_in(self.phase))

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
        # `add` would change the totals of the past.
        total = deepcopy(self._past)
        for engine in self._engines:
            total.add(engine.totals)
        return total

    def advance(self, seconds: float) -> None:
        """Simulate seconds."""
        end = self.elapsed + seconds
        while end - self.elapsed > _RESOLUTION:
            phase = self.phase
            remaining = math.inf
            if phase.seconds is not None:
                remaining = max(0.0, phase.seconds - self.phase_elapsed)
            step = min(end - self.elapsed, remaining, _STEP_SECONDS)
            if self.serving:
                conditions = phase.conditions(self.phase_elapsed)
                for engine in self._engines:
                    engine.advance(step, conditions)
            else:
                step = min(step, self._down_until - self.elapsed)
            self.elapsed += step
            if remaining - step <= _RESOLUTION:
                if self._manual is None:
                    self._index = (self._index + 1) % len(self.config.scenario.phases)
                self._manual = None
                self._begin_phase()

    def set_phase(
        self, name: str, /, *, seconds: float | None = None, **parameters: object
    ) -> None:
        """Begin a phase in place of the scenario's, for `seconds` or without end, or
        raise ScenarioError.
        """
        self._manual = make_phase(name, parameters, seconds)
        self._begin_phase()

    def render(self, dialect: str = "vllm") -> bytes:
        """Return the response to GET /metrics in a dialect of `DIALECTS`, or raise
        ServerDownError.
        """
        if not self.serving:
            raise ServerDownError("the simulated server is restarting")
        return render(
            self.config.model,
            self._engines,
            self.config.start_time + self._started_at,
            dialect,
        )

    def _begin_phase(self) -> None:
        self._phase_began = self.elapsed
        phase = self.phase
        k = self._k_in(phase)
        if phase.kind.restarts or k != self.num_speculative_tokens:
            self._past = self.truth
            self.restarts += 1
            self._down_until = self._started_at = self.elapsed + phase.downtime_seconds
            self._start_engines(k)

    def _k_in(self, phase: Phase) -> int | None:
        initial_k = self.config.num_speculative_tokens
        if not phase.kind.speculates or initial_k == 0:
            return None
        if isinstance(phase.parameters, KChangeParameters):
            return phase.parameters.num_speculative_tokens or initial_k
        return self._last_k

    def _start_engines(self, k: int | None) -> None:
        self.num_speculative_tokens = k
        if k is not None:
            self._last_k = k
        self._engines = []
        for index in range(self.config.engines):
            # A random stream of its own: the number of engines changes none of them.
            rng = Random(f"{self._seed}/{self.restarts}/{index}")  # noqa: S311
            self._engines.append(Engine(self.config.engine, k, rng))
