"""Statistics: means, ratios and acceptance with their 95 % intervals.

* Mean over requests, ratio of sums over blocks of time: `equal_load`.
* Difference of means: Welch, "The generalization of Student's problem when several
  different population variances are involved" (1947), with the degrees of freedom of
  Satterthwaite (1946).
* Product or ratio: the same for logarithms, ``var(ln m) = var(m) / m^2``, so that the
  interval is above 0.
* Acceptance from position ratios: the variance of the accepted tokens of a draft is
  exact; `CLUSTERING` allows for the correlation of drafts of one request.
* Acceptance from requests: the ratio estimator over clusters of Cochran, "Sampling
  Techniques" (3rd ed. 1977, 6.3), with a_i of d_i draft tokens accepted in cluster i of
  m, and Student's t with m - 1 degrees of freedom::

    r = sum(a) / sum(d),   var(r) = m / (m - 1) * sum((a_i - r d_i)^2) / sum(d)^2
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

Z = 1.96  # standard deviations to either side that hold 95 % of a normal distribution
#: Design effect: variance of a mean over drafts, relative to independent drafts. From
#: the per-request records of a real server (`tests/data/captures`).
CLUSTERING = 4.3
MINIMUM_REQUESTS = 30  # requests below which two servers are not compared
#: Of the logarithm of a ratio: beyond it, nothing is known for any purpose.
MAX_REACH = math.log(100)

#: 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom.
_T = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
    2.120,
    2.110,
    2.101,
    2.093,
    2.086,
    2.080,
    2.074,
    2.069,
    2.064,
    2.060,
    2.056,
    2.052,
    2.048,
    2.045,
    2.042,
)
Z_EXACT = 1.959964  # `Z` with more digits


class Interval(Struct, frozen=True):
    """A value with its 95 % interval; the ends are ``None`` where the sample cannot
    give one.
    """

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def inverse(self) -> Interval:
        """One over it; the value must not be 0."""
        low = 1 / self.high if self.high else None
        high = 1 / self.low if self.low else None
        return Interval(1 / self.value, low, high)

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends; one that is not known is the value itself."""
        low = self.value if self.low is None else self.low
        high = self.value if self.high is None else self.high
        return low, high

    def holds(self, value: float) -> bool:
        """Return whether the interval has ends and this value lies between them."""
        if self.low is None or self.high is None:
            return False
        return self.low <= value <= self.high

    def is_above(self, value: float) -> bool:
        """Return whether the interval has a lower end, and that is above this value."""
        return self.low is not None and self.low > value

    def is_below(self, value: float) -> bool:
        """Return whether the interval has an upper end, and that is below this
        value.
        """
        return self.high is not None and self.high < value

    @property
    def half(self) -> float | None:
        """Half of its width."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2


class SampleMean(Struct, frozen=True):
    """A mean of observations."""

    mean: float
    error: float | None = None  # its standard error, ``None`` where it is not known
    freedom: float = math.inf  # degrees of freedom of the error, from 1 up

    @property
    def interval(self) -> Interval:
        """The mean with its interval."""
        if self.error is None:
            return Interval(self.mean)
        reach = t_quantile(self.freedom) * self.error
        return Interval(self.mean, self.mean - reach, self.mean + reach)


class Uncertainty(Struct, frozen=True):
    """How well a mean or a ratio of sums is known."""

    variance: float  # of its logarithm, from 0 up
    freedom: float  # degrees of freedom of that variance, from 1 up


def reach_of(*parts: Uncertainty) -> float:
    """Return the half-width of the 95 % interval of the logarithm of a product of
    independent parts.
    """
    total = math.fsum(part.variance for part in parts)
    return min(MAX_REACH, t_quantile(_freedom(parts)) * math.sqrt(total))


def _freedom(parts: Iterable[Uncertainty]) -> float:
    """Return the degrees of freedom of a sum, by Satterthwaite (1946)."""
    variance = 0.0
    weighted_squares = 0.0
    for part in parts:
        variance += part.variance
        weighted_squares += part.variance**2 / part.freedom
    if weighted_squares > 0:
        return variance**2 / weighted_squares
    return math.inf


class Acceptance(Struct, frozen=True):
    """The drafts of a window."""

    #: At index i, the share of drafts in which position i was accepted, falling.
    survival: Sequence[float]
    drafts: float  # how many drafts
    #: Accepted over draft tokens, 0 to 1, ``None`` where it is not known.
    ratio: float | None
    #: Mean acceptance length, from 1 up, ``None`` where it is not known.
    length: float | None
    drafted: float | None  # mean draft length, 0 to K, ``None`` where it is not known

    @property
    def _length_error(self) -> float | None:
        if self.drafts <= 0 or not self.survival:
            return None
        sample = AcceptanceSample(self.survival, self.drafts)
        return sample.error_of_length(len(self.survival))

    @property
    def length_sample(self) -> SampleMean | None:
        """Mean acceptance length, with an error if there are drafts and positions."""
        if self.length is None:
            return None
        return SampleMean(self.length, self._length_error)

    @property
    def ratio_sample(self) -> SampleMean | None:
        """The acceptance ratio; its error is for the draft length as it was."""
        if self.ratio is None:
            return None
        error = self._length_error
        if error is None or not self.drafted:
            return SampleMean(self.ratio)
        return SampleMean(self.ratio, error / self.drafted)

    @property
    def length_interval(self) -> Interval | None:
        """The mean acceptance length with its interval, which lies from 1 up."""
        return _bounded(self.length_sample, 1.0, math.inf)

    @property
    def ratio_interval(self) -> Interval | None:
        """The acceptance ratio with its interval, which lies in 0 to 1."""
        return _bounded(self.ratio_sample, 0.0, 1.0)


def difference_of_means(
    minuend: SampleMean | None, subtrahend: SampleMean | None
) -> Interval | None:
    """Return the difference of two means, by Welch; ``None`` unless both are known."""
    if minuend is None or subtrahend is None:
        return None
    difference = minuend.mean - subtrahend.mean
    if minuend.error is None or subtrahend.error is None:
        return Interval(difference)
    freedom = _freedom(
        (
            Uncertainty(minuend.error**2, minuend.freedom),
            Uncertainty(subtrahend.error**2, subtrahend.freedom),
        )
    )
    error = math.hypot(minuend.error, subtrahend.error)
    return SampleMean(difference, error, freedom).interval


def _bounded(sample: SampleMean | None, lower: float, upper: float) -> Interval | None:
    if sample is None:
        return None
    interval = sample.interval
    if interval.low is None or interval.high is None:
        return interval
    return Interval(interval.value, max(lower, interval.low), min(upper, interval.high))


class AcceptanceSample:
    """The distribution of accepted tokens per draft, from the acceptance ratio of each
    position.

    With A accepted tokens, a smaller K would have accepted min(A, K). With S_i the
    share of drafts in which position i was accepted, sums over positions give its
    moments::

        E[min(A, K)]   = S_1 + ... + S_K
        E[min(A, K)^2] = 1 S_1 + 3 S_2 + ... + (2K - 1) S_K

    Args:
        survival: at index i, the share of drafts in which position i was accepted.
        drafts: how many drafts, above 0.
    """

    __slots__ = ("_drafts", "_first", "_second", "survival")

    def __init__(self, survival: Sequence[float], drafts: float) -> None:
        self.survival = tuple(survival)
        self._drafts = drafts
        # The moments at each K from 0 up.
        self._first = [0.0]
        self._second = [0.0]
        for position, ratio in enumerate(self.survival):
            self._first.append(self._first[-1] + ratio)
            self._second.append(self._second[-1] + (2 * position + 1) * ratio)

    def error_of_length(self, k: int) -> float:
        """Return the standard error of the mean acceptance length at `k`."""
        k = min(k, len(self.survival))
        return self._error(self._second[k] - self._first[k] ** 2)

    def error_of_difference(
        self, first: tuple[int, float], second: tuple[int, float]
    ) -> float:
        """Return the standard error of the difference of two speedups, each of a K and
        its step's cost.
        """
        (small_k, cost_of_small), (large_k, cost_of_large) = sorted((first, second))
        small = min(small_k, len(self.survival))
        large = min(large_k, len(self.survival))
        mean_small = self._first[small]
        mean_large = self._first[large]
        # Of the product min(A, small) min(A, large), which is min(A, small)^2 up to
        # the small K, and grows with the large one alone beyond it.
        product = self._second[small] + small * (mean_large - mean_small)
        covariance = product - mean_large * mean_small
        return self._error(
            (self._second[large] - mean_large**2) / cost_of_large**2
            + (self._second[small] - mean_small**2) / cost_of_small**2
            - 2 * covariance / (cost_of_large * cost_of_small)
        )

    def _error(self, variance: float) -> float:
        return math.sqrt(CLUSTERING * max(0.0, variance) / self._drafts)


class ClusterInterval(Struct, frozen=True):
    """A 95 % confidence interval."""

    low: float
    high: float
    #: What was taken as independent: ``prompt``, ``request`` or ``draft``. By drafts,
    #: the interval is too narrow.
    unit: str
    units: int  # how many of these there were


def format_ratio(ratio: float) -> str:
    """Return a ratio with two decimals, or three near 1, so that 1 means 1."""
    # A gain of 0.4 % would read as none.
    if 0 < abs(ratio - 1) < 0.01:
        return f"{ratio:.3f}"
    return f"{ratio:.2f}"


def cluster_interval(
    clusters: Sequence[tuple[float, float]], unit: str
) -> ClusterInterval | None:
    """Return the interval of the ratio of sums over clusters of (part, whole)."""
    number = len(clusters)
    total = math.fsum(size for _, size in clusters)
    if number < 2 or total <= 0:
        return None
    ratio = math.fsum(part for part, _ in clusters) / total
    residuals = math.fsum((part - ratio * size) ** 2 for part, size in clusters)
    error = math.sqrt(number / (number - 1) * residuals) / total
    reach = t_quantile(number - 1) * error
    return ClusterInterval(
        max(0.0, ratio - reach), min(1.0, ratio + reach), unit, number
    )


def wilson(ratio: float, number: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval for a ratio over `number` independent trials
    (Wilson 1927).
    """
    weight = Z_EXACT**2 / number
    centre = (ratio + weight / 2) / (1 + weight)
    error = math.sqrt(ratio * (1 - ratio) / number + weight / (4 * number))
    reach = Z_EXACT * error / (1 + weight)
    return max(0.0, centre - reach), min(1.0, centre + reach)


def t_quantile(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t for 1 degree of freedom or more, up to
    infinity.

    From a table below 30 degrees of freedom, interpolated by their inverse, then by
    `t_expansion`.
    """
    # From here on the expansion is exact to the digits of the table.
    if freedom >= len(_T):
        return t_expansion(Z_EXACT, freedom)
    lower = max(1, int(freedom))  # rounding may take 1 below 1
    share = (1 / lower - 1 / freedom) * lower * (lower + 1)
    return _T[lower - 1] + share * (_T[lower] - _T[lower - 1])


def t_expansion(z: float, freedom: float) -> float:
    """Return a quantile of Student's t from that of the normal distribution, from 4
    degrees of freedom on.

    The first terms of its expansion: Abramowitz and Stegun, 26.7.5.
    """
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    )


class TimeSummary(Struct, frozen=True):
    """Times in seconds: how many, their mean and percentiles; ``None`` where there were
    none.
    """

    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


def distribution(values: Iterable[float | None]) -> TimeSummary:
    """Return the distribution of the values that are known."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return TimeSummary()
    return TimeSummary(
        count=len(ordered),
        mean=math.fsum(ordered) / len(ordered),
        p50=percentile(ordered, 0.50),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0 to 1) of the ordered values lie,
    interpolated linearly.
    """
    rank = share * (len(ordered) - 1)
    lower = math.floor(rank)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (rank - lower) * (ordered[upper] - ordered[lower])
