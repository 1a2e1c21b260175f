"""Explanation: why a verdict or advice is given, as messages with numbers.

Decisions come first, in `payoff` and `advising`, and know nothing of words. This module
picks the messages for a decision that was made; it decides nothing itself.
"""

from ..config.thresholds import Thresholds
from ..economics.choice import CandidateK, Choice, TriedK
from ..economics.cost import Basis, CostProfile
from ..economics.speculative_config import drafts_without_model
from ..economics.speedup import Estimate
from ..economics.statistics import Interval, format_ratio
from ..engines.engine import Engine
from ..measures.measures import Measures
from .advice import Action
from .case import Case
from .hysteresis import HysteresisState
from .messages import Message, message
from .payoff import (
    Payoff,
    PayoffVerdict,
    correction,
    estimate_contradicted,
    gives_nothing,
)
from .quality import Quality, decisive

#: A part of a sentence that does not apply.
_NOTHING = ""
#: Least time of prompts that is told, in plain steps: less moves a speedup by less than
#: any interval is wide.
_TOLD_PROMPTS = 0.05


def explain_quality(
    quality: Quality, measures: Measures, thresholds: Thresholds
) -> tuple[str, ...]:
    """Return the criteria that decided the level of a window, or why it has none."""
    drafts = measures.drafts or 0.0
    needed = thresholds.minimum_drafts
    if drafts < needed:
        return (message("quality.few_drafts", drafts=drafts, needed=needed),)
    if quality.level is None:
        unknown = [c.reason for c in quality.criteria if c.lacks_value]
        return tuple(dict.fromkeys(unknown))
    return tuple(c.reason for c in decisive(quality.level, quality.criteria))


def explain_payoff(payoff: Payoff, case: Case, measures: Measures) -> tuple[str, ...]:
    """Return how the speedup of a window was found, and why it decides nothing if it
    does not.
    """
    if payoff.verdict is None:
        return (why_no_estimate(measures),)
    profile = case.profile
    reasons: list[str] = []
    if gives_nothing(measures) and payoff.verdict is PayoffVerdict.HARMFUL:
        reasons.append(message("payoff.gives_nothing"))
    if measures.measured.interval is not None:
        reasons.append(_measured(measures, measures.measured.interval))
    if measures.estimate.interval is not None:
        reasons += _estimated(measures, measures.estimate.interval, profile)
    if estimate_contradicted(measures, case.thresholds):
        reasons.append(_misfit(measures, profile))
    if case.unmeasured:
        reasons.append(message("payoff.not_measured", reason=case.unmeasured))
    if payoff.basis is not Basis.MEASURED and profile.contradiction:
        reasons.append(profile.contradiction)
    if payoff.undecided:
        reasons.append(message("payoff.includes_1", loss=payoff.loss_probability))
    return tuple(reasons)


def why_no_estimate(measures: Measures) -> Message:
    """Return what is missing for an estimate of the speedup."""
    if measures.mean_acceptance_length is None:
        return message("payoff.length_unknown")
    if not measures.mean_draft_length:
        return message("payoff.draft_length_unknown")
    return message("payoff.running_unknown")


def _measured(measures: Measures, speedup: Interval) -> Message:
    low, high = map(format_ratio, speedup.ends)
    return message("payoff.measured", measured=measures.measured, low=low, high=high)


def _estimated(
    measures: Measures, speedup: Interval, profile: CostProfile
) -> list[Message]:
    estimate = measures.estimate
    low, high = map(format_ratio, speedup.ends)
    estimated = message(
        "payoff.estimated",
        estimate=estimate,
        low=low,
        high=high,
        length=measures.mean_acceptance_length,
        profile=profile,
        beside_prompts=_beside_prompts(estimate, profile),
        of_all_tokens=_of_all_tokens(estimate, measures.coverage_ratio),
    )
    calibrated = profile.basis is Basis.CALIBRATED and profile.batches
    if not calibrated or estimate.basis is not Basis.MODELLED:
        return [estimated]
    contexts = profile.contexts or (profile.context_tokens, profile.context_tokens)
    outside = message("payoff.calibrated", batches=calibrated, contexts=contexts)
    return [estimated, outside]


def _beside_prompts(estimate: Estimate, profile: CostProfile) -> str:
    """Return the time of prompts, where it keeps the speedup from being the length
    over the cost of a step.
    """
    prompts = profile.prompt_times(estimate.batch_size or 1.0)
    if prompts.typical < _TOLD_PROMPTS:
        return _NOTHING
    return message("payoff.beside_prompts", prompts=prompts)


def _of_all_tokens(estimate: Estimate, covered: float | None) -> str:
    """Return the speedup over all tokens, unless it looks like that of drafts."""
    speedup = estimate.of_all_tokens(covered)
    if covered is None or speedup is None:
        return _NOTHING
    shown = f"{speedup.value:.2f}"
    if shown == f"{estimate.speedup:.2f}":
        return _NOTHING
    undrafted: str = _NOTHING
    if estimate.undrafted_cost > 1:
        undrafted = message("payoff.undrafted", cost=estimate.undrafted_cost)
    return message(
        "payoff.of_all_tokens", covered=covered, speedup=shown, undrafted=undrafted
    )


def _misfit(measures: Measures, profile: CostProfile) -> Message:
    corrected = correction(measures) is not None
    advice = "misfit_corrected" if corrected else "misfit_unexplained"
    return message(
        "payoff.misfit", profile=profile.name, advice=message(f"payoff.{advice}")
    )


def how_to_know(basis: Basis, profile: CostProfile, engine: Engine) -> Message:
    """Return what to do about an unknown verdict: the cheapest way that works here
    first.
    """
    if basis is Basis.MEASURED:
        return message("how_to_know.measured")
    if profile.basis is Basis.CALIBRATED:
        return message("how_to_know.calibrated")
    if engine.has_latencies:
        measure = message("how_to_know.measure", engine=engine)
    else:
        measure = message("how_to_know.measure_from_outside", engine=engine)
    if profile.contradiction and profile.basis is Basis.MODELLED:
        return message("how_to_know.modelled_contradicted", measure=measure)
    if profile.lacking:
        return message(
            "how_to_know.modelled_lacking", lacking=profile.lacking, measure=measure
        )
    return message("how_to_know.modelled", measure=measure)


def gain_is_likely(state: HysteresisState, case: Case) -> bool:
    """Return whether K=0 is advised although the window leans to a gain."""
    return state.advised.k == 0 and case.payoff.side is PayoffVerdict.BENEFICIAL


def explain_advice(
    action: Action, choice: Choice, state: HysteresisState, case: Case
) -> Message:
    """Return why this K is advised, and which other advice seems better."""
    name: str = action
    k = state.advised.k
    advised = choice.option(k)
    present = choice.option(choice.drafted)
    best = choice.best_drafting
    batch = (case.measures and case.measures.estimate.batch_size) or 1.0
    because: str = _NOTHING
    if action is Action.DISABLE:
        because = _why_none_pays(best, batch, case)
        if best.mean_acceptance_length <= 1:
            name = "disable_nothing_accepted"
        elif best.speedup_most >= 1 or case.payoff.undecided:
            name = "disable_unsure"
    elif action is Action.INCREASE_K and advised.extrapolated:
        because = message("advice.extrapolated", present=choice.drafted)
    elif action is Action.DECREASE_K and advised.speedup >= present.speedup:
        because = message("advice.too_deep", k=k)
    return message(
        f"advice.{name}",
        k=k,
        advised=advised,
        present=present,
        best=best,
        batch=batch,
        method=case.method or message("advice.unnamed_method"),
        usual=case.thresholds.usual_mean_acceptance_length,
        misfit=_misfit_of_drafter(case),
        because=because,
        tried="".join(_measured_k(tried, choice) for tried in choice.tried),
        doubt=_doubt(choice, state, case),
    )


def _measured_k(tried: TriedK, choice: Choice) -> Message:
    """Return how fast another K was that really ran."""
    low, high = map(format_ratio, tried.speed.ends)
    return message(
        "advice.tried", tried=tried, present=choice.drafted, low=low, high=high
    )


def _misfit_of_drafter(case: Case) -> Message:
    if case.should_sample_drafts:
        return message("advice.misfit_or_greedy", engine=case.engine)
    return message("advice.misfit")


def _why_none_pays(best: CandidateK, batch: float, case: Case) -> str:
    """Return what may be wrong or done about it if not even the best K pays."""
    because: str = _NOTHING
    if case.profile.name == "unknown" and not case.method:
        because = message("advice.method_assumed")
    # At break-even, a step of 1.6 plain ones emits 1.6 tokens.
    break_even_alone = case.profile.step_cost(best.num_speculative_tokens, 1)
    pays_alone = batch > 1 and best.mean_acceptance_length > break_even_alone
    if pays_alone and drafts_without_model(case.method):
        because = message("advice.pays_when_few", method=because)
    return because


def _doubt(choice: Choice, state: HysteresisState, case: Case) -> str:
    """Return which other advice seems better, or that none does."""
    if gain_is_likely(state, case):
        return message("advice.gain_likely")
    k = state.advised.k
    if state.pending is None:
        present = choice.option(choice.drafted)
        held = 0 < k <= choice.drafted and choice.option(k).speedup <= present.speedup
        if held and not state.advised.switch:
            return message("advice.none_surely_better")
        return _NOTHING
    best = choice.best
    if best.extrapolated and k > choice.drafted:
        return _NOTHING  # the larger K must be tried first
    if best.num_speculative_tokens == k:
        return message("advice.another_seems_better")
    if best.num_speculative_tokens:
        return message("advice.k_seems_better", k=best.num_speculative_tokens)
    return message("advice.none_seems_better")


def why_varying(case: Case, measures: Measures) -> Message:
    """Return why no K can be advised while drafts vary in length."""
    few = case.shape is not None and case.shape.drafts
    return message(
        "no_advice.few_records" if few else "no_advice.drafts_vary",
        drafted=measures.mean_draft_length,
        k=len(case.counters.accepted_tokens_per_position),
    )
