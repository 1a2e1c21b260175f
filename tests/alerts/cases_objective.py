"""Cases of objective.yml: is speculation worth it often enough?

An engine that loses and one that gains share the drafts, so the share of losing drafts is always the same.
Nearly all of them are made from minute 50 to 59, so that their number stands still afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .case import Case
from .histories import engines
from .world import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from .world import World


def sharing(share: float, *, drafts: float = 10_000, losing: int = 210) -> Callable[[], World]:
    """Return what builds two engines, one of which loses with its share of the drafts until it gains, too.

    Args:
        share: of the drafts that the losing engine makes.
        drafts: from minute 50 to 59, of both.
        losing: for how many minutes from then on it loses.
    """

    def life(part: float, speedup: float) -> tuple[Phase, ...]:
        quiet = Phase(50, drafts=0.001 * part, speedup=speedup)
        busy = replace(quiet, minutes=10, drafts=drafts / 10 * part)
        return quiet, busy, replace(quiet, minutes=losing), replace(quiet, minutes=450 - losing, speedup=1.6)

    return engines(life(share, 0.8), life(1 - share, 1.6))


HOUR, HOURS, DAY, DAYS = (f"warning model long_window={window}" for window in ("1h", "6h", "1d", "3d"))

CASES: tuple[Case, ...] = (
    Case(
        "sixteen-times-too-fast-for-hours",
        "ObjectiveBurning",
        sharing(0.8),
        {48: "", 100: [HOUR, HOURS], 265: [DAY, DAYS, HOURS]},
    ),
    Case("eight-times-too-fast", "ObjectiveBurning", sharing(0.4), {100: HOURS}),
    Case("four-times-too-fast", "ObjectiveBurning", sharing(0.2), {100: "", 265: [DAY, DAYS]}),
    Case("twice-too-fast", "ObjectiveBurning", sharing(0.1), {200: "", 265: DAYS}),
    Case(
        "burning-is-told-for-a-while-after-the-loss",
        "ObjectiveBurning",
        sharing(0.8, losing=45),
        {
            66: HOUR,
            113: [HOUR, HOURS],
            133: [DAY, HOURS],
            150: DAY,
            212: DAY,
            228: "",
            300: DAYS,
            452: DAYS,
            490: "",
        },
    ),
    Case("one-draft-of-twentyfive-loses", "ObjectiveBurning", sharing(0.04), {100: "", 265: ""}),
    Case(
        "too-few-drafts-for-an-objective", "ObjectiveBurning", sharing(0.8, drafts=4900), {100: "", 265: ""}
    ),
    Case(
        "five-minutes-of-loss-are-within-the-budget",
        "ObjectiveBurning",
        engines((Phase(60), Phase(5, speedup=0.5), Phase(205))),
        {70: "", 130: "", 265: ""},
    ),
)
