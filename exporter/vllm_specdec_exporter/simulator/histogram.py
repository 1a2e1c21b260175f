"""A cumulative histogram as Prometheus counts it."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Histogram:
    """Counts observations in buckets; `count` and `sum` are exact.

    The bounds are the finite upper limits, inclusive and increasing; the bucket above the last
    one is implied.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.count = 0
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Record the same value a number of times."""
        if times <= 0:
            return
        self._counts[bisect_left(self.bounds, value)] += times
        self.count += times
        self.sum += value * times

    def cumulative(self, bounds: Sequence[float]) -> list[int]:
        """Return how many observations were at or below each bound.

        The bounds must be among the histogram's own: the result is what a coarser layout of
        buckets would have counted.
        """
        totals = dict(zip(self.bounds, accumulate(self._counts), strict=False))
        return [totals[bound] for bound in bounds]

    def merge(self, other: "Histogram") -> None:
        """Add the observations of a histogram with the same bounds."""
        if other.bounds != self.bounds:
            raise ValueError("histograms with different bounds cannot be merged")
        self._counts = [a + b for a, b in zip(self._counts, other._counts, strict=True)]
        self.count += other.count
        self.sum += other.sum
