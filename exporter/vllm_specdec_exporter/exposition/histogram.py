"""Histograms as Prometheus has them: cumulative counts under upper bounds. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations counted under upper bounds.

    Attributes:
        bounds: finite upper bounds, rising.
        counts: at index i, the observations of at most ``bounds[i]``; never falling.
        count: all observations.
        sum: their sum, in the unit of the bounds.
    """

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    count: float = 0.0
    sum: float = 0.0

    @property
    def mean(self) -> float | None:
        """Mean of the observations, exact; ``None`` without any."""
        return self.sum / self.count if self.count > 0 else None

    def plus(self, other: Histogram, weight: float = 1.0) -> Histogram:
        """Return both together, the other one's observations counted `weight` times.

        Raises:
            ValueError: different bounds.
        """
        if not self.bounds and not self.count:
            return other.scaled(weight)
        if self.bounds != other.bounds:
            msg = "histograms with different bounds cannot be added"
            raise ValueError(msg)
        return Histogram(
            bounds=self.bounds,
            counts=tuple(a + weight * b for a, b in zip(self.counts, other.counts, strict=True)),
            count=self.count + weight * other.count,
            sum=self.sum + weight * other.sum,
        )

    def scaled(self, weight: float) -> Histogram:
        """Return the histogram with every observation counted `weight` times."""
        return Histogram(
            self.bounds, tuple(weight * c for c in self.counts), weight * self.count, weight * self.sum
        )

    def since(self, earlier: Histogram) -> Histogram | None:
        """Return what was observed since `earlier`, ``None`` where the bounds differ or a count fell."""
        if not earlier.bounds and not earlier.count:
            return self
        if self.bounds != earlier.bounds:
            return None
        difference = self.plus(earlier, -1.0)
        fell = min((*difference.counts, difference.count, difference.sum), default=0.0) < 0
        return None if fell else difference

    def quantile(self, q: float) -> float | None:
        """Return the value that a share `q` (0 to 1) of the observations does not exceed.

        As PromQL's `histogram_quantile` has it: spread evenly within a bucket; of the last, endless bucket
        the lower bound is all that is known.
        """
        if self.count <= 0 or not self.bounds:
            return None
        rank = q * self.count
        below, lower = 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count >= rank and count > below:
                return lower + (bound - lower) * (rank - below) / (count - below)
            below, lower = count, bound
        return self.bounds[-1]

    def share_around(self, value: float) -> float:
        """Return the share of the observations that the bucket of `value` holds, 0 to 1."""
        below = 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if value <= bound:
                return (count - below) / self.count
            below = count
        return (self.count - below) / self.count

    @property
    def deviation(self) -> float | None:
        """Standard deviation of the observations, estimated from the middles of the buckets.

        The mean is exact, so it stands in for the middle where a bucket holds everything; the spread within
        a bucket counts as even.
        """
        if self.count <= 1 or not self.bounds:
            return None
        mean = self.sum / self.count
        square = 0.0
        edges = (0.0, *self.bounds)
        below = 0.0
        for (lower, upper), count in zip(pairwise(edges), self.counts, strict=True):
            middle, width = (lower + upper) / 2, upper - lower
            square += (count - below) * ((middle - mean) ** 2 + width**2 / 12)
            below = count
        square += (self.count - below) * (self.bounds[-1] - mean) ** 2
        return math.sqrt(square / self.count)


#: Prometheus' name for eight buckets to a power of two.
SCHEMA = 3

#: Values of at most this count as zero. One for ratios and for seconds: 1 of 16,384 drafted tokens accepted
#: is as good as none, and no stream has a token every 61 microseconds. It bounds the buckets to 112 for
#: ratios and to 186 for times of up to ten minutes; as a bucket's bound it cuts none in two.
ZERO_THRESHOLD = 2.0**-14

_BUCKETS: int = 2**SCHEMA
_DIGITS = 53  # of a float


def _root(place: int) -> float:
    """Return 2^(place/8 - 1): where it is no float, the next one below.

    That one, unlike the nearest, tells right whether any other float is above. Hence the whole numbers.
    """
    number = 2 ** (_BUCKETS * (_DIGITS - 1) + place)
    for _ in range(SCHEMA):
        number = math.isqrt(number)
    return math.ldexp(number, -_DIGITS)


#: Upper bounds of the buckets from a half to one, as `math.frexp` splits a number.
_BOUNDS = tuple(_root(place) for place in range(_BUCKETS))


def index_of(value: float) -> int | None:
    """Return the index of the bucket that holds `value`, ``None`` for the zero bucket.

    Index i holds the values above 2^((i-1)/8), up to 2^(i/8).

    Raises:
        ValueError: a value below zero, infinite or not a number.
    """
    if not 0.0 <= value < math.inf:
        msg = f"{value} has no bucket: only finite values from 0 on have"
        raise ValueError(msg)
    if value <= ZERO_THRESHOLD:
        return None
    share, exponent = math.frexp(value)
    return bisect_left(_BOUNDS, share) + _BUCKETS * (exponent - 1)
