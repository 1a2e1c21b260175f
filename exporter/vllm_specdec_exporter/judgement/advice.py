"""Advice: which K should this engine have, and why?

The K with the highest speedup is advised (`economics.choice`), if it is surely better than the standing one
and by enough to be worth a restart. The advice stands until another K has been better for as long as the
judged window is: then none of the data that the standing one rests on is left. So it does not flap on noise,
and a K that is advised was better in every sample of that time.

The published rules of thumb are reported beside it, with the reason where they say something else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

# These stand in annotations that are read at run time, to decode and to describe the JSON.
from ..economics.choice import Choice, Option, choose
from ..economics.schedule import ScheduleRow
from .activity import ActivityState
from .rules import Rule, apply_rules

if TYPE_CHECKING:
    from ..economics.cost import CostProfile
    from ..measures import Measures
    from ..thresholds import Thresholds
    from .activity import Activity

#: Mean acceptance lengths that a method usually reaches at the least, as published; one that stays below
#: them at its best K does not fit the target or the traffic.
USUAL_LENGTH = {"eagle": 2.0, "eagle3": 2.0, "ngram": 1.5, "mlp_speculator": 1.5, "suffix": 2.0}

#: A smaller K saves work as well, so from two tokens fewer on a part of the gain suffices.
_SHORTER = 0.25


class Action(StrEnum):
    """What to do about K."""

    KEEP = "keep"
    INCREASE_K = "increase_k"
    DECREASE_K = "decrease_k"
    DISABLE = "disable"
    SWITCH_METHOD = "switch_method"
    INSUFFICIENT_DATA = "insufficient_data"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about K, and why.

    Attributes:
        action: what to do; `insufficient_data` where nothing can be said.
        num_speculative_tokens: the K to have, 0 for none; ``None`` where nothing can be said.
        reason: why, in words.
        rules: what the published rules of thumb say.
        options: what every K in reach gives.
        speculative_config: JSON for vLLM's ``--speculative-config``, to paste; empty without a change or K.
        schedule: rows for vLLM's ``num_speculative_tokens_per_batch_size``.
        schedule_config: the same as `speculative_config` with these rows; empty with a single row.
    """

    action: Action = Action.INSUFFICIENT_DATA
    num_speculative_tokens: int | None = None
    reason: str = ""
    rules: tuple[Rule, ...] = ()
    options: tuple[Option, ...] = ()
    speculative_config: str = ""
    schedule: tuple[ScheduleRow, ...] = ()
    schedule_config: str = ""


@dataclass(frozen=True, slots=True)
class Stance:
    """What is advised: a K, and whether to look for another method."""

    k: int
    switch: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """The advice that stands, and since when the data argue for another."""

    stance: Stance
    doubted_since: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """What advice is drawn from.

    Attributes:
        activity: what the engine does.
        measures: the judged window.
        k: the present K.
        method: how drafts are made.
        profile: what steps cost.
        thresholds: for sample sizes and gains.
    """

    activity: Activity
    measures: Measures | None
    k: int | None
    method: str
    profile: CostProfile
    thresholds: Thresholds


def advise(
    case: Case, standing: Standing | None = None, time: float = 0.0, hold: float = 0.0
) -> tuple[Advice, Standing | None]:
    """Return the advice, and what to hand in again next time.

    Args:
        case: what it is drawn from.
        standing: what came back last time of the same life and the same K.
        time: now, in seconds.
        hold: how long another K must have been better before the advice changes.
    """
    refusal = _refuse(case, standing)
    measures = case.measures
    if refusal or measures is None:
        return Advice(reason=refusal), standing
    survival, drafts = measures.position_acceptance_ratio, measures.drafts or 0.0
    correction = _correction(measures)
    batch = measures.estimate.batch_size or 1.0
    drafted = (measures.mean_draft_length or len(survival)) if measures.drafts_vary else None

    def cost(k: int) -> float:
        # Drafts that vary are judged at the K they have: they cost what they hold, not K.
        return 1 + (case.profile.step_cost(k if drafted is None else min(k, drafted), batch) - 1) * correction

    choice = choose(survival, drafts, cost, reach=0 if drafted is None else len(survival))
    wanted = _wanted(choice, standing, case, varying=drafted is not None)
    standing = _settle(wanted, standing, time, hold)
    rules = apply_rules(measures, case.profile, case.thresholds)
    if drafted is not None and standing.stance.k != 0:
        return Advice(reason=_why_varying(measures), rules=rules), standing
    return _advice(choice, standing.stance, case, rules, batch), standing


def _refuse(case: Case, standing: Standing | None) -> str:
    """Say why no advice can be given; empty where it can."""
    state, measures = case.activity.state, case.measures
    if state is not ActivityState.ACTIVE or measures is None:
        return f"no advice: {case.activity.reason}"
    if measures.estimate.speedup is None:
        return "no advice: without the number of running requests, the cost of a step is not known"
    if not measures.position_acceptance_ratio:
        return "no advice: the server has no usable counters by position"
    drafts = measures.drafts or 0.0
    # Advice once given is not taken back when traffic wanes a little.
    least = case.thresholds.advice_minimum_drafts / (2 if standing else 1)
    if drafts < least:
        return f"no advice on K: {drafts:,.0f} drafts in the window, {least:,.0f} are needed"
    return ""


def _correction(measures: Measures) -> float:
    """Return the factor that brings a step's extra cost in line with the measured speedup, 1 without one."""
    measured, estimate = measures.measured.speedup, measures.estimate
    if (
        not measured
        or not estimate.step_cost
        or estimate.step_cost <= 1
        or not measures.mean_acceptance_length
    ):
        return 1.0
    return max(0.0, measures.mean_acceptance_length / measured - 1) / (estimate.step_cost - 1)


def _wanted(choice: Choice, standing: Standing | None, case: Case, *, varying: bool) -> Stance:
    """Return what the data argue for, with what stands having the benefit of the doubt."""
    present = choice.drafted
    held = standing.stance if standing else Stance(present)
    best = choice.best.num_speculative_tokens
    if varying:
        # Of the other K nothing is known but K = 0, which needs no data.
        best = 0 if choice.option(present).speedup < 1 else present
    k = best if _beats(choice, best, held.k, case.thresholds) else held.k
    return Stance(k, not varying and _misfit(choice, k, held, case))


def _beats(choice: Choice, k: int, held: int, thresholds: Thresholds) -> bool:
    if k == held:
        return False
    this, that = choice.option(k), choice.option(held)
    if k == 0:
        return choice.best_drafting.speedup_high < thresholds.harmful_speedup or (
            that.speedup_high < thresholds.harmful_speedup and choice.best.num_speculative_tokens == 0
        )
    needed = thresholds.advice_minimum_gain * (_SHORTER if held - k > 1 else 1.0)
    return this.speedup >= (1 + needed) * that.speedup and (
        this.extrapolated or choice.surely_better(k, held)
    )


def _misfit(choice: Choice, k: int, held: Stance, case: Case) -> bool:
    """Tell whether the method stays below what it usually reaches, and gains little, even at its best."""
    usual = USUAL_LENGTH.get(case.method)
    if usual is None or k == 0:
        return False
    option, beneficial = choice.option(k), case.thresholds.beneficial_speedup
    longest = choice.option(choice.drafted)
    if held.switch:
        return not (option.speedup_low > beneficial or longest.length_low > usual)
    return option.speedup_high < beneficial and longest.length_high < usual


def _settle(wanted: Stance, standing: Standing | None, time: float, hold: float) -> Standing:
    if standing is None:
        return Standing(wanted)
    if wanted == standing.stance:
        return replace(standing, doubted_since=None)
    since = time if standing.doubted_since is None else standing.doubted_since
    return Standing(wanted) if time - since >= hold else Standing(standing.stance, since)


def _advice(choice: Choice, stance: Stance, case: Case, rules: tuple[Rule, ...], batch: float) -> Advice:
    present = choice.drafted
    k = stance.k
    if k == 0:
        action = Action.DISABLE
    elif stance.switch:
        action = Action.SWITCH_METHOD
    elif k > present:
        action = Action.INCREASE_K
    elif k < present:
        action = Action.DECREASE_K
    else:
        action = Action.KEEP
    return Advice(
        action=action,
        num_speculative_tokens=k,
        reason=_reason(action, choice, k, case, batch),
        rules=rules,
        options=choice.options,
    )


def _reason(action: Action, choice: Choice, k: int, case: Case, batch: float) -> str:
    present = choice.drafted
    now, then = choice.option(present), choice.option(k)
    load = f"at {batch:.1f} requests a batch"
    if action is Action.DISABLE:
        best = choice.best_drafting
        words = (
            f"no K pays {load}: the best, K={best.num_speculative_tokens}, runs "
            f"{best.speedup:.2f} times as fast as no speculation"
        )
        alone = case.profile.break_even_length(best.num_speculative_tokens, 1)
        if batch > 1 and best.mean_acceptance_length > alone:
            words += "; it would pay for fewer requests at a time, so a K schedule may serve better"
        return words
    if action is Action.SWITCH_METHOD:
        usual = USUAL_LENGTH[case.method]
        return (
            f"{case.method} usually reaches {usual:g} tokens a draft and more, here "
            f"{now.mean_acceptance_length:.2f}, and even its best K={k} runs only {then.speedup:.2f} "
            f"times as fast {load}: the drafter does not fit this target or traffic"
        )
    if action is Action.KEEP:
        return f"K={k} runs {now.speedup:.2f} times as fast {load}, and no other K is sure to gain more"
    words = f"K={k} runs {then.speedup:.2f} times as fast {load}, K={present} {now.speedup:.2f} times"
    if action is Action.INCREASE_K:
        return f"{words}; positions from {present} on are extrapolated cautiously"
    lost = f"position {k}" if k == present - 1 else f"positions {k} to {present - 1}"
    return f"{words}: {lost} cost more than they give"


def _why_varying(measures: Measures) -> str:
    k = len(measures.position_acceptance_ratio)
    return (
        f"no advice on K: drafts hold {measures.mean_draft_length:.1f} of K={k} tokens on average, so the "
        "counters do not show how often a deep position is accepted once it is drafted"
    )
