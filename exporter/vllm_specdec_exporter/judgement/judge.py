"""Judgement of one engine: quality, payoff, advice and findings of a case, in this order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .activity import Activity, ActivityState
from .advice import Advice, correction
from .current_advice import CurrentAdvice, update_advice
from .findings import Finding, find
from .payoff import Payoff, judge_payoff
from .quality import Quality, judge_quality

if TYPE_CHECKING:
    from .case import Case


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the exporter says of one engine.

    Attributes:
        activity: what the engine does about speculation.
        quality: how good its acceptance is; without a level unless the engine is active.
        payoff: whether speculation pays; without a verdict unless the engine is active.
        advice: which K it should have, and why.
        findings: what is wrong and what to do about it, the gravest first.
    """

    activity: Activity
    quality: Quality = Quality()
    payoff: Payoff = Payoff()
    advice: Advice = Advice()
    findings: tuple[Finding, ...] = ()


def judge(
    case: Case, advice: CurrentAdvice, time: float, window_seconds: float
) -> tuple[Judgement, CurrentAdvice]:
    """Return the judgement, and the advice in force to hand in next time.

    Args:
        case: the engine at the newest sample.
        advice: the advice in force before it.
        time: of the sample, in seconds.
        window_seconds: length of the judged window; another K must have been better for so long.
    """
    quality, payoff, measures = Quality(), Payoff(), case.measures
    if case.activity.state is ActivityState.ACTIVE and measures is not None:
        quality = judge_quality(measures, list(case.other_windows), case.thresholds)
        payoff = judge_payoff(measures, case.profile, case.thresholds, case.unmeasured)
    corrected = case
    if measures is not None:
        corrected = replace(case, profile=replace(case.profile, correction=correction(measures)))
    advice = update_advice(advice, corrected, time, window_seconds)
    findings = find(case, quality, payoff, advice.advice)
    return Judgement(case.activity, quality, payoff, advice.advice, findings), advice
