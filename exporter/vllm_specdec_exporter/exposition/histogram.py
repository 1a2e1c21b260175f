"""Prometheus histograms: cumulative bucket counts."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate, pairwise

from msgspec import Struct


class Histogram(Struct, frozen=True):
    """Cumulative buckets.

    Attributes:
        bounds: finite upper bounds, ascending.
        counts: at index i, the observations of at most ``bounds[i]``; ascending.
        count: all observations.
        sum: their sum, in the unit of the bounds.
    """

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    count: float = 0.0
    sum: float = 0.0

    @property
    def mean(self) -> float | None:
        """Exact mean of the observations; ``None`` without any."""
        if self.count > 0:
            return self.sum / self.count
        return None

    def plus(self, other: Histogram, weight: float = 1.0) -> Histogram:
        """Return the sum of both, `other` counted `weight` times; raise ValueError for
        other bounds.
        """
        counts = self.counts
        if not self.bounds and not self.count:
            counts = (0.0,) * len(other.bounds)
        elif self.bounds != other.bounds:
            raise ValueError("histograms with different bounds cannot be added")
        return Histogram(
            bounds=other.bounds,
            counts=tuple(
                a + weight * b for a, b in zip(counts, other.counts, strict=True)
            ),
            count=self.count + weight * other.count,
            sum=self.sum + weight * other.sum,
        )

    def since(self, earlier: Histogram) -> Histogram | None:
        """Return the observations since `earlier`, ``None`` if the bounds differ or a
        count fell.
        """
        if not earlier.bounds and not earlier.count:
            return self
        if self.bounds != earlier.bounds:
            return None
        difference = self.plus(earlier, -1.0)
        fell = (
            min((*difference.counts, difference.count, difference.sum), default=0.0) < 0
        )
        if fell:
            return None
        return difference

    def quantile(self, q: float) -> float | None:
        """Return the quantile `q` (0 to 1), ``None`` without observations and in the
        first bucket.

        Like PromQL's `histogram_quantile`: interpolates linearly within a bucket, and
        returns the lower bound of the +Inf bucket. Of the first bucket only the upper
        bound is known, where PromQL assumes 0 to be the lower one.
        """
        if self.count <= 0 or not self.bounds or self.counts[0] > q * self.count:
            return None
        rank = q * self.count
        below = 0.0
        lower = 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count >= rank and count > below:
                return lower + (bound - lower) * (rank - below) / (count - below)
            below = count
            lower = bound
        return self.bounds[-1]

    def share_around(self, value: float) -> float:
        """Return the share of the observations in the bucket of `value`, 0 to 1."""
        below = 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if value <= bound:
                return (count - below) / self.count
            below = count
        return (self.count - below) / self.count

    @property
    def deviation(self) -> float | None:
        """Standard deviation of the observations; ``None`` without two of them."""
        if self.spread is None:
            return None
        return self.spread * self.sum / self.count

    @property
    def spread(self) -> float | None:
        """Standard deviation over the mean, both estimated as if observations were
        uniform in each bucket.

        ``None`` without two observations, or if all of them are 0.
        """
        if self.count <= 1 or not self.bounds:
            return None
        first = 0.0
        second = 0.0
        below = 0.0
        for (lower, upper), count in zip(
            pairwise((0.0, *self.bounds)), self.counts, strict=True
        ):
            middle = (lower + upper) / 2
            width = upper - lower
            first += (count - below) * middle
            second += (count - below) * (middle**2 + width**2 / 12)
            below = count
        first += (self.count - below) * self.bounds[-1]
        second += (self.count - below) * self.bounds[-1] ** 2
        if first > 0:
            return math.sqrt(max(0.0, self.count * second / first**2 - 1))
        return None


class HistogramAccumulator:
    """Counts values by finite, ascending and inclusive upper `bounds`."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value of at least 0, so many times."""
        self._counts[bisect_left(self.bounds, value)] += times
        self._sum += value * times

    def histogram(self) -> Histogram:
        """Return the histogram of the values so far."""
        *counts, total = map(float, accumulate(self._counts))
        return Histogram(self.bounds, tuple(counts), total, self._sum)
