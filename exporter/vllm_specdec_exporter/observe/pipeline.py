"""The pipeline: from the state and the newest reading of an engine to its published result."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..config.values import format_duration
from ..economics.calibration import correct_by_steps
from ..economics.profiles import deployed, guess_method
from ..economics.speculative_config import Speculation
from ..economics.speedup import Return, of_drafts, return_on_speculation
from ..engines.reading import Drafting
from ..judgement.activity import Activity, ActivityState, judge_activity
from ..judgement.case import Case
from ..judgement.judge import judge
from ..measures.history import Delta, Sample, Window, window_delta
from ..measures.measures import DraftShape, Measures, derive, derive_lifetime
from .result import Deployment, EngineResult, LearnedSteps
from .state import DEFAULT_WINDOWS, EngineState, Settings, settle, why_no_advice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..economics.cost import CostProfile
    from ..economics.step_time import EngineSteps
    from ..engines.reading import EngineKey, EngineReading, Reading
    from .state import Derivation

__all__ = ["DEFAULT_WINDOWS", "EngineState", "Settings", "Speculation", "interrupt", "process_reading"]
_FULL = 0.9  # a window filled to this share counts as full


@dataclass(frozen=True, slots=True)
class PolledServer:
    """A server at one poll."""

    reading: Reading  # its metrics
    version: str = ""  # from ``/version``, empty if not known
    #: Draft lengths by model, from records of single requests.
    shapes: Mapping[str, DraftShape] = field(default_factory=dict)

    def mismatch(self, model_name: str, settings: Settings) -> str:
        """Return why the baseline does not fit this model, empty if it does."""
        baseline = settings.baseline
        return baseline.why_not(model_name, self.version) if baseline else ""


def process_reading(
    states: Mapping[EngineKey, EngineState],
    reading: Reading,
    time: float,
    settings: Settings,
    upstream_version: str = "",
    shapes: Mapping[str, DraftShape] | None = None,
) -> tuple[dict[EngineKey, EngineState], tuple[EngineResult, ...]]:
    """Return the states and results of every engine in `reading`, taken at `time` seconds.

    `shapes` has draft lengths by model, from records of single requests. The state of an engine that is no
    longer in the reading is dropped, so memory is bounded.
    """
    keep = settings.windows[-1].seconds + settings.slack
    server = PolledServer(reading, upstream_version, shapes or {})
    after: dict[EngineKey, EngineState] = {}
    results = []
    for read in reading.engines:
        engine, key = read, read.key
        state = states.get(key, EngineState()).of_life(reading.life)
        if engine.derived:
            newest = state.history.newest
            engine, derivation = settle(engine, state.derivation, newest.counters if newest else None, time)
            state = replace(state, derivation=derivation)
        baseline = None if server.mismatch(key.model_name, settings) else settings.baseline
        sample = Sample(
            time,
            engine.counters,
            engine.load.requests_running,
            latencies=engine.latencies,
            steps=engine.steps,
            kv_cache=engine.load.kv_cache_usage_ratio,
        )
        state = state.add_sample(sample, keep, engine.defects, baseline)
        after[key], result = assess(engine, state, time, settings, server)
        results.append(result)
    return after, tuple(results)


def interrupt(states: Mapping[EngineKey, EngineState]) -> dict[EngineKey, EngineState]:
    """Return the states after a failed poll: no window spans the interruption."""
    return {key: state.interrupt() for key, state in states.items()}


def assess(
    engine: EngineReading, state: EngineState, time: float, settings: Settings, server: PolledServer
) -> tuple[EngineState, EngineResult]:
    """Return the state with the advice in force, and the result; `state` includes the reading at `time`."""
    spec, reading = settings.speculation, server.reading
    deltas = [window_delta(state.history, window, settings.slack) for window in settings.windows]
    judged_delta = deltas[settings.windows.index(settings.judged)]
    drafting = engine.drafting or Drafting()
    profile = deployed(
        settings.costs, spec, engine.key.model_name, reading.dialect, server.version, drafting.method
    )
    if judged_delta is not None:
        profile = profile.at_context(judged_delta.context_tokens)
        profile = profile.with_measured_draft(judged_delta.draft_share, drafting.num_speculative_tokens)
    profile = correct_by_steps(profile, state.steps, *_drafting(judged_delta), time)
    windows = [
        _measures(window, delta, profile, settings)
        for window, delta in zip(settings.windows, deltas, strict=True)
        if delta is not None
    ]
    k = len(engine.counters.accepted_tokens_per_position) or spec.num_speculative_tokens
    if drafting.num_speculative_tokens is not None:
        k = int(drafting.num_speculative_tokens)
    if engine.lifetime is not None:
        lifetime = engine.lifetime
        windows = [replace(measures, drafts=None) for measures in windows]  # V0 does not say
        windows.append(derive_lifetime(lifetime.lifetime_acceptance_ratio, lifetime.lifetime_efficiency, k))
    judged = next((m for m in windows if m.window == settings.judged.name), None)
    mismatch = server.mismatch(engine.key.model_name, settings)
    case = Case(
        activity=_undrafted(engine, state.derivation, time, settings)
        or _activity(
            engine,
            judged_delta,
            settings,
            speculative=reading.speculative,
            first_tokens=_first_tokens(engine, state, settings),
        ),
        measures=judged,
        counters=engine.counters,
        k=k,
        method=guess_method(spec.method, spec.draft_model) or drafting.method,
        profile=profile,
        thresholds=settings.thresholds,
        other_windows=tuple(m for m in windows if m is not judged),
        speculation=spec,
        batch_sizes=state.history.batch_sizes(time - settings.judged.seconds - settings.slack),
        settled=judged is not None and (judged.span_seconds or 0.0) >= _FULL * settings.judged.seconds,
        model_name=engine.key.model_name,
        version=server.version,
        server=reading.server,
        vllm=reading.vllm,
        unadvisable=why_no_advice(engine, state.derivation) if engine.derived else "",
        engines=sum(other.key.model_name == engine.key.model_name for other in reading.engines),
        shape=server.shapes.get(engine.key.model_name) or _counted_shape(judged_delta),
        speculative=reading.speculative,
        defects=state.latest_defects,
        mismatch=mismatch,
        unmeasured=_why_unmeasured(judged, settings) if judged and not mismatch else "",
        uptime=state.uptime,
    )
    judgement, advice = judge(case, state.current_advice, time, settings.judged.seconds)
    return replace(state, current_advice=advice), EngineResult(
        model_name=engine.key.model_name,
        engine=engine.key.engine,
        deployment=Deployment(
            method=spec.method or drafting.method,
            draft_model=spec.draft_model,
            dialect=reading.dialect,
            upstream_version=server.version,
            cost_profile=profile.name,
        ),
        activity=judgement.activity,
        quality=judgement.quality,
        payoff=judgement.payoff,
        advice=judgement.advice,
        findings=judgement.findings,
        judged_window=settings.judged.name,
        num_speculative_tokens=k
        if reading.speculative and case.activity.state is not ActivityState.OFF
        else None,
        scheduled_num_speculative_tokens=spec.scheduled_k(engine.load.requests_running),
        counters=engine.counters,
        load=engine.load,
        drafts_reaching_position=state.reaching,
        accepted_tokens_per_draft=state.distribution,
        windows=tuple(windows),
        steps=_learned(state.steps, time),
        uptime_decay_ratio=state.uptime.decay_ratio,
        engine_resets_total=state.history.resets,
        inconsistent_samples_total=state.inconsistent_samples,
        defects=state.latest_defects,
    )


def _learned(steps: EngineSteps, time: float) -> LearnedSteps:
    """Return the line that is in use: of steps with drafts, else of steps without."""
    times = steps.plain if steps.plain.bins and not steps.drafting.bins else steps.drafting
    fit = times.fit(time)
    if isinstance(fit, str):
        return LearnedSteps(times.k, refused=fit if times.bins or times.refused else "")
    return LearnedSteps(times.k, fit)


def _drafting(delta: Delta | None) -> tuple[float | None, float | None]:
    """Return the tokens per draft and the batch size of the judged window."""
    if delta is None or not delta.drafts or delta.draft_tokens is None:
        return None, None
    return delta.draft_tokens / delta.drafts, delta.batch_size


def _measures(window: Window, delta: Delta, profile: CostProfile, settings: Settings) -> Measures:
    """Return everything derived from a window, its speedup included."""
    measures = derive(window.name, delta, profile, settings.thresholds.measurement_minimum_requests)
    if settings.memory_ratio is None:
        return measures
    return replace(measures, returns=_returns(measures, settings.memory_ratio))


def _why_unmeasured(measures: Measures, settings: Settings) -> str:
    """Return why a window has no measured speedup although there is a baseline; empty without a baseline."""
    if settings.baseline is None or measures.measured.speedup is not None:
        return ""
    nothing = settings.baseline.why_nothing(measures.batch_size) if measures.batch_size else ""
    least = settings.thresholds.measurement_minimum_requests
    return nothing or f"fewer than {least:,.0f} requests finished at a load that the baseline has"


def _returns(measures: Measures, memory_ratio: float) -> Return:
    """Return the return on speculation; a measured speedup takes precedence over the estimate."""
    whole = measures.measured.speedup
    speedup = (of_drafts(whole, measures.coverage_ratio) if whole else None) or measures.estimate.speedup
    length, generated = measures.mean_acceptance_length, measures.generation_tokens_per_second
    if not speedup or length is None or generated is None:
        return Return()
    rate = measures.measured.baseline_tokens_per_second or generated / speedup
    return return_on_speculation(length, length / speedup, memory_ratio, rate)


def _counted_shape(delta: Delta | None) -> DraftShape | None:
    """Return the draft lengths by K of a server that counts drafted tokens by position."""
    drafted = delta.drafted_tokens_per_position if delta else ()
    if not drafted or not drafted[0]:
        return None
    return DraftShape(int(drafted[0]), tuple(total / drafted[0] for total in accumulate(drafted)))


def _undrafted(engine: EngineReading, seen: Derivation, time: float, settings: Settings) -> Activity | None:
    """Return the activity that the gauges of an engine alone decide, ``None`` if its counters do."""
    drafting = engine.drafting
    if drafting is not None and drafting.verified_tokens == 0:
        return Activity(ActivityState.OFF, "the server says that it does not speculate")
    if engine.uncounted:
        return Activity(None, engine.uncounted)
    if engine.derived and not engine.shows_speculation and not settings.speculation.configured:
        return Activity(None, "no batch has run so far, so the server does not show whether it speculates")
    if seen.paused_at is not None and time - seen.paused_at <= settings.judged.seconds:
        return Activity(
            ActivityState.BYPASSED,
            f"the server chose to draft nothing in the last {settings.judged.name} (--speculative-adaptive)",
        )
    return None


def _first_tokens(engine: EngineReading, state: EngineState, settings: Settings) -> float:
    """Return the first tokens of the requests in the judged window, if an engine counts them with the others.

    They come from prefill, so they need no draft. Of other engines they are too few to matter.
    """
    newest = state.history.newest
    if not engine.derived or newest is None:
        return 0.0
    first = state.history.since(newest.time - settings.judged.seconds - settings.slack)[0]
    return (newest.steps.requests or 0.0) - (first.steps.requests or 0.0)


def _activity(
    engine: EngineReading,
    delta: Delta | None,
    settings: Settings,
    *,
    speculative: bool,
    first_tokens: float = 0.0,
) -> Activity:
    if not speculative:
        return Activity(
            ActivityState.OFF, "a diffusion model: its denoising steps are not speculative decoding"
        )
    activity = judge_activity(
        configured=settings.speculation.configured or engine.shows_speculation,
        delta=delta,
        window=_period(settings.judged, delta),
        thresholds=settings.thresholds,
    )
    if activity.state is ActivityState.BYPASSED and delta and delta.generation_tokens == first_tokens:
        words = "all requests ended with their first token, which needs no draft"
        activity = Activity(ActivityState.IDLE, words)
    if (
        activity.state is ActivityState.IDLE
        and engine.counts_finished_requests
        and engine.load.requests_running
    ):
        return Activity(
            ActivityState.WARMING_UP, "requests are running, and the server counts them when they end"
        )
    if activity.state is ActivityState.BYPASSED and engine.counters.drafts and delta and delta.drafts is None:
        return Activity(ActivityState.WARMING_UP, "an answer in the window lacked the count of drafts")
    if engine.lifetime is not None and activity.state is ActivityState.BYPASSED:
        return Activity(
            None, "vLLM V0 shows means over its whole life only, so what it does now is not known"
        )
    return activity


def _period(window: Window, delta: Delta | None) -> str:
    """Return the period to name in a reason: the window, or its filled part."""
    if delta is None or delta.span >= _FULL * window.seconds:
        return window.name
    return format_duration(max(1, round(delta.span)))
