"""Comparison of a server with its baseline at the same load.

For each finished request, the baseline has the latency at that load without
speculation. Both sides are summed since the last counter reset, so a window is a
difference of two sums, and a changing load is compared interval by interval instead of
on average. The speedup and its interval are those of `equal_load`: a stratum is a load
bucket of the baseline.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..engines.reading import Latencies
from ..exposition.histogram import Histogram
from .equal_load import FinishedRequests, speedup_interval, uncertainty_of_mean
from .statistics import Interval, Uncertainty

if TYPE_CHECKING:
    from .baseline import Baseline, LoadBucket

QUANTILES = (0.5, 0.95, 0.99)
#: Largest share of the requests in the bucket that a quantile lies in: within one that
#: has most of them, a quantile is too inaccurate for a ratio.
_COARSE = 0.5
_NAMES = Latencies.__struct_fields__
#: The latency that a speedup is of.
_PACE = "time_per_output_token"
#: Load buckets of a baseline near a load, with weights that add up to 1.
_WeightedBuckets = tuple[tuple[float, "LoadBucket"], ...]


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

    @property
    def interval(self) -> Interval | None:
        """The speedup with its interval; ``None`` if it cannot be measured."""
        if self.speedup is None:
            return None
        return Interval(self.speedup, self.speedup_low, self.speedup_high)


class BaselineComparison(Struct, frozen=True):
    """Requests finished since the last counter reset, and the baseline at their load.

    Cumulative.
    """

    latencies: Latencies = Latencies()  # of these requests
    #: Of as many requests in the baseline, at the same loads.
    baseline_latencies: Latencies = Latencies()
    #: Sums over requests of the logarithm of their load over the baseline's, where it
    #: is above and where it is below that.
    load_above: float = 0.0
    load_below: float = 0.0
    load: float = 0.0  # sum over requests of their load
    #: Requests by the bucket of the baseline that they are compared with, in parts
    #: between two.
    requests_by_bucket: tuple[float, ...] = ()
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
        nothing = BaselineComparison(baseline=baseline)
        sums = nothing
        if self.baseline is baseline:
            sums = self
        finished = increase(before, after)
        buckets = baseline.at(load)
        if finished is None or not buckets:
            return sums
        try:
            return sums._plus(finished, buckets, load, seconds)
        except ValueError:
            return nothing._plus(finished, buckets, load, seconds)

    def _plus(
        self,
        finished: Latencies,
        buckets: _WeightedBuckets,
        load: float,
        seconds: float,
    ) -> BaselineComparison:
        """Add finished requests; ValueError if their histogram has other buckets."""
        latencies: dict[str, Histogram | None] = {}
        expected: dict[str, Histogram | None] = {}
        for name in _NAMES:
            latencies[name] = getattr(self.latencies, name)
            expected[name] = getattr(self.baseline_latencies, name)
            latency: Histogram | None = getattr(finished, name)
            of_one = _latency_of_one_request(name, buckets)
            if latency is None or of_one is None or not latency.count:
                continue
            times = latency.count / of_one.count
            latencies[name] = (latencies[name] or Histogram()).plus(latency)
            expected[name] = (expected[name] or Histogram()).plus(of_one, times)
        requests = 0.0
        if finished.time_per_output_token:
            requests = finished.time_per_output_token.count
        baseline_load = 0.0
        throughput = 0.0
        for weight, bucket in buckets:
            baseline_load += weight * bucket.requests_running
            throughput += weight * bucket.generation_tokens_per_second
        gap = requests * math.log(load / baseline_load)
        return replace(
            self,
            latencies=Latencies(**latencies),
            baseline_latencies=Latencies(**expected),
            load_above=self.load_above + max(0.0, gap),
            load_below=self.load_below + min(0.0, gap),
            load=self.load + requests * load,
            requests_by_bucket=self._requests_by_bucket(buckets, requests),
            baseline_tokens=self.baseline_tokens + throughput * seconds,
            seconds=self.seconds + seconds,
        )

    def _requests_by_bucket(
        self, buckets: _WeightedBuckets, requests: float
    ) -> tuple[float, ...]:
        assert self.baseline is not None
        weights = {id(bucket): weight for weight, bucket in buckets}
        added = [
            requests * weights.get(id(bucket), 0.0) for bucket in self.baseline.buckets
        ]
        pairs = zip_longest(self.requests_by_bucket, added, fillvalue=0.0)
        return tuple(map(sum, pairs))


def increase(before: Latencies | None, after: Latencies | None) -> Latencies | None:
    """Return the latencies of requests that finished between two samples; ``None`` if
    not known.
    """
    if before is None or after is None:
        return None
    increases: dict[str, Histogram] = {}
    for name in _NAMES:
        earlier: Histogram | None = getattr(before, name)
        later: Histogram | None = getattr(after, name)
        if earlier is None or later is None:
            continue
        finished = later.since(earlier)
        if finished is None:
            return None
        increases[name] = finished
    return Latencies(**increases)


def _latency_of_one_request(name: str, buckets: _WeightedBuckets) -> Histogram | None:
    """Return the latency of one request in the baseline, with buckets weighted."""
    total = Histogram()
    for weight, bucket in buckets:
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
    ratios: list[LatencyRatio] = []
    measured = Measured()
    for name in _NAMES:
        taken, expected = _finished_between(first, last, name)
        if taken is None or expected is None or taken.count < minimum:
            continue
        ratios += _quantiles(name, taken, expected)
        if name == _PACE and taken.sum > 0 and expected.sum > 0:
            speedup = _speedup(first, last, between)
            measured = Measured(
                speedup.value, speedup.low, speedup.high, requests=taken.count
            )
    seconds = last.seconds - first.seconds
    if measured.speedup is not None and seconds > 0:
        rate = (last.baseline_tokens - first.baseline_tokens) / seconds
        measured = replace(measured, baseline_tokens_per_second=rate)
    return replace(measured, latency_ratios=tuple(ratios))


def _finished_between(
    first: BaselineComparison, last: BaselineComparison, name: str
) -> tuple[Histogram | None, Histogram | None]:
    """Return a latency of what finished between two samples, and the baseline's."""
    return (
        _increase_of(getattr(first.latencies, name), getattr(last.latencies, name)),
        _increase_of(
            getattr(first.baseline_latencies, name),
            getattr(last.baseline_latencies, name),
        ),
    )


def _increase_of(
    earlier: Histogram | None, later: Histogram | None
) -> Histogram | None:
    """Return an increase, ``None`` if nothing finished."""
    finished = later
    if earlier is not None and later is not None:
        finished = later.since(earlier)
    if finished is not None and finished.count > 0:
        return finished
    return None


def _quantiles(name: str, taken: Histogram, expected: Histogram) -> list[LatencyRatio]:
    ratios = []
    for quantile in QUANTILES:
        value = taken.quantile(quantile)
        of_baseline = expected.quantile(quantile)
        if not value or not of_baseline:
            continue
        shares = taken.share_around(value), expected.share_around(of_baseline)
        if max(shares) <= _COARSE:
            ratios.append(LatencyRatio(name, quantile, value / of_baseline))
    return ratios


def _speedup(
    first: BaselineComparison,
    last: BaselineComparison,
    between: Sequence[BaselineComparison | None],
) -> Interval:
    taken, expected = _finished_between(first, last, _PACE)
    assert taken is not None
    assert expected is not None
    blocks = []
    earlier = first
    for later in (*between, last):
        if later is None or later.baseline is not last.baseline:
            continue
        in_block, of_baseline = _finished_between(earlier, later, _PACE)
        earlier = later
        if in_block is not None and of_baseline is not None:
            blocks.append((in_block.sum, of_baseline.sum))
    load = (last.load - first.load) / taken.count
    requests = FinishedRequests(taken.count, load, taken.spread)
    return speedup_interval(
        expected.sum / taken.sum,
        (
            uncertainty_of_mean(blocks, requests),
            *_uncertainties_of_baseline(first, last, expected.sum),
        ),
        gaps=(
            (last.load_above - first.load_above) / taken.count,
            (last.load_below - first.load_below) / taken.count,
        ),
    )


def _uncertainties_of_baseline(
    first: BaselineComparison, last: BaselineComparison, expected: float
) -> Iterator[Uncertainty]:
    """Yield how well the expected seconds are known by each bucket of the baseline."""
    if last.baseline is None:
        return
    ends = zip_longest(last.requests_by_bucket, first.requests_by_bucket, fillvalue=0.0)
    for bucket, (requests_at_end, requests_at_begin) in zip(
        last.baseline.buckets, ends, strict=False
    ):
        per_token = bucket.latencies.time_per_output_token or Histogram()
        requests = requests_at_end - requests_at_begin
        if requests <= 0 or per_token.mean is None:
            continue
        share = requests * per_token.mean / expected
        uncertainty = bucket.uncertainty
        yield Uncertainty(share**2 * uncertainty.variance, uncertainty.freedom)
