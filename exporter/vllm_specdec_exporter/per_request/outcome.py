"""Outcome: what speculation does to one request, by the zones of acceptance that are in force.

The published zones are for draft models of about a ninth of the target: below 0.50 drafting costs more than
it gains, up to 0.65 it is near break-even. For cheap drafters both come from their own break-even point
(`economics.criteria`). An operator may set them: `disable_acceptance_ratio`, `break_even_acceptance_ratio`.

They do not look at the load. What a group of requests gains at the present batch is estimated beside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .result import Outcome

if TYPE_CHECKING:
    from ..thresholds import Thresholds


def outcome_of(acceptance_ratio: float | None, thresholds: Thresholds) -> Outcome | None:
    """Return the outcome of an acceptance ratio, ``None`` without one."""
    if acceptance_ratio is None:
        return None
    if acceptance_ratio < thresholds.disable_acceptance_ratio:
        return Outcome.LOSES
    if acceptance_ratio <= thresholds.break_even_acceptance_ratio:
        return Outcome.BREAK_EVEN
    return Outcome.GAINS
