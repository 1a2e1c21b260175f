"""The pipeline: from the state and the newest reading of an engine to its published
result.

For each engine of a response, `process_reading` does four steps: totals that only rise,
the state with the new sample, the judgement of what follows from the window
(`PolledEngine`), and the result.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from msgspec.structs import replace

from ..config.values import format_duration
from ..economics.calibration import correct_by_steps
from ..economics.cost import CostProfile
from ..economics.profiles import deployed, guess_method
from ..economics.speculative_config import Speculation
from ..engines import ENGINE_OF
from ..engines.reading import Drafting, EngineKey, EngineReading, Reading
from ..judgement.activity import (
    Activity,
    ActivityState,
    judge_activity,
    of_newest,
    with_schedule,
)
from ..judgement.advice import Advice
from ..judgement.case import Case
from ..judgement.judge import Judgement, judge
from ..judgement.payoff import contradicts
from ..judgement.state import state_code
from ..measures.history import Delta, Window
from ..measures.measures import (
    DraftShape,
    Measures,
    counted_shape,
    derive,
    derive_lifetime,
    draft_and_batch,
    observed_step,
)
from .result import Deployment, EngineResult, learned
from .state import (
    DEFAULT_WINDOWS,
    EngineState,
    Settings,
    sample_of,
    why_no_advice,
    why_unmeasured,
    with_rising_totals,
)

__all__ = [
    "DEFAULT_WINDOWS",
    "EngineState",
    "Settings",
    "Speculation",
    "interrupt",
    "process_reading",
]
_FULL = 0.9  # a window filled to this share counts as full
#: Seconds without an opposite after which the shortest window is judged again: of
#: traffic that changes every few minutes, it would show now a gain and now a loss.
_STEADY = 3600.0


@dataclass(frozen=True, slots=True)
class PolledServer:
    """A server at one poll."""

    reading: Reading  # its metrics
    version: str = ""  # from ``/version``, empty if not known
    #: Draft lengths by model, from records of single requests.
    shapes: Mapping[str, DraftShape] = field(default_factory=dict)


def process_reading(
    states: Mapping[EngineKey, EngineState],
    reading: Reading,
    time: float,
    settings: Settings,
    upstream_version: str = "",
    shapes: Mapping[str, DraftShape] | None = None,
) -> tuple[dict[EngineKey, EngineState], tuple[EngineResult, ...]]:
    """Return the states and results of every engine in `reading`, taken at `time`
    seconds.

    `shapes` has draft lengths by model, from records of single requests. The state of
    an engine that is no longer in the reading is dropped, so memory is bounded.
    """
    keep = settings.windows[-1].seconds + settings.slack
    server = PolledServer(reading, upstream_version, shapes or {})
    after: dict[EngineKey, EngineState] = {}
    results = []
    for as_read in reading.engines:
        earlier = states.get(as_read.key, EngineState()).of_process(reading.process)
        engine, earlier = with_rising_totals(as_read, earlier, time)
        baseline = settings.baseline
        if baseline:
            mismatch = baseline.why_not(engine.key.model_name, upstream_version)
        else:
            mismatch = ""
        baseline = None if mismatch else baseline
        state = earlier.add_sample(
            sample_of(engine, time), keep, engine.defects, baseline
        )
        polled = PolledEngine(engine, state, time, settings, server, mismatch)
        judgement, advice = judge(
            polled.case, state.current_advice, time, settings.judged.seconds
        )
        after[engine.key] = replace(
            state,
            current_advice=advice,
            opposite_at=time if polled.opposite else state.opposite_at,
            overruled=polled.overruled,
        )
        results.append(_result(polled, judgement))
    return after, tuple(results)


def interrupt(states: Mapping[EngineKey, EngineState]) -> dict[EngineKey, EngineState]:
    """Return the states after a failed poll: no window spans the interruption."""
    return {key: state.interrupt() for key, state in states.items()}


@dataclass(frozen=True)
class PolledEngine:
    """One engine at one poll, and what follows from its windows, each computed once."""

    engine: EngineReading
    state: EngineState  # with the sample of this reading
    time: float  # of the poll, in seconds
    settings: Settings
    server: PolledServer
    mismatch: str  # why the baseline does not fit its model, empty if it does

    @property
    def model_name(self) -> str:
        """The served name."""
        return self.engine.key.model_name

    @property
    def drafting(self) -> Drafting:
        """How it drafts now, as far as its gauges say."""
        return self.engine.drafting or Drafting()

    @cached_property
    def deltas(self) -> dict[Window, Delta]:
        """The increase within each window that holds two samples."""
        return self.state.deltas(self.settings, self.time)

    @property
    def judged_delta(self) -> Delta | None:
        """The increase within the judged window, ``None`` before it holds two samples."""
        return self.deltas.get(self.settings.judged)

    @cached_property
    def profile(self) -> CostProfile:
        """The cost of steps: of the method, at the measured context, corrected by what
        the engine shows.
        """
        settings = self.settings
        server = self.server
        delta = self.judged_delta
        seen = server.reading.dialect, server.version, self.drafting.method
        profile = deployed(settings.costs, settings.speculation, self.model_name, *seen)
        if delta is not None:
            profile = profile.at_context(delta.context_tokens)
            profile = profile.with_measured_draft(
                delta.draft_share, self.drafting.num_speculative_tokens
            )
        steps = self.state.steps
        load = draft_and_batch(delta)
        profile = correct_by_steps(profile, steps, *load, self.time, self.method)
        step = observed_step(delta)
        if step is None:
            return profile
        return profile.with_observed_step(step)

    @property
    def method(self) -> str:
        """How it drafts: as given, or as the drafter's name or a gauge says; empty if
        not known.
        """
        speculation = self.settings.speculation
        return (
            guess_method(speculation.method, speculation.draft_model)
            or self.drafting.method
        )

    @cached_property
    def k(self) -> int | None:
        """The present K: as a gauge says, or the number of positions, or as configured."""
        k = self.drafting.num_speculative_tokens
        if k is not None:
            return int(k)
        positions = len(self.engine.counters.accepted_tokens_per_position)
        return positions or self.settings.speculation.num_speculative_tokens

    @cached_property
    def windows(self) -> tuple[Measures, ...]:
        """The measures of each window, and of the whole life of a vLLM V0."""
        least = self.settings.thresholds.measurement_minimum_requests
        memory = self.settings.memory_ratio
        windows = tuple(
            derive(window.name, delta, self.profile, least, memory)
            for window, delta in self.deltas.items()
        )
        lifetime = self.engine.lifetime
        if lifetime is None:
            return windows
        whole_life = derive_lifetime(
            lifetime.lifetime_acceptance_ratio, lifetime.lifetime_efficiency, self.k
        )
        # V0 has no usable counter of drafts.
        return (*(replace(measures, drafts=None) for measures in windows), whole_life)

    @cached_property
    def opposite(self) -> bool:
        """Whether the shortest window shows the opposite of the judged one."""
        settings = self.settings
        newest = self._measures_of(settings.windows[0])
        judged = self._measures_of(settings.judged)
        return bool(
            newest
            and judged
            and contradicts(newest, judged, self.profile, settings.thresholds)
        )

    @cached_property
    def overruled(self) -> bool:
        """Whether the shortest window is judged: it shows the opposite, for the first
        time in an hour.
        """
        last = self.state.opposite_at
        return self.opposite and (
            self.state.overruled or last is None or self.time - last >= _STEADY
        )

    @cached_property
    def judged(self) -> Measures | None:
        """The measures of the judged window, or of the shortest one while it overrules
        that.
        """
        return self._measures_of(
            self.settings.windows[0] if self.overruled else self.settings.judged
        )

    def _measures_of(self, window: Window) -> Measures | None:
        return next(
            (measures for measures in self.windows if measures.window == window.name),
            None,
        )

    @cached_property
    def activity(self) -> Activity:
        """Whether it speculates: by its gauges if they decide it, else by its counters."""
        activity = _activity_by_gauges(self) or _activity_by_counters(self)
        return with_schedule(
            activity,
            self.settings.speculation,
            self.state.history.batch_sizes(self.since),
        )

    @property
    def since(self) -> float:
        """When the judged window began, in seconds."""
        return self.time - self.settings.judged.seconds - self.settings.slack

    @cached_property
    def case(self) -> Case:
        """All that the judgement looks at."""
        settings = self.settings
        server = self.server
        state = self.state
        judged = self.judged
        delta = self.judged_delta
        reading = server.reading
        speculation = settings.speculation
        model_name = self.model_name
        return Case(
            activity=self.activity,
            measures=judged,
            counters=self.engine.counters,
            k=self.k,
            method=self.method,
            profile=self.profile,
            thresholds=settings.thresholds,
            other_windows=tuple(m for m in self.windows if m is not judged),
            speculation=speculation,
            batch_sizes=state.history.batch_sizes(self.since),
            settled=delta is not None and delta.span >= _FULL * settings.judged.seconds,
            model_name=model_name,
            version=server.version,
            engine=ENGINE_OF[reading.dialect],
            unadvisable=why_no_advice(self.engine, state.derivation)
            if self.engine.derived
            else "",
            engines=reading.engines_beside(self.engine.key),
            shape=server.shapes.get(model_name) or counted_shape(delta),
            speculative=reading.speculative,
            defects=state.latest_defects,
            mismatch=self.mismatch,
            unmeasured=why_unmeasured(judged, settings)
            if judged and not self.mismatch
            else "",
            uptime=state.uptime,
            routed=reading.routed,
            overruled=self.overruled,
        )


def _result(polled: PolledEngine, judgement: Judgement) -> EngineResult:
    engine = polled.engine
    state = polled.state
    settings = polled.settings
    server = polled.server
    speculates = (
        server.reading.speculative and polled.activity.state is not ActivityState.OFF
    )
    scheduled_k = settings.speculation.scheduled_k(engine.load.requests_running)
    return EngineResult(
        model_name=engine.key.model_name,
        engine=engine.key.engine,
        deployment=Deployment(
            method=settings.speculation.method or polled.drafting.method,
            draft_model=settings.speculation.draft_model,
            dialect=server.reading.dialect,
            upstream_version=server.version,
            cost_profile=polled.profile.name,
        ),
        activity=judgement.activity,
        quality=judgement.quality,
        payoff=judgement.payoff,
        advice=judgement.advice,
        findings=judgement.findings,
        state_code=state_code(judgement.activity, judgement.payoff, scheduled_k).value,
        advised_speedup_ratio=_advised_speedup_ratio(judgement.advice, polled.k),
        judged_window=polled.judged.window if polled.judged else settings.judged.name,
        num_speculative_tokens=polled.k if speculates else None,
        scheduled_num_speculative_tokens=scheduled_k,
        counters=engine.counters,
        load=engine.load,
        drafts_reaching_position=state.reaching,
        accepted_tokens_per_draft=state.distribution,
        windows=polled.windows,
        steps=learned(state.steps, polled.time),
        uptime_decay_ratio=state.uptime.decay_ratio,
        engine_resets_total=state.history.resets,
        inconsistent_samples_total=state.inconsistent_samples,
        defects=state.latest_defects,
    )


def _advised_speedup_ratio(advice: Advice, k: int | None) -> float | None:
    """Return the estimated speedup with the advised K over that with the present one."""
    speedups: dict[int | None, float] = {
        each.num_speculative_tokens: each.speedup for each in advice.options
    }
    advised = speedups.get(advice.num_speculative_tokens)
    present = speedups.get(k)
    if not advised or not present:
        return None
    return advised / present


def _activity_by_gauges(polled: PolledEngine) -> Activity | None:
    """Return the activity that the gauges of an engine alone decide, ``None`` if its
    counters do.
    """
    engine = polled.engine
    settings = polled.settings
    paused_at = polled.state.derivation.paused_at
    if engine.drafting is not None and engine.drafting.verified_tokens == 0:
        return Activity(ActivityState.OFF, "the server says that it does not speculate")
    if engine.uncounted:
        return Activity(None, engine.uncounted)
    if (
        engine.derived
        and not engine.shows_speculation
        and not settings.speculation.configured
    ):
        return Activity(
            None,
            (
                "no batch has run so far, so the server does not show whether it "
                "speculates"
            ),
        )
    if paused_at is not None and polled.time - paused_at <= settings.judged.seconds:
        return Activity(
            ActivityState.BYPASSED,
            (
                f"the server chose to draft nothing in the last {settings.judged.name} "
                "(--speculative-adaptive)"
            ),
        )
    return None


def _activity_by_counters(polled: PolledEngine) -> Activity:
    """Return the activity of the judged window, with what the kind of server makes of
    it.
    """
    engine = polled.engine
    delta = polled.judged_delta
    settings = polled.settings
    if not polled.server.reading.speculative:
        words = "a diffusion model: its denoising steps are not speculative decoding"
        return Activity(ActivityState.OFF, words)
    # Without speculation a server prints none of its series, as the other stages of a
    # pipeline.
    if engine.counters.drafts is None:
        others = polled.server.reading.engines
    else:
        others = ()
    elsewhere = any(other.counters.drafts is not None for other in others)
    activity = judge_activity(
        configured=engine.shows_speculation
        or (settings.speculation.configured and not elsewhere),
        delta=delta,
        window=_period(settings.judged, delta),
        thresholds=settings.thresholds,
    )
    if delta:
        generated = delta.generation_tokens
    else:
        generated = engine.counters.generation_tokens
    if activity.state is ActivityState.BYPASSED and generated == _first_tokens(polled):
        words = "all requests ended with their first token, which needs no draft"
        activity = Activity(ActivityState.IDLE, words)
    running = engine.load.requests_running
    if (
        activity.state is ActivityState.IDLE
        and engine.counts_finished_requests
        and running
    ):
        words = "requests are running, and the server counts them when they end"
        return Activity(ActivityState.WARMING_UP, words)
    if (
        activity.state is ActivityState.BYPASSED
        and engine.counters.drafts
        and delta
        and delta.drafts is None
    ):
        return Activity(
            ActivityState.WARMING_UP,
            "an answer in the window lacked the count of drafts",
        )
    if activity.state in (ActivityState.OFF, ActivityState.IDLE) and generated is None:
        return Activity(
            None, "the server, which may be a router, does not count generated tokens"
        )
    if engine.lifetime is not None and activity.state is ActivityState.BYPASSED:
        words = (
            "vLLM V0 shows means over its whole life only, so what it does now is not "
            "known"
        )
        return Activity(None, words)
    shortest = settings.windows[0]
    return of_newest(
        activity,
        polled.deltas.get(shortest),
        shortest.name,
        running,
        settings.thresholds,
    )


def _first_tokens(polled: PolledEngine) -> float:
    """Return the first tokens of the requests in the judged window.

    They come from prefill, so they need no draft. The prefill node of a disaggregated
    pair has no others.
    """
    history = polled.state.history
    if history.newest is None:
        return 0.0
    first = history.since(polled.since)[0]
    return (history.newest.steps.requests or 0.0) - (first.steps.requests or 0.0)


def _period(window: Window, delta: Delta | None) -> str:
    """Return the period to name in a reason: the window, or its filled part."""
    if delta is None or delta.span >= _FULL * window.seconds:
        return window.name
    return format_duration(max(1, round(delta.span)))
