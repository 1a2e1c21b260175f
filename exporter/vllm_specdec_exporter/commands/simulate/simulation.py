"""A simulated server: its engines, its scenario and its restarts. Pure: no clock, no I/O."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain
from random import Random
from typing import TYPE_CHECKING

from .engine import Engine
from .render import EngineView, ServerView, render
from .scenario import SCENARIOS, Phase, Scenario, make_phase
from .speculation import DraftTotals, EngineConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# Acceptance that changes over a phase is brought up to date this often.
_RAMP_SECONDS = 0.5
_RESOLUTION = 1e-9
# Loading a model takes longer than anything before it: the process starts this long before
# the server counts.
_PROCESS_LEAD_SECONDS = 2.0


@dataclass(frozen=True)
class SimulationConfig:
    """What is simulated.

    Attributes:
        models: Served models; each has its own engines.
        engines: Engines per model.
        num_speculative_tokens: K; 0 for a server without speculation.
        scenario: What happens.
        loop: Whether the scenario starts again; None as the scenario says.
        method: Name of the speculation method; it changes nothing.
        engine: Properties of the engines.
        start_time: Unix time at which the simulation starts, in seconds.
    """

    models: Sequence[str] = ("meta-llama/Llama-3.1-8B-Instruct",)
    engines: int = 1
    num_speculative_tokens: int = 4
    scenario: Scenario = SCENARIOS["healthy"]
    loop: bool | None = None
    method: str = "eagle3"
    engine: EngineConfig = field(default_factory=EngineConfig)
    start_time: float = 1_800_000_000.0


class ServerDownError(RuntimeError):
    """The simulated server does not answer at present."""


class Simulation:
    """A simulated server that moves only when told to.

    Example:
        >>> simulation = Simulation(SimulationConfig(), seed=1)
        >>> simulation.advance(60)
        >>> text = simulation.render("vllm")
    """

    def __init__(self, config: SimulationConfig | None = None, seed: int | None = None) -> None:
        self.config = config or SimulationConfig()
        self.elapsed = 0.0
        self.restarts = 0
        self._seed = Random().getrandbits(64) if seed is None else seed  # noqa: S311
        self._num_speculative_tokens = self.config.num_speculative_tokens or None
        self._last_k = self.config.num_speculative_tokens
        self._down_until = 0.0
        self._unavailable = "refused"
        self._started_at = 0.0
        self._ledger = Ledger()
        self._engines = self._start_engines()
        self._index = 0
        self._manual: Phase | None = None
        self._phase_began = 0.0
        first = self.phase
        if not first.kind.speculates or self.config.num_speculative_tokens == 0:
            self._configure(None)
        elif first.kind.restarts:
            # A server that has just started has nothing to restart from.
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
        """Whether the server answers."""
        return self.elapsed >= self._down_until - _RESOLUTION

    @property
    def unavailable(self) -> str:
        """How a server that does not answer shows it: `refused` or `503`."""
        return self._unavailable

    @property
    def num_speculative_tokens(self) -> int | None:
        """K of the running server, or None without speculation."""
        return self._num_speculative_tokens

    @property
    def truth(self) -> Truth:
        """Exact totals over all engines since the simulation began, across restarts."""
        return self._ledger.truth(self._all_engines())

    def advance(self, seconds: float) -> None:
        """Let simulated time pass."""
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
            self._advance_engines(step)
            self.elapsed += step
            if remaining is not None and remaining - step <= _RESOLUTION:
                self._next_phase()

    def set_phase(
        self,
        name: str,
        seconds: float | None = None,
        parameters: Mapping[str, object] | None = None,
        **more: object,
    ) -> None:
        """Leave the scenario's present phase for another one.

        Args:
            name: A name from `PHASES`.
            seconds: After this long the scenario goes on, at the beginning of the phase that was
                left; None stays for good.
            parameters: Parameters of the phase.
            more: Further parameters of the phase.

        Raises:
            ScenarioError: The phase or a parameter is not allowed.
        """
        self._manual = make_phase(name, {**(parameters or {}), **more}, seconds)
        self._begin_phase()

    def render(self, dialect: str = "vllm") -> bytes:
        """Return the answer to GET /metrics in a dialect, a name from `DIALECTS`.

        Raises:
            ServerDownError: The server does not answer at present.
        """
        if not self.serving:
            raise ServerDownError("the simulated server is restarting")
        return render(self._view(), dialect)

    def _phase_remaining(self) -> float | None:
        """Return the seconds to the end of the phase; None if it has no end."""
        if self.phase.seconds is None or (self._manual is None and self._at_last_end()):
            return None
        return max(0.0, self.phase.seconds - self.phase_elapsed)

    def _at_last_end(self) -> bool:
        """Whether the present phase of the scenario is its last and goes on without end."""
        scenario = self.config.scenario
        loop = scenario.loop if self.config.loop is None else self.config.loop
        return not loop and self._index == len(scenario.phases) - 1

    def _next_phase(self) -> None:
        if self._manual is None:
            self._index = (self._index + 1) % len(self.config.scenario.phases)
        self._manual = None
        self._begin_phase()

    def _begin_phase(self) -> None:
        """Start a phase, and the server anew where the phase needs it."""
        self._phase_began = self.elapsed
        phase = self.phase
        wanted = self._wanted_k(phase)
        if phase.kind.restarts or wanted != self._num_speculative_tokens:
            downtime = phase.parameters.optional_number("downtime_seconds")
            self._restart(wanted, 3.0 if downtime is None else downtime)
            if "unavailable" in phase.parameters.values:
                self._unavailable = phase.parameters.text("unavailable")

    def _wanted_k(self, phase: Phase) -> int | None:
        """Return the K that a phase wants the server to run with."""
        if not phase.kind.speculates or self.config.num_speculative_tokens == 0:
            return None
        asked = phase.parameters.optional_number("num_speculative_tokens")
        return self._last_k if asked is None else int(asked) or self.config.num_speculative_tokens

    def _configure(self, num_speculative_tokens: int | None) -> None:
        self._num_speculative_tokens = num_speculative_tokens
        if num_speculative_tokens is not None:
            self._last_k = num_speculative_tokens
        self._engines = self._start_engines()

    def _restart(self, num_speculative_tokens: int | None, downtime: float) -> None:
        self._ledger.add(self._all_engines())
        self.restarts += 1
        self._unavailable = "refused"
        self._down_until = self._started_at = self.elapsed + downtime
        self._configure(num_speculative_tokens)

    def _start_engines(self) -> Mapping[str, list[Engine]]:
        # Every engine draws from its own stream, so that none disturbs another.
        return {
            model: [
                Engine(
                    self.config.engine,
                    self._num_speculative_tokens,
                    Random(f"{self._seed}/{self.restarts}/{model}/{index}"),  # noqa: S311
                )
                for index in range(self.config.engines)
            ]
            for model in self.config.models
        }

    def _advance_engines(self, seconds: float) -> None:
        if not self.serving:
            return
        phase = self.phase
        conditions = phase.kind.conditions(phase.parameters, self.phase_elapsed, phase.seconds)
        for engine in self._all_engines():
            engine.advance(seconds, conditions)

    def _all_engines(self) -> Iterator[Engine]:
        return chain.from_iterable(self._engines.values())

    def _view(self) -> ServerView:
        config = self.config
        started_at = config.start_time + self._started_at
        return ServerView(
            engines=tuple(
                EngineView(model, index, engine.measurements)
                for model, engines in self._engines.items()
                for index, engine in enumerate(engines)
            ),
            num_speculative_tokens=self._num_speculative_tokens,
            started_at=started_at,
            process_started_at=started_at - _PROCESS_LEAD_SECONDS,
            cpu_seconds=sum(engine.busy_seconds for engine in self._all_engines()),
            engine_config=config.engine,
        )


@dataclass(frozen=True)
class Truth:
    """Exact totals, kept apart from what is published.

    Attributes:
        drafts: Drafts verified.
        draft_tokens: Tokens in them.
        accepted_tokens: Tokens accepted, bonus tokens not counted.
        accepted_per_position: Drafts in which the token at this position was accepted.
        accepted_per_draft: Drafts of which exactly 0, 1, 2, ... tokens were accepted.
        generation_tokens: Tokens generated, with and without drafts.
        finished_requests: Requests answered.
    """

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_per_position: tuple[int, ...]
    accepted_per_draft: tuple[int, ...]
    generation_tokens: int
    finished_requests: int


@dataclass
class Ledger:
    """Totals of engines that are gone, to which those of others can be added."""

    drafts: DraftTotals = field(default_factory=DraftTotals)
    generation_tokens: int = 0
    finished_requests: int = 0

    def add(self, engines: Iterable[Engine]) -> Ledger:
        """Add the totals of engines; return the ledger."""
        for engine in engines:
            self.drafts.add(engine.totals)
            self.generation_tokens += int(engine.measurements.get("generation_tokens"))
            self.finished_requests += engine.finished_requests
        return self

    def truth(self, engines: Iterable[Engine] = ()) -> Truth:
        """Return the totals of the ledger and of further engines, leaving the ledger as it is."""
        total = deepcopy(self).add(engines)
        return Truth(
            drafts=total.drafts.drafts,
            draft_tokens=total.drafts.draft_tokens,
            accepted_tokens=total.drafts.accepted_tokens,
            accepted_per_position=tuple(total.drafts.accepted_per_position),
            accepted_per_draft=tuple(total.drafts.accepted_per_draft),
            generation_tokens=total.generation_tokens,
            finished_requests=total.finished_requests,
        )
