"""Judgement of one engine: quality, payoff, advice and findings of a case, in this
order.
"""

import dataclasses

from msgspec import Struct
from msgspec.structs import replace

from ..economics.cost import Basis
from .activity import Activity, ActivityState
from .advice import Advice, CurrentAdvice, update_advice
from .case import Case
from .findings import Finding, find
from .payoff import (
    Payoff,
    apply_rules,
    contradicted,
    correction,
    how_to_know,
    judge_payoff,
)
from .quality import Quality, judge_quality


class Judgement(Struct, frozen=True):
    """The judgement of one engine."""

    activity: Activity  # whether the engine speculates
    #: The level of its acceptance; none unless the engine is active.
    quality: Quality = Quality()
    #: Whether speculation pays; no verdict unless the engine is active.
    payoff: Payoff = Payoff()
    advice: Advice = Advice()  # the advised K, and why
    #: Problems and hints, with what to do; problems first.
    findings: tuple[Finding, ...] = ()


def judge(
    case: Case, advice: CurrentAdvice, time: float, window_seconds: float
) -> tuple[Judgement, CurrentAdvice]:
    """Return the judgement of a sample at `time`, and the advice in force for the next
    call.

    Another K must have been better for `window_seconds`, the judged window, before the
    advice changes.
    """
    quality = Quality()
    payoff = Payoff()
    measures = case.measures
    if case.activity.state is ActivityState.ACTIVE and measures is not None:
        quality = judge_quality(measures, list(case.other_windows), case.thresholds)
        payoff = judge_payoff(measures, case.profile, case.thresholds, case.unmeasured)
    corrected = replace(case, payoff=payoff)
    factor = None if measures is None else correction(measures)
    if (
        factor is None
        and measures is not None
        and contradicted(measures, case.thresholds)
    ):
        why = (
            "what is measured contradicts the estimate, and does not show the cost of "
            "a draft"
        )
        corrected = replace(corrected, unadvisable=why)
    elif factor is not None:
        # On top of what the engine's own steps have corrected: the estimate is made
        # with that.
        profile = dataclasses.replace(
            case.profile, correction=case.profile.correction * factor
        )
        corrected = replace(corrected, profile=profile)
    if payoff.undecided and payoff.basis is Basis.MODELLED and measures is not None:
        # Which K pays best depends on the same cost that is not known.
        rules = apply_rules(measures, case.profile, case.thresholds)
        how = how_to_know(payoff.basis, case.profile)
        why = f"no advice on K, which rests on the same modelled cost: {how}"
        advice = replace(advice, advice=Advice(reason=why, rules=rules))
    else:
        advice = update_advice(advice, corrected, time, window_seconds)
    findings = find(case, quality, payoff, advice.advice)
    return Judgement(case.activity, quality, payoff, advice.advice, findings), advice
