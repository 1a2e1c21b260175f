"""The requests of the judged window, in slices: the oldest slices are dropped as time
goes by.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from ..measures.measures import DraftShape
from .grouping import GREEDY, UNSET, GroupKey
from .observation import Observation
from .records import DraftRecord
from .summary import Outcome, WorstRequest

T = TypeVar("T")

#: Slices of a window: its resolution in time, half a minute by default.
SLICES = 60

#: Limit of losing requests that are listed: as many as an operator looks up in a log.
MAX_WORST = 10

#: With fewer drafts, a low acceptance ratio says little about a request.
MIN_DRAFTS = 5

#: Acceptance ratios are kept in steps of 1 / `RESOLUTION`, rounded down: so a quantile
#: is below a threshold of three digits if and only if its request is.
RESOLUTION = 1000


#: Share of the drafted tokens from which on a temperature counts.
_FEW = 0.1

#: Columns of a step.
_DRAFTED = 0
_ACCEPTED = 1


def _change(counts: Counter[T], others: Mapping[T, int], sign: int) -> None:
    """Add `others`, or with `sign` -1 subtract them, and delete what becomes 0."""
    for name, count in others.items():
        counts[name] += sign * count
        if not counts[name]:
            del counts[name]


class RequestCounts(Struct):
    """Counts of requests for which something was drafted."""

    requests: Counter[Outcome] = field(default_factory=Counter)
    #: Their generated tokens by outcome.
    tokens: Counter[Outcome] = field(default_factory=Counter)
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    delivered_tokens: int = 0  # accepted tokens that can have reached an answer
    uncounted: int = 0  # requests whose records do not count drafts

    @property
    def rejected_tokens(self) -> int:
        """Drafted tokens that were not accepted."""
        return self.draft_tokens - self.accepted_tokens

    def add(self, record: DraftRecord, outcome: Outcome, tokens: int) -> None:
        """Count a request."""
        self.requests[outcome] += 1
        self.tokens[outcome] += tokens
        self.drafts += record.drafts
        self.uncounted += not record.drafts
        self.draft_tokens += record.draft_tokens
        self.accepted_tokens += record.accepted_tokens
        self.delivered_tokens += record.delivered_tokens(tokens)


class GroupStats(RequestCounts):
    """Requests of a group within a part of the window that had drafts."""

    #: Requests by acceptance ratio, in steps of 1 / `RESOLUTION`, rounded down.
    ratios: Counter[int] = field(default_factory=Counter)

    def add(self, record: DraftRecord, outcome: Outcome, tokens: int) -> None:
        """Count a request."""
        RequestCounts.add(self, record, outcome, tokens)
        self.ratios[record.accepted_tokens * RESOLUTION // record.draft_tokens] += 1

    def change(self, other: GroupStats, sign: int = 1) -> None:
        """Add the counts of `other`, or with `sign` -1 subtract them, all of which were
        added before.
        """
        _change(self.requests, other.requests, sign)
        _change(self.tokens, other.tokens, sign)
        _change(self.ratios, other.ratios, sign)
        self.drafts += sign * other.drafts
        self.uncounted += sign * other.uncounted
        self.draft_tokens += sign * other.draft_tokens
        self.accepted_tokens += sign * other.accepted_tokens
        self.delivered_tokens += sign * other.delivered_tokens

    @property
    def counted_drafts(self) -> int:
        """Drafts of all requests, 0 if they are not known of every request."""
        if self.uncounted:
            return 0
        return self.drafts

    @property
    def count(self) -> int:
        """Number of requests."""
        return self.requests.total()

    @property
    def acceptance_ratio(self) -> float | None:
        """Accepted over drafted tokens of all requests together, 0 to 1."""
        if self.draft_tokens:
            return self.accepted_tokens / self.draft_tokens
        return None

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens delivered per draft, from 1 up; ``None`` if the drafts are not known
        of every request.
        """
        drafts = self.counted_drafts
        if drafts:
            return 1 + self.delivered_tokens / drafts
        return None

    @property
    def delivered_ratio(self) -> float | None:
        """Accepted tokens that reached an answer over drafted tokens of all requests
        together, 0 to 1.
        """
        if self.draft_tokens:
            return self.delivered_tokens / self.draft_tokens
        return None

    def share(self, outcome: Outcome) -> float | None:
        """Return the share of requests with this outcome, 0 to 1."""
        if self.count:
            return self.requests[outcome] / self.count
        return None

    def token_share(self, outcome: Outcome) -> float | None:
        """Return the share of the generated tokens that such requests have, 0 to 1."""
        total = self.tokens.total()
        if total:
            return self.tokens[outcome] / total
        return None

    def quantile(self, q: float) -> float | None:
        """Return the smallest acceptance ratio that a share `q` (0 to 1) of requests
        does not exceed.
        """
        if not self.count:
            return None
        ratios = sorted(self.ratios)
        up_to = list(accumulate(map(self.ratios.__getitem__, ratios)))
        return ratios[bisect_left(up_to, q * up_to[-1] - 1e-9)] / RESOLUTION


class StepCounts(Struct):
    """Steps counted by (drafted, accepted) tokens."""

    steps: Counter[tuple[int, int]] = field(default_factory=Counter)

    def change(self, steps: Mapping[tuple[int, int], int], sign: int = 1) -> None:
        """Add these steps, or with `sign` -1 subtract them, all of which were added
        before.
        """
        _change(self.steps, steps, sign)

    @property
    def drafts(self) -> int:
        """All steps, including those of which a grammar rejected every token, as vLLM
        counts them.
        """
        return self.steps.total()

    @property
    def shape(self) -> DraftShape:
        """The lengths of the drafts."""
        drafts = self.drafts
        return DraftShape(
            drafts, self.mean_lengths, tuple(count / drafts for count in self.accepted)
        )

    @property
    def drafted(self) -> tuple[int, ...]:
        """At index i, the drafts that had position i drafted."""
        return self._reaching(_DRAFTED)

    @property
    def accepted(self) -> tuple[int, ...]:
        """At index i, the drafts that had position i accepted."""
        counts = self._reaching(_ACCEPTED)
        return counts + (0,) * (len(self.drafted) - len(counts))

    @property
    def ratios(self) -> tuple[float | None, ...]:
        """At index i, accepted over drafted tokens of position i, 0 to 1."""
        counts = zip(self.accepted, self.drafted, strict=True)
        return tuple(
            accepted / drafted if drafted else None for accepted, drafted in counts
        )

    @property
    def mean_lengths(self) -> tuple[float, ...]:
        """At index i, the mean tokens per draft with K = i + 1."""
        drafts = self.drafts
        return tuple(total / drafts for total in accumulate(self.drafted))

    def _reaching(self, column: int) -> tuple[int, ...]:
        """Return at index i the steps with more than i tokens, drafted or accepted."""
        longest = max((step[column] for step in self.steps), default=0)
        steps_by_tokens = [0] * (longest + 1)
        for step, number in self.steps.items():
            steps_by_tokens[step[column]] += number
        from_longest = accumulate(reversed(steps_by_tokens[1:]))
        return tuple(from_longest)[::-1]


class Slice(Struct):
    """The requests of one model within a part of the window, or within all of it."""

    groups: dict[GroupKey, GroupStats] = {}
    positions: StepCounts = field(default_factory=StepCounts)  # their steps
    #: Losing requests with the lowest acceptance, the worst first.
    worst: list[WorstRequest] = []
    unrecorded: int = 0  # requests whose responses had no record

    def add(
        self, key: GroupKey, record: DraftRecord, outcome: Outcome, tokens: int
    ) -> None:
        """Count a request for which something was drafted."""
        self.groups.setdefault(key, GroupStats()).add(record, outcome, tokens)
        self.positions.change(record.steps)

    @property
    def sampled(self) -> bool | None:
        """Whether requests ran above temperature 0, ``None`` where that is not known.

        By the tokens drafted for them: a few requests at another temperature change
        nothing.
        """
        drafted = Counter[bool | None]()
        for key, group in self.groups.items():
            sampled = None if key.temperature == UNSET else key.temperature != GREEDY
            drafted[sampled] += group.draft_tokens
        enough = _FEW * drafted.total()
        if drafted[True] > enough:
            return True
        return None if drafted[None] >= enough else False

    def subtract(self, other: Slice) -> None:
        """Subtract the counts of `other`, all of which were added before."""
        for key, group in other.groups.items():
            self.groups[key].change(group, -1)
            if not self.groups[key].count:
                del self.groups[key]
        self.positions.change(other.positions.steps, -1)
        self.unrecorded -= other.unrecorded


def _listed(
    key: GroupKey, observation: Observation, record: DraftRecord
) -> WorstRequest:
    return WorstRequest(
        time=observation.time,
        request_id=observation.request_id,
        temperature=key.temperature,
        request_type=key.request_type,
        acceptance_ratio=record.acceptance_ratio or 0.0,
        drafts=record.drafts,
        draft_tokens=record.draft_tokens,
        completion_tokens=observation.completion_tokens,
        tpot_seconds=observation.tpot_seconds,
    )


def _worst_of(requests: Iterable[WorstRequest]) -> list[WorstRequest]:
    """Return those with the lowest acceptance, then with most drafted tokens."""
    return heapq.nsmallest(
        MAX_WORST,
        requests,
        key=lambda worst: (worst.acceptance_ratio, -worst.draft_tokens),
    )


class RecentWindow:
    """The last `seconds` of one model's requests, in slices that are dropped one by
    one.

    Times are those of a monotonic clock. The sum of all slices is maintained
    incrementally: adding them up for each result would block traffic.

    Attributes:
        since_start: all steps, also those before the window.
    """

    def __init__(self, seconds: float) -> None:
        self.since_start = StepCounts()
        self._length = seconds / SLICES
        self._slices: deque[tuple[int, Slice]] = deque()
        self._sum = Slice()  # of all slices, without their worst requests

    def add(
        self,
        key: GroupKey,
        observation: Observation,
        outcome: Outcome,
        time: float,
    ) -> None:
        """Count a request with drafted tokens that ended at `time`."""
        record = observation.record
        if record is None or not record.draft_tokens:
            return
        newest = self._at(time)
        for part in (newest, self._sum):
            part.add(key, record, outcome, observation.completion_tokens or 0)
        self.since_start.change(record.steps)
        if outcome is Outcome.LOSES and record.drafts >= MIN_DRAFTS:
            newest.worst = _worst_of([*newest.worst, _listed(key, observation, record)])

    def add_unrecorded(self, time: float) -> None:
        """Count a request without a record that ended at `time`."""
        for part in (self._at(time), self._sum):
            part.unrecorded += 1

    def whole(self, time: float) -> Slice:
        """Return the sum of the window at `time`.

        Later requests change it; callers must not.
        """
        worst = _worst_of(
            request for part in self._until(time) for request in part.worst
        )
        return replace(self._sum, worst=worst)

    def shape(self, time: float) -> DraftShape:
        """Return the lengths of the drafts in the window at `time`."""
        self._until(time)
        return replace(self._sum.positions.shape, sampled=self._sum.sampled)

    def _at(self, time: float) -> Slice:
        """Return the slice of `time`; the newest one if that is later."""
        number = int(time // self._length)
        if not self._slices or self._slices[-1][0] < number:
            self._until(time)
            self._slices.append((number, Slice()))
        return self._slices[-1][1]

    def _until(self, time: float) -> list[Slice]:
        """Return the slices of the window that ends at `time`, the oldest first, and
        drop those before.
        """
        while self._slices and self._slices[0][0] <= int(time // self._length) - SLICES:
            self._sum.subtract(self._slices.popleft()[1])
        return [part for _, part in self._slices]
