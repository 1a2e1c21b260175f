"""Statistics: means, ratios and acceptance with their 95 % intervals.

* Difference of two means: Welch (1947), with separate variances. From 30 requests on, the normal quantile
  is used instead of Student's t.
* Ratio of two means: the delta method on the logarithm, ``var(ln m) = s^2 / (n m^2)``, so that the interval
  is above 0 and that of the inverse is the inverse of it.
* Acceptance from position ratios: the variance of the accepted tokens of a draft is exact; `CLUSTERING`
  allows for the correlation of drafts of one request.
* Acceptance from requests: the ratio estimator over clusters of Cochran, "Sampling Techniques" (3rd ed. 1977,
  6.3), with a_i of d_i draft tokens accepted in cluster i of m, and Student's t with m - 1 degrees of
  freedom::

    r = sum(a) / sum(d),   var(r) = m / (m - 1) * sum((a_i - r d_i)^2) / sum(d)^2

Requests count as independent. Those of one batch share its slow steps, so intervals of latencies are
rather too narrow than too wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Standard deviations to either side that hold 95 % of a normal distribution.
Z = 1.96

#: Design effect: variance of a mean over drafts, relative to independent drafts. From the per-request records
#: of a real server (`tests/data/captures`).
CLUSTERING = 4.3

#: Requests below which the normal approximation is not used.
MINIMUM_REQUESTS = 30

#: 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
#: The same with more digits.
Z_EXACT = 1.959964


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its 95 % interval; the ends are ``None`` where the sample cannot give one."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def inverse(self) -> Interval:
        """One over it; the value must not be 0."""
        low = None if not self.high else 1 / self.high
        high = None if not self.low else 1 / self.low
        return Interval(1 / self.value, low, high)

    @property
    def half(self) -> float | None:
        """Half of its width."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class SampleMean:
    """A mean of independent observations.

    Attributes:
        deviation: standard deviation of the observations, ``None`` where it is not known.
        count: how many there are.
    """

    mean: float
    deviation: float | None
    count: float

    @property
    def error(self) -> float | None:
        """Standard error of the mean; ``None`` where the sample is too small or its spread not known."""
        if self.deviation is None or self.count < MINIMUM_REQUESTS:
            return None
        # The deviation divides by n, so an unbiased variance of the mean divides by n - 1.
        return self.deviation / math.sqrt(self.count - 1)

    @property
    def interval(self) -> Interval:
        """The mean with its interval."""
        return _around(self.mean, self.error)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The drafts of a window.

    Attributes:
        survival: at index i, the share of drafts in which position i was accepted, falling.
        drafts: how many drafts.
        ratio: accepted over draft tokens, 0 to 1, ``None`` where it is not known.
        length: mean acceptance length, from 1 up, ``None`` where it is not known.
        drafted: mean draft length, 0 to K, ``None`` where it is not known.
    """

    survival: Sequence[float]
    drafts: float
    ratio: float | None
    length: float | None
    drafted: float | None

    @property
    def length_error(self) -> float | None:
        """Standard error of the mean acceptance length; ``None`` without drafts or positions."""
        if self.drafts <= 0 or not self.survival:
            return None
        return AcceptanceSample(self.survival, self.drafts).error_of_length(len(self.survival))

    @property
    def ratio_error(self) -> float | None:
        """Standard error of the acceptance ratio, for the draft length as it was."""
        error = self.length_error
        return None if error is None or not self.drafted else error / self.drafted

    @property
    def length_interval(self) -> Interval | None:
        """The mean acceptance length with its interval, which lies from 1 up."""
        if self.length is None:
            return None
        return _bounded(_around(self.length, self.length_error), 1.0, math.inf)

    @property
    def ratio_interval(self) -> Interval | None:
        """The acceptance ratio with its interval, which lies in 0 to 1."""
        if self.ratio is None:
            return None
        return _bounded(_around(self.ratio, self.ratio_error), 0.0, 1.0)


def difference_of_means(one: SampleMean, other: SampleMean) -> Interval:
    """Return the mean of `one` less that of `other`, by Welch."""
    return _around(one.mean - other.mean, _together(one.error, other.error))


def ratio_of_means(one: SampleMean, other: SampleMean) -> Interval | None:
    """Return the mean of `one` over that of `other`, ``None`` unless both are above 0."""
    if one.mean <= 0 or other.mean <= 0:
        return None
    ratio = one.mean / other.mean
    first, second = one.error, other.error
    if first is None or second is None:
        return Interval(ratio)
    # A relative error beyond this makes the ratio's interval endless for every purpose.
    reach = math.exp(min(Z * math.hypot(first / one.mean, second / other.mean), 50.0))
    return Interval(ratio, ratio / reach, ratio * reach)


def difference_of_ratios(one: Acceptance, other: Acceptance) -> Interval | None:
    """Return the acceptance ratio of `one` less that of `other`."""
    if one.ratio is None or other.ratio is None:
        return None
    return _around(one.ratio - other.ratio, _together(one.ratio_error, other.ratio_error))


def difference_of_lengths(one: Acceptance, other: Acceptance) -> Interval | None:
    """Return the mean acceptance length of `one` less that of `other`."""
    if one.length is None or other.length is None:
        return None
    return _around(one.length - other.length, _together(one.length_error, other.length_error))


def _together(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else math.hypot(one, other)


def _around(value: float, error: float | None) -> Interval:
    return Interval(value) if error is None else Interval(value, value - Z * error, value + Z * error)


def _bounded(interval: Interval, least: float, most: float) -> Interval:
    if interval.low is None or interval.high is None:
        return interval
    return Interval(interval.value, max(least, interval.low), min(most, interval.high))


class AcceptanceSample:
    """The distribution of accepted tokens per draft, from the acceptance ratio of each position.

    With A accepted tokens, a smaller K would have accepted min(A, K). Sums over positions give its moments:
    E[min(A, K)] = S_1 + ... + S_K, and E[min(A, K)^2] = 1 S_1 + 3 S_2 + ... + (2K - 1) S_K.

    Args:
        survival: at index i, the share of drafts in which position i was accepted.
        drafts: how many drafts, above 0.
    """

    __slots__ = ("_drafts", "_first", "_second", "survival")

    def __init__(self, survival: Sequence[float], drafts: float) -> None:
        self.survival = tuple(survival)
        self._drafts = drafts
        self._first = (0.0, *accumulate(self.survival))
        self._second = (0.0, *accumulate((2 * i + 1) * ratio for i, ratio in enumerate(self.survival)))

    def error_of_length(self, k: int) -> float:
        """Return the standard error of the mean acceptance length at `k`."""
        return self.error_of_difference((k, 1.0), (0, 1.0))

    def error_of_difference(self, one: tuple[int, float], other: tuple[int, float]) -> float:
        """Return the standard error of the difference of two speedups over the same drafts.

        Each is given as a K, at most the present one, and the cost of its step.
        """
        (k, cost), (m, other_cost) = sorted((one, other), reverse=True)
        most = len(self.survival)
        k, m = min(k, most), min(m, most)
        first, second = self._first, self._second
        both = second[m] + m * (first[k] - first[m])
        variance = (
            (second[k] - first[k] ** 2) / cost**2
            + (second[m] - first[m] ** 2) / other_cost**2
            - 2 * (both - first[k] * first[m]) / (cost * other_cost)
        )
        return math.sqrt(CLUSTERING * max(0.0, variance) / self._drafts)


@dataclass(frozen=True, slots=True)
class ClusterInterval:
    """A 95 % confidence interval.

    Attributes:
        unit: what was taken as independent: ``prompt``, ``request`` or ``draft``. By drafts, the interval is
            too narrow.
        units: how many of these there were.
    """

    low: float
    high: float
    unit: str
    units: int


def cluster_interval(clusters: Sequence[tuple[float, float]], unit: str) -> ClusterInterval | None:
    """Return the interval of the ratio of sums over clusters of (part, whole)."""
    m = len(clusters)
    whole = math.fsum(d for _, d in clusters)
    if m < 2 or whole <= 0:
        return None
    ratio = math.fsum(a for a, _ in clusters) / whole
    residuals = math.fsum((a - ratio * d) ** 2 for a, d in clusters)
    reach = t_quantile(m - 1) * math.sqrt(m / (m - 1) * residuals) / whole
    return ClusterInterval(max(0.0, ratio - reach), min(1.0, ratio + reach), unit, m)


def wilson(ratio: float, number: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval for a ratio over `number` independent trials (Wilson 1927)."""
    spread = Z_EXACT**2 / number
    centre = (ratio + spread / 2) / (1 + spread)
    reach = Z_EXACT * math.sqrt(ratio * (1 - ratio) / number + spread / (4 * number)) / (1 + spread)
    return max(0.0, centre - reach), min(1.0, centre + reach)


def t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t.

    From a table up to 30 degrees of freedom, then by the first terms of its expansion around the normal one
    (Abramowitz and Stegun, 26.7.5).
    """
    if freedom <= len(_T):
        return _T[freedom - 1]
    return (
        Z_EXACT
        + (Z_EXACT**3 + Z_EXACT) / (4 * freedom)
        + (5 * Z_EXACT**5 + 16 * Z_EXACT**3 + 3 * Z_EXACT) / (96 * freedom**2)
    )


@dataclass(frozen=True, slots=True)
class TimeSummary:
    """Times in seconds: how many, their mean and percentiles; ``None`` where there were none."""

    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


def distribution(values: Iterable[float | None]) -> TimeSummary:
    """Return the distribution of the values that are known."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return TimeSummary()
    return TimeSummary(
        count=len(known),
        mean=math.fsum(known) / len(known),
        p50=percentile(known, 0.50),
        p95=percentile(known, 0.95),
        p99=percentile(known, 0.99),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0 to 1) of the ordered values lie, interpolated linearly."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
