"""Advice: the records of which K an engine should have, and why. `advising` gives it.

The published rules of thumb are reported beside it.
"""

import math
from enum import StrEnum

from msgspec import Struct

# These stand in annotations that are read at run time, to decode and to describe the
# JSON.
from ..economics.choice import CandidateK
from ..economics.speculative_config import (
    ScheduleRow,
    Speculation,
    make_schedule,
)
from .case import Case
from .messages import message
from .published_rules import Rule


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


def k_at_present_load(schedule: tuple[ScheduleRow, ...], case: Case) -> set[int | None]:
    """Return the K that a schedule has at the present load, which may lie between two
    batch sizes.
    """
    batch = (case.measures and case.measures.estimate.batch_size) or 1.0
    return {
        Speculation(schedule=schedule).scheduled_k(size)
        for size in (int(batch), math.ceil(batch))
    }


def how_to_start(case: Case, advice: Advice) -> str:
    """Return how to start an engine with the advised K, if it takes other options than
    vLLM's JSON; with a K schedule if it takes one and it would have several rows.
    """
    engine = case.engine
    wanted = advice.num_speculative_tokens or 0
    options = engine.options(wanted, case.method)
    start = message("remedy.start_with", engine=engine, options=options)
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
        return start
    rows = make_schedule(
        lengths,
        case.profile,
        prefer=wanted,
        minimum_gain=case.thresholds.advice_minimum_gain,
        method=case.method,
    )
    # An engine may refuse a schedule without the K that it starts with.
    if len(rows) < 2 or wanted not in k_at_present_load(rows, case):
        return start
    scheduled = engine.schedule.text(
        {row.first: row.num_speculative_tokens for row in rows}
    )
    return message(
        "remedy.start_with_schedule", engine=engine, options=options, schedule=scheduled
    )
