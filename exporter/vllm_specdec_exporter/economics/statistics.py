"""Statistics: means, ratios and acceptance with their 95 % intervals.

* Mean over requests, ratio of sums: the estimator below over blocks of time. Requests share slow steps.
* Difference of means: Welch (1947), with separate variances and Satterthwaite's degrees of freedom.
* Ratio of means: the same for logarithms, ``var(ln m) = var(m) / m^2``, so that the interval is above 0.
* Acceptance from position ratios: the variance of the accepted tokens of a draft is exact; `CLUSTERING`
  allows for the correlation of drafts of one request.
* Acceptance from requests: the ratio estimator over clusters of Cochran, "Sampling Techniques" (3rd ed. 1977,
  6.3), with a_i of d_i draft tokens accepted in cluster i of m, and Student's t with m
  - 1 degrees of freedom::

    r = sum(a) / sum(d),   var(r) = m / (m - 1) * sum((a_i - r d_i)^2) / sum(d)^2
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Z = 1.96  # standard deviations to either side that hold 95 % of a normal distribution
#: Design effect: variance of a mean over drafts, relative to independent drafts. From
#: the per-request records of a real server (`tests/data/captures`).
CLUSTERING = 4.3
MINIMUM_REQUESTS = 30  # requests below which two servers are not compared
#: Blocks of time of a sample. More are too short for a load that changes slowly (in
#: simulations, in 10 s).
MAX_BLOCKS = 8
MIN_BLOCKS = 3  # fewer hardly show how much they differ
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


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its 95 % interval; the ends are ``None`` where the sample cannot
    give one.
    """

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
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class SampleMean:
    """A mean of observations."""

    mean: float
    error: float | None = None  # its standard error, ``None`` where it is not known
    freedom: float = math.inf  # degrees of freedom of the error, from 1 up

    @property
    def interval(self) -> Interval:
        """The mean with its interval."""
        return _around(self.mean, self.error, self.freedom)


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """How well a mean or a ratio of sums is known."""

    variance: float  # of its logarithm, from 0 up
    freedom: float  # degrees of freedom of that variance, from 1 up


def over_time(
    blocks: Sequence[tuple[float, float]],
    requests: float,
    load: float,
    spread: float | None,
) -> Uncertainty:
    """Return the uncertainty of a ratio of sums, such as seconds over requests, from
    blocks of time.

    A block lasts at least as long as a request: by Little's law, `requests` finished
    with `load` at a time make ``requests / load`` such blocks. Where pairs of blocks
    vary by more than independent blocks would, the load changes slowly, and the pairs
    count. The result is never less than of independent requests. With fewer than
    `MIN_BLOCKS` blocks, requests that ran together count as one.

    Args:
        blocks: both sums of each block, in order of time.
        requests: finished requests in all, above 0.
        load: requests at a time, at least 1.
        spread: standard deviation of a request over the mean; ``None``, if not known,
            counts as 1.
    """
    square = 1.0 if spread is None else spread**2
    together = requests / max(1.0, load)
    blocks = at_most(together, [block for block in blocks if any(block)])
    if len(blocks) < MIN_BLOCKS:
        return Uncertainty(square / together, max(1.0, together - 1))
    lengths = (
        blocks,
        at_most(len(blocks) - 1, blocks) if len(blocks) > MIN_BLOCKS + 1 else blocks,
    )
    scales = (
        Uncertainty(_variance_of_ratio(parts), len(parts) - 1.0) for parts in lengths
    )
    return max(
        *scales,
        Uncertainty(square / requests, len(blocks) - 1.0),
        key=lambda one: one.variance,
    )


def at_most(
    number: float, blocks: Sequence[tuple[float, float]]
) -> tuple[tuple[float, float], ...]:
    """Return the blocks of time, added up in pairs until there are at most `number` of
    them, or one.
    """
    while len(blocks) > max(1.0, number):
        pairs = (blocks[i : i + 2] for i in range(0, len(blocks), 2))
        blocks = [
            (math.fsum(a for a, _ in two), math.fsum(b for _, b in two))
            for two in pairs
        ]
    return tuple(blocks)


def _variance_of_ratio(clusters: Sequence[tuple[float, float]]) -> float:
    """Return the variance of the logarithm of a ratio of sums over two clusters or
    more.
    """
    m = len(clusters)
    part = math.fsum(a for a, _ in clusters)
    whole = math.fsum(d for _, d in clusters)
    if part <= 0 or whole <= 0:
        return 0.0
    residuals = math.fsum((a - part / whole * d) ** 2 for a, d in clusters)
    return m / (m - 1) * residuals / part**2


def reach_of(*parts: Uncertainty) -> float:
    """Return the half-width of the 95 % interval of the logarithm of a product of
    independent parts.
    """
    total = math.fsum(part.variance for part in parts)
    return min(MAX_REACH, t_quantile(_freedom(parts)) * math.sqrt(total))


def _freedom(parts: Iterable[Uncertainty]) -> float:
    """Return the degrees of freedom of a sum, by Satterthwaite (1946)."""
    known = list(parts)
    each = math.fsum(part.variance**2 / part.freedom for part in known)
    if each > 0:
        return math.fsum(part.variance for part in known) ** 2 / each
    return math.inf


@dataclass(frozen=True, slots=True)
class Acceptance:
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
        return AcceptanceSample(self.survival, self.drafts).error_of_length(
            len(self.survival)
        )

    @property
    def length_sample(self) -> SampleMean | None:
        """The mean acceptance length, with an error if there are drafts and positions."""
        if self.length is None:
            return None
        return SampleMean(self.length, self._length_error)

    @property
    def ratio_sample(self) -> SampleMean | None:
        """The acceptance ratio; its error is for the draft length as it was."""
        error = self._length_error
        if error is None or not self.drafted:
            error = None
        else:
            error = error / self.drafted
        if self.ratio is None:
            return None
        return SampleMean(self.ratio, error)

    @property
    def length_interval(self) -> Interval | None:
        """The mean acceptance length with its interval, which lies from 1 up."""
        sample = self.length_sample
        if sample is None:
            return None
        return _bounded(sample.interval, 1.0, math.inf)

    @property
    def ratio_interval(self) -> Interval | None:
        """The acceptance ratio with its interval, which lies in 0 to 1."""
        sample = self.ratio_sample
        if sample is None:
            return None
        return _bounded(sample.interval, 0.0, 1.0)


def difference_of_means(
    one: SampleMean | None = None, other: SampleMean | None = None
) -> Interval | None:
    """Return the mean of `one` less that of `other`, by Welch; ``None`` unless both are
    known.
    """
    if one is None or other is None:
        return None
    freedom = _freedom(
        Uncertainty((each.error or 0.0) ** 2, each.freedom) for each in (one, other)
    )
    if one.error is None or other.error is None:
        error = None
    else:
        error = math.hypot(one.error, other.error)
    return _around(one.mean - other.mean, error, freedom)


def ratio_of_means(one: SampleMean, other: SampleMean) -> Interval | None:
    """Return the mean of `one` over that of `other`, ``None`` unless both are above 0."""
    if one.mean <= 0 or other.mean <= 0:
        return None
    ratio = one.mean / other.mean
    if one.error is None or other.error is None:
        return Interval(ratio)
    parts = (
        Uncertainty(((each.error or 0.0) / each.mean) ** 2, each.freedom)
        for each in (one, other)
    )
    reach = math.exp(reach_of(*parts))
    return Interval(ratio, ratio / reach, ratio * reach)


def _around(value: float, error: float | None, freedom: float = math.inf) -> Interval:
    if error is None:
        return Interval(value)
    reach = t_quantile(freedom) * error
    return Interval(value, value - reach, value + reach)


def _bounded(interval: Interval, least: float, most: float) -> Interval:
    if interval.low is None or interval.high is None:
        return interval
    return Interval(interval.value, max(least, interval.low), min(most, interval.high))


class AcceptanceSample:
    """The distribution of accepted tokens per draft, from the acceptance ratio of each
    position.

    With A accepted tokens, a smaller K would have accepted min(A, K). Sums over
    positions give its moments: E[min(A, K)] = S_1 + ... + S_K, and E[min(A, K)^2] = 1
    S_1 + 3 S_2 + ... + (2K - 1) S_K.

    Args:
        survival: at index i, the share of drafts in which position i was accepted.
        drafts: how many drafts, above 0.
    """

    __slots__ = ("_drafts", "_first", "_second", "survival")

    def __init__(self, survival: Sequence[float], drafts: float) -> None:
        self.survival = tuple(survival)
        self._drafts = drafts
        self._first = (0.0, *accumulate(self.survival))
        self._second = (
            0.0,
            *accumulate((2 * i + 1) * ratio for i, ratio in enumerate(self.survival)),
        )

    def error_of_length(self, k: int) -> float:
        """Return the standard error of the mean acceptance length at `k`."""
        k = min(k, len(self.survival))
        return self._error(self._second[k] - self._first[k] ** 2)

    def error_of_difference(
        self, one: tuple[int, float], other: tuple[int, float]
    ) -> float:
        """Return the standard error of the difference of two speedups, each of a K and
        its step's cost.
        """
        (k, cost), (m, other_cost) = sorted((one, other), reverse=True)
        most = len(self.survival)
        k = min(k, most)
        m = min(m, most)
        first = self._first
        second = self._second
        both = second[m] + m * (first[k] - first[m])
        variance = (
            (second[k] - first[k] ** 2) / cost**2
            + (second[m] - first[m] ** 2) / other_cost**2
            - 2 * (both - first[k] * first[m]) / (cost * other_cost)
        )
        return self._error(variance)

    def _error(self, variance: float) -> float:
        return math.sqrt(CLUSTERING * max(0.0, variance) / self._drafts)


@dataclass(frozen=True, slots=True)
class ClusterInterval:
    """A 95 % confidence interval."""

    low: float
    high: float
    #: What was taken as independent: ``prompt``, ``request`` or ``draft``. By drafts,
    #: the interval is too narrow.
    unit: str
    units: int  # how many of these there were


def times(ratio: float) -> str:
    """Return a ratio with two decimals, or three near 1, so that it is not shown as 1."""
    if 0 < abs(ratio - 1) < 0.01:
        return f"{ratio:.3f}"
    return f"{ratio:.2f}"


def cluster_interval(
    clusters: Sequence[tuple[float, float]], unit: str
) -> ClusterInterval | None:
    """Return the interval of the ratio of sums over clusters of (part, whole)."""
    m = len(clusters)
    whole = math.fsum(d for _, d in clusters)
    if m < 2 or whole <= 0:
        return None
    ratio = math.fsum(a for a, _ in clusters) / whole
    reach = t_quantile(m - 1) * math.sqrt(_variance_of_ratio(clusters)) * ratio
    return ClusterInterval(max(0.0, ratio - reach), min(1.0, ratio + reach), unit, m)


def wilson(ratio: float, number: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval for a ratio over `number` independent trials
    (Wilson 1927).
    """
    spread = Z_EXACT**2 / number
    centre = (ratio + spread / 2) / (1 + spread)
    reach = (
        Z_EXACT
        * math.sqrt(ratio * (1 - ratio) / number + spread / (4 * number))
        / (1 + spread)
    )
    return max(0.0, centre - reach), min(1.0, centre + reach)


def t_quantile(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t for 1 degree of freedom or more, up to
    infinity.

    From a table below 30 degrees of freedom, interpolated by their inverse, then by
    `t_expansion`.
    """
    if freedom < len(_T):
        below = max(1, int(freedom))  # rounding may take 1 below 1
        share = (1 / below - 1 / freedom) * below * (below + 1)
        return _T[below - 1] + share * (_T[below] - _T[below - 1])
    return t_expansion(Z_EXACT, freedom)


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


@dataclass(frozen=True, slots=True)
class TimeSummary:
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
    known = sorted(value for value in values if value is not None)
    if not known:
        return TimeSummary()
    p50, p95, p99 = (percentile(known, share) for share in (0.50, 0.95, 0.99))
    return TimeSummary(len(known), math.fsum(known) / len(known), p50, p95, p99)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0 to 1) of the ordered values lie,
    interpolated linearly.
    """
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
