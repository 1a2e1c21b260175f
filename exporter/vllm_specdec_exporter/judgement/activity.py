"""Activity: is the engine speculating?

The first state that applies::

    off         no speculation is configured
    warming_up  fewer than two samples since the start or restart
    idle        nothing was generated in the window
    bypassed    tokens were generated, but nothing was drafted
    warming_up  fewer drafts than the minimum: too few for a ratio
    active      enough drafts to judge

The shortest window then decides whether drafting has ended since.
"""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from ..config.thresholds import Thresholds
from ..economics.speculative_config import Speculation
from ..measures.history import Delta


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
    *, configured: bool, delta: Delta | None, window: str, thresholds: Thresholds
) -> Activity:
    """Judge the activity of an engine; `delta` is ``None`` before the window has two
    samples.
    """
    if not configured:
        return Activity(
            ActivityState.OFF,
            "the server shows no sign of speculation being configured",
        )
    if delta is None:
        return Activity(
            ActivityState.WARMING_UP,
            "fewer than two samples since the start or restart",
        )
    drafts = delta.drafts or 0.0
    generated = delta.generation_tokens or 0.0
    if drafts <= 0 and generated <= 0:
        return Activity(
            ActivityState.IDLE, f"nothing was generated in the last {window}"
        )
    if drafts <= 0:
        return Activity(
            ActivityState.BYPASSED,
            (
                f"{generated:,.0f} tokens were generated in the last {window} without "
                "a single draft"
            ),
        )
    if drafts < thresholds.minimum_drafts:
        return Activity(
            ActivityState.WARMING_UP,
            (
                f"{drafts:,.0f} drafts in the last {window}, "
                f"{thresholds.minimum_drafts:,.15g} are needed"
            ),
        )
    return Activity(ActivityState.ACTIVE, f"{drafts:,.0f} drafts in the last {window}")


def of_newest(
    activity: Activity,
    newest: Delta | None,
    window: str,
    running: float | None,
    thresholds: Thresholds,
) -> Activity:
    """Return the activity of an engine with what its shortest window, `newest`, shows.

    It is idle when nothing is generated and no request is `running`. An active one is
    bypassed when tokens are generated without drafts: as many as drafts are needed,
    because a short answer may need none.
    """
    if newest is None or activity.state not in (
        ActivityState.ACTIVE,
        ActivityState.BYPASSED,
    ):
        return activity
    generated = newest.generation_tokens
    if newest.drafts or generated is None:
        return activity
    if not generated and not running:
        return Activity(
            ActivityState.IDLE, f"nothing was generated in the last {window}"
        )
    if (
        activity.state is ActivityState.BYPASSED
        or generated < thresholds.minimum_drafts
    ):
        return activity
    words = (
        f"{generated:,.0f} tokens were generated in the last {window} without a single "
        "draft"
    )
    return Activity(ActivityState.BYPASSED, words)


def with_schedule(
    activity: Activity, speculation: Speculation, batches: tuple[float, float] | None
) -> Activity:
    """Return the activity with the K schedule as its reason, if that has K=0 at an end
    of these batches.
    """
    batch = next(
        (batch for batch in batches or () if speculation.scheduled_k(batch) == 0), None
    )
    if activity.state is not ActivityState.BYPASSED or batch is None:
        return activity
    reason = f"{activity.reason}: the K schedule has K=0 for {batch:,.0f} requests"
    return replace(activity, reason=reason, scheduled=True)
