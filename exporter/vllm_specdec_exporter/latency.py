"""Latency: how long the requests took that finished within a window."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from .reading import Latencies

if TYPE_CHECKING:
    from .histogram import Histogram


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
