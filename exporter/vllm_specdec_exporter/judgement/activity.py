"""Activity: is the engine speculating?

The first state that applies::

    off         no speculation is configured
    warming_up  fewer than two samples since the start or restart
    idle        nothing was generated in the window, or hardly more than first tokens
    bypassed    tokens were generated, but nothing was drafted
    warming_up  fewer drafts than the minimum: too few for a ratio
    active      enough drafts to judge

Drafts that can have delivered nothing do not count: vLLM pads the step of a first token
with one. A quarter of the minimum is enough where no more can come: requests ran all
the time, the window is full, and a step takes a second or more. Then the interval of
the speedup says what so few drafts allow.

The shortest window then decides whether drafting has ended since.
"""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from ..config.thresholds import Thresholds
from ..economics.speculative_config import Speculation
from ..measures.delivered import delivered
from ..measures.history import Delta
from .messages import message

#: Share of the minimum of drafts that a busy engine needs: a quarter of the drafts has
#: twice the error of the length, which the interval of the speedup includes.
_BUSY_SHARE = 0.25
#: Share of the tokens without any draft that may come behind first ones: probes and a
#: few whole answers of a prefill node, as which another server hardly counts.
ANSWERED_SHARE = 0.1
#: Seconds of a step from which its length itself is a finding: a client reads no more
#: than a few words in that time.
SLOW_STEP = 1.0


class ActivityState(StrEnum):
    """Whether an engine speculates."""

    OFF = "off"
    IDLE = "idle"
    BYPASSED = "bypassed"
    WARMING_UP = "warming_up"
    ACTIVE = "active"


class Activity(Struct, frozen=True):
    """The state, ``None`` if the metrics do not show it, the reason, and whether that
    is K=0 by schedule.
    """

    state: ActivityState | None = None
    reason: str = ""
    scheduled: bool = False

    @property
    def unexplained(self) -> bool:
        """Whether nothing is drafted, and no K schedule says so."""
        return self.state is ActivityState.BYPASSED and not self.scheduled


def judge_activity(
    *,
    configured: bool,
    delta: Delta | None,
    window: str,
    thresholds: Thresholds,
    busy: bool = False,
) -> Activity:
    """Judge the activity of an engine; `delta` is ``None`` before the window has two
    samples, and `busy` is whether requests ran all through a full window.
    """
    if not configured:
        return Activity(ActivityState.OFF, message("activity.off"))
    if delta is None:
        return Activity(ActivityState.WARMING_UP, message("activity.started"))
    counted_drafts = delta.drafts or 0.0
    generated = delta.generation_tokens or 0.0
    if counted_drafts <= 0 and generated <= 0:
        return Activity(ActivityState.IDLE, message("activity.idle", window=window))
    # The prefill node of a disaggregated pair generates nothing but first tokens.
    if generated and generated == delta.first_tokens:
        return Activity(ActivityState.IDLE, message("activity.first_tokens_only"))
    if counted_drafts <= 0:
        by_steps = generated - (delta.first_tokens or 0.0)
        if by_steps <= ANSWERED_SHARE * generated:
            return Activity(ActivityState.IDLE, message("activity.first_tokens_mostly"))
        return _bypassed(generated, window)
    gained = delivered(delta)
    drafts = counted_drafts
    if gained is not None:
        drafts = gained.drafts
    needed = thresholds.minimum_drafts
    slow = busy and (delta.step_seconds or 0.0) >= SLOW_STEP
    if slow and _BUSY_SHARE * needed <= drafts < needed:
        reason = message("activity.few_but_busy", drafts=drafts, window=window)
        return Activity(ActivityState.ACTIVE, reason)
    if drafts < needed:
        reason = message(
            "activity.few_drafts", drafts=drafts, needed=needed, window=window
        )
        return Activity(ActivityState.WARMING_UP, reason)
    return Activity(
        ActivityState.ACTIVE, message("activity.active", drafts=drafts, window=window)
    )


def _bypassed(generated: float, window: str) -> Activity:
    reason = message("activity.bypassed", generated=generated, window=window)
    return Activity(ActivityState.BYPASSED, reason)


def of_shortest_window(
    judged: Activity,
    delta: Delta | None,
    window: str,
    *,
    running: float | None,
    minimum_drafts: float,
) -> Activity:
    """Return the activity of an engine with what its shortest window shows: `delta`,
    the increase within it.

    It is idle when nothing is generated and no request is `running`. An active one is
    bypassed when tokens are generated without drafts: as many as drafts are needed,
    because a short answer may need none.
    """
    if delta is None or delta.drafts or delta.generation_tokens is None:
        return judged
    active = judged.state is ActivityState.ACTIVE
    if not active and judged.state is not ActivityState.BYPASSED:
        return judged
    generated = delta.generation_tokens
    if not generated and not running:
        return Activity(ActivityState.IDLE, message("activity.idle", window=window))
    if active and generated >= minimum_drafts:
        return _bypassed(generated, window)
    return judged


def with_schedule(
    judged: Activity, speculation: Speculation, batches: tuple[float, float] | None
) -> Activity:
    """Return the activity with the K schedule as its reason, if that has K=0 at an end
    of these batches.
    """
    if judged.state is not ActivityState.BYPASSED:
        return judged
    for batch in batches or ():
        if speculation.scheduled_k(batch) == 0:
            reason = message("activity.scheduled", reason=judged.reason, batch=batch)
            return replace(judged, reason=reason, scheduled=True)
    return judged
