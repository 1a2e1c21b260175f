"""The published rules of thumb, applied to a window.

They are reported beside the advice, which rests on measured and modelled time instead.
"""

from msgspec import Struct

from ..config.thresholds import Thresholds
from ..economics.cost import CostProfile
from ..measures.measures import Measures
from .messages import message

#: What a rule says.
RAISE_K = "raise_k"
LOWER_K = "lower_k"
DISABLE = "disable"
MEASURE = "measure"
NOTHING = ""


class Rule(Struct, frozen=True):
    """One rule, applied.

    Attributes:
        name: which rule.
        says: `raise_k`, `lower_k`, `disable`, `measure` (under real load first), or
            empty if it does not apply.
        text: with the numbers, in words.
    """

    name: str
    says: str
    text: str


def _rule(name: str, says: str, **values: float) -> Rule:
    return Rule(name, says, message(f"rule.{name}", **values))


def apply_rules(
    measures: Measures, profile: CostProfile, thresholds: Thresholds
) -> tuple[Rule, ...]:
    """Return the published rules applied to a window, without those on deep positions
    if drafts vary, or if answers end before their tokens.
    """
    rules = []
    misleading = measures.drafts_vary or measures.cut_short
    if measures.position_acceptance_ratio and not misleading:
        rules.append(_last_position(measures, thresholds))
        rules.append(_marginal_benefit(measures, profile))
    if measures.mean_acceptance_length is not None:
        rules.append(_length(measures.mean_acceptance_length, thresholds))
    if measures.acceptance_ratio is not None:
        rules.append(_ratio(measures.acceptance_ratio, thresholds))
    return tuple(rules)


def _last_position(measures: Measures, thresholds: Thresholds) -> Rule:
    *smaller, ratio = measures.position_acceptance_ratio
    lower = thresholds.lower_k_last_position_acceptance_ratio
    upper = thresholds.raise_k_last_position_acceptance_ratio
    says = NOTHING
    if ratio > upper:
        says = RAISE_K
    elif ratio < lower:
        says = LOWER_K
    return _rule(
        "last_position",
        says,
        position=len(smaller),
        ratio=ratio,
        upper=upper,
        lower=lower,
    )


def _marginal_benefit(measures: Measures, profile: CostProfile) -> Rule:
    """Apply: raise K while acceptance(k) x cost of a verification / cost of a draft
    token exceeds 1.
    """
    *smaller, ratio = measures.position_acceptance_ratio
    position = len(smaller)
    batch = measures.estimate.batch_size or 1.0
    with_last = profile.step_cost(position + 1, batch)
    cost = max(0.0, with_last - profile.step_cost(position, batch))
    # A token that costs nothing is always worth its time, if there is one.
    says = NOTHING
    if ratio > 0 and (cost <= 0 or ratio / cost > 1):
        says = RAISE_K
    return _rule("marginal_benefit", says, position=position, ratio=ratio, cost=cost)


def _length(length: float, thresholds: Thresholds) -> Rule:
    limit = thresholds.disable_mean_acceptance_length
    says = NOTHING
    if length < limit:
        says = DISABLE
    return _rule("mean_acceptance_length", says, length=length, least=limit)


def _ratio(ratio: float, thresholds: Thresholds) -> Rule:
    limit = thresholds.disable_acceptance_ratio
    near = thresholds.break_even_acceptance_ratio
    says = NOTHING
    if ratio < limit:
        says = DISABLE
    elif ratio <= near:
        says = MEASURE
    return _rule(
        "acceptance_ratio", says, ratio=ratio, least=100 * limit, near=100 * near
    )
