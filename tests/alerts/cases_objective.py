"""Cases of objective.yml: is speculation worth it often enough?

An engine that loses and one that gains share the drafts, so the share of losing drafts
is always the same. Nearly all of them are made from minute 50 to 59, so that their
number stands still afterwards.
"""

from collections.abc import Callable
from dataclasses import replace

from .case import Table, cases
from .histories import engines
from .world import Phase, World


def sharing(
    share: float, *, drafts: float = 10_000, losing: int = 210, speedup: float = 0.95
) -> Callable[[], World]:
    """Return what builds two engines, one of which loses for some minutes with its
    share of the drafts.
    """

    def life(part: float, speedup: float) -> tuple[Phase, ...]:
        quiet = Phase(50, drafts=0.001 * part, speedup=speedup)
        busy = replace(quiet, minutes=10, drafts=drafts / 10 * part)
        return (
            quiet,
            busy,
            replace(quiet, minutes=losing),
            replace(quiet, minutes=450 - losing, speedup=1.6),
        )

    return engines(life(share, speedup), life(1 - share, 1.6))


OBJECTIVE_BURNING_CASES: Table = {
    "sixteen-times-too-fast-for-hours": (
        sharing(0.8),
        {48: "", 120: "warning model", 265: "warning model", 640: ""},
    ),
    "four-times-too-fast": (sharing(0.2), {265: "warning model"}),
    "twice-too-fast": (sharing(0.1), {265: "warning model"}),
    # Harmful has paged, and nobody needs to be told again.
    "what-has-paged-within-six-hours": (
        sharing(0.8, speedup=0.8),
        {120: "", 265: "", 420: ""},
    ),
    "one-draft-of-twentyfive-loses": (sharing(0.04), {100: "", 265: ""}),
    "too-few-drafts-for-an-objective": (sharing(0.8, drafts=4900), {100: "", 265: ""}),
    "five-minutes-of-loss-are-within-the-budget": (
        engines((Phase(60), Phase(5, speedup=0.5), Phase(205))),
        {70: "", 130: "", 265: ""},
    ),
}

CASES = (*cases("ObjectiveBurning", OBJECTIVE_BURNING_CASES),)
