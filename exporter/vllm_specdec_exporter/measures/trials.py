"""Trials: the K that an engine really ran, and how fast it was with each at each load.
Pure.

A restart with another K begins every counter anew, while the traffic goes on. So the
time per output token before and after it is a measurement of both K, and better
evidence than any model of a K that never ran. The estimator is that of `equal_load`: a
stratum is a load, as the nearest power of 2, and a block of time is two minutes.

Two K are compared only if their traffic was alike: the first position is accepted as
often, whatever K, and the contexts widen the interval by what they differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from ..economics.choice import TriedK
from ..economics.equal_load import (
    MINIMUM_BLOCKS,
    Finished,
    Stratum,
    speedup_over_strata,
    total,
)
from ..economics.step_totals import steps_between
from .history import Sample, counter_increase, running_between

#: Length of a block of time, in seconds. With shorter ones, a load or a temperature
#: that wanders over minutes looked like a difference between two K (in simulations).
_BLOCK = 120.0
#: Blocks that are kept of one K at one load: half an hour. With six there is an
#: interval, and older ones are of older traffic.
_KEPT_BLOCKS = 15
#: K and loads that are kept, so that memory is bounded: eight K at six loads.
_KEPT_TRIALS = 48
#: After a week the traffic, or the machine, is another one.
_KEPT_SECONDS = 7 * 86_400.0
#: A server that has just started captures graphs and fills its caches.
_WARM_UP = 60.0
#: Share of K that drafts must have to be drafts of this K: a schedule drafts fewer.
_FULL_DRAFT = 0.95
#: Largest logarithm of the acceptance of the first position with one K over that with
#: another: the same prompts differed by 0.10 between K=1 and K=8 (vLLM 48892).
_ALIKE = 0.15


class TrialBlock(Struct, frozen=True):
    """What one K did in a block of time at one load."""

    number: int  # of the block, since the clock's zero
    finished: Finished  # seconds between the tokens of each request, by token
    drafts: float
    accepted: float
    first_accepted: float  # drafts of which the first token was accepted

    def plus(self, block: TrialBlock) -> TrialBlock:
        """Return both as one block."""
        return TrialBlock(
            number=block.number,
            finished=total((self.finished, block.finished)),
            drafts=self.drafts + block.drafts,
            accepted=self.accepted + block.accepted,
            first_accepted=self.first_accepted + block.first_accepted,
        )


class Trial(Struct, frozen=True):
    """One K at one load."""

    k: int
    load: int  # logarithm to base 2 of the requests in the batch, rounded
    blocks: tuple[TrialBlock, ...]  # the latest ones, oldest first

    @property
    def ended(self) -> float:
        """When it was last seen, in seconds."""
        return (self.blocks[-1].number + 1) * _BLOCK

    def with_block(self, block: TrialBlock) -> Trial:
        """Return the trial after another interval, which may be of the same block."""
        *earlier, latest = self.blocks
        if latest.number == block.number:
            return replace(self, blocks=(*earlier, latest.plus(block)))
        # A clock that was set back numbers a block twice.
        kept = [each for each in self.blocks if each.number < block.number]
        return replace(self, blocks=(*kept, block)[-_KEPT_BLOCKS:])

    @property
    def by_time(self) -> dict[int, Finished]:
        """What finished, by block of time."""
        return {block.number: block.finished for block in self.blocks}

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per draft."""
        drafts = math.fsum(block.drafts for block in self.blocks)
        return 1 + math.fsum(block.accepted for block in self.blocks) / drafts

    @property
    def first_acceptance_ratio(self) -> float:
        """Share of the drafts of which the first token was accepted."""
        drafts = math.fsum(block.drafts for block in self.blocks)
        return math.fsum(block.first_accepted for block in self.blocks) / drafts


class Trials(Struct, frozen=True):
    """The K that one engine ran; they outlast a restart."""

    deployment: tuple[str, ...] = ()  # what a change of makes trials incomparable
    trials: tuple[Trial, ...] = ()  # the one that was seen last comes last

    def add(
        self,
        previous: Sample,
        newest: Sample,
        *,
        started: float,
        context_tokens: float | None,
        deployment: tuple[str, ...],
    ) -> Trials:
        """Return the trials with the interval between two adjacent samples.

        `started` is when the life of the engine was first seen, in seconds, and
        `context_tokens` the mean context of its requests.
        """
        state = self
        if deployment != self.deployment:
            state = Trials(deployment)
        if previous.time - started < _WARM_UP:
            return state
        found = _interval(previous, newest, context_tokens)
        if found is None:
            return state
        known: Trial | None = None
        others = []
        for trial in state.trials:
            if (trial.k, trial.load) == (found.k, found.load):
                known = trial
            elif newest.time - trial.ended < _KEPT_SECONDS:
                others.append(trial)
        latest = found if known is None else known.with_block(found.blocks[0])
        return replace(state, trials=(*others, latest)[-_KEPT_TRIALS:])

    def others(self, k: int, batch: float) -> Iterator[TriedK]:
        """Yield every other K that ran at this load with the same traffic, and how fast
        it was.
        """
        here = self._at(batch)
        present = here.pop(k, None)
        if present is None:
            return
        for trial in here.values():
            stratum = Stratum.of(trial.by_time, present.by_time)
            of_present = speedup_over_strata((stratum,), concurrent=False)
            if of_present.low is None or not _alike(trial, present):
                continue
            yield TriedK(
                num_speculative_tokens=trial.k,
                speed=of_present.inverse,
                mean_acceptance_length=trial.mean_acceptance_length,
            )

    def awaited(self, k: int, batch: float, age: float) -> int | None:
        """Return another K that ran long enough at this load to be compared with, as
        soon as the present one has; ``None`` without any.

        `age` is for how long the engine has been seen, in seconds.
        """
        here = self._at(batch)
        present = here.pop(k, None)
        if present is None and age > _WARM_UP + _BLOCK:
            return None  # it shows no times
        if present is not None and len(present.blocks) >= MINIMUM_BLOCKS:
            return None
        comparable = [
            trial.k for trial in here.values() if len(trial.blocks) >= MINIMUM_BLOCKS
        ]
        return next(iter(comparable), None)

    def _at(self, batch: float) -> dict[int, Trial]:
        """Return what ran at a load, by K."""
        load = _load(batch)
        return {trial.k: trial for trial in self.trials if trial.load == load}


def _load(batch: float) -> int:
    return round(math.log2(max(1.0, batch)))


def _alike(trial: Trial, present: Trial) -> bool:
    """Return whether the same tokens were as easy to draft."""
    ratios = (trial.first_acceptance_ratio, present.first_acceptance_ratio)
    if min(ratios) <= 0:
        return False
    return abs(math.log(ratios[0] / ratios[1])) <= _ALIKE


def _interval(
    previous: Sample, newest: Sample, context_tokens: float | None
) -> Trial | None:
    """Return what an interval shows of one K; ``None`` if it shows none."""
    before = previous.counters
    after = newest.counters
    k = len(after.accepted_tokens_per_position)
    batch = running_between(previous, newest)
    if not k or len(before.accepted_tokens_per_position) != k or batch is None:
        return None
    counted = counter_increase(before, after)
    drafts = counted.drafts or 0.0
    drafted = counted.draft_tokens or 0.0
    if drafts <= 0 or drafted < _FULL_DRAFT * k * drafts:
        return None
    steps = steps_between((before, previous.steps), (after, newest.steps)).steps
    seconds = steps.step_seconds or 0.0
    # The first token of a request follows no other.
    tokens = (counted.generation_tokens or 0.0) - (steps.requests or 0.0)
    if seconds <= 0 or tokens <= 0:
        return None
    finished = Finished(
        seconds=seconds,
        weight=tokens,
        log_load=tokens * math.log(batch),
        log_prompt=tokens * math.log(max(1.0, context_tokens or 1.0)),
        generated=tokens,
    )
    block = TrialBlock(
        number=math.floor(newest.time / _BLOCK),
        finished=finished,
        drafts=drafts,
        accepted=counted.accepted_tokens or 0.0,
        first_accepted=counted.accepted_tokens_per_position[0],
    )
    return Trial(k, _load(batch), (block,))
