"""The recent past of one model's requests: slices of the window, the oldest of which falls off."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .result import Outcome, WorstRequest
from .tally import Positions, Recent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..measures.measures import DraftShape
    from .grouping import GroupKey
    from .observation import Observation


#: Slices that a window is made of: its edge is as sharp as one of them.
SLICES = 60

#: Losing requests that are kept, those with the lowest acceptance.
MOST_WORST = 10

#: Drafts below which a low acceptance ratio says little of a request.
LEAST_DRAFTS = 5


@dataclass(slots=True)
class Slice:
    """What happened within a part of the window, or within all of it.

    Attributes:
        groups: requests by group.
        positions: what their steps drafted.
        worst: losing requests with the lowest acceptance, in no order.
        unrecorded: requests whose answers told nothing of speculation.
    """

    groups: dict[GroupKey, Recent] = field(default_factory=dict)
    positions: Positions = field(default_factory=Positions)
    worst: list[WorstRequest] = field(default_factory=list)
    unrecorded: int = 0

    def add(self, key: GroupKey, observation: Observation, outcome: Outcome) -> None:
        """Count a request for which something was drafted."""
        record = observation.record
        if record is None or record.acceptance_ratio is None:
            return
        group = self.groups.setdefault(key, Recent())
        group.add(record, outcome, observation.completion_tokens or 0)
        self.positions.add(record.steps)
        if record.drafts >= LEAST_DRAFTS and outcome is Outcome.LOSES:
            self._keep_worst(
                WorstRequest(
                    time=observation.time,
                    request_id=observation.request_id,
                    temperature=key.temperature,
                    request_type=key.request_type,
                    stream=observation.stream,
                    acceptance_ratio=record.acceptance_ratio,
                    drafts=record.drafts,
                    draft_tokens=record.draft_tokens,
                    completion_tokens=observation.completion_tokens,
                    tpot_seconds=observation.tpot_seconds,
                )
            )

    def _keep_worst(self, request: WorstRequest) -> None:
        self.worst = _worst_of([*self.worst, request])


def _worst_of(requests: Iterable[WorstRequest]) -> list[WorstRequest]:
    return heapq.nsmallest(MOST_WORST, requests, key=badness)


def badness(request: WorstRequest) -> tuple[float, int]:
    """Return what requests are sorted by, the worst first: of equals the one that drafted most."""
    return request.acceptance_ratio, -request.draft_tokens


class RecentWindow:
    """The last `seconds` of one model's requests.

    What all slices hold together is kept too, and what falls off is taken from it again: to add them all up
    would take long, again and again, and traffic waits meanwhile.
    """

    def __init__(self, seconds: float) -> None:
        self._length = seconds / SLICES
        self._slices: deque[tuple[int, Slice]] = deque()
        self._groups: dict[GroupKey, Recent] = {}
        self._positions = Positions()

    def add(self, key: GroupKey, observation: Observation, outcome: Outcome, time: float) -> None:
        """Count a request that ended at `time`, in seconds of a clock that never goes back."""
        record = observation.record
        if record is None or record.acceptance_ratio is None:
            return
        self._now(time).add(key, observation, outcome)
        tokens = observation.completion_tokens or 0
        self._groups.setdefault(key, Recent()).add(record, outcome, tokens)
        self._positions.add(record.steps)

    def add_unrecorded(self, time: float) -> None:
        """Count a request, that ended at `time`, of which its answer told nothing."""
        self._now(time).unrecorded += 1

    def _now(self, time: float) -> Slice:
        number = int(time // self._length)
        if not self._slices or self._slices[-1][0] < number:
            self._forget(number)
            self._slices.append((number, Slice()))
        return self._slices[-1][1]

    def whole(self, time: float) -> Slice:
        """Return all that the window holds at `time`. It goes on changing, and is not to be changed."""
        self._forget(int(time // self._length))
        parts = [part for _, part in self._slices]
        return Slice(
            self._groups,
            self._positions,
            _worst_of(request for part in parts for request in part.worst),
            sum(part.unrecorded for part in parts),
        )

    def shape(self, time: float) -> DraftShape:
        """Return how long its drafts are at `time`."""
        self._forget(int(time // self._length))
        return self._positions.shape

    def _forget(self, number: int) -> None:
        while self._slices and self._slices[0][0] <= number - SLICES:
            _, gone = self._slices.popleft()
            for key, group in gone.groups.items():
                self._groups[key].take(group)
                if not self._groups[key].count:
                    del self._groups[key]
            self._positions.take(gone.positions.steps)


class RecentCounts:
    """What was counted within the last `seconds`, by name. Names are few: all are kept."""

    def __init__(self, seconds: float) -> None:
        self._length = seconds / SLICES
        self._slices: deque[tuple[int, Counter[str]]] = deque()

    def add(self, name: str, time: float, count: int = 1) -> None:
        """Count `count` more at `time`, in seconds of a clock that never goes back."""
        number = int(time // self._length)
        if not self._slices or self._slices[-1][0] < number:
            self._forget(number)
            self._slices.append((number, Counter()))
        self._slices[-1][1][name] += count

    def counts(self, time: float) -> Counter[str]:
        """Return what the window holds at `time`."""
        self._forget(int(time // self._length))
        found: Counter[str] = Counter()
        for _, part in self._slices:
            found.update(part)
        return found

    def _forget(self, number: int) -> None:
        while self._slices and self._slices[0][0] <= number - SLICES:
            self._slices.popleft()


def growth(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Return by how much counters have grown; those that have not are left out."""
    return {name: count - before.get(name, 0) for name, count in now.items() if count > before.get(name, 0)}
