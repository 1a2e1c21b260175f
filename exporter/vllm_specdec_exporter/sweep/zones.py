"""Zones: what an acceptance ratio means by the published temperature sweep.

The published bounds are for draft models of about a ninth of the target's size: below 0.50 drafting costs
more than it gains, from 0.50 to 0.65 it is near break-even, above that it likely pays. Cheap drafters
(n-gram, suffix, EAGLE and MTP heads) pay below these bounds, because a draft costs them less.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..thresholds import Thresholds

_PUBLISHED = Thresholds()


class Zone(StrEnum):
    """Where an acceptance ratio lies."""

    DISABLE = "disable"
    NEAR_BREAK_EVEN = "near break-even"
    LIKELY_BENEFIT = "likely benefit"


#: What is said of a zone where there is room.
MEANINGS = {
    Zone.DISABLE: "disable: costs more than it gains (draft models)",
    Zone.NEAR_BREAK_EVEN: "near break-even",
    Zone.LIKELY_BENEFIT: "likely benefit",
}

NOTE = (
    "The zones are published for draft models of about 1:9 of the target's size; cheap drafters "
    "(n-gram, suffix, EAGLE, MTP) pay below them too."
)


@dataclass(frozen=True, slots=True)
class Zones:
    """The bounds between the zones, as acceptance ratios from 0 to 1.

    Attributes:
        disable_below: below it drafting costs more than it gains.
        benefit_above: above it drafting likely pays; in between it is near break-even.

    Raises:
        ValueError: bounds outside 0 to 1, or in the wrong order.
    """

    disable_below: float = _PUBLISHED.disable_acceptance_ratio
    benefit_above: float = _PUBLISHED.break_even_acceptance_ratio

    def __post_init__(self) -> None:
        if not 0 <= self.disable_below <= self.benefit_above <= 1:
            msg = "allowed: 0 <= the disable bound <= the benefit bound <= 1"
            raise ValueError(msg)

    def of(self, acceptance: float) -> Zone:
        """Return the zone of an acceptance ratio."""
        if acceptance < self.disable_below:
            return Zone.DISABLE
        return Zone.LIKELY_BENEFIT if acceptance > self.benefit_above else Zone.NEAR_BREAK_EVEN

    def crossed_by(self, low: float, high: float) -> bool:
        """Tell whether an interval reaches into more than one zone."""
        return self.of(low) is not self.of(high)
