"""The speed of one configuration against another at the same load, from blocks of time.
Pure.

What finished in a block of time is sorted into cells by running requests and prompt
length. A stratum is what both configurations have of one cell, if possible in one and
the same block. With y the seconds and n the requests (or tokens) that finished::

    T_s = y_s / n_s,   speedup = sum(n_new,s T_old,s) / sum(y_new,s)

So every request of the new configuration is held against the old one's mean at its load, as with a baseline.

Its interval holds the seconds of each block against those of the other blocks in its
strata, or against the other configuration where a block has most of a stratum. Blocks
are joined to parts with about equal weight, since what differs between them changes
slowly. With the share w of a part, the variance of ``ln`` of its side is that of a
ratio estimator (HC2 of MacKinnon and White, 1985)::

    var = sum((y - r p)^2 / (1 - w)) / sum(y)^2,   r = sum(y) / sum(p),   w = p / sum(p)

with as many degrees of freedom as equal parts would have, less one. The interval is widened by what loads and
prompt lengths within a stratum differ: a step grows at most in proportion to its batch, and to its context.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...economics.baseline import LOADS
from ...economics.statistics import MAX_BLOCKS, Interval, Uncertainty, reach_of

#: Blocks of each side below which there is no interval: it would depend on too few.
MINIMUM_BLOCKS = 6
#: The same, of equal weight: where one has nearly all of the traffic, its scatter is
#: not known.
MINIMUM_EFFECTIVE = 2.0
#: Share of a block's tokens below which the others of its stratum do not predict it.
_ALONE = 1e-9
#: Least share of the new configuration's traffic at loads that the old one had too.
MINIMUM_COVERAGE = 0.1
#: Cells per doubling of the running requests, so that loads within a cell differ by 19
#: % at most.
_PARTS = 4
_MAX_LOAD = _PARTS * (len(LOADS) - 1)
#: Numbers of prompt lengths: 0 if unknown, and two for each doubling up to 2^31 tokens.
_PROMPTS = 64
_CELLS = 64 * _PROMPTS  # numbers of cells in a block

#: By block and cell in one number, what finished there. An array has a fifth of the
#: memory of an object.
Cells = dict[int, "array[float]"]
#: Places in such an array: sum of the time per output token of requests, and their
#: number; the same by tokens; and sums of the logarithms of load and prompt length,
#: weighted by the tokens in the last place.
SECONDS, REQUESTS, STEP_SECONDS, TOKENS, LOG_LOAD, LOG_PROMPT, GENERATED = range(7)


def cell_of(block: int, running: float, prompt_tokens: float) -> int:
    """Return the number of a cell; the prompt length is NaN if it is not known."""
    if running > 1:
        load = min(_MAX_LOAD, math.ceil(_PARTS * math.log2(running)))
    else:
        load = 0
    if prompt_tokens >= 0:
        prompt = 1 + round(2 * math.log2(max(1.0, prompt_tokens)))
    else:
        prompt = 0
    return block * _CELLS + load * _PROMPTS + min(prompt, _PROMPTS - 1)


def add(cells: Cells, cell: int, amounts: Iterable[float]) -> None:
    """Add what finished to a cell."""
    sums = cells.setdefault(cell, array("d", (0.0,)) * 7)
    for place, amount in enumerate(amounts):
        sums[place] += amount


@dataclass(frozen=True, slots=True)
class BinSpeedup:
    """The speedup in one bin of running requests."""

    above: float  # running requests, more than this
    up_to: float | None  # and at most this; ``None`` for the last bin
    #: Geometric mean of the new configuration's running requests that are compared.
    running: float
    speedup: Interval  # without ends where there are too few blocks for them
    share: float  # of the new configuration's traffic


@dataclass(frozen=True, slots=True)
class Comparison:
    """A configuration against no speculation or the one before it; without `speedup`,
    `problem` says why.
    """

    new: int  # its place among the configurations
    old: int  # that of the other one
    #: The old time per output token over the new one, at the same loads.
    speedup: Interval | None = None
    effect: str = ""  # helped, worse, or no certain difference: the interval has 1
    problem: str = ""  # what is missing
    coverage: float = 0.0  # share of the new configuration's traffic that is compared
    blocks: int = 0  # blocks of time of the new configuration that are compared
    blocks_before: int = 0  # those of the old one
    matched_by: tuple[str, ...] = ()  # what is equal on both sides
    #: Whether the time is that of steps over tokens, for want of one by requests.
    per_token: bool = False
    bins: tuple[BinSpeedup, ...] = ()


#: What the old and the new configuration have of a stratum, by block.
_Stratum = tuple[Cells, Cells]


def compare(cells: Sequence[Cells], new: int, old: int) -> Comparison:
    """Return the speedup of one configuration over another, by their places in `cells`."""
    sides = cells[old], cells[new]
    missing = (
        "request_time_per_output_token_seconds_sum nor inter_token_latency_seconds_sum"
    )
    found = Comparison(
        new, old, problem=f"no request finished, or the server stored neither {missing}"
    )
    # The same measure on both sides: vLLM before 0.11 has none by requests.
    per_token = not all(total(side, REQUESTS) for side in sides)
    first = STEP_SECONDS if per_token else SECONDS
    whole = total(cells[new], first + 1)
    if not whole or not total(cells[old], first + 1):
        return found
    prompt: tuple[str, ...] = ()
    if any(cell % _PROMPTS for cell in cells[new]):
        prompt = ("prompt length",)
    # In the same blocks first: what changes with time is the same for both.
    for concurrent in (True, False):
        strata = _strata(sides, first, concurrent=concurrent)
        speedup = combine(strata.values(), first, concurrent=concurrent)
        low = speedup.low or 0.0
        high = speedup.high or math.inf
        found = Comparison(
            new,
            old,
            speedup,
            effect="helped"
            if low > 1
            else "worse"
            if high < 1
            else "no certain difference",
            coverage=math.fsum(total(after, first + 1) for _, after in strata.values())
            / whole,
            blocks=len({block for _, after in strata.values() for block in after}),
            blocks_before=len(
                {block for before, _ in strata.values() for block in before}
            ),
            matched_by=("running requests", *prompt, *["block of time"] * concurrent),
            per_token=per_token,
            bins=tuple(_bins(strata, whole, first, concurrent=concurrent)),
        )
        if speedup.low and (concurrent or found.coverage >= MINIMUM_COVERAGE):
            return found
    if found.coverage < MINIMUM_COVERAGE:
        problem = (
            f"{found.coverage:.0%} of its traffic has a counterpart at the same load "
            "and prompt length, and "
            f"{MINIMUM_COVERAGE:.0%} is needed"
        )
    else:
        problem = (
            f"{found.blocks} blocks of time with loads of both, against "
            f"{found.blocks_before}, and "
            f"{MINIMUM_BLOCKS} of about equal traffic are needed of each: more time, "
            "or a shorter --block"
        )
    return replace(found, speedup=None, effect="", bins=(), problem=problem)


def total(cells: Cells, place: int) -> float:
    """Return the sum of what is at a place of each array."""
    return math.fsum(sums[place] for sums in cells.values())


def _strata(sides: _Stratum, first: int, *, concurrent: bool) -> dict[int, _Stratum]:
    """Return, by cell, what both have of it, or if `concurrent`, what they have of it
    in the same block.
    """
    found: dict[int, _Stratum] = defaultdict(lambda: ({}, {}))
    for side, cells in enumerate(sides):
        for cell, sums in cells.items():
            if sums[first + 1] > 0:
                found[cell if concurrent else cell % _CELLS][side][cell // _CELLS] = (
                    sums
                )
    return {cell: both for cell, both in sorted(found.items()) if all(both)}


def _bins(
    strata: dict[int, _Stratum], whole: float, first: int, *, concurrent: bool
) -> Iterator[BinSpeedup]:
    by_load: dict[int, list[_Stratum]] = defaultdict(list)
    for cell, both in strata.items():
        by_load[math.ceil(cell % _CELLS // _PROMPTS / _PARTS)].append(both)
    for place, within in sorted(by_load.items()):
        weight, log_load, generated = (
            math.fsum(total(after, what) for _, after in within)
            for what in (first + 1, LOG_LOAD, GENERATED)
        )
        yield BinSpeedup(
            above=float(LOADS[place - 1] if place else 0),
            up_to=None if place == len(LOADS) - 1 else LOADS[place],
            running=math.exp(log_load / generated),
            speedup=combine(within, first, concurrent=concurrent),
            share=weight / whole,
        )


def combine(strata: Collection[_Stratum], first: int, *, concurrent: bool) -> Interval:
    """Return the speedup over all strata with its interval, without ends where there
    are too few blocks.

    `first` is the place of the seconds in the arrays; that of the weight follows it.
    """
    y = first
    n = first + 1
    totals = [
        [tuple(map(math.fsum, zip(*side.values(), strict=True))) for side in both]
        for both in strata
    ]
    expected = math.fsum(new[n] * old[y] / old[n] for old, new in totals)
    taken = math.fsum(new[y] for _, new in totals)
    whole = math.fsum(new[n] for _, new in totals)
    if expected <= 0 or taken <= 0:
        return Interval(math.nan)
    speedup = expected / taken
    #: Of old and new, by block: seconds as they were, and as predicted from the other
    #: blocks.
    blocks: tuple[dict[int, tuple[float, float]], ...] = ({}, {})
    loads: list[float] = []
    prompts: list[float] = []
    for both, (old, new) in zip(strata, totals, strict=True):
        pairs = (old, new, new[n] / old[n], speedup), (new, old, 1.0, 1 / speedup)
        for sums, side, (own, other, counted, ratio) in zip(
            blocks, both, pairs, strict=True
        ):
            for block, amounts in side.items():
                seconds = amounts[y]
                weight = amounts[n]
                left = own[n] - weight
                among = (own[y] - seconds) / left if left > _ALONE * weight else 0.0
                rate = among or ratio * other[y] / other[n]
                was, predicted = sums.get(block, (0.0, 0.0))
                sums[block] = (
                    was + counted * seconds,
                    predicted + counted * rate * weight,
                )
        for place, differences in ((LOG_LOAD, loads), (LOG_PROMPT, prompts)):
            difference = new[place] / new[GENERATED] - old[place] / old[GENERATED]
            differences.append(new[n] / whole * difference)
    sides = [[sums[block] for block in sorted(sums)] for sums in blocks]
    if (
        min(map(len, sides)) < MINIMUM_BLOCKS
        or min(map(_effective, sides)) < MINIMUM_EFFECTIVE
    ):
        return Interval(speedup)
    if concurrent:  # both sides differ by the same
        sides = sides[1:]
    reach = reach_of(*map(_uncertainty, sides))
    within = (*loads, math.fsum(prompts))
    low = math.fsum(min(0.0, difference) for difference in within) - reach
    high = math.fsum(max(0.0, difference) for difference in within) + reach
    return Interval(speedup, speedup * math.exp(low), speedup * math.exp(high))


def _effective(blocks: list[tuple[float, float]]) -> float:
    """Return how many blocks of equal weight are worth as much (Kish, "Survey
    Sampling", 1965).
    """
    weights = [by_means for _, by_means in blocks]
    return math.fsum(weights) ** 2 / math.fsum(weight**2 for weight in weights)


def _uncertainty(blocks: list[tuple[float, float]]) -> Uncertainty:
    """Return the uncertainty of a side, of long blocks or of longer ones: the load may
    change slowly.
    """
    found = []
    for number in (MAX_BLOCKS, MAX_BLOCKS // 2):
        parts = _joined(blocks, number)
        taken, whole = (math.fsum(each) for each in zip(*parts, strict=True))
        residuals = (
            ((y - taken / whole * p) / taken) ** 2 / (1 - p / whole) for y, p in parts
        )
        found.append(Uncertainty(math.fsum(residuals), max(1.0, _effective(parts) - 1)))
    return max(found, key=reach_of)


def _joined(
    blocks: list[tuple[float, float]], number: int
) -> list[tuple[float, float]]:
    """Return at most so many sums of successive blocks, with about equal weight."""
    whole = math.fsum(weight for _, weight in blocks)
    before = 0.0
    parts: dict[int, tuple[float, float]] = {}
    for taken, weight in blocks:
        place = int(number * (before + weight / 2) / whole)
        y, p = parts.get(place, (0.0, 0.0))
        parts[place], before = (y + taken, p + weight), before + weight
    return list(parts.values())
