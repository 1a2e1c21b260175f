"""Advising: which K should this engine have?

The K with the highest speedup is advised (`economics.choice`), if it is likely to be
better than the present one, and by enough to be worth a restart. The advice changes
only when another K is certain to be better (`hysteresis`).

Every sample updates the advice; the K schedule is computed less often, because it takes
longer than the rest of a poll.
"""

from msgspec import Struct
from msgspec.structs import replace

from ..economics.choice import Choice
from ..economics.speculative_config import (
    ScheduleRow,
    drafts_without_model,
    make_schedule,
)
from ..economics.statistics import Z
from ..measures.measures import DraftShape, Measures
from .activity import ActivityState
from .advice import Action, Advice, k_at_present_load
from .case import ALIKE, Case
from .explanation import explain_advice, gain_is_likely, why_no_estimate, why_varying
from .hysteresis import Evidence, HysteresisState, apply_hysteresis
from .messages import Message, message
from .published_rules import Rule, apply_rules

#: Interval between two computations of the schedule, as a share of the judged window:
#: rows that move at every poll could not be copied.
_SCHEDULE_INTERVAL = 0.1


class CurrentAdvice(Struct, frozen=True):
    """The advice in force."""

    #: The published advice.
    advice: Advice = Advice(reason=message("no_advice.started"))
    state: HysteresisState | None = None  # the hysteresis of the advised K
    #: The K of the window's drafts, else of the engine, when the advice was given.
    k: int | None = None
    schedule: tuple[ScheduleRow, ...] = ()
    scheduled_at: float | None = None  # when the schedule was computed, in seconds


def update_advice(
    current: CurrentAdvice, case: Case, time: float, window: float
) -> CurrentAdvice:
    """Return the advice in force after another sample, at `time`.

    `window` is the length of the judged window; another K must have been better for
    that long. All in seconds.
    """
    # With a K schedule, the window may have drafts of a smaller K alone.
    drafted = 0
    if case.measures:
        drafted = len(case.measures.position_acceptance_ratio)
    k = drafted or case.k
    # What was held of another K says nothing of this one.
    if current.k != k:
        current = CurrentAdvice(k=k)
    advice, state = _advise(case, current.state, time, window)
    updated = replace(current, advice=advice, state=state)
    if advice.action is Action.INSUFFICIENT_DATA or case.measures is None:
        return updated
    if not case.engine.takes_config:
        return updated  # the server takes no configuration in JSON
    schedule: tuple[ScheduleRow, ...] = ()
    note = _why_no_schedule(advice, case)
    if not note:
        changed = current.advice.num_speculative_tokens != advice.num_speculative_tokens
        if changed or _due(current.scheduled_at, time, window):
            rows = _make_schedule(advice, case, case.measures)
            updated = replace(updated, schedule=rows, scheduled_at=time)
        schedule = updated.schedule
        if advice.num_speculative_tokens not in k_at_present_load(schedule, case):
            schedule = ()
            note = message("no_schedule.another_here")
    return replace(updated, advice=_with_config(advice, case, schedule, note))


def _due(scheduled_at: float | None, time: float, window: float) -> bool:
    if scheduled_at is None:
        return True
    age = time - scheduled_at
    # A negative age is that of a later time: the clock went back, and a schedule that
    # waited for that time could be due only in hours.
    return age < 0 or age >= _SCHEDULE_INTERVAL * window


def _make_schedule(
    advice: Advice, case: Case, measures: Measures
) -> tuple[ScheduleRow, ...]:
    return make_schedule(
        measures.mean_acceptance_length_at,
        case.profile,
        prefer=advice.num_speculative_tokens or 0,
        minimum_gain=case.thresholds.advice_minimum_gain,
        method=case.method,
    )


def _why_no_schedule(advice: Advice, case: Case) -> Message | None:
    disabled = advice.action is Action.DISABLE
    if not case.engine.takes_schedule:
        return message("no_schedule.not_vllm")
    if case.engines > 1:
        return message("no_schedule.data_parallel")
    if disabled and not drafts_without_model(case.method):
        return message("no_schedule.first_pass")
    if not disabled and case.varying:
        return message("no_schedule.drafts_vary")
    if advice.doubted:
        return message("no_schedule.doubted")
    if advice.action is Action.INCREASE_K:
        return message("no_schedule.larger_k_first")
    return None


def _with_config(
    advice: Advice, case: Case, schedule: tuple[ScheduleRow, ...], note: str | None
) -> Advice:
    """Return the advice with what to paste, with and without a schedule."""
    advised = advice.num_speculative_tokens
    speculative_config = ""
    if advised and advised != case.k:
        speculative_config = case.speculation.with_k(advised)
    largest = max((row.num_speculative_tokens for row in schedule), default=0)
    schedule_config = ""
    if len(schedule) > 1 and largest:
        schedule_config = case.speculation.with_k(largest, schedule)
    return replace(
        advice,
        speculative_config=speculative_config,
        batch_sizes=case.batch_sizes,
        schedule=schedule,
        schedule_config=schedule_config,
        schedule_note=note or "",
    )


def _advise(
    case: Case, state: HysteresisState | None, time: float, hold: float
) -> tuple[Advice, HysteresisState | None]:
    """Return the advice at `time`, and the state for the next call with the same K,
    until a reset.

    Another K must have been better for `hold` seconds before the advice changes.
    """
    case = case.with_recorded_positions()
    measures = case.measures
    if case.activity.state is not ActivityState.ACTIVE or measures is None:
        reason = message("no_advice.inactive", reason=case.activity.reason)
        return Advice(reason=reason), state
    refusal = _why_no_advice(case, measures, advised=state is not None)
    if refusal:
        return Advice(reason=refusal), state
    shape = _recorded_shape(case, measures)
    evidence = _evidence(case, measures, shape)
    state = apply_hysteresis(evidence, state, time, hold)
    rules = apply_rules(measures, case.profile, case.thresholds)
    if evidence.varying and state.advised.k != 0:
        return Advice(reason=why_varying(case, measures), rules=rules), state
    return _advice(evidence.in_window(Z), state, case, rules), state


def _why_no_advice(case: Case, measures: Measures, *, advised: bool) -> Message | None:
    if case.overruled:
        return message("no_advice.overruled", window=measures.window)
    if case.unadvisable:
        return message("no_advice.unadvisable", reason=case.unadvisable)
    if measures.estimate.speedup is None:
        return message("no_advice.no_speedup", reason=why_no_estimate(measures))
    if not measures.position_acceptance_ratio:
        counted = case.counters.accepted_tokens_per_position
        if case.engine.positions_in_records and not counted:
            return message("no_advice.positions_in_records")
        return message("no_advice.no_positions")
    drafts = measures.drafts or 0.0
    needed = case.thresholds.advice_minimum_drafts
    if advised:
        needed /= 2  # a little less traffic does not withdraw advice
    if drafts < needed:
        return message("no_advice.few_drafts", drafts=drafts, needed=needed)
    return None


def _recorded_shape(case: Case, measures: Measures) -> DraftShape | None:
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


def _evidence(case: Case, measures: Measures, shape: DraftShape | None) -> Evidence:
    survival = measures.position_acceptance_ratio
    batch = measures.estimate.batch_size or 1.0
    varying = case.varying and shape is None
    longest = len(survival) * 2.0 + 1  # no K that is considered is larger
    if varying:
        longest = measures.mean_draft_length or 0.0

    lengths = (1.0, *measures.mean_acceptance_length_at)
    prompts = case.profile.prompt_times(batch)

    def cost(k: int) -> float:
        # A draft that is shorter than K costs what it holds. Records of single requests
        # show what it would hold with another K.
        drafted = shape.length(k) if shape else min(k, longest)
        step_cost = case.profile.step_cost(drafted, batch)
        # Prompts take the same time for each token whatever K is, as in the estimate;
        # without drafts no drafter computes them.
        prompt_cost = lengths[min(k, len(lengths) - 1)] * prompts.typical
        if k:
            prompt_cost *= prompts.drafting
        return (step_cost + prompt_cost) / (1 + prompts.typical)

    return Evidence(
        survival=survival,
        drafts=measures.drafts or 0.0,
        counters=case.counters,
        cost=cost,
        settled=case.settled,
        varying=varying,
        only_smaller=bool(case.profile.contradiction),
        payoff=case.payoff,
        thresholds=case.thresholds,
        tried=case.tried,
        delivered_share=measures.delivered_share,
    )


def _advice(
    choice: Choice, state: HysteresisState, case: Case, rules: tuple[Rule, ...]
) -> Advice:
    action = _action(choice, state)
    return Advice(
        action=action,
        num_speculative_tokens=state.advised.k,
        reason=explain_advice(action, choice, state, case),
        doubted=gain_is_likely(state, case) or state.pending is not None,
        rules=rules,
        options=choice.options,
    )


def _action(choice: Choice, state: HysteresisState) -> Action:
    k = state.advised.k
    if k == 0:
        return Action.DISABLE
    if state.advised.switch:
        return Action.SWITCH_METHOD
    if k > choice.drafted:
        return Action.INCREASE_K
    if k < choice.drafted:
        return Action.DECREASE_K
    return Action.KEEP
