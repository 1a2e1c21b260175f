"""Latency: how long the requests took that finished within a window."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from ..config.values import format_duration
from ..engines.reading import Latencies

if TYPE_CHECKING:
    from ..economics.baseline_match import Match
    from ..engines.reading import Counters
    from ..exposition.histogram import Histogram
    from .history import History, Sample


@dataclass(frozen=True, slots=True)
class Latency:
    """One kind of latency, summarised.

    Attributes:
        name: which one, a field of `Latencies`.
        requests: requests that finished.
        mean_seconds: their mean, exact.
        deviation_seconds: standard deviation, as well as the server's buckets tell.
        p50_seconds: median, interpolated within a bucket of the server's.
        p95_seconds: 95th percentile, likewise.
        p99_seconds: 99th percentile, likewise.
    """

    name: str
    requests: float
    mean_seconds: float
    deviation_seconds: float | None = None
    p50_seconds: float | None = None
    p95_seconds: float | None = None
    p99_seconds: float | None = None


def summarise(before: Latencies | None, after: Latencies | None) -> tuple[Latency, ...]:
    """Return what finished between two samples of one life; nothing where it cannot be told."""
    if before is None or after is None:
        return ()
    found = []
    for item in fields(Latencies):
        earlier: Histogram | None = getattr(before, item.name)
        later: Histogram | None = getattr(after, item.name)
        between = later.since(earlier) if later is not None and earlier is not None else None
        if between is None or between.mean is None:
            continue
        found.append(
            Latency(
                name=item.name,
                requests=between.count,
                mean_seconds=between.mean,
                deviation_seconds=between.deviation,
                p50_seconds=between.quantile(0.5),
                p95_seconds=between.quantile(0.95),
                p99_seconds=between.quantile(0.99),
            )
        )
    return tuple(found)


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


def defects(previous: Sample, current: Sample) -> tuple[str, ...]:
    """Return in words what is inconsistent in `current`, given the sample before it in the same life."""
    found = []
    step = delta(previous, current)
    positions = step.accepted_tokens_per_position
    blur = current.counters.resolution * (current.counters.draft_tokens or 0.0)
    bound = math.inf if step.drafts is None else step.drafts
    for position, accepted in enumerate(positions):
        if accepted > bound + blur:
            of = "drafts" if position == 0 else f"accepted at position {position - 1}"
            found.append(f"{accepted:g} accepted at position {position}, but only {bound:g} {of}")
        bound = accepted
    total, drafted = step.accepted_tokens, step.draft_tokens
    if total is not None and drafted is not None and total > drafted + blur:
        found.append(f"{total:g} accepted tokens, but only {drafted:g} draft tokens")
    most = len(positions) * (step.drafts or 0.0)
    if positions and step.drafts is not None and drafted is not None and drafted > most + blur:
        found.append(f"{drafted:g} draft tokens, but at most {most:g} in {step.drafts:g} drafts")
    before, now = _surplus(previous), _surplus(current)
    if positions and min(abs(before), abs(now)) > blur and (before > 0) is (now > 0):
        found.append(f"accepted tokens differ from the sum over positions by {now:+g}, twice in a row")
    return tuple(found)


def _surplus(sample: Sample) -> float:
    counters = sample.counters
    return (counters.accepted_tokens or 0.0) - sum(counters.accepted_tokens_per_position)
