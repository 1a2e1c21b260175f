"""Windows: what an engine did between two of its samples.

A window of 30 s reaches back to the oldest sample that is no more than 30 s old, give or take half a poll
interval, because polls are never exactly on time. Rates divide by the real distance between the two
samples, so a missed poll makes a window coarser, never wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .duration import format_duration

if TYPE_CHECKING:
    from .history import History, Sample


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A span of time to look back on, in seconds; `name` is how labels show it (``30s``, ``5m``)."""

    seconds: float

    @property
    def name(self) -> str:
        """The span as Prometheus writes durations."""
        return format_duration(self.seconds)


@dataclass(frozen=True, slots=True)
class Delta:
    """The increase of one engine's counters over `span` seconds, all within one life.

    ``None`` stands for a series that the engine does not have.
    """

    span: float
    drafts: float | None
    draft_tokens: float | None
    accepted_tokens: float | None
    accepted_tokens_per_position: tuple[float, ...]
    generation_tokens: float | None


def look_back(history: History, window: Window, slack: float) -> Delta | None:
    """Return what happened within `window`, or ``None`` while it holds fewer than two samples.

    Args:
        history: the samples of the present life.
        window: how far to look back from the newest sample.
        slack: by how many seconds the oldest sample may lie before the window: half a poll interval.
    """
    newest = history.newest
    if newest is None:
        return None
    oldest = newest.time - window.seconds - slack
    first = next(sample for sample in history.samples if sample.time >= oldest)
    return None if first is newest else delta(first, newest)


def delta(first: Sample, last: Sample) -> Delta:
    """Return the increase from `first` to `last`, two samples of one life.

    A position that the first sample did not have yet counted nothing until then.
    """
    before, after = first.counters, last.counters
    earlier = before.accepted_tokens_per_position
    return Delta(
        span=last.time - first.time,
        drafts=_increase(before.drafts, after.drafts),
        draft_tokens=_increase(before.draft_tokens, after.draft_tokens),
        accepted_tokens=_increase(before.accepted_tokens, after.accepted_tokens),
        accepted_tokens_per_position=tuple(
            value - (earlier[i] if i < len(earlier) else 0.0)
            for i, value in enumerate(after.accepted_tokens_per_position)
        ),
        generation_tokens=_increase(before.generation_tokens, after.generation_tokens),
    )


def _increase(before: float | None, after: float | None) -> float | None:
    return None if after is None else after - (before or 0.0)
