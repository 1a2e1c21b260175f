"""Cases of objective.yml: is speculation worth it often enough?

An engine that loses and one that gains share the drafts, so the share of losing drafts is always the same.
Nearly all of them are made from minute 50 to 59, so that their number stands still afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .case import Case
from .world import Phase, World

if TYPE_CHECKING:
    from collections.abc import Callable


def _sharing(share: float, *, drafts: float = 10_000, losing: int = 210) -> Callable[[], World]:
    """Return what builds two engines, one of which loses with its share of the drafts until it gains, too.

    Args:
        share: of the drafts that the losing engine makes.
        drafts: from minute 50 to 59, of both.
        losing: for how many minutes from then on it loses.
    """

    def build() -> World:
        world = World()
        for index, (part, speedup) in enumerate(((share, 0.8), (1 - share, 1.6)), 1):
            quiet = Phase(50, drafts=0.001 * part, speedup=speedup)
            world.engine(
                quiet,
                replace(quiet, minutes=10, drafts=drafts / 10 * part),
                replace(quiet, minutes=losing),
                replace(quiet, minutes=450 - losing, speedup=1.6),
                instance=f"10.0.0.{index}:9850",
            )
        return world

    return build


def short_loss() -> World:
    """All drafts lose for five minutes, and never again."""
    world = World()
    world.engine(Phase(60), Phase(5, speedup=0.5), Phase(205))
    return world


CASES: tuple[Case, ...] = (
    Case(
        "sixteen-times-too-fast-for-hours",
        "ObjectiveBurning",
        _sharing(0.8),
        {
            48: "",
            100: ["warning model long_window=1h", "warning model long_window=6h"],
            265: [
                "warning model long_window=1d",
                "warning model long_window=3d",
                "warning model long_window=6h",
            ],
        },
    ),
    Case("eight-times-too-fast", "ObjectiveBurning", _sharing(0.4), {100: "warning model long_window=6h"}),
    Case(
        "four-times-too-fast",
        "ObjectiveBurning",
        _sharing(0.2),
        {100: "", 265: ["warning model long_window=1d", "warning model long_window=3d"]},
    ),
    Case("twice-too-fast", "ObjectiveBurning", _sharing(0.1), {200: "", 265: "warning model long_window=3d"}),
    Case(
        "burning-is-told-for-a-while-after-the-loss",
        "ObjectiveBurning",
        _sharing(0.8, losing=45),
        {
            66: "warning model long_window=1h",
            100: ["warning model long_window=1h", "warning model long_window=6h"],
            113: ["warning model long_window=1h", "warning model long_window=6h"],
            133: ["warning model long_window=1d", "warning model long_window=6h"],
            150: "warning model long_window=1d",
            212: "warning model long_window=1d",
            228: "",
            300: "warning model long_window=3d",
            452: "warning model long_window=3d",
            490: "",
        },
    ),
    Case("one-draft-of-twentyfive-loses", "ObjectiveBurning", _sharing(0.04), {100: "", 265: ""}),
    Case("an-engine-with-one-draft-of-fifty-loses", "ObjectiveBurning", _sharing(0.02), {265: ""}),
    Case(
        "too-few-drafts-for-an-objective", "ObjectiveBurning", _sharing(0.8, drafts=4900), {100: "", 265: ""}
    ),
    Case(
        "five-minutes-of-loss-are-within-the-budget",
        "ObjectiveBurning",
        short_loss,
        {70: "", 130: "", 265: ""},
    ),
)
