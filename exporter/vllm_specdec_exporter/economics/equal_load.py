"""How much faster one side is than another at equal load, and how well that is known.

The one estimator of the project. `compare` gives it two servers over the same time,
`history` the blocks of time of a stored past, and the exporter a recorded baseline; the
rules of `alerts/alert_rules/speedup.py` repeat its ratio in PromQL.

*Ratio.* A stratum is what both sides did at one load and prompt length, if possible in
one block of time. With y the seconds per output token of what finished, summed, and n
how much that was (requests, or tokens), the speedup over strata s is::

    T_s = y_s / n_s,   speedup = sum(n_new,s T_old,s) / sum(y_new,s)

So everything that the new side did is held against the old side's mean at its load.

*Variance.* Requests share slow steps, so blocks of time count, not requests. A block
took y seconds where p were predicted. With its share w of all that was predicted, the
variance of the logarithm of a side is that of a ratio estimator (HC2 of MacKinnon and
White, "Some heteroskedasticity-consistent covariance matrix estimators", 1985)::

    var = sum((y - r p)^2 / (1 - w)) / sum(y)^2,   r = sum(y) / sum(p),   w = p / sum(p)

For m equal blocks this is the estimator of Cochran, "Sampling Techniques" (3rd ed.
1977, 6.3), with its factor m / (m - 1). For unequal ones that factor is too small: a
block with most of the traffic determines r, and so hides its own deviation.

*Interval.* Student's t with one degree of freedom less than there are blocks of equal
weight; the sides' variances add up (Satterthwaite 1946). It is widened by what the
loads within a stratum differ (`speedup_interval`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import astuple

from .statistics import Interval, SampleMean, Uncertainty, reach_of

#: Blocks of time of a sample. More are too short for a load that changes slowly (in
#: simulations, in 10 s).
MAX_BLOCKS = 8
MIN_BLOCKS = 3  # fewer hardly show how much they differ
#: Share of a block's weight below which the others of its stratum do not predict it.
_ALONE = 1e-9
#: Blocks of each side below which strata have no interval: it would depend on too few.
MINIMUM_BLOCKS = 6
#: The same, of equal weight: where one has nearly all of the traffic, its scatter is
#: not known.
MINIMUM_EFFECTIVE = 2.0


class Block(Struct, frozen=True, array_like=True):
    """A block of time; an array in a baseline file."""

    #: In proportion to it, the block was expected to take time: such as requests.
    weight: Annotated[float, Meta(ge=0)] = 0.0
    seconds: Annotated[float, Meta(ge=0)] = 0.0  # what it took

    def plus(self, other: Block, factor: float = 1.0) -> Block:
        """Return both as one block, `other` counted `factor` times."""
        return Block(
            weight=self.weight + factor * other.weight,
            seconds=self.seconds + factor * other.seconds,
        )


#: Least difference of two shares of prompts found in the prefix cache at which times
#: per output token are not of one load: a tenth of the prompts is computed beside the
#: output of the one and not of the other.
_PREFIX_CACHE_DIFFERENCE = 0.1


def prefix_cache_share(hits: float | None, queries: float | None) -> float | None:
    """Return the share of the prompt tokens looked up in a prefix cache that it had, 0
    to 1; ``None`` if that is not known, or none was looked up.
    """
    if hits is None or not queries:
        return None
    return min(1.0, hits / queries)


def prefix_cache_differs(hit_ratio: float | None, reference: float | None) -> bool:
    """Return whether two servers, or two times, found so different shares of their
    prompts in the prefix cache that their times per output token cannot be compared.
    """
    if hit_ratio is None or reference is None:
        return False
    return abs(hit_ratio - reference) >= _PREFIX_CACHE_DIFFERENCE


class FinishedRequests(Struct, frozen=True):
    """Requests of a sample: they bound how well their mean can be known."""

    count: float  # above 0
    at_a_time: float  # how many ran together, on average
    #: Standard deviation of a request over the mean; ``None``, if not known, counts as
    #: 1.
    spread: float | None

    @property
    def rounds(self) -> float:
        """How many times requests ran together, by Little's law."""
        return self.count / max(1.0, self.at_a_time)

    def variance(self, independent: float) -> float:
        """Return the relative variance of the mean of so many independent requests."""
        if self.spread is None:
            return 1.0 / independent
        return self.spread**2 / independent


def uncertainty_of_mean(
    blocks: Sequence[Block], requests: FinishedRequests, max_blocks: int = MAX_BLOCKS
) -> Uncertainty:
    """Return how well a mean over requests is known, from at most `max_blocks`
    blocks of time.

    A block lasts at least as long as a request, so there are at most as many as there
    were rounds of requests. With fewer than `MIN_BLOCKS`, requests that ran together
    count as one. The variance is never less than of independent requests.
    """
    # Blocks in which nothing finished are no observations.
    blocks = [block for block in blocks if block.weight or block.seconds]
    number = min(max_blocks, len(blocks))
    while number > max(1.0, requests.rounds):
        number = math.ceil(number / 2)
    scatter = uncertainty_over_time(blocks, number) if number >= MIN_BLOCKS else None
    if scatter is None:
        variance = requests.variance(requests.rounds)
        return Uncertainty(variance, max(1.0, requests.rounds - 1))
    independent = requests.variance(requests.count)
    return Uncertainty(max(scatter.variance, independent), scatter.freedom)


def uncertainty_over_time(
    blocks: Sequence[Block], number: int = MAX_BLOCKS
) -> Uncertainty | None:
    """Return how well the ratio of the sums over blocks of time is known, from `number`
    longer blocks; ``None`` where one block has it all.

    Where half as many, twice as long, show that less is known, these count: the load
    changes slowly.
    """
    numbers = [number]
    if number > MIN_BLOCKS + 1:
        numbers.append(math.ceil(number / 2))
    known_scatters = []
    for each in numbers:
        scatter = _scatter(joined(blocks, each))
        if scatter is not None:
            known_scatters.append(scatter)
    # By the width of the interval, in which the number of blocks counts as well. By the
    # variance alone, intervals held the truth a little less often than 95 % where the
    # load drifts over hours (`tests/history/test_matching.py`).
    return max(known_scatters, key=reach_of, default=None)


def _scatter(blocks: Sequence[Block]) -> Uncertainty | None:
    seconds = math.fsum(block.seconds for block in blocks)
    weight = _weight(blocks)
    if seconds <= 0 or weight <= 0:
        return Uncertainty(0.0, max(1.0, len(blocks) - 1.0))
    variance = 0.0
    for block in blocks:
        share = block.weight / weight
        if 1 - share < _ALONE:
            return None
        deviation = block.seconds / seconds - share
        variance += deviation**2 / (1 - share)
    return Uncertainty(variance, max(1.0, effective_number(blocks) - 1))


def _weight(blocks: Iterable[Block]) -> float:
    return math.fsum(block.weight for block in blocks)


def effective_number(blocks: Sequence[Block]) -> float:
    """Return how many blocks of equal weight are worth as much (Kish, "Survey
    Sampling", 1965).
    """
    return _weight(blocks) ** 2 / math.fsum(block.weight**2 for block in blocks)


def joined(blocks: Sequence[Block], number: int) -> list[Block]:
    """Return at most `number` sums of successive blocks, with about equal weight; none
    of blocks without weight.
    """
    weight = _weight(blocks)
    if weight <= 0:
        return []
    longer: dict[int, Block] = defaultdict(Block)
    passed = 0.0
    for block in blocks:
        middle = (passed + block.weight / 2) / weight
        part = min(number - 1, int(number * middle))
        longer[part] = longer[part].plus(block)
        passed += block.weight
    return list(longer.values())


def speedup_interval(
    speedup: float, parts: Iterable[Uncertainty], gaps: Iterable[float] = ()
) -> Interval:
    """Return a speedup with its 95 % interval, from the uncertainties of independent
    parts of it.

    A step grows at most in proportion to its batch, and to its context, and never
    shrinks with them. So a side with more to do looks slower than it is at the other's
    load, by at most that factor, and never faster: each of the `gaps`, the logarithm
    of the new side's load over the old one's, moves one end of the interval.
    """
    reach = reach_of(*parts)
    low = 0.0
    high = 0.0
    for gap in gaps:
        low += min(0.0, gap)
        high += max(0.0, gap)
    return Interval(
        speedup, speedup * math.exp(low - reach), speedup * math.exp(high + reach)
    )


def speedup_of_means(
    old: SampleMean | None, new: SampleMean | None, gap: float = 0.0
) -> Interval | None:
    """Return the speedup in one stratum, of which the mean times of both sides are
    known; ``None`` unless they are, and above 0.

    `gap` is the logarithm of the new side's load over the old one's.
    """
    if old is None or new is None or old.mean <= 0 or new.mean <= 0:
        return None
    speedup = old.mean / new.mean
    parts = []
    for side in (old, new):
        if side.error is None:
            return Interval(speedup)
        variance = (side.error / side.mean) ** 2
        parts.append(Uncertainty(variance, side.freedom))
    return speedup_interval(speedup, parts, (gap,))


class Finished(Struct, frozen=True):
    """What finished at one load and prompt length, in a block of time or in all."""

    seconds: float  # sum of the times per output token
    weight: float  # requests or tokens that it is a sum over, above 0
    log_load: float  # sum of the logarithms of the load over the generated tokens
    generated: float
    begun: float = 0.0  # requests that the generated tokens are of
    prompt_tokens: float = 0.0  # of these requests
    #: Sum of the logarithms of the context, where the strata are not corrected for it.
    log_prompt: float = 0.0

    @property
    def pace(self) -> float:
        """Mean time per output token."""
        return self.seconds / self.weight


class Stratum(Struct, frozen=True):
    """What both sides have of one load and prompt length."""

    old: Mapping[int, Finished]  # by block of time, not empty
    new: Mapping[int, Finished]  # likewise
    old_total: Finished
    new_total: Finished

    @classmethod
    def of(cls, old: Mapping[int, Finished], new: Mapping[int, Finished]) -> Stratum:
        """Return the stratum of both sides' blocks of time."""
        return cls(old, new, total(old.values()), total(new.values()))


def total(finished: Iterable[Finished]) -> Finished:
    """Return the sum of what finished."""
    return Finished(*map(math.fsum, zip(*map(astuple, finished), strict=True)))


def speedup_over_strata(
    strata: Collection[Stratum],
    *,
    concurrent: bool,
    conditions: Uncertainty | None = None,
) -> Interval:
    """Return the speedup over strata, without interval where there are too few blocks.

    `conditions` is how well it is known what other conditions of the sides explain, if
    the strata are corrected for that; else a longer context of a side counts as a
    larger load does.

    The seconds of each block are held against those of the other blocks in its strata,
    or against the other side where a block has nearly all of a stratum. If the strata
    are `concurrent`, each of one block of time, what differs between blocks is the same
    for both sides, so that one of them shows it.
    """
    expected = 0.0
    taken = 0.0
    for stratum in strata:
        expected += stratum.new_total.weight * stratum.old_total.pace
        taken += stratum.new_total.seconds
    if expected <= 0 or taken <= 0:
        return Interval(math.nan)
    speedup = expected / taken
    old_blocks: dict[int, Block] = defaultdict(Block)
    new_blocks: dict[int, Block] = defaultdict(Block)
    for stratum in strata:
        old = stratum.old_total
        new = stratum.new_total
        # The old side counts as much as the new one has of this load.
        factor = new.weight / old.weight
        for number, block in _predicted(stratum.old, old, speedup * new.pace):
            old_blocks[number] = old_blocks[number].plus(block, factor)
        for number, block in _predicted(stratum.new, new, old.pace / speedup):
            new_blocks[number] = new_blocks[number].plus(block)
    old_scatter = _scatter_by_time(old_blocks)
    new_scatter = _scatter_by_time(new_blocks)
    if old_scatter is None or new_scatter is None:
        return Interval(speedup)
    parts = [new_scatter]
    if not concurrent:
        parts.append(old_scatter)
    gaps = list(_gaps(strata))
    if conditions is None:
        gaps.append(_context_gap(strata))
        return speedup_interval(speedup, parts, gaps)
    known = speedup_interval(speedup, parts, gaps)
    # Not in quadrature: both are of the same slow drift, of which the scatter of a few
    # days shows too little.
    reach = math.exp(reach_of(conditions))
    low, high = known.ends
    return Interval(speedup, low / reach, high * reach)


def _predicted(
    blocks: Mapping[int, Finished], side: Finished, pace_of_other_side: float
) -> Iterator[tuple[int, Block]]:
    """Yield the blocks of a side in a stratum, weighted with the seconds that are
    predicted for each; `side` is the sum of them.
    """
    for number, finished in blocks.items():
        # Not its own: a block that predicts itself never deviates.
        weight = side.weight - finished.weight
        pace = 0.0
        if weight > _ALONE * finished.weight:
            pace = (side.seconds - finished.seconds) / weight
        predicted = (pace or pace_of_other_side) * finished.weight
        yield number, Block(predicted, finished.seconds)


def _scatter_by_time(by_time: Mapping[int, Block]) -> Uncertainty | None:
    """Return how well the seconds of a side are known, ``None`` with too few blocks."""
    blocks = [block for _, block in sorted(by_time.items())]
    few = len(blocks) < MINIMUM_BLOCKS
    if few or effective_number(blocks) < MINIMUM_EFFECTIVE:
        return None
    return uncertainty_over_time(blocks)


def _gaps(strata: Collection[Stratum]) -> Iterator[float]:
    """Yield how far the loads within the strata differ, as logarithms."""
    weight = math.fsum(stratum.new_total.weight for stratum in strata)
    for stratum in strata:
        old = stratum.old_total
        new = stratum.new_total
        load = new.log_load / new.generated - old.log_load / old.generated
        yield new.weight / weight * load


def _context_gap(strata: Collection[Stratum]) -> float:
    """Return how far the contexts differ over all strata, as a logarithm: longer ones
    in one cancel shorter ones in another.
    """
    weight = math.fsum(stratum.new_total.weight for stratum in strata)
    gap = 0.0
    for stratum in strata:
        old = stratum.old_total
        new = stratum.new_total
        context = new.log_prompt / new.generated - old.log_prompt / old.generated
        gap += new.weight / weight * context
    return gap
