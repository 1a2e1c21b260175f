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
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..engines.reading import Latencies
from ..exposition.histogram import Histogram
from .equal_load import (
    Block,
    FinishedRequests,
    speedup_interval,
    uncertainty_of_mean,
)
from .latency_sums import LATENCIES, latencies_between
from .statistics import Interval, Uncertainty

if TYPE_CHECKING:
    from .baseline import Baseline, LoadBucket

QUANTILES = (0.5, 0.95, 0.99)
#: Largest share of the requests in the bucket that a quantile lies in: within one that
#: has most of them, a quantile is too inaccurate for a ratio.
_COARSE = 0.5
#: Load buckets of a baseline near a load, with weights that add up to 1.
_WeightedBuckets = tuple[tuple[float, "LoadBucket"], ...]
#: Before any request. A latency that only appears later counts from here.
_NO_REQUESTS = Latencies(*(Histogram() for _ in LATENCIES))


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

    latencies: Latencies = _NO_REQUESTS  # of these requests
    #: Of as many requests in the baseline, at the same loads.
    baseline_latencies: Latencies = _NO_REQUESTS
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
        *,
        load: float,
        seconds: float,
        baseline: Baseline,
    ) -> BaselineComparison:
        """Add the requests that finished between two samples at this load; other
        buckets restart the sums.
        """
        nothing = BaselineComparison(baseline=baseline)
        sums = self if self.baseline is baseline else nothing
        finished = latencies_between(before, after)
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
        latencies: dict[str, Histogram] = {}
        expected: dict[str, Histogram] = {}
        for name in LATENCIES:
            latency: Histogram | None = getattr(finished, name)
            of_one = _latency_of_one_request(name, buckets)
            if latency is None or of_one is None or not latency.count:
                continue
            latencies[name] = getattr(self.latencies, name).plus(latency)
            of_baseline: Histogram = getattr(self.baseline_latencies, name)
            expected[name] = of_baseline.plus(of_one, latency.count / of_one.count)
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
            latencies=replace(self.latencies, **latencies),
            baseline_latencies=replace(self.baseline_latencies, **expected),
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

    def since(self, earlier: BaselineComparison) -> BaselineComparison | None:
        """Return what finished since an earlier sample; ``None`` if the sums restarted
        between both.
        """
        if earlier.baseline is not None and earlier.baseline is not self.baseline:
            return None
        latencies = latencies_between(earlier.latencies, self.latencies)
        expected = latencies_between(
            earlier.baseline_latencies, self.baseline_latencies
        )
        if latencies is None or expected is None:
            return None
        requests = zip_longest(
            self.requests_by_bucket, earlier.requests_by_bucket, fillvalue=0.0
        )
        return BaselineComparison(
            latencies=latencies,
            baseline_latencies=expected,
            load_above=self.load_above - earlier.load_above,
            load_below=self.load_below - earlier.load_below,
            load=self.load - earlier.load,
            requests_by_bucket=tuple(last - first for last, first in requests),
            baseline_tokens=self.baseline_tokens - earlier.baseline_tokens,
            seconds=self.seconds - earlier.seconds,
            baseline=self.baseline,
        )

    @property
    def block(self) -> Block:
        """What its requests took per output token, and what it took in the baseline."""
        taken = self.latencies.time_per_output_token or Histogram()
        expected = self.baseline_latencies.time_per_output_token or Histogram()
        return Block(weight=expected.sum, seconds=taken.sum)


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
    matches: Sequence[BaselineComparison | None], minimum: float
) -> Measured:
    """Return the speedup from the first of these samples to the last, from at least
    `minimum` finished requests.

    Between two of them lies a block of time, without a counter reset.
    """
    if not matches or matches[0] is None or matches[-1] is None:
        return Measured()
    window = matches[-1].since(matches[0])
    if window is None:
        return Measured()
    ratios: list[LatencyRatio] = []
    for name in LATENCIES:
        taken: Histogram | None = getattr(window.latencies, name)
        expected: Histogram | None = getattr(window.baseline_latencies, name)
        if taken and expected and taken.count >= minimum:
            ratios += _quantiles(name, taken, expected)
    measured = Measured(latency_ratios=tuple(ratios))
    per_token = window.latencies.time_per_output_token
    block = window.block
    enough = per_token is not None and per_token.count >= minimum
    if per_token is None or not enough or block.seconds <= 0 or block.weight <= 0:
        return measured
    speedup = _speedup(window, per_token, matches)
    rate = window.baseline_tokens / window.seconds if window.seconds > 0 else None
    return replace(
        measured,
        speedup=speedup.value,
        speedup_low=speedup.low,
        speedup_high=speedup.high,
        requests=per_token.count,
        baseline_tokens_per_second=rate,
    )


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
    window: BaselineComparison,
    per_token: Histogram,
    matches: Sequence[BaselineComparison | None],
) -> Interval:
    """Return the speedup of a window; `per_token` is its time per output token."""
    sums = [match.block for match in matches if match is not None]
    blocks = []
    for earlier, later in pairwise(sums):
        block = later.plus(earlier, -1.0)
        # Otherwise the sums restarted between both.
        if block.weight >= 0 and block.seconds >= 0:
            blocks.append(block)
    load = window.load / per_token.count
    requests = FinishedRequests(per_token.count, load, per_token.spread)
    expected = window.block.weight
    return speedup_interval(
        expected / per_token.sum,
        (
            uncertainty_of_mean(blocks, requests),
            *_uncertainties_of_baseline(window, expected),
        ),
        gaps=(
            window.load_above / per_token.count,
            window.load_below / per_token.count,
        ),
    )


def _uncertainties_of_baseline(
    window: BaselineComparison, expected: float
) -> Iterator[Uncertainty]:
    """Yield how well the expected seconds are known by each bucket of the baseline."""
    if window.baseline is None:
        return
    # Without requests there are no buckets.
    for bucket, requests in zip(
        window.baseline.buckets, window.requests_by_bucket, strict=False
    ):
        mean = bucket.time_per_output_token.mean
        if requests <= 0 or mean is None:
            continue
        share = requests * mean / expected
        uncertainty = bucket.uncertainty
        yield Uncertainty(share**2 * uncertainty.variance, uncertainty.freedom)
