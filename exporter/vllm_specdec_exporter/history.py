"""History: the timestamped counters of one engine within one life of its counters.

A *life* ends where counters start anew: when any counter of the engine falls, when a series that had
counted is gone, when the creation time that the server prints moves, or when the server stopped listening
in between, which a restarted process may hide by counting past its old values before it is seen again. No
window ever spans two lives.

Times are seconds of any clock that does not go backwards. Pure: the time comes in with the sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .reading import Counters


@dataclass(frozen=True, slots=True)
class Sample:
    """The counters of one engine and the time in seconds at which they were read."""

    time: float
    counters: Counters


@dataclass(frozen=True, slots=True)
class History:
    """The samples of the present life, oldest first, and what went before in numbers.

    Attributes:
        samples: at most as old as the longest window needs; never empty once something was observed.
        resets: how often the counters were seen to start anew: which life this is.
        interrupted: the server stopped listening since the newest sample.
    """

    samples: tuple[Sample, ...] = ()
    resets: int = 0
    interrupted: bool = False

    @property
    def newest(self) -> Sample | None:
        """The latest sample of the present life."""
        return self.samples[-1] if self.samples else None

    def interrupt(self) -> History:
        """Note that the server stopped listening: what comes next belongs to a new life."""
        return replace(self, interrupted=True) if self.samples else self

    def observe(self, sample: Sample, keep: float) -> History:
        """Return the history with `sample` added and samples older than `keep` seconds dropped.

        A sample that is not later than the newest one (a clock that jumped) starts the history anew, for
        no rate can be formed across it; it counts as no reset, since the counters did not fall.
        """
        previous = self.newest
        if previous is None:
            return replace(self, samples=(sample,), interrupted=False)
        if started_anew(previous.counters, sample.counters):
            return History(samples=(sample,), resets=self.resets + 1)
        if self.interrupted or sample.time <= previous.time:
            return History(samples=(sample,), resets=self.resets)
        oldest = sample.time - keep
        kept = tuple(s for s in self.samples if s.time >= oldest)
        return History(samples=(*kept, sample), resets=self.resets)


def started_anew(previous: Counters, current: Counters) -> bool:
    """Tell whether the counters began again between two samples of one engine."""
    if None not in (previous.created, current.created) and previous.created != current.created:
        return True
    return any(after < before for before, after in _counters(previous, current))


def _counters(previous: Counters, current: Counters) -> Iterator[tuple[float, float]]:
    """Pair the counters of two samples; one that is missing stands at 0, so its loss is a fall."""
    yield previous.drafts or 0.0, current.drafts or 0.0
    yield previous.draft_tokens or 0.0, current.draft_tokens or 0.0
    yield previous.accepted_tokens or 0.0, current.accepted_tokens or 0.0
    yield previous.generation_tokens or 0.0, current.generation_tokens or 0.0
    now = current.accepted_tokens_per_position
    for position, before in enumerate(previous.accepted_tokens_per_position):
        yield before, now[position] if position < len(now) else 0.0
