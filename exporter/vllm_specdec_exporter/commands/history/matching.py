"""The speed of one configuration against another at the same load, from blocks of time. Pure.

What finished in a block of time is sorted into cells by running requests and prompt length. A stratum is what
both configurations have of one cell, at one time of day or in one and the same block. With y the seconds and
n the requests (or tokens) that finished::

    T_s = y_s / n_s,   speedup = sum(n_new,s T_old,s) / sum(y_new,s)

So every request of the new configuration is held against the old one's mean at its load, as with a baseline.

The interval is that of the logarithm, by the delta method over blocks. Each residual is divided by the share
of its stratum outside its block (jackknife; MacKinnon and White 1985). Successive blocks resemble each other,
so the variance is multiplied by (1 + r) / (1 - r), with their correlation r, less its bias (Kendall 1954),
and the degrees of freedom by (1 - r^2) / (1 + r^2) (Bartlett 1935). For correlation that lasts, blocks are
also joined by two, four, ..., and the widest interval counts. It is widened by what the loads within a
stratum differ: a step grows at most in proportion to its batch.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

from ...economics.baseline import LOADS
from ...economics.statistics import Interval, t_quantile

#: Blocks of each side, of equal traffic, below which there is no interval: it would depend on too few.
MINIMUM_BLOCKS = 6
#: Least share of the new configuration's traffic at loads that the old one had too.
MINIMUM_COVERAGE = 0.1
#: A finer match is used while it covers this share of what the coarsest one covers.
_KEPT = 0.8
#: Largest share of a stratum in one block, so that the others show how blocks differ.
_MAX_SHARE = 0.5
#: Largest correlation of successive blocks that is counted; more would make every interval endless.
_MAX_CORRELATION = 0.95
#: Cells per doubling of the running requests, so that loads within a cell differ by 19 % at most.
_PARTS = 4
_MAX_LOAD = _PARTS * (len(LOADS) - 1)
_PROMPTS = 32  # numbers of prompt lengths: 0 if unknown, and one for each doubling up to 2^30 tokens
_CELLS = 64 * _PROMPTS  # numbers of cells in a block
_QUARTERS = 4  # of a day
_BLOCK = "block of time"
#: Largest logarithm of a ratio's reach: beyond it, an interval is endless for every purpose.
_MAX_REACH = 50.0

#: By block and cell in one number, what finished there. An array has a fifth of the memory of an object.
Cells = dict[int, "array[float]"]
#: Places in such an array: sum of the time per output token of requests, and their number; the same by
#: tokens; and a sum of the logarithm of the load, weighted by the generated tokens in the last place.
SECONDS, REQUESTS, STEP_SECONDS, TOKENS, LOG_LOAD, GENERATED = range(6)
_NOTHING = (0.0,) * 6


def cell_of(block: int, running: float, prompt_tokens: float) -> int:
    """Return the number of a cell; the prompt length is NaN if it is not known."""
    load = min(_MAX_LOAD, math.ceil(_PARTS * math.log2(running))) if running > 1 else 0
    prompt = 1 + round(math.log2(max(1.0, prompt_tokens))) if prompt_tokens >= 0 else 0
    return block * _CELLS + load * _PROMPTS + min(prompt, _PROMPTS - 1)


def add(cells: Cells, cell: int, amounts: Iterable[float]) -> None:
    """Add what finished to a cell."""
    sums = cells.get(cell)
    if sums is None:
        sums = cells[cell] = array("d", _NOTHING)
    for place, amount in enumerate(amounts):
        sums[place] += amount


def place_of(cell: int) -> int:
    """Return the place of a cell's load in `LOADS`."""
    return math.ceil(cell % _CELLS // _PROMPTS / _PARTS)


@dataclass(frozen=True, slots=True)
class BinSpeedup:
    """The speedup in one bin of running requests."""

    above: float  # running requests, more than this
    up_to: float | None  # and at most this; ``None`` for the last bin
    running: float  # geometric mean of the new configuration's running requests that are compared
    speedup: Interval  # without ends where there are too few blocks for them
    share: float  # of the new configuration's traffic


@dataclass(frozen=True, slots=True)
class Speedup:
    """The measured speed of a configuration against an earlier one; without `speedup`, `problem` says why."""

    speedup: Interval | None = None  # the old time per output token over the new one, at the same loads
    effect: str = ""  # helped, worse, or no difference that the interval supports
    problem: str = ""  # what is missing
    coverage: float = 0.0  # share of the new configuration's traffic that is compared
    blocks: int = 0  # blocks of time of the new configuration that are compared
    blocks_before: int = 0  # those of the old one
    matched_by: tuple[str, ...] = ()  # what is equal on both sides
    per_token: bool = False  # whether the time is that of steps over tokens, for want of one by requests
    bins: tuple[BinSpeedup, ...] = ()


#: Of one cell and block: seconds, weight, and the sum of the load's logarithm with its own weight.
_Amounts = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class _Stratum:
    """What both have of a cell, by block."""

    place: int  # of its load in `LOADS`
    old: Mapping[int, _Amounts]
    new: Mapping[int, _Amounts]


def compare(old: Cells, new: Cells, block: float) -> Speedup:
    """Return the speed of `new` against `old`, whose cells are of blocks of so many seconds."""
    # The same measure on both sides: vLLM before 0.11 has none by requests.
    per_token = not (_total(old, REQUESTS) and _total(new, REQUESTS))
    first = STEP_SECONDS if per_token else SECONDS
    whole = _total(new, first + 1)
    if not whole or not _total(old, first + 1):
        return Speedup(problem="no request finished, or its time per output token is not known")
    quarter = max(1, round(86400 / _QUARTERS / block))
    known = ("prompt length",) if any(cell % _PROMPTS for cell in new) else ()

    def match(key: Callable[[int], object], *by: str) -> Speedup:
        concurrent = by == (_BLOCK,)
        strata = _strata(_sorted(old, key, first), _sorted(new, key, first), concurrent=concurrent)
        speedup = combine(strata, concurrent=concurrent)
        return Speedup(
            speedup,
            effect=_effect(speedup),
            coverage=math.fsum(_sums(s.new)[1] for s in strata) / whole,
            blocks=len({b for s in strata for b in s.new}),
            blocks_before=len({b for s in strata for b in s.old}),
            matched_by=("running requests", *known, *by),
            per_token=per_token,
            bins=tuple(_bins(strata, whole, concurrent=concurrent)),
        )

    together = match(lambda cell: cell, _BLOCK)
    if together.speedup and together.speedup.low:
        return together
    any_time = match(lambda cell: cell % _CELLS)
    of_day = match(lambda cell: (cell % _CELLS, cell // _CELLS // quarter % _QUARTERS), "time of day")
    best = of_day if of_day.coverage >= _KEPT * any_time.coverage else any_time
    if best.speedup and best.speedup.low and best.coverage >= MINIMUM_COVERAGE:
        return best
    return replace(best, speedup=None, effect="", bins=(), problem=_problem(old, new, best))


def _effect(speedup: Interval) -> str:
    if (speedup.low or 0.0) > 1:
        return "helped"
    return "worse" if (speedup.high or math.inf) < 1 else "no difference"


def _problem(old: Cells, new: Cells, result: Speedup) -> str:
    blocks = [len({cell // _CELLS for cell in cells}) for cells in (new, old)]
    if min(blocks) >= MINIMUM_BLOCKS and result.coverage < MINIMUM_COVERAGE:
        here, there = (_loads(cells) for cells in (new, old))
        return (
            f"{result.coverage:.0%} of its traffic has a counterpart at the same load and prompt length, and "
            f"{MINIMUM_COVERAGE:.0%} is needed; it ran {here} requests at a time, the other {there}"
        )
    if min(blocks) >= MINIMUM_BLOCKS:
        blocks = [result.blocks, result.blocks_before]
    return (
        f"{blocks[0]} blocks of time against {blocks[1]}, and {MINIMUM_BLOCKS} of about equal traffic are "
        "needed of each: more time, or a shorter --block"
    )


def _loads(cells: Cells) -> str:
    """Return the bins of running requests, without the 5 % of the generated tokens at either end."""
    ordered = sorted((place_of(cell), sums[GENERATED]) for cell, sums in cells.items())
    below = list(accumulate(weight for _, weight in ordered))
    low, high = (ordered[bisect_left(below, share * below[-1])][0] for share in (0.05, 0.95))
    return f"{LOADS[low - 1] + 1 if low else 1} to {LOADS[high]}"


def _total(cells: Cells, place: int) -> float:
    return math.fsum(sums[place] for sums in cells.values())


def _sums(blocks: Mapping[int, _Amounts]) -> _Amounts:
    seconds, weight, log_load, of_load = (math.fsum(part) for part in zip(*blocks.values(), strict=True))
    return seconds, weight, log_load, of_load


_Sorted = dict[object, tuple[int, dict[int, _Amounts]]]


def _sorted(cells: Cells, key: Callable[[int], object], first: int) -> _Sorted:
    """Return the amounts with a weight by key and block."""
    found: _Sorted = {}
    for cell, sums in cells.items():
        if sums[first + 1] <= 0:
            continue
        _, blocks = found.setdefault(key(cell), (place_of(cell), {}))
        more = (sums[first], sums[first + 1], sums[LOG_LOAD], sums[GENERATED])
        block = cell // _CELLS
        blocks[block] = tuple(map(float.__add__, blocks[block], more)) if block in blocks else more  # type: ignore[assignment]
    return found


def _strata(old: _Sorted, new: _Sorted, *, concurrent: bool) -> list[_Stratum]:
    """Return what both have; unless it is of one block, no block has most of it."""
    strata = (
        _Stratum(new[key][0], old[key][1], new[key][1]) for key in sorted(old.keys() & new.keys(), key=str)
    )
    return [s for s in strata if concurrent or max(_largest(s.old), _largest(s.new)) <= _MAX_SHARE]


def _largest(blocks: Mapping[int, _Amounts]) -> float:
    weights = [amounts[1] for amounts in blocks.values()]
    return max(weights) / math.fsum(weights)


def _bins(strata: list[_Stratum], whole: float, *, concurrent: bool) -> Iterator[BinSpeedup]:
    for place in sorted({s.place for s in strata}):
        within = [s for s in strata if s.place == place]
        speedup = combine(within, concurrent=concurrent)
        new = [_sums(s.new) for s in within]
        running = math.exp(math.fsum(n[2] for n in new) / math.fsum(n[3] for n in new))
        above, last = LOADS[place - 1] if place else 0, place == len(LOADS) - 1
        share = math.fsum(n[1] for n in new) / whole
        yield BinSpeedup(float(above), None if last else LOADS[place], running, speedup, share)


def combine(strata: list[_Stratum], *, concurrent: bool) -> Interval:
    """Return the speedup over all strata with its interval, without ends where there are too few blocks."""
    parts = [(s, _sums(s.old), _sums(s.new)) for s in strata]
    expected = math.fsum(new[1] * old[0] / old[1] for _, old, new in parts)
    taken = math.fsum(new[0] for _, _, new in parts)
    whole = math.fsum(new[1] for _, _, new in parts)
    if expected <= 0 or taken <= 0:
        return Interval(math.nan)
    influence: dict[int, float] = defaultdict(float)  # of each block on the logarithm of the speedup
    weights: tuple[dict[int, float], dict[int, float]] = (defaultdict(float), defaultdict(float))
    lower = higher = 0.0
    for stratum, old, new in parts:
        share = new[1] / old[1]
        sides = (stratum.old, old, share, share / expected), (stratum.new, new, 1.0, -1 / taken)
        for side, (blocks, all_of_it, counted, scale) in enumerate(sides):
            for block, (seconds, weight, *_) in blocks.items():
                weights[side][block] += weight * counted
                # How far it is from the others; of one and the same block, both sides differ.
                others = 1 - weight / all_of_it[1]
                residual = (
                    seconds if concurrent else (seconds - all_of_it[0] / all_of_it[1] * weight) / others
                )
                influence[block] += residual * scale
        apart = new[2] / new[3] - old[2] / old[3]
        higher += new[1] / whole * max(0.0, apart)
        lower += new[1] / whole * max(0.0, -apart)
    reach = _reach(influence, weights)
    speedup = expected / taken
    if reach is None:
        return Interval(speedup)
    low, high = min(_MAX_REACH, reach + lower), min(_MAX_REACH, reach + higher)
    return Interval(speedup, speedup * math.exp(-low), speedup * math.exp(high))


def _reach(
    influence: Mapping[int, float], weights: tuple[Mapping[int, float], Mapping[int, float]]
) -> float | None:
    """Return how far the 95 % interval reaches, ``None`` with too few blocks; the widest of joined blocks."""
    widest, joined = None, 1
    while True:
        sums = _joined(influence, joined)
        number = min(_effective(_joined(side, joined)) for side in weights)
        if number < MINIMUM_BLOCKS:
            return widest
        square = math.fsum(u * u for u in sums.values()) * number / (number - 1)
        products = math.fsum(u * sums[block + 1] for block, u in sums.items() if block + 1 in sums)
        r = products / square if square > 0 else 0.0
        # Its bias, for half of the blocks on each side, each around a mean of its own.
        r = min(max(0.0, r + 2 * (1 + 4 * r) / len(sums)), _MAX_CORRELATION)
        freedom = max(1, round(number * (1 - r * r) / (1 + r * r)) - 1)
        reach = t_quantile(freedom) * math.sqrt(square * (1 + r) / (1 - r))
        widest = max(widest or 0.0, reach)
        joined *= 2


def _joined(amounts: Mapping[int, float], joined: int) -> dict[int, float]:
    sums: dict[int, float] = defaultdict(float)
    for block, amount in amounts.items():
        sums[block // joined] += amount
    return dict(sums)


def _effective(weights: Mapping[int, float]) -> float:
    """Return how many blocks of equal weight would say as much (Kish 1965); 0 of none."""
    square = math.fsum(w * w for w in weights.values())
    return math.fsum(weights.values()) ** 2 / square if square > 0 else 0.0
