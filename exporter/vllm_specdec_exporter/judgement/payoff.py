"""Payoff: is speculation worth it right now?

The speedup of all generated tokens decides: harmful below 1.0, marginal up to 1.2, beneficial above. A
speedup measured against a baseline at the same load takes precedence over an estimate by the cost profile.
The estimate is of tokens from drafts, so it is weighted with the share of tokens that come from drafts
(coverage).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ..economics.speedup import of_all

if TYPE_CHECKING:
    from ..config.thresholds import Thresholds
    from ..economics.cost import CostProfile
    from ..measures.measures import Measures


#: Below this coverage, the speedup of all tokens differs visibly from that of tokens from drafts.
_WHOLE = 0.98


class PayoffVerdict(StrEnum):
    """The effect of speculation on speed."""

    HARMFUL = "harmful"
    MARGINAL = "marginal"
    BENEFICIAL = "beneficial"


class Basis(StrEnum):
    """Where a speedup comes from."""

    MEASURED = "measured"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class Payoff:
    """Whether speculation pays.

    Attributes:
        verdict: ``None`` unless the engine is active and its speedup is known.
        speedup: the speedup that decided: of all tokens, with and without drafts.
        basis: where it comes from.
        reasons: how the speedup was found, in words.
    """

    verdict: PayoffVerdict | None = None
    speedup: float | None = None
    basis: Basis | None = None
    reasons: tuple[str, ...] = ()


def judge_payoff(
    measures: Measures, profile: CostProfile, thresholds: Thresholds, unmeasured: str = ""
) -> Payoff:
    """Judge whether speculation pays within a window with enough drafts.

    Args:
        measures: the window to judge, with its estimated and measured speedup.
        profile: the cost profile of the estimate.
        thresholds: for the limits between the verdicts.
        unmeasured: why there is no measured speedup although there is a baseline.
    """
    estimate, measured, covered = measures.estimate, measures.measured, measures.coverage_ratio
    reasons = []
    if measured.speedup is not None:
        speedup, basis = measured.speedup, Basis.MEASURED
        reasons.append(
            f"measured {speedup:.2f} times as fast per output token as the baseline at the same load "
            f"({measured.speedup_low:.2f} to {measured.speedup_high:.2f}, {measured.requests:,.0f} requests)"
        )
    elif estimate.speedup is not None:
        speedup, basis = of_all(estimate.speedup, covered), Basis.ESTIMATED
    else:
        return Payoff(reasons=(_why_unknown(measures),))
    if estimate.speedup is not None:
        reasons.append(
            f"estimated {estimate.speedup:.2f} times as fast "
            f"({estimate.speedup_low:.2f} to {estimate.speedup_high:.2f}): "
            f"{measures.mean_acceptance_length:.2f} tokens a draft for the time of "
            f"{estimate.step_cost:.2f} plain steps, at {estimate.batch_size:.1f} requests a batch, "
            f"by the cost profile {profile.name}"
        )
        whole = of_all(estimate.speedup, covered)
        if covered is not None and covered < _WHOLE:
            reasons.append(
                f"that holds for the {covered:.0%} of the tokens that came out of drafts: "
                f"all of them {whole:.2f} times"
            )
        if basis is Basis.MEASURED and abs(speedup / whole - 1) > thresholds.disagreement_ratio:
            reasons.append(
                f"the cost profile {profile.name} does not fit this deployment: "
                "what is measured counts, and advice on K is corrected by it"
            )
    if unmeasured and basis is Basis.ESTIMATED:
        reasons.append(f"not measured: {unmeasured}")
    return Payoff(_verdict(speedup, thresholds), speedup, basis, tuple(reasons))


def _verdict(speedup: float, thresholds: Thresholds) -> PayoffVerdict:
    if speedup < thresholds.harmful_speedup:
        return PayoffVerdict.HARMFUL
    if speedup <= thresholds.beneficial_speedup:
        return PayoffVerdict.MARGINAL
    return PayoffVerdict.BENEFICIAL


def _why_unknown(measures: Measures) -> str:
    if measures.mean_acceptance_length is None:
        return "the mean acceptance length is not known"
    if not measures.mean_draft_length:
        return "the mean draft length is not known"
    return "the server does not tell how many requests run, so the cost of a step is not known"


RAISE_K, LOWER_K, DISABLE, MEASURE, NOTHING = "raise_k", "lower_k", "disable", "measure", ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, applied.

    Attributes:
        name: which rule. says: `raise_k`, `lower_k`, `disable`, `measure` (under real load first), or empty
        if it does not apply. text: with the numbers, in words.
    """

    name: str
    says: str
    text: str


def apply_rules(measures: Measures, profile: CostProfile, thresholds: Thresholds) -> tuple[Rule, ...]:
    """Return the published rules applied to a window.

    If drafts vary, rules on deep positions are left out.
    """
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
