"""Advice: which K should this engine have, and why?

The K with the highest speedup is advised (`economics.choice`), if it is likely to be
better than the present one, and by enough to be worth a restart. The advice changes
only when another K is certain to be better (`hysteresis`).

The published rules of thumb are reported beside it. Every sample updates the advice;
the K schedule is computed less often, because it takes longer than the rest of a poll.
"""

import math
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

# These stand in annotations that are read at run time, to decode and to describe the
# JSON.
from ..economics.choice import CandidateK, Choice
from ..economics.speculative_config import (
    ScheduleRow,
    Speculation,
    drafts_without_model,
    make_schedule,
)
from ..economics.statistics import Z
from ..measures.measures import DraftShape, Measures
from .activity import ActivityState
from .case import ALIKE, Case
from .hysteresis import Evidence, HysteresisState, apply_hysteresis
from .payoff import PayoffVerdict, Rule, apply_rules, why_unknown


class Action(StrEnum):
    """What to do about K."""

    KEEP = "keep"
    INCREASE_K = "increase_k"
    DECREASE_K = "decrease_k"
    DISABLE = "disable"
    SWITCH_METHOD = "switch_method"
    INSUFFICIENT_DATA = "insufficient_data"


class Advice(Struct, frozen=True):
    """What to do about K, and why.

    Attributes:
        action: what to do; `insufficient_data` if there is no advice.
        num_speculative_tokens: the advised K, 0 for no speculation; ``None`` without
            advice.
        reason: why, in words.
        doubted: another advice seems better and follows once that is certain.
        rules: the published rules of thumb, applied.
        options: the speedup of every candidate K.
        speculative_config: JSON for vLLM's ``--speculative-config``, to paste; empty
            without a change or K.
        batch_sizes: the least and the most requests running in the window.
        schedule: rows for vLLM's ``num_speculative_tokens_per_batch_size``; outside
            `batch_sizes` they rest on the cost profile alone.
        schedule_config: the same as `speculative_config` with these rows; empty with a
            single row.
        schedule_note: why there is no schedule, where there could be one.
    """

    action: Action = Action.INSUFFICIENT_DATA
    num_speculative_tokens: int | None = None
    reason: str = ""
    doubted: bool = False
    rules: tuple[Rule, ...] = ()
    options: tuple[CandidateK, ...] = ()
    speculative_config: str = ""
    batch_sizes: tuple[float, float] | None = None
    schedule: tuple[ScheduleRow, ...] = ()
    schedule_config: str = ""
    schedule_note: str = ""

    @property
    def changes_nothing(self) -> bool:
        """Whether there is none, or it keeps the present K and no other one seems
        better.
        """
        return self.action is Action.INSUFFICIENT_DATA or (
            self.action is Action.KEEP and not self.doubted
        )


def advise(
    case: Case,
    state: HysteresisState | None = None,
    time: float = 0.0,
    hold: float = 0.0,
) -> tuple[Advice, HysteresisState | None]:
    """Return the advice at `time`, and the state for the next call with the same K,
    until a reset.

    Another K must have been better for `hold` seconds before the advice changes.
    """
    case = case.with_recorded_positions()
    refusal = _refuse(case, state)
    measures = case.measures
    if refusal or measures is None:
        return Advice(reason=refusal), state
    batch = measures.estimate.batch_size or 1.0
    survival = measures.position_acceptance_ratio
    shape = _shape(case, measures)
    varying = case.varying and shape is None
    # A draft that is shorter than K costs what it holds. Records of single requests
    # show what it would hold with another K.
    if varying:
        drafted = measures.mean_draft_length or 0.0
    else:
        drafted = len(survival) * 2.0 + 1

    def cost(k: int) -> float:
        return case.profile.step_cost(
            shape.length(k) if shape else min(k, drafted), batch
        )

    evidence = Evidence(
        survival=survival,
        drafts=measures.drafts or 0.0,
        counters=case.counters,
        cost=cost,
        settled=case.settled,
        varying=varying,
        only_smaller=bool(case.profile.contradiction),
        payoff=case.payoff,
        thresholds=case.thresholds,
    )
    state = apply_hysteresis(evidence, state, time, hold)
    rules = apply_rules(measures, case.profile, case.thresholds)
    if varying and state.advised.k != 0:
        return Advice(reason=_why_varying(case, measures), rules=rules), state
    return _advice(evidence.in_window(Z), state, case, rules, batch), state


def _shape(case: Case, measures: Measures) -> DraftShape | None:
    """Return the draft lengths by K, if drafts vary and there are enough records of the
    same traffic.
    """
    shape = case.shape
    length = measures.mean_draft_length
    if shape is None or not measures.drafts_vary or not length:
        return None
    k = len(measures.position_acceptance_ratio)
    if len(shape.mean_lengths) > k:
        return None  # of another K
    enough = shape.drafts >= case.thresholds.advice_minimum_drafts
    if enough and abs(shape.mean_length / length - 1) <= ALIKE:
        return shape.of(k)
    return None


def _refuse(case: Case, state: HysteresisState | None) -> str:
    measures = case.measures
    if case.activity.state is not ActivityState.ACTIVE or measures is None:
        return f"no advice: {case.activity.reason}"
    if case.overruled:
        return (
            f"no advice: the last {measures.window} show the opposite of the judged "
            "window"
        )
    if case.unadvisable:
        return f"no advice on K: {case.unadvisable}"
    if measures.estimate.speedup is None:
        return f"no advice: {why_unknown(measures)}"
    if not measures.position_acceptance_ratio:
        reason = "no advice: the server has no usable counters by position"
        counted = case.counters.accepted_tokens_per_position
        if counted or not case.engine.positions_in_records:
            return reason
        return (
            f"{reason}; detailed records of the requests would give them "
            "(docs/requests.md)"
        )
    drafts = measures.drafts or 0.0
    # A little less traffic does not withdraw advice.
    least = case.thresholds.advice_minimum_drafts / (2 if state else 1)
    if drafts < least:
        return (
            f"no advice on K: {drafts:,.0f} drafts in the window, {least:,.0f} are "
            "needed"
        )
    return ""


def _advice(
    choice: Choice,
    state: HysteresisState,
    case: Case,
    rules: tuple[Rule, ...],
    batch: float,
) -> Advice:
    present = choice.drafted
    advised = state.advised
    k = advised.k
    if k == 0:
        action = Action.DISABLE
    elif advised.switch:
        action = Action.SWITCH_METHOD
    elif k > present:
        action = Action.INCREASE_K
    elif k < present:
        action = Action.DECREASE_K
    else:
        action = Action.KEEP
    gains = k == 0 and case.payoff.side is PayoffVerdict.BENEFICIAL
    return Advice(
        action=action,
        num_speculative_tokens=k,
        reason=_reason(action, choice, k, case, batch)
        + _doubt(choice, state, gains=gains),
        doubted=gains or state.pending is not None,
        rules=rules,
        options=choice.options,
    )


def _reason(action: Action, choice: Choice, k: int, case: Case, batch: float) -> str:
    present = choice.drafted
    now = choice.option(present)
    then = choice.option(k)
    load = f"at {batch:.1f} requests a batch"
    if action is Action.DISABLE:
        best = choice.best_drafting
        sure = best.speedup_most < 1 and not case.payoff.undecided
        words = (
            f"no K {'pays' if sure else 'is sure to pay'} {load}: the best, "
            f"K={best.num_speculative_tokens}, runs {best.shown} times as fast as no "
            "speculation"
        )
        if case.profile.name == "unknown" and not case.method:
            words += "; the method is not known, and a draft model of 1:9 is assumed"
        # At break-even, a step of 1.6 plain ones emits 1.6 tokens.
        alone = case.profile.step_cost(best.num_speculative_tokens, 1)
        if (
            batch > 1
            and best.mean_acceptance_length > alone
            and drafts_without_model(case.method)
        ):
            words += (
                "; it would pay for fewer requests at a time, so a K schedule may "
                "serve better"
            )
        return words
    if action is Action.SWITCH_METHOD:
        usual = case.thresholds.usual_mean_acceptance_length
        return (
            f"{case.method or 'the method'} usually reaches {usual:g} tokens a draft "
            "and more, here "
            f"{now.mean_acceptance_length:.2f}, and even its best K={k} runs only "
            f"{then.shown} "
            f"times as fast {load}: the drafter does not fit this target or traffic"
        )
    if action is Action.KEEP:
        return f"K={k} runs {now.speedup:.2f} times as fast {load}"
    least = "at least " if then.underestimate else ""
    words = (
        f"K={k} runs {least}{then.speedup:.2f} times as fast {load}, K={present} "
        f"{now.speedup:.2f} times"
    )
    if action is Action.INCREASE_K:
        return (
            f"{words}; positions from {present} on are extrapolated cautiously, so try "
            "it and look again"
        )
    if then.speedup < now.speedup:
        return words
    return f"{words}: positions from {k} on cost more than they give"


def _doubt(choice: Choice, state: HysteresisState, *, gains: bool) -> str:
    """Return which other advice seems better, or that none does; `gains` if K=0 is
    advised beside a gain.
    """
    if gains:
        return "; lately a gain is likely, and advice follows once that is certain"
    if state.pending is None:
        k = state.advised.k
        now = choice.option(choice.drafted)
        held = 0 < k <= choice.drafted and choice.option(k).speedup <= now.speedup
        if held and not state.advised.switch:
            return ", and no other K is sure to gain more"
        return ""
    best = choice.best
    if best.extrapolated and state.advised.k > choice.drafted:
        return ""  # the larger K must be tried first
    if best.num_speculative_tokens == state.advised.k:
        return "; lately another advice seems better, and follows once that is certain"
    if best.num_speculative_tokens:
        other = f"K={best.num_speculative_tokens}"
    else:
        other = "no speculation"
    return f"; lately {other} seems better, and advice follows once that is certain"


def _why_varying(case: Case, measures: Measures) -> str:
    k = len(case.counters.accepted_tokens_per_position)
    shape = case.shape
    if shape is not None and shape.drafts:
        few = ", once there are enough of the same traffic"
    else:
        few = ""
    return (
        f"no advice on K: drafts hold {measures.mean_draft_length:.1f} of K={k} "
        "tokens on average, so the "
        "counters do not show how often a deep position is accepted once it is "
        "drafted; detailed records of "
        f"the requests would{few} (docs/requests.md)"
    )


#: Interval between two computations of the schedule, as a share of the judged window.
_SHARE = 0.1


class CurrentAdvice(Struct, frozen=True):
    """The advice in force."""

    #: The published advice.
    advice: Advice = Advice(reason="no advice: nothing is known yet")
    state: HysteresisState | None = None  # the hysteresis of the advised K
    #: The K of the window's drafts, else of the engine, when the advice was given.
    k: int | None = None
    schedule: tuple[ScheduleRow, ...] = ()
    scheduled_at: float | None = None  # when the schedule was computed, in seconds


def update_advice(
    before: CurrentAdvice, case: Case, time: float, window: float
) -> CurrentAdvice:
    """Return the advice in force after another sample, at `time`.

    `window` is the length of the judged window; another K must have been better for
    that long. All in seconds.
    """
    # With a K schedule, the window may have drafts of a smaller K alone.
    if case.measures:
        drafted = len(case.measures.position_acceptance_ratio)
    else:
        drafted = 0
    k = drafted or case.k
    if before.k != k:
        before = CurrentAdvice(k=k)
    advice, state = advise(case, before.state, time, window)
    after = replace(before, advice=advice, state=state)
    if (
        advice.action is Action.INSUFFICIENT_DATA
        or case.measures is None
        or not case.engine.takes_config
    ):
        return after
    note = _no_schedule(advice, case)
    if note:
        return replace(
            after, advice=_to_paste(replace(advice, schedule_note=note), (), case)
        )
    moved = before.advice.num_speculative_tokens != advice.num_speculative_tokens
    due = (
        moved
        or before.scheduled_at is None
        or not 0 <= time - before.scheduled_at < _SHARE * window
    )
    if due:
        lengths = case.measures.mean_acceptance_length_at
        gain = case.thresholds.advice_minimum_gain
        prefer = advice.num_speculative_tokens or 0
        rows = make_schedule(
            lengths, case.profile, prefer=prefer, minimum_gain=gain, method=case.method
        )
        after = replace(after, schedule=rows, scheduled_at=time)
    if advice.num_speculative_tokens not in _here(after.schedule, case):
        note = (
            "at the present load its K would be another one, not sure to gain more "
            "than the advised one"
        )
        return replace(
            after, advice=_to_paste(replace(advice, schedule_note=note), (), case)
        )
    return replace(after, advice=_to_paste(advice, after.schedule, case))


def _here(schedule: tuple[ScheduleRow, ...], case: Case) -> set[int | None]:
    """Return the K that a schedule has at the present load, which may lie between two
    batch sizes.
    """
    batch = (case.measures and case.measures.estimate.batch_size) or 1.0
    return {
        Speculation(schedule=schedule).scheduled_k(size)
        for size in (int(batch), math.ceil(batch))
    }


def _no_schedule(advice: Advice, case: Case) -> str:
    if not case.engine.takes_schedule:
        return "a K schedule is known of vLLM only"
    if case.engines > 1:
        return "vLLM ignores a K schedule with data parallelism"
    if advice.action is Action.DISABLE and not drafts_without_model(case.method):
        return (
            "with a draft model, K=0 in a schedule still costs its first pass: switch "
            "speculation off"
        )
    if advice.action is not Action.DISABLE and case.varying:
        return (
            "drafts vary in length, and what a smaller K costs them differs from batch "
            "to batch"
        )
    if advice.doubted:
        return "a K schedule follows once the advice is settled"
    if advice.action is Action.INCREASE_K:
        return (
            "a K schedule follows once the larger K was tried: vLLM allows none beyond "
            "the present one"
        )
    return ""


def _to_paste(advice: Advice, schedule: tuple[ScheduleRow, ...], case: Case) -> Advice:
    wanted = advice.num_speculative_tokens
    most = max((row.num_speculative_tokens for row in schedule), default=0)
    return replace(
        advice,
        speculative_config=case.speculation.with_k(wanted)
        if wanted and wanted != case.k
        else "",
        batch_sizes=case.batch_sizes,
        schedule=schedule,
        schedule_config=case.speculation.with_k(most, schedule)
        if len(schedule) > 1 and most
        else "",
    )


def how_to_start(case: Case, advice: Advice) -> str:
    """Return how to start an engine with the advised K, if it takes other options than
    vLLM's JSON; with a K schedule if it takes one and it would have several rows.
    """
    engine = case.engine
    wanted = advice.num_speculative_tokens or 0
    text = f"Start {engine.name} with {engine.options(wanted, case.method)}"
    lengths = [
        option.mean_acceptance_length
        for option in advice.options[1:]
        if not option.extrapolated
    ]
    if (
        engine.schedule is None
        or advice.action is Action.INCREASE_K
        or not lengths
        or case.method not in engine.schedule.methods
    ):
        return f"{text}."
    rows = make_schedule(
        lengths,
        case.profile,
        prefer=wanted,
        minimum_gain=case.thresholds.advice_minimum_gain,
        method=case.method,
    )
    # An engine may refuse a schedule without the K that it starts with.
    if len(rows) < 2 or wanted not in _here(rows, case):
        return f"{text}."
    scheduled = engine.schedule.text(
        {row.first: row.num_speculative_tokens for row in rows}
    )
    return f"{text}; or, for K by batch size, also with {scheduled}."
