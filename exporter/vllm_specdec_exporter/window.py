"""Windows: what an engine did between two of its samples.

A window of 30 s reaches back to the oldest sample that is no more than 30 s old, give or take half a poll
interval, because polls are never exactly on time. Rates divide by the real distance between the two
samples, so a missed poll makes a window shorter than its name or coarser, and its span says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .duration import format_duration
from .latency import Latency, summarise

if TYPE_CHECKING:
    from .baseline.match import Match
    from .history import History, Sample
    from .reading import Counters


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

    ``None`` stands for a series that the engine does not have. `batch_size` is the requests in the batch,
    averaged over the drafts; `matches` are the comparison with the baseline at both
    ends.
    """

    span: float
    drafts: float | None
    draft_tokens: float | None
    accepted_tokens: float | None
    accepted_tokens_per_position: tuple[float, ...]
    generation_tokens: float | None
    batch_size: float | None = None
    latencies: tuple[Latency, ...] = ()
    matches: tuple[Match | None, Match | None] = (None, None)


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
    first = history.since(oldest)[0]
    return None if first is newest else delta(first, newest)


def delta(first: Sample, last: Sample) -> Delta:
    """Return the increase from `first` to `last`, two samples of one life.

    A series that the first sample does not have counts from 0 where the engine had not begun yet: some
    servers create a series with its first increase. Otherwise the first answer was incomplete, and the
    increase is not known.
    """
    before, after = first.counters, last.counters
    # Present and 0: a sibling that is missing too says nothing.
    nothing_drafted, nothing_generated = before.drafts == 0, before.generation_tokens == 0
    return Delta(
        span=last.time - first.time,
        drafts=_increase(before.drafts, after.drafts, from_zero=nothing_generated),
        draft_tokens=_increase(before.draft_tokens, after.draft_tokens, from_zero=nothing_drafted),
        accepted_tokens=_increase(before.accepted_tokens, after.accepted_tokens, from_zero=nothing_drafted),
        accepted_tokens_per_position=_increases(before, after, from_zero=nothing_drafted),
        generation_tokens=_increase(
            before.generation_tokens, after.generation_tokens, from_zero=nothing_drafted
        ),
        batch_size=_batch_size(first, last),
        latencies=summarise(first.latencies, last.latencies),
        matches=(first.match, last.match),
    )


def _batch_size(first: Sample, last: Sample) -> float | None:
    drafts = (last.counters.drafts or 0.0) - (first.counters.drafts or 0.0)
    if last.requests_running is None or drafts <= 0:
        return None
    return max(1.0, (last.draft_load - first.draft_load) / drafts)


def _increase(before: float | None, after: float | None, *, from_zero: bool) -> float | None:
    if after is None or (before is None and not from_zero):
        return None
    return after - (before or 0.0)


def _increases(before: Counters, after: Counters, *, from_zero: bool) -> tuple[float, ...]:
    """Return the increase per position; deeper positions that appear later counted nothing until then."""
    earlier, later = before.accepted_tokens_per_position, after.accepted_tokens_per_position
    if not earlier and not from_zero:
        return ()
    return tuple(value - (earlier[i] if i < len(earlier) else 0.0) for i, value in enumerate(later))
