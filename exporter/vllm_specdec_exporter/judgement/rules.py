"""Rules of thumb: the published ones on K and on switching speculation off, applied to a window.

They look at acceptance alone, or at one position, where the speedup looks at what all of it costs. They are
reported so that whoever knows them sees what they say, and that they were looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..economics.cost import CostProfile
    from ..measures import Measures
    from ..thresholds import Thresholds

RAISE_K, LOWER_K, DISABLE, MEASURE, NOTHING = "raise_k", "lower_k", "disable", "measure", ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, applied.

    Attributes:
        name: which rule.
        says: `raise_k`, `lower_k`, `disable`, `measure` (under real load first), or empty for nothing.
        text: with the numbers, in words.
    """

    name: str
    says: str
    text: str


def apply_rules(measures: Measures, profile: CostProfile, thresholds: Thresholds) -> tuple[Rule, ...]:
    """Return what the rules say of a window. Rules on deep positions are left out where drafts vary."""
    rules = []
    positions = measures.position_acceptance_ratio
    if positions and not measures.drafts_vary:
        rules.append(_last_position(positions[-1], len(positions), thresholds))
        rules.append(_marginal_benefit(measures, profile))
    if measures.mean_acceptance_length is not None:
        rules.append(_length(measures.mean_acceptance_length, thresholds))
    if measures.acceptance_ratio is not None:
        rules.append(_ratio(measures.acceptance_ratio, thresholds))
    return tuple(rules)


def _last_position(ratio: float, k: int, thresholds: Thresholds) -> Rule:
    lower, upper = (
        thresholds.lower_k_last_position_acceptance_ratio,
        thresholds.raise_k_last_position_acceptance_ratio,
    )
    says = RAISE_K if ratio > upper else LOWER_K if ratio < lower else NOTHING
    text = (
        f"position {k - 1} is accepted in {ratio:.0%} of drafts "
        f"(raise K above {upper:.0%}, lower it below {lower:.0%})"
    )
    return Rule("last_position", says, text)


def _marginal_benefit(measures: Measures, profile: CostProfile) -> Rule:
    """Apply: raise K while acceptance(k) x cost of a verification / cost of a draft token exceeds 1."""
    k, batch = len(measures.position_acceptance_ratio), measures.estimate.batch_size or 1.0
    ratio = measures.position_acceptance_ratio[-1]
    cost = profile.step_cost(k, batch) - profile.step_cost(k - 1, batch)
    benefit = ratio / cost if cost > 0 else float("inf")
    text = f"position {k - 1} gives {ratio:.2f} tokens for the time of {cost:.2f} plain steps"
    return Rule("marginal_benefit", RAISE_K if benefit > 1 else NOTHING, text)


def _length(length: float, thresholds: Thresholds) -> Rule:
    least = thresholds.disable_mean_acceptance_length
    text = f"mean acceptance length {length:.2f} (disable below {least:.3g})"
    return Rule("mean_acceptance_length", DISABLE if length < least else NOTHING, text)


def _ratio(ratio: float, thresholds: Thresholds) -> Rule:
    least, near = thresholds.disable_acceptance_ratio, thresholds.break_even_acceptance_ratio
    says = DISABLE if ratio < least else MEASURE if ratio <= near else NOTHING
    levels = f"disable below {100 * least:.3g}%, near break-even up to {100 * near:.3g}%"
    text = f"acceptance ratio {ratio:.1%} ({levels})"
    return Rule("acceptance_ratio", says, text)
