"""Comparison of a server with its baseline at the same load.

For each finished request, the baseline has the latency at that load without
speculation. Both sides are summed since the last counter reset, so a window is a
difference of two sums, and a changing load is compared interval by interval instead of
on average.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat, zip_longest
from operator import sub
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..engines.reading import Latencies
from ..exposition.histogram import Histogram
from .statistics import Uncertainty, over_time, reach_of

if TYPE_CHECKING:
    from .baseline import Baseline, LoadBucket

QUANTILES = (0.5, 0.95, 0.99)
#: Largest share of the requests in the bucket that a quantile lies in.
_COARSE = 0.5
_NAMES = Latencies.__struct_fields__


class LatencyRatio(Struct, frozen=True):
    """A quantile now over the same quantile of the baseline: below 1 is faster.

    Attributes:
        latency: which one, a field of `Latencies`.
        quantile: such as 0.95.
        ratio: now over baseline.
    """

    latency: str
    quantile: float
    ratio: float


class Measured(Struct, frozen=True):
    """Speedup measured against the baseline at the same load. ``None`` if it cannot be
    measured.

    Attributes:
        speedup: mean time per output token of the baseline over the present one.
        speedup_low: lower end of its 95 % interval, by both samples in blocks of time,
            widened by the distance of the loads.
        speedup_high: upper end.
        requests: requests behind it.
        baseline_tokens_per_second: throughput of the baseline at the same loads.
        latency_ratios: quantiles now over the baseline's.
    """

    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    requests: float | None = None
    baseline_tokens_per_second: float | None = None
    latency_ratios: tuple[LatencyRatio, ...] = ()


class BaselineComparison(Struct, frozen=True):
    """Requests finished since the last counter reset, and the baseline at their load.

    Cumulative.
    """

    latencies: Latencies = Latencies()  # of these requests
    #: Of as many requests in the baseline, at the same loads.
    baseline_latencies: Latencies = Latencies()
    #: Sum over requests of the relative distance between their load and the baseline's.
    load_distance: float = 0.0
    load: float = 0.0  # sum over requests of their load
    #: Requests by the bucket of the baseline that they are compared with, in parts
    #: between two.
    shares: tuple[float, ...] = ()
    #: Tokens that the baseline would have generated in the compared intervals.
    baseline_tokens: float = 0.0
    seconds: float = 0.0  # length of these intervals
    baseline: Baseline | None = None  # the baseline; sums restart with another one

    def add(
        self,
        before: Latencies | None,
        after: Latencies | None,
        load: float,
        seconds: float,
        baseline: Baseline,
    ) -> BaselineComparison:
        """Add the requests that finished between two samples at this load; other
        buckets restart the sums.
        """
        finished = increase(before, after)
        parts = baseline.at(load)
        if finished is None or not parts:
            if self.baseline is baseline:
                return self
            return BaselineComparison(baseline=baseline)
        if self.baseline is baseline:
            with contextlib.suppress(ValueError):
                return self._plus(finished, parts, load, seconds)
        return BaselineComparison(baseline=baseline)._plus(
            finished, parts, load, seconds
        )

    def _plus(
        self,
        finished: Latencies,
        parts: tuple[tuple[float, LoadBucket], ...],
        load: float,
        seconds: float,
    ) -> BaselineComparison:
        """Add finished requests; raise ValueError if their histogram has other buckets."""
        now: dict[str, Histogram | None] = {}
        then: dict[str, Histogram | None] = {}
        for name in _NAMES:
            latency: Histogram | None = getattr(finished, name)
            expected = _expected(name, parts)
            now[name], then[name] = (
                getattr(self.latencies, name),
                getattr(self.baseline_latencies, name),
            )
            if latency is not None and expected is not None and latency.count:
                now[name] = (now[name] or Histogram()).plus(latency)
                then[name] = (then[name] or Histogram()).plus(
                    expected, latency.count / expected.count
                )
        throughput = sum(
            weight * bucket.generation_tokens_per_second for weight, bucket in parts
        )
        seen = sum(weight * bucket.requests_running for weight, bucket in parts)
        if finished.time_per_output_token:
            requests = finished.time_per_output_token.count
        else:
            requests = 0.0
        weights = {id(bucket): weight for weight, bucket in parts}
        buckets = self.baseline.buckets if self.baseline else ()
        added = (requests * weights.get(id(bucket), 0.0) for bucket in buckets)
        return replace(
            self,
            load=self.load + requests * load,
            shares=tuple(map(sum, zip_longest(self.shares, added, fillvalue=0.0))),
            latencies=Latencies(**now),
            baseline_latencies=Latencies(**then),
            load_distance=self.load_distance
            + requests * (max(load, seen) / min(load, seen) - 1),
            baseline_tokens=self.baseline_tokens + throughput * seconds,
            seconds=self.seconds + seconds,
        )


def increase(before: Latencies | None, after: Latencies | None) -> Latencies | None:
    """Return the latencies of requests that finished between two samples; ``None`` if
    not known.
    """
    if before is None or after is None:
        return None
    increases: dict[str, Histogram | None] = {}
    for name in _NAMES:
        earlier = getattr(before, name)
        later = getattr(after, name)
        increases[name] = (
            None if earlier is None or later is None else later.since(earlier)
        )
        if later is not None and earlier is not None and increases[name] is None:
            return None
    return Latencies(**increases)


def _expected(
    name: str, parts: tuple[tuple[float, LoadBucket], ...]
) -> Histogram | None:
    """Return the latency of one request in the baseline, with buckets weighted."""
    total = Histogram()
    for weight, bucket in parts:
        if not weight:
            continue
        latency: Histogram | None = getattr(bucket.latencies, name)
        if latency is None or not latency.count:
            return None
        total = total.plus(latency, weight / latency.count)
    return total


def measured_speedup(
    first: BaselineComparison | None,
    last: BaselineComparison | None,
    minimum: float,
    between: Sequence[BaselineComparison | None] = (),
) -> Measured:
    """Return the speedup between two samples without a reset, from at least `minimum`
    finished requests.

    The samples `between` them divide the time into blocks.
    """
    if first is None or last is None:
        return Measured()
    if first.baseline is not None and first.baseline is not last.baseline:
        return Measured()
    seconds = last.seconds - first.seconds
    ratios: list[LatencyRatio] = []
    measured = Measured()
    for name in _NAMES:
        now, then = (
            _between(getattr(first, side), getattr(last, side), name)
            for side in ("latencies", "baseline_latencies")
        )
        if now is None or then is None or now.count < minimum:
            continue
        ratios += _quantiles(name, now, then)
        if name == "time_per_output_token" and now.sum > 0:
            speedup = then.sum / now.sum
            # A step grows at most in proportion to its batch, so another load counts by
            # its distance.
            apart = 1 + max(0.0, last.load_distance - first.load_distance) / now.count
            reach = (
                math.exp(reach_of(*_uncertainties(first, last, between, now, then)))
                * apart
            )
            measured = replace(
                measured,
                speedup=speedup,
                speedup_low=speedup / reach,
                speedup_high=speedup * reach,
                requests=now.count,
            )
    if measured.speedup is not None and seconds > 0:
        rate = (last.baseline_tokens - first.baseline_tokens) / seconds
        measured = replace(measured, baseline_tokens_per_second=rate)
    return replace(measured, latency_ratios=tuple(ratios))


def _between(first: Latencies, last: Latencies, name: str) -> Histogram | None:
    earlier: Histogram | None = getattr(first, name)
    later: Histogram | None = getattr(last, name)
    if later is None:
        return None
    between = later.since(earlier) if earlier is not None else later
    if between is not None and between.count > 0:
        return between
    return None


def _quantiles(name: str, now: Histogram, then: Histogram) -> list[LatencyRatio]:
    ratios = []
    for quantile in QUANTILES:
        here = now.quantile(quantile)
        there = then.quantile(quantile)
        # A quantile within a bucket that has most of the requests is too inaccurate for
        # a ratio.
        if (
            here
            and there
            and max(now.share_around(here), then.share_around(there)) <= _COARSE
        ):
            ratios.append(LatencyRatio(name, quantile, here / there))
    return ratios


def _uncertainties(
    first: BaselineComparison,
    last: BaselineComparison,
    between: Sequence[BaselineComparison | None],
    now: Histogram,
    then: Histogram,
) -> Iterator[Uncertainty]:
    """Yield how well the ratio is known by the present sample, and by each bucket of
    the baseline.
    """
    points = [
        first,
        *(one for one in between if one is not None and one.baseline is last.baseline),
        last,
    ]
    blocks = []
    for earlier, later in pairwise(points):
        here, there = (
            _between(
                getattr(earlier, side), getattr(later, side), "time_per_output_token"
            )
            or Histogram()
            for side in ("latencies", "baseline_latencies")
        )
        blocks.append((there.sum, here.sum))
    yield over_time(blocks, now.count, (last.load - first.load) / now.count, now.spread)
    buckets = last.baseline.buckets if last.baseline else ()
    shares = map(sub, last.shares, first.shares or repeat(0.0))
    for bucket, requests in zip(buckets, shares, strict=False):
        if requests > 0:
            known = bucket.uncertainty
            per_token = bucket.latencies.time_per_output_token
            share = requests * ((per_token and per_token.mean) or 0.0) / then.sum
            yield Uncertainty(share**2 * known.variance, known.freedom)
