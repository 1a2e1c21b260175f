"""Current advice: the advice in force for an engine, with the configuration to paste.

Every sample updates the advice. The K schedule is computed less often: it takes longer than the rest of a
poll, and a server is not restarted twice a minute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..economics.speculative_config import ScheduleRow, make_schedule
from .advice import Action, Advice, advise

if TYPE_CHECKING:
    from .case import Case
    from .hysteresis import HysteresisState

#: Interval between two computations of the schedule, as a share of the judged window.
_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class CurrentAdvice:
    """The advice in force.

    Attributes:
        advice: the published advice.
        state: the hysteresis of the advised K.
        k: the K of the engine when the advice was given.
        schedule: the K schedule.
        scheduled_at: when the schedule was computed, in seconds.
    """

    advice: Advice = Advice(reason="no advice: nothing is known yet")
    state: HysteresisState | None = None
    k: int | None = None
    schedule: tuple[ScheduleRow, ...] = ()
    scheduled_at: float | None = None


def update_advice(before: CurrentAdvice, case: Case, time: float, window: float) -> CurrentAdvice:
    """Return the advice in force after another sample.

    Args:
        before: the advice so far.
        case: the engine at the newest sample.
        time: now, in seconds.
        window: length of the judged window in seconds; another K must have been better for that long.
    """
    if before.k != case.k:
        before = CurrentAdvice(k=case.k)
    advice, state = advise(case, before.state, time, window)
    after = replace(before, advice=advice, state=state)
    if advice.action is Action.INSUFFICIENT_DATA or case.measures is None or not case.vllm:
        return after
    note = _no_schedule(advice, case)
    if note:
        return replace(after, advice=_to_paste(replace(advice, schedule_note=note), (), case))
    moved = before.advice.num_speculative_tokens != advice.num_speculative_tokens
    due = moved or before.scheduled_at is None or not 0 <= time - before.scheduled_at < _SHARE * window
    if due:
        lengths = case.measures.mean_acceptance_length_at
        gain = case.thresholds.advice_minimum_gain
        prefer = advice.num_speculative_tokens or 0
        rows = make_schedule(lengths, case.profile, prefer=prefer, minimum_gain=gain)
        after = replace(after, schedule=rows, scheduled_at=time)
    return replace(after, advice=_to_paste(advice, after.schedule, case))


def _no_schedule(advice: Advice, case: Case) -> str:
    """Return why there is no K schedule, empty if there is one."""
    if case.engines > 1:
        return "vLLM ignores a K schedule with data parallelism"
    if advice.action is not Action.DISABLE and case.measures is not None and case.measures.drafts_vary:
        return "drafts vary in length, and what a smaller K costs them differs from batch to batch"
    if advice.doubted:
        return "a K schedule follows once the advice is settled"
    if advice.action is Action.INCREASE_K:
        return "a K schedule follows once the larger K was tried: vLLM allows none beyond the present one"
    return ""


def _to_paste(advice: Advice, schedule: tuple[ScheduleRow, ...], case: Case) -> Advice:
    wanted = advice.num_speculative_tokens
    most = max((row.num_speculative_tokens for row in schedule), default=0)
    return replace(
        advice,
        speculative_config=case.speculation.with_k(wanted) if wanted and wanted != case.k else "",
        batch_sizes=case.batch_sizes,
        schedule=schedule,
        schedule_config=case.speculation.with_k(most, schedule) if len(schedule) > 1 and most else "",
    )
