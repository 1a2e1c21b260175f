"""Tallies: what is counted of the requests of a group. They grow with what can differ, not with requests."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, fields
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from ..exposition.histogram import Histogram, index_of
from ..measures.measures import DraftShape
from .result import Observed, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .observation import DraftRecord, Observation


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper bounds of the classic histograms.

    Attributes:
        acceptance_ratio: 0 to 1. The published thresholds by which requests are judged are among them.
        accepted_tokens_per_draft: tokens.
        time_to_first_token: seconds.
        time_per_output_token: seconds.
    """

    acceptance_ratio: tuple[float, ...] = (
        *(0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.8, 0.9, 0.95, 1.0),
    )
    accepted_tokens_per_draft: tuple[float, ...] = (0.25, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 12, 16)
    time_to_first_token: tuple[float, ...] = (
        *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160),
    )
    time_per_output_token: tuple[float, ...] = (
        *(0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5),
    )


class Counted:
    """Values counted in both forms of histogram.

    Args:
        bounds: finite upper bounds, rising.
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._zero = 0
        self._native: Counter[int] = Counter()

    def add(self, value: float | None) -> None:
        """Count a value from 0 up, where there is one."""
        if value is None:
            return
        index = index_of(value)
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value
        if index is None:
            self._zero += 1
        else:
            self._native[index] += 1

    def observed(self) -> Observed | None:
        """Return what was counted, ``None`` where nothing was: times of a group that never streams."""
        if not any(self._counts):
            return None
        counts = tuple(map(float, accumulate(self._counts)))
        return Observed(
            Histogram(self._bounds, counts[:-1], counts[-1], self._sum),
            self._zero,
            tuple(sorted(self._native.items())),
        )


@dataclass(slots=True)
class Total:
    """A group since the beginning, for counters and histograms, which are called as their `Bounds`.

    Attributes:
        last: when its last request ended, by the clock of the book.
    """

    bounds: Bounds
    acceptance_ratio: Counted = field(init=False)
    accepted_tokens_per_draft: Counted = field(init=False)
    time_to_first_token: Counted = field(init=False)
    time_per_output_token: Counted = field(init=False)
    outcomes: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(Outcome, 0)))
    tokens: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(Outcome, 0)))
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    last: float = 0.0

    def __post_init__(self) -> None:
        for item in fields(Bounds):
            setattr(self, item.name, Counted(getattr(self.bounds, item.name)))

    def rebound(self, bounds: Bounds) -> None:
        """Go on with other bounds: histograms whose own change begin anew, all else goes on."""
        for item in fields(Bounds):
            if getattr(bounds, item.name) != getattr(self.bounds, item.name):
                setattr(self, item.name, Counted(getattr(bounds, item.name)))
        self.bounds = bounds

    def add(self, observation: Observation, outcome: Outcome | None) -> None:
        """Count a request; without an outcome nothing was drafted for it."""
        self.time_to_first_token.add(observation.ttft_seconds)
        self.time_per_output_token.add(observation.tpot_seconds)
        record = observation.record
        if record is None or outcome is None:
            return
        self.acceptance_ratio.add(record.acceptance_ratio)
        self.accepted_tokens_per_draft.add(record.accepted_per_draft)
        self.outcomes[outcome] += 1
        self.tokens[outcome] += observation.completion_tokens or 0
        self.drafts += record.drafts
        self.draft_tokens += record.draft_tokens
        self.accepted_tokens += record.accepted_tokens


#: Steps to the whole in which acceptance ratios are kept for quantiles. They are rounded down: a quantile is
#: below a threshold of three digits if and only if its request is.
RESOLUTION = 1000


def take(counts: Counter[T], others: Mapping[T, int]) -> None:
    """Take `others` from the counts that hold them; what falls to 0 is forgotten."""
    counts.subtract(others)
    for name in others:
        if not counts[name]:
            del counts[name]


@dataclass(slots=True)
class Recent:
    """A group within a part of the window, for judgement.

    Attributes:
        requests: requests for which something was drafted, by outcome.
        tokens: their generated tokens, by outcome.
        ratios: how many requests had which acceptance ratio, in steps of `RESOLUTION`, rounded down.
        drafts: drafts of all its requests.
        draft_tokens: drafted tokens of all its requests.
        accepted_tokens: accepted tokens of all its requests.
    """

    requests: Counter[Outcome] = field(default_factory=Counter)
    tokens: Counter[Outcome] = field(default_factory=Counter)
    ratios: Counter[int] = field(default_factory=Counter)
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0

    def add(self, record: DraftRecord, outcome: Outcome, tokens: int) -> None:
        """Count a request for which something was drafted."""
        self.requests[outcome] += 1
        self.tokens[outcome] += tokens
        self.ratios[record.accepted_tokens * RESOLUTION // record.draft_tokens] += 1
        self.drafts += record.drafts
        self.draft_tokens += record.draft_tokens
        self.accepted_tokens += record.accepted_tokens

    def merge(self, other: Recent) -> None:
        """Count all of `other` too."""
        self.requests.update(other.requests)
        self.tokens.update(other.tokens)
        self.ratios.update(other.ratios)
        self.drafts += other.drafts
        self.draft_tokens += other.draft_tokens
        self.accepted_tokens += other.accepted_tokens

    def take(self, other: Recent) -> None:
        """Count `other`, all of which was counted, no more."""
        take(self.requests, other.requests)
        take(self.tokens, other.tokens)
        take(self.ratios, other.ratios)
        self.drafts -= other.drafts
        self.draft_tokens -= other.draft_tokens
        self.accepted_tokens -= other.accepted_tokens

    @property
    def count(self) -> int:
        """Requests in it."""
        return self.requests.total()

    @property
    def acceptance_ratio(self) -> float | None:
        """Accepted over drafted tokens of all requests together, 0 to 1."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens else None

    def share(self, outcome: Outcome) -> float | None:
        """Return the share of the requests with this outcome, 0 to 1."""
        return self.requests[outcome] / self.count if self.count else None

    def token_share(self, outcome: Outcome) -> float | None:
        """Return the share of the generated tokens that are of such requests, 0 to 1."""
        total = self.tokens.total()
        return self.tokens[outcome] / total if total else None

    def quantile(self, q: float) -> float | None:
        """Return the acceptance ratio that a share `q` (0 to 1) of the requests does not exceed.

        The smallest ratio seen of which that is true, as far as `RESOLUTION` goes.
        """
        if not self.count:
            return None
        ratios = sorted(self.ratios)
        up_to = list(accumulate(map(self.ratios.__getitem__, ratios)))
        return ratios[bisect_left(up_to, q * up_to[-1] - 1e-9)] / RESOLUTION


@dataclass(slots=True)
class Positions:
    """Steps counted by (drafted, accepted) tokens."""

    steps: Counter[tuple[int, int]] = field(default_factory=Counter)

    def add(self, steps: Mapping[tuple[int, int], int]) -> None:
        """Count these steps too."""
        self.steps.update(steps)

    def take(self, steps: Mapping[tuple[int, int], int]) -> None:
        """Count these steps, which were counted, no more."""
        take(self.steps, steps)

    @property
    def drafts(self) -> int:
        """All steps, as vLLM counts drafts: also those of which a grammar struck out every token."""
        return self.steps.total()

    @property
    def shape(self) -> DraftShape:
        """How long the drafts are."""
        return DraftShape(self.drafts, self.mean_lengths)

    @property
    def drafted(self) -> tuple[int, ...]:
        """At index i, the drafts that had position i drafted."""
        return self._reaching(0)

    @property
    def accepted(self) -> tuple[int, ...]:
        """At index i, the drafts that had position i accepted."""
        found = self._reaching(1)
        return found + (0,) * (len(self.drafted) - len(found))

    @property
    def ratios(self) -> tuple[float | None, ...]:
        """At index i, the share of those drafted in which position i was accepted, 0 to 1."""
        return tuple(a / d if d else None for a, d in zip(self.accepted, self.drafted, strict=True))

    @property
    def mean_lengths(self) -> tuple[float, ...]:
        """At index i, the tokens that a draft would hold with K = i + 1."""
        drafts, total, lengths = self.drafts, 0, []
        for reaching in self.drafted:
            total += reaching
            lengths.append(total / drafts)
        return tuple(lengths)

    def _reaching(self, which: int) -> tuple[int, ...]:
        most = max((step[which] for step in self.steps), default=0)
        counts = [0] * (most + 1)
        for step, count in self.steps.items():
            counts[step[which]] += count
        reaching, above = [], 0
        for length in range(most, 0, -1):
            above += counts[length]
            reaching.append(above)
        return tuple(reversed(reaching))
