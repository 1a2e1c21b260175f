"""The activity of a polled engine: by its gauges if they decide it, else by the
counters of its windows, with what the kind of server makes of them.
"""

from collections.abc import Mapping

from ..config.values import format_duration
from ..engines.reading import EngineReading, Reading
from ..judgement.activity import (
    ANSWERED_SHARE,
    Activity,
    ActivityState,
    judge_activity,
    of_shortest_window,
)
from ..judgement.messages import message
from ..measures.history import Delta, Window
from .settings import Settings

#: A window filled to this share counts as full: a poll that was late, or lost, leaves
#: a little of it out.
FULL = 0.9


def activity_by_gauges(
    engine: EngineReading, settings: Settings, *, paused: bool
) -> Activity | None:
    """Return the activity that the gauges of an engine alone decide, ``None`` if its
    counters do; `paused` is whether it was seen to draft nothing in the judged window.
    """
    if engine.drafting is not None and engine.drafting.verified_tokens == 0:
        return Activity(ActivityState.OFF, message("activity.says_off"))
    if engine.uncounted:
        return Activity(None, engine.uncounted)
    configured = engine.shows_speculation or settings.speculation.configured
    if engine.derived and not configured:
        return Activity(None, message("activity.not_shown_yet"))
    if paused:
        window = settings.judged.name
        return Activity(
            ActivityState.BYPASSED, message("activity.paused", window=window)
        )
    return None


def activity_by_counters(
    engine: EngineReading,
    reading: Reading,
    settings: Settings,
    deltas: Mapping[Window, Delta],
    *,
    busy: bool,
) -> Activity:
    """Return the activity of the judged window; `busy` is whether requests ran all
    through it.
    """
    if not reading.speculative:
        return Activity(ActivityState.OFF, message("activity.diffusion"))
    delta = deltas.get(settings.judged)
    generated = engine.counters.generation_tokens
    if delta:
        generated = delta.generation_tokens
    running = engine.load.requests_running
    judged = judge_activity(
        configured=_configured(engine, reading, settings),
        delta=delta,
        window=_period(settings.judged, delta),
        thresholds=settings.thresholds,
        busy=busy,
    )
    bypassed = judged.state is ActivityState.BYPASSED
    idle = judged.state is ActivityState.IDLE
    if idle and engine.counts_finished_requests and running:
        return Activity(ActivityState.WARMING_UP, message("activity.counted_at_end"))
    if bypassed and engine.counters.drafts and delta and delta.drafts is None:
        return Activity(ActivityState.WARMING_UP, message("activity.drafts_missing"))
    if generated is None and (idle or judged.state is ActivityState.OFF):
        return Activity(None, message("activity.generation_uncounted"))
    if bypassed and _only_prefills(engine):
        return Activity(ActivityState.IDLE, message("activity.first_tokens_mostly"))
    if bypassed and engine.lifetime is not None:
        return Activity(None, message("activity.lifetime_only"))
    return of_shortest_window(
        judged,
        deltas.get(settings.shortest),
        settings.shortest.name,
        running=running,
        minimum_drafts=settings.thresholds.minimum_drafts,
    )


def _only_prefills(engine: EngineReading) -> bool:
    """Return whether an engine has done hardly more than prefill since its start: in
    an hour without work its probes are all that a window shows.
    """
    generated = engine.counters.generation_tokens or 0.0
    behind_first = generated - (engine.steps.requests or 0.0)
    return not engine.counters.drafts and behind_first <= ANSWERED_SHARE * generated


def _configured(engine: EngineReading, reading: Reading, settings: Settings) -> bool:
    """Return whether speculation is configured in this engine.

    Without speculation a server prints none of its series, as the other stages of a
    pipeline.
    """
    if engine.shows_speculation:
        return True
    if not settings.speculation.configured:
        return False
    if engine.counters.drafts is not None:
        return True
    return all(other.counters.drafts is None for other in reading.engines)


def _period(window: Window, delta: Delta | None) -> str:
    """Return the period to name in a reason: the window, or its filled part."""
    if delta is None or delta.span >= FULL * window.seconds:
        return window.name
    return format_duration(max(1, round(delta.span)))
