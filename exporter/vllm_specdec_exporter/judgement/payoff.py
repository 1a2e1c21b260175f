"""Payoff: is speculation worth it right now?

The speedup of all that the engine generates decides: harmful below 1.0, marginal up to 1.2, beneficial above.
A measured one, against a baseline at the same load, beats an estimated one, which hangs on a cost profile and
speaks of drafts alone: what was decoded plainly beside them gains nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ..economics.estimate import of_all

if TYPE_CHECKING:
    from ..economics.cost import CostProfile
    from ..measures import Measures
    from ..thresholds import Thresholds

#: Below this share of tokens out of drafts, the whole gains less than they do by more than rounding.
_WHOLE = 0.98


class PayoffVerdict(StrEnum):
    """What speculation does to the speed."""

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
        reasons: how it comes about, in words.
    """

    verdict: PayoffVerdict | None = None
    speedup: float | None = None
    basis: Basis | None = None
    reasons: tuple[str, ...] = ()


def judge_payoff(
    measures: Measures, profile: CostProfile, thresholds: Thresholds, unmeasured: str = ""
) -> Payoff:
    """Judge what speculation gains within a window that holds enough drafts.

    Args:
        measures: the window to judge, with its estimate and what was measured.
        profile: the cost profile of the estimate.
        thresholds: where harm ends and benefit begins.
        unmeasured: why nothing was measured although there is a baseline.
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
