"""Positions: how often each is accepted where it was drafted, and what a smaller K would draft.

`/metrics` counts accepted tokens by position, and all drafts, but not how many drafts were long enough to
reach a position. With drafts of varying length that understates the deep ones. Detailed records know each
step: the tokens that it drafted, and how many of them were accepted::

    drafted at i  = steps with more than i drafted       accepted at i = steps with more than i accepted
    drafted for K = sum over steps of min(drafted, K)    which is exact for every K up to the present one
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .tally import take

if TYPE_CHECKING:
    from collections.abc import Mapping


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


@dataclass(frozen=True, slots=True)
class DraftShape:
    """How long drafts are, from detailed records.

    Attributes:
        drafts: drafts that it rests on.
        mean_lengths: at index i, the tokens that a draft would hold with K = i + 1.
    """

    drafts: int
    mean_lengths: tuple[float, ...]

    @property
    def mean_length(self) -> float:
        """Tokens that a draft holds now; 0 where nothing is known."""
        return self.mean_lengths[-1] if self.mean_lengths else 0.0

    def of(self, k: int) -> DraftShape:
        """Return the same for the present K, which no draft may have reached."""
        missing = k - len(self.mean_lengths)
        return DraftShape(self.drafts, self.mean_lengths + (self.mean_length,) * missing)

    def length(self, k: int) -> float:
        """Return the tokens that a draft would hold with this K.

        Beyond the present one: as if every draft that was cut off by K went on.
        """
        if k <= 0 or not self.mean_lengths:
            return 0.0
        if k <= len(self.mean_lengths):
            return self.mean_lengths[k - 1]
        before = self.mean_lengths[-2] if len(self.mean_lengths) > 1 else 0.0
        return self.mean_length + (k - len(self.mean_lengths)) * (self.mean_length - before)
