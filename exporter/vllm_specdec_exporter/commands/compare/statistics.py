"""The statistics of a comparison: means, ratios and differences with their 95 % intervals. Pure.

* Difference of two means: Welch (1947), the two variances apart. For 30 requests and more the normal quantile
  stands in for Student's t.
* Ratio of two means: the delta method on the logarithm, ``var(ln m) = s^2 / (n m^2)``, so that the interval
  is above 0 and that of the inverse is the inverse of it.
* Acceptance: the variance of the accepted tokens of a draft is exact from the position ratios; that drafts of
  one request resemble each other widens it (`economics.choice.CLUSTERING`).

Requests count as independent. Those of one batch share its slow steps, so an interval of latencies is
rather too narrow than too wide; that deviations come from buckets works the other way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...economics.choice import AcceptanceSample

if TYPE_CHECKING:
    from collections.abc import Sequence

#: 97.5 % quantile of the normal distribution.
Z = 1.96

#: Requests below which the normal approximation is not trusted.
MINIMUM_REQUESTS = 30


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
        mean: the mean.
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
