"""What moves a time per token besides the change that is judged. Pure.

A step takes longer the longer the contexts that it reads. Prompts are computed within
the steps of others, so that short answers, with more prompts for each token, make all
wait. And a server may drift for days. Where these differ between two configurations,
the difference is not the effect of the change (analysis of covariance: Cochran,
"Analysis of covariance: its nature and uses", 1957).

With B requests running, p prompt tokens for each generated one and contexts of c
tokens, a request waits for each of its tokens::

    T = (time of a step without both) + slope_p B p + slope_c B c

Both slopes are seconds a token of a prompt or context, of which a change of drafts
changes the first one not at all. They show within each configuration, where blocks of
time differ in p and c at the same load. Each slope has a normal prior, so that one that
a past does not show is as uncertain as physics leaves it, and one that it shows well
follows the data. The slope of time itself is relative.

Errors of blocks near in time are alike. So they count as those of at most eight groups
of a side, and the largest variance of a slope, relative to independent errors, counts
for all (the score variance of Liang and Zeger, "Longitudinal data analysis using
generalized linear models", 1986).
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...economics.equal_load import MAX_BLOCKS, Finished, Stratum, total
from ...economics.least_squares import LeastSquares, Observation, least_squares
from ...economics.statistics import Uncertainty, t_quantile

_DAY = 86400.0
_WEIGHT = attrgetter("weight")
#: Share of what is known of a slope that one group has, above which it counts as this:
#: a group that determines a slope hides its own deviation.
_MOST_LEVERAGE = 0.9
#: Share of the time of a block that other conditions leave at least.
_LEAST_SHARE = 0.05
#: Fits of the slopes, each with the scatter around the one before.
_FITS = 4
#: The least scatter, so that values without any have weights that are finite.
_LEAST_SCATTER = 1e-9


class Prior(NamedTuple):
    """What is known of a slope without data: mean and standard deviation."""

    mean: float
    deviation: float


#: Of time, a day: no server that is left alone becomes 4 % slower each day for long.
_DRIFT = Prior(0.0, 0.02)


class Conditions(Struct, frozen=True):
    """What a time per token depends on besides load and time."""

    #: Returns the values in proportion to which the time is longer.
    of: Callable[[Finished], tuple[float, ...]]
    #: The share of each in the mean time.
    shares: tuple[Prior, ...]


def _of_pace(finished: Finished) -> tuple[float, ...]:
    if finished.generated <= 0 or finished.begun <= 0:
        return math.nan, math.nan
    running = math.exp(finished.log_load / finished.generated)
    context = (finished.prompt_tokens + finished.generated / 2) / finished.begun
    return running * finished.prompt_tokens / finished.generated, running * context


def _of_prefill(finished: Finished) -> tuple[float, ...]:
    if finished.prompt_tokens <= 0 or finished.begun <= 0:
        return math.nan, math.nan
    prompt = finished.prompt_tokens / finished.begun
    return 1 / prompt, prompt


#: Of the time per output token: the prompts of others are from hardly anything to half
#: of it, the contexts from none to a third.
PACE = Conditions(_of_pace, (Prior(0.25, 0.2), Prior(0.1, 0.12)))
#: Of the prefill time per prompt token: the steps that each prefill waits for, however
#: long it is, and its own context.
PREFILL = Conditions(_of_prefill, (Prior(0.4, 0.25), Prior(0.1, 0.12)))


#: What finished on a side, by load and then by block of time.
ByLoad = Mapping[int, Mapping[int, Finished]]


class _Deviation(NamedTuple):
    """A block of time beside its side's mean at its load."""

    side: int
    passed: float  # share of the side's traffic before it, 0 to 1
    values: tuple[float, ...]  # of the conditions, relative to the pace
    pace: float  # relative
    weight: float  # seconds that the mean predicts


class _Scale(Struct, frozen=True):
    """Conditions as the seconds that they would explain alone, and the time in days."""

    conditions: Conditions
    units: tuple[float, ...]  # seconds
    block: float  # seconds of a block of time

    @classmethod
    def of(
        cls, sides: Iterable[ByLoad], conditions: Conditions, block: float
    ) -> _Scale:
        """Return the scale on which each condition explains all of the time."""
        seconds = 0.0
        sums = [0.0] * len(conditions.shares)
        for by_load in sides:
            every_block = chain.from_iterable(
                blocks.values() for blocks in by_load.values()
            )
            for finished in every_block:
                seconds += finished.seconds
                for place, value in enumerate(conditions.of(finished)):
                    # Not where it is not known.
                    if value > 0:
                        sums[place] += finished.weight * value
        # Where one is not known, its slope moves nothing.
        units = tuple(each and seconds / each for each in sums)
        return cls(conditions, units, block)

    def values(self, blocks: Mapping[int, Finished]) -> dict[int, tuple[float, ...]]:
        """Return the conditions in each block of time, and its day; those of all blocks
        where they are not known.
        """
        of_all = self._known(total(blocks.values()), [0.0] * len(self.units))
        return {
            number: (*self._known(finished, of_all), number * self.block / _DAY)
            for number, finished in blocks.items()
        }

    def _known(self, finished: Finished, defaults: Sequence[float]) -> list[float]:
        known = list(defaults)
        for place, value in enumerate(self.conditions.of(finished)):
            if not math.isnan(value):
                known[place] = self.units[place] * value
        return known

    def mean(self, blocks: Mapping[int, Finished]) -> tuple[float, ...]:
        """Return the mean of `values`."""
        weight = math.fsum(map(_WEIGHT, blocks.values()))
        sums = [0.0] * (1 + len(self.units))
        for number, values in self.values(blocks).items():
            for place, value in enumerate(values):
                sums[place] += blocks[number].weight * value
        return tuple(each / weight for each in sums)


class Slopes(Struct, frozen=True):
    """How a time per token grows with the conditions, and its logarithm by the day."""

    scale: _Scale
    fit: LeastSquares
    freedom: float  # degrees of freedom of its covariance

    def at_conditions_of_new(self, stratum: Stratum) -> Stratum:
        """Return the stratum with the times that its sides would have had under the new
        side's mean conditions.
        """
        there = self.scale.mean(stratum.new)
        return Stratum.of(
            self._moved(stratum.old, there), self._moved(stratum.new, there)
        )

    def _moved(
        self, blocks: Mapping[int, Finished], there: Sequence[float]
    ) -> dict[int, Finished]:
        moved = {}
        *slopes, by_day = self.fit.coefficients
        for number, here in self.scale.values(blocks).items():
            finished = blocks[number]
            *differences, days = map(operator.sub, there, here)
            added = math.fsum(map(operator.mul, slopes, differences))
            seconds = finished.seconds + finished.weight * added
            seconds = max(_LEAST_SHARE * finished.seconds, seconds)
            moved[number] = replace(finished, seconds=seconds * math.exp(by_day * days))
        return moved

    def uncertainty(self, strata: Collection[Stratum]) -> Uncertainty:
        """Return how well it is known what the sides' conditions explain, by the new
        one's traffic.
        """
        weight = math.fsum(stratum.new_total.weight for stratum in strata)
        shift = [0.0] * len(self.fit.coefficients)
        for stratum in strata:
            share = stratum.new_total.weight / weight
            new = self.scale.mean(stratum.new)
            old = self.scale.mean(stratum.old)
            relative = _relative(map(operator.sub, new, old), stratum.old_total.pace)
            for place, difference in enumerate(relative):
                shift[place] += share * difference
        return Uncertainty(self.fit.variance(shift), self.freedom)


def _relative(differences: Iterable[float], pace: float) -> tuple[float, ...]:
    """Return differences of seconds over the pace, and that of days as it is."""
    *seconds, days = differences
    return (*(each / pace for each in seconds), days)


def slopes_within(
    sides: Sequence[ByLoad], conditions: Conditions, block: float
) -> Slopes:
    """Return the slopes that show within each side.

    Args:
        sides: what finished on each.
        conditions: that the slopes are of.
        block: seconds of a block of time.
    """
    scale = _Scale.of(sides, conditions, block)
    deviations: list[_Deviation] = []
    for number, by_load in enumerate(sides):
        deviations += _deviations(number, by_load, scale)
    # A prior is an observation of a slope alone.
    priors = (*conditions.shares, _DRIFT)
    known: list[Observation] = []
    for place, prior in enumerate(priors):
        features = [0.0] * len(priors)
        features[place] = 1.0
        known.append((tuple(features), prior.mean, prior.deviation**-2))
    fit = LeastSquares(tuple(prior.mean for prior in priors), ())
    scatter = _Scatter(_LEAST_SCATTER, math.inf)
    for _ in range(_FITS):
        scatter = _scatter(deviations, fit.coefficients)
        observations: list[Observation] = [
            (each.values, each.pace - 1, each.weight / scatter.variance)
            for each in deviations
        ]
        # Never collinear, with the priors.
        fit = least_squares([*known, *observations]) or fit
    return Slopes(scale, fit, scatter.freedom)


def _deviations(side: int, by_load: ByLoad, scale: _Scale) -> Iterator[_Deviation]:
    passed = _passed(by_load)
    for blocks in by_load.values():
        at_load = total(blocks.values())
        if at_load.seconds <= 0:
            continue
        mean = scale.mean(blocks)
        for number, here in scale.values(blocks).items():
            finished = blocks[number]
            predicted = at_load.pace * finished.weight
            yield _Deviation(
                side=side,
                passed=passed[number],
                values=_relative(map(operator.sub, here, mean), at_load.pace),
                pace=finished.seconds / predicted,
                weight=predicted,
            )


def _passed(by_load: ByLoad) -> dict[int, float]:
    """Return the share of all traffic that is before the middle of each block."""
    weights: dict[int, float] = defaultdict(float)
    for blocks in by_load.values():
        for number, finished in blocks.items():
            weights[number] += finished.weight
    weight = math.fsum(weights.values())
    shares = {}
    passed = 0.0
    for number, own in sorted(weights.items()):
        shares[number] = (passed + own / 2) / weight
        passed += own
    return shares


class _Scatter(NamedTuple):
    """How much paces scatter around what the conditions explain."""

    variance: float  # of a block of weight 1
    freedom: float  # its degrees of freedom

    @property
    def reach(self) -> float:
        """In proportion to the half-width of an interval."""
        return t_quantile(self.freedom) * math.sqrt(self.variance)


def _scatter(deviations: Collection[_Deviation], slopes: Sequence[float]) -> _Scatter:
    """Return the scatter with which independent blocks would leave the slopes as
    uncertain, by the number of groups that shows the most of it.
    """
    known = [_Scatter(_LEAST_SCATTER, math.inf)]
    sides = len({each.side for each in deviations})
    for place in range(len(slopes)):
        for number in (MAX_BLOCKS, MAX_BLOCKS // 2):
            variance = _variance(deviations, slopes, place, number)
            # Without an intercept for each side, and the slopes.
            freedom = max(1.0, sides * (number - 1.0) - len(slopes))
            known.append(_Scatter(variance, freedom))
    return max(known, key=attrgetter("reach"))


def _variance(
    deviations: Collection[_Deviation],
    slopes: Sequence[float],
    place: int,
    number: int,
) -> float:
    """Return the variance of a block that shows in one slope, by so many groups of each
    side.
    """
    scores: dict[tuple[int, int], float] = defaultdict(float)
    spreads: dict[tuple[int, int], float] = defaultdict(float)
    for each in deviations:
        own = each.values[place]
        error = each.pace - 1
        for slope, value in zip(slopes, each.values, strict=True):
            error -= slope * value
        group = (each.side, min(number - 1, int(number * each.passed)))
        scores[group] += each.weight * own * error
        spreads[group] += each.weight * own**2
    spread = math.fsum(spreads.values())
    if spread <= 0:
        return 0.0
    variance = 0.0
    for group, score in scores.items():
        # What a group determines hides its own deviation: of the slope, and of the
        # mean of its side.
        leverage = spreads[group] / spread + 1 / number
        variance += score**2 / (1 - min(_MOST_LEVERAGE, leverage))
    return variance / spread
