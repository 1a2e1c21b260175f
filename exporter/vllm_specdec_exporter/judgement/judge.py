"""Judgement of one engine: quality, payoff and advice of a case, in this order, and
then the words for them.

Every poll is judged, because advice has state and changes are logged. But hardly any is
read otherwise than as metrics, which have no words, and these words are a seventh of
the instructions of reading and judging. So `judge_engine` decides, and `explain` adds
the reasons of quality and payoff, and findings, when they are read.
"""

from msgspec import Struct
from msgspec.structs import replace

from ..economics.cost import Basis
from ..measures.measures import Measures
from .activity import Activity, ActivityState
from .advice import Advice
from .advising import CurrentAdvice, update_advice
from .case import Case
from .explanation import explain_payoff, explain_quality, how_to_know
from .findings import Finding, Verdicts, find, misconfigured
from .messages import message
from .payoff import Payoff, correction, estimate_contradicted, judge_payoff
from .published_rules import apply_rules
from .quality import Quality, judge_quality


class Judgement(Struct, frozen=True):
    """The judgement of one engine.

    As it was decided, verdicts have no reasons, advice that follows from an undecided
    payoff is empty, and only findings on the configuration are there, which are logged.
    """

    activity: Activity  # whether the engine speculates
    #: The level of its acceptance; none unless the engine is active.
    quality: Quality = Quality()
    #: Whether speculation pays; no verdict unless the engine is active.
    payoff: Payoff = Payoff()
    advice: Advice = Advice()  # the advised K, and why
    #: Problems and hints, with what to do; problems first.
    findings: tuple[Finding, ...] = ()


def judge_engine(
    case: Case, current: CurrentAdvice, time: float, window_seconds: float
) -> tuple[Judgement, CurrentAdvice]:
    """Return what is decided of a sample at `time`, and the advice in force for the
    next call.

    Another K must have been better for `window_seconds`, the judged window, before the
    advice changes.
    """
    quality = Quality()
    payoff = Payoff()
    measures = case.measures
    if case.activity.state is ActivityState.ACTIVE and measures is not None:
        quality = judge_quality(measures, case.other_windows, case.thresholds)
        payoff = judge_payoff(measures, case.thresholds)
    if _decides_nothing(payoff):
        current = replace(current, advice=Advice())
    else:
        corrected = _corrected(replace(case, payoff=payoff))
        current = update_advice(current, corrected, time, window_seconds)
    judgement = Judgement(
        activity=case.activity,
        quality=quality,
        payoff=payoff,
        advice=current.advice,
        findings=tuple(misconfigured(case)),
    )
    return judgement, current


def explain(case: Case, decided: Verdicts) -> Judgement:
    """Return the judgement of a case with all words, as it was decided."""
    quality = decided.quality
    payoff = decided.payoff
    advice = decided.advice
    measures = case.measures
    if case.activity.state is ActivityState.ACTIVE and measures is not None:
        reasons = explain_quality(quality, measures, case.thresholds)
        quality = replace(quality, reasons=reasons)
        payoff = replace(payoff, reasons=explain_payoff(payoff, case, measures))
        if _decides_nothing(payoff):
            advice = _undecided(case, measures)
    return Judgement(
        activity=case.activity,
        quality=quality,
        payoff=payoff,
        advice=advice,
        findings=find(case, Verdicts(quality, payoff, advice)),
    )


def _decides_nothing(payoff: Payoff) -> bool:
    """Return whether a modelled cost leaves open whether speculation pays."""
    return payoff.undecided and payoff.basis is Basis.MODELLED


def _undecided(case: Case, measures: Measures) -> Advice:
    """Return the advice while a modelled cost decides nothing: which K pays best
    depends on the same cost.
    """
    how = how_to_know(Basis.MODELLED, case.profile, case.engine)
    reason = message("no_advice.same_modelled_cost", how=how)
    if case.unadvisable:  # which no better cost would change
        reason = message("no_advice.unadvisable", reason=case.unadvisable)
    return Advice(
        reason=reason,
        rules=apply_rules(measures, case.profile, case.thresholds),
    )


def _corrected(case: Case) -> Case:
    """Return the case for advice, with the cost of a step that explains the measured
    speedup.
    """
    measures = case.measures
    if measures is None:
        return case
    factor = correction(measures)
    if factor is not None:
        # On top of what the engine's own steps have corrected: the estimate is made
        # with that.
        combined = case.profile.correction * factor
        profile = replace(case.profile, correction=combined)
        return replace(case, profile=profile)
    if estimate_contradicted(measures, case.thresholds):
        return replace(case, unadvisable=message("unadvisable.contradicted"))
    return case
