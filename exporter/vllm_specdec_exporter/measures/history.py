"""History: the timestamped counters of one engine within one life of its counters.

A *life* ends where counters start anew: when any counter of the engine falls, or when the creation time
that the server prints moves. No window ever spans two lives. Nor does one span a time in which the server
was gone, for a restarted process may count past its old values before it is seen again; nor an answer that
lacks a series which had counted, for nobody knows what became of it.

Times are seconds of any clock that does not go backwards. Pure: the time comes in with the sample.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..economics.baseline_match import Match
    from ..engines.reading import Counters, Latencies

_TOTALS = ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens")


@dataclass(frozen=True, slots=True)
class Sample:
    """What was read of one engine at one time.

    Attributes:
        time: in seconds.
        counters: cumulative counters.
        requests_running: requests in the batch, where the server tells.
        draft_load: for each draft of this life the requests that ran when it was made, summed up, so that a
            difference of two samples over that of their drafts is the mean batch of the drafts between.
        latencies: of finished requests, where they are read.
        match: the same beside the baseline's at the same load, where there is a baseline.
    """

    time: float
    counters: Counters
    requests_running: float | None = None
    draft_load: float = 0.0
    latencies: Latencies | None = None
    match: Match | None = None

    def after(self, previous: Sample) -> Sample:
        """Return this sample as the next one of the life that `previous` belongs to."""
        running = running_between(previous, self)
        if running is None:
            return self
        drafts = (self.counters.drafts or 0.0) - (previous.counters.drafts or 0.0)
        return replace(self, draft_load=previous.draft_load + drafts * running)


def running_between(first: Sample, last: Sample) -> float | None:
    """Return how many requests ran between two samples, at least 1: the mean of the ends at which any did.

    What was done between them was done for a request, also where neither end saw it.
    """
    ends = [end for end in (first.requests_running, last.requests_running) if end]
    if not ends:
        return None if first.requests_running is None and last.requests_running is None else 1.0
    return max(1.0, sum(ends) / len(ends))


@dataclass(frozen=True, slots=True)
class History:
    """The samples of the present life, oldest first, and what went before in numbers.

    Attributes:
        samples: at most as old as the longest window needs; none after an answer that lost a series.
        resets: how often the counters were seen to start anew: which life this is.
        interrupted: the server was gone since the newest sample.
    """

    samples: tuple[Sample, ...] = ()
    resets: int = 0
    interrupted: bool = False

    @property
    def newest(self) -> Sample | None:
        """The latest sample of the present life."""
        return self.samples[-1] if self.samples else None

    def since(self, time: float) -> tuple[Sample, ...]:
        """Return the samples that are not older than `time`; samples stand in the order of their times."""
        return self.samples[bisect_left(self.samples, time, key=attrgetter("time")) :]

    def batch_sizes(self, since: float) -> tuple[float, float] | None:
        """Return the least and the most requests that samples from `since` on saw running, if any did."""
        seen = [s.requests_running for s in self.since(since) if s.requests_running]
        return (min(seen), max(seen)) if seen else None

    def interrupt(self) -> History:
        """Note that the server was gone: no window may span that."""
        return replace(self, interrupted=True) if self.samples else self

    def observe(self, sample: Sample, keep: float) -> History:
        """Return the history with `sample` added and samples older than `keep` seconds dropped.

        A sample that is not later than the newest one (a clock that jumped) starts the history anew, for
        no rate can be formed across it; it counts as no reset, since the counters did not fall.
        """
        previous = self.newest
        if previous is None:
            return replace(self, samples=(sample,), interrupted=False)
        if started_anew(previous.counters, sample.counters) or (
            self.interrupted and _buckets_fell(previous.counters, sample.counters)
        ):
            return History(samples=(sample,), resets=self.resets + 1)
        if _lost(previous.counters, sample.counters):
            # What the next answer shows must not be taken for an increase since this one.
            return History(resets=self.resets)
        if self.interrupted or sample.time <= previous.time:
            return History(samples=(sample,), resets=self.resets)
        kept = self.since(sample.time - keep)
        return History(samples=(*kept, sample.after(previous)), resets=self.resets)


def started_anew(previous: Counters, current: Counters) -> bool:
    """Tell whether the counters began again between two samples of one engine."""
    if None not in (previous.created, current.created) and previous.created != current.created:
        return True
    return any(after < before for before, after in _counters(previous, current))


def _counters(previous: Counters, current: Counters) -> Iterator[tuple[float, float]]:
    """Pair the counters that both samples have."""
    for name in _TOTALS:
        before, after = getattr(previous, name), getattr(current, name)
        if before is not None and after is not None:
            yield before, after
    now = current.accepted_tokens_per_position
    if now:
        for position, count in enumerate(previous.accepted_tokens_per_position):
            # A deeper position that is gone, as after a restart with a smaller K, stands at 0.
            yield count, now[position] if position < len(now) else 0.0


def _lost(previous: Counters, current: Counters) -> bool:
    """Tell whether a series that had counted is missing."""
    return any(
        getattr(previous, name) and not getattr(current, name)
        for name in (*_TOTALS, "accepted_tokens_per_position")
    )


def _buckets_fell(previous: Counters, current: Counters) -> bool:
    """Tell whether drafts with at most some number of accepted tokens are half of what they were, or fewer.

    Counters that all grew past their old values still give a new process away by that; a torn answer takes
    a few away, never half.
    """
    if previous.drafts is None or current.drafts is None:
        return False
    pairs = zip(previous.accepted_tokens_per_position, current.accepted_tokens_per_position, strict=False)
    return any(current.drafts - now < (previous.drafts - before) / 2 for before, now in pairs)
