"""The pipeline: from one answer of a server to the published result of each of its engines.

One straight walk, with nothing but values going through it::

    bytes -> dialects.read -> Reading -> history -> window.look_back -> Delta
          -> measures.derive -> Measures -> judgement.* -> EngineResult

Pure: the state goes in and comes out, and the time comes with the reading. The poller holds the state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .consistency import defects
from .distribution import Distribution, recover
from .duration import format_duration
from .history import History, Sample
from .judgement.activity import Activity, ActivityState, judge_activity
from .judgement.findings import find
from .judgement.quality import Quality, judge_quality
from .measures import derive, derive_lifetime
from .result import Deployment, EngineResult
from .thresholds import Thresholds
from .window import Delta, Window, look_back

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .reading import EngineKey, EngineReading, Reading

#: A window that holds this share of its length is called by its name.
_FULL = 0.9

DEFAULT_WINDOWS = (Window(30.0), Window(300.0))


@dataclass(frozen=True, slots=True)
class Speculation:
    """What the operator says of the server's ``--speculative-config``.

    Attributes:
        configured: whether the server was given one.
        method: how drafts are made, such as ``eagle3`` or ``ngram``.
        draft_model: the model that makes them.
        num_speculative_tokens: K.
    """

    configured: bool = False
    method: str = ""
    draft_model: str = ""
    num_speculative_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What the pipeline needs to know.

    Attributes:
        windows: the windows to publish, from the shortest to the longest.
        judged: the one of them that activity and quality look at.
        slack: seconds by which a window's oldest sample may be too old: half a poll interval.
        thresholds: the numbers that judge.
        speculation: what the operator says of the server.
    """

    windows: tuple[Window, ...] = DEFAULT_WINDOWS
    judged: Window = DEFAULT_WINDOWS[-1]
    slack: float = 2.5
    thresholds: Thresholds = Thresholds()
    speculation: Speculation = Speculation()


@dataclass(frozen=True, slots=True)
class EngineState:
    """What is remembered of one engine between polls: at most the samples of the longest window."""

    history: History = History()
    inconsistent_samples: int = 0
    distribution: Distribution | None = None
    latest_defects: tuple[str, ...] = ()

    def observe(self, sample: Sample, keep: float, found: tuple[str, ...]) -> EngineState:
        """Return the state after `sample`, whose reading already showed the defects `found`."""
        history = self.history.observe(sample, keep)
        before = self.history.newest
        lives_on = before is not None and history.resets == self.history.resets
        if before is not None and sample.time <= before.time:
            found = (*found, "the clock did not advance since the sample before")
        if lives_on and before is not None and not self.history.interrupted:
            found = (*found, *defects(before, sample))
        recovered = recover(sample.counters, self.distribution if lives_on else None)
        return EngineState(
            history=history,
            inconsistent_samples=self.inconsistent_samples + bool(found),
            distribution=recovered or (self.distribution if lives_on else None),
            latest_defects=found,
        )


def observe(
    states: Mapping[EngineKey, EngineState],
    reading: Reading,
    time: float,
    settings: Settings,
    upstream_version: str = "",
) -> tuple[dict[EngineKey, EngineState], tuple[EngineResult, ...]]:
    """Return the states and results of every engine in `reading`, taken at `time` seconds.

    An engine that the server no longer shows is forgotten, so label values that come and go cost nothing.
    """
    keep = settings.windows[-1].seconds + settings.slack
    deployment = Deployment(
        method=settings.speculation.method,
        draft_model=settings.speculation.draft_model,
        dialect=reading.dialect,
        upstream_version=upstream_version,
    )
    after: dict[EngineKey, EngineState] = {}
    results = []
    for engine in reading.engines:
        before = states.get(engine.key, EngineState())
        after[engine.key] = before.observe(Sample(time, engine.counters), keep, engine.defects)
        results.append(
            _assess(engine, after[engine.key], settings, deployment, speculative=reading.speculative)
        )
    return after, tuple(results)


def interrupt(states: Mapping[EngineKey, EngineState]) -> dict[EngineKey, EngineState]:
    """Return the states of a server that was gone: no window will reach across that."""
    return {key: replace(state, history=state.history.interrupt()) for key, state in states.items()}


def _assess(
    engine: EngineReading,
    state: EngineState,
    settings: Settings,
    deployment: Deployment,
    *,
    speculative: bool,
) -> EngineResult:
    deltas = [look_back(state.history, window, settings.slack) for window in settings.windows]
    windows = [
        derive(window.name, delta)
        for window, delta in zip(settings.windows, deltas, strict=True)
        if delta is not None
    ]
    positions = len(engine.counters.accepted_tokens_per_position)
    k = positions or settings.speculation.num_speculative_tokens
    if engine.lifetime is not None:
        lifetime = engine.lifetime
        windows = [replace(measures, drafts=None) for measures in windows]  # V0 does not say
        windows.append(derive_lifetime(lifetime.lifetime_acceptance_ratio, lifetime.lifetime_efficiency, k))
    activity = _activity(
        engine, deltas[settings.windows.index(settings.judged)], settings, speculative=speculative
    )
    judged = next((m for m in windows if m.window == settings.judged.name), None)
    quality = Quality()
    if activity.state is ActivityState.ACTIVE and judged is not None:
        others = [m for m in windows if m is not judged]
        quality = judge_quality(judged, others, settings.thresholds)
    found = state.latest_defects
    return EngineResult(
        model_name=engine.key.model_name,
        engine=engine.key.engine,
        deployment=deployment,
        activity=activity,
        quality=quality,
        findings=find(
            activity,
            quality,
            judged,
            speculative=speculative,
            positions=positions,
            configured_k=settings.speculation.num_speculative_tokens,
            defects=found,
        ),
        judged_window=settings.judged.name,
        num_speculative_tokens=k if speculative and activity.state is not ActivityState.OFF else None,
        counters=engine.counters,
        load=engine.load,
        accepted_tokens_per_draft=state.distribution,
        windows=tuple(windows),
        engine_resets_total=state.history.resets,
        inconsistent_samples_total=state.inconsistent_samples,
        defects=found,
    )


def _activity(
    engine: EngineReading, delta: Delta | None, settings: Settings, *, speculative: bool
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
    """Return the time that a reason speaks of: the window, or what it holds so far."""
    if delta is None or delta.span >= _FULL * window.seconds:
        return window.name
    return format_duration(max(1, round(delta.span)))
