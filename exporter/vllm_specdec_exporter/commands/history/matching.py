"""The speed of one configuration against another at the same load, from blocks of time. Pure.

What finished in a block of time is sorted into cells by running requests and prompt length. A stratum is what
both configurations have of one cell, if possible in one and the same block. With y the seconds and n the
requests (or tokens) that finished::

    T_s = y_s / n_s,   speedup = sum(n_new,s T_old,s) / sum(y_new,s)

So every request of the new configuration is held against the old one's mean at its load, as with a baseline.

Its interval holds the seconds of each block against those of the other blocks in its strata, or against the
other configuration where a block has most of a stratum. Blocks are joined to parts with about equal
weight, since what differs between them changes slowly. With the share w of a part, the variance of ``ln`` of
its side is that of a ratio estimator (HC2 of MacKinnon and White, 1985)::

    var = sum((y - r p)^2 / (1 - w)) / sum(y)^2,   r = sum(y) / sum(p),   w = p / sum(p)

with as many degrees of freedom as equal parts would have, less one. The interval is widened by what loads and
prompt lengths within a stratum differ: a step grows at most in proportion to its batch, and to its context.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ...economics.baseline import LOADS
from ...economics.statistics import MAX_BLOCKS, Interval, Uncertainty, reach_of

#: Blocks of each side below which there is no interval: it would depend on too few.
MINIMUM_BLOCKS = 6
#: The same, of equal weight: where one has nearly all of the traffic, its scatter is not known.
MINIMUM_EFFECTIVE = 2.0
#: Share of a block's tokens below which the others of its stratum do not predict it.
_ALONE = 1e-9
#: Least share of the new configuration's traffic at loads that the old one had too.
MINIMUM_COVERAGE = 0.1
#: Cells per doubling of the running requests, so that loads within a cell differ by 19 % at most.
_PARTS = 4
_MAX_LOAD = _PARTS * (len(LOADS) - 1)
_PROMPTS = 64  # numbers of prompt lengths: 0 if unknown, and two for each doubling up to 2^31 tokens
_CELLS = 64 * _PROMPTS  # numbers of cells in a block

#: By block and cell in one number, what finished there. An array has a fifth of the memory of an object.
Cells = dict[int, "array[float]"]
#: Places in such an array: sum of the time per output token of requests, and their number; the same by
#: tokens; and sums of the logarithms of load and prompt length, weighted by the tokens in the last place.
SECONDS, REQUESTS, STEP_SECONDS, TOKENS, LOG_LOAD, LOG_PROMPT, GENERATED = range(7)


def cell_of(block: int, running: float, prompt_tokens: float) -> int:
    """Return the number of a cell; the prompt length is NaN if it is not known."""
    load = min(_MAX_LOAD, math.ceil(_PARTS * math.log2(running))) if running > 1 else 0
    prompt = 1 + round(2 * math.log2(max(1.0, prompt_tokens))) if prompt_tokens >= 0 else 0
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
    running: float  # geometric mean of the new configuration's running requests that are compared
    speedup: Interval  # without ends where there are too few blocks for them
    share: float  # of the new configuration's traffic


@dataclass(frozen=True, slots=True)
class Speedup:
    """The measured speed of a configuration against an earlier one; without `speedup`, `problem` says why."""

    speedup: Interval | None = None  # the old time per output token over the new one, at the same loads
    effect: str = ""  # helped, worse, or no certain difference: the interval has 1
    problem: str = ""  # what is missing
    coverage: float = 0.0  # share of the new configuration's traffic that is compared
    blocks: int = 0  # blocks of time of the new configuration that are compared
    blocks_before: int = 0  # those of the old one
    matched_by: tuple[str, ...] = ()  # what is equal on both sides
    per_token: bool = False  # whether the time is that of steps over tokens, for want of one by requests
    bins: tuple[BinSpeedup, ...] = ()


@dataclass(slots=True)
class _Side:
    """What a configuration has of a stratum."""

    place: int  # of its load in `LOADS`
    seconds: float = 0.0
    weight: float = 0.0  # requests or tokens
    log_load: float = 0.0
    log_prompt: float = 0.0
    generated: float = 0.0
    blocks: dict[int, tuple[float, float]] = field(default_factory=dict)  # seconds and weight

    def add(self, block: int, sums: array[float], first: int) -> None:
        seconds, weight = self.blocks.get(block, (0.0, 0.0))
        self.blocks[block] = seconds + sums[first], weight + sums[first + 1]
        self.seconds += sums[first]
        self.weight += sums[first + 1]
        self.log_load += sums[LOG_LOAD]
        self.log_prompt += sums[LOG_PROMPT]
        self.generated += sums[GENERATED]


_Stratum = tuple[_Side, _Side]  # of the old and of the new configuration


def compare(old: Cells, new: Cells) -> Speedup:
    """Return the speed of `new` against `old`, whose cells are of the same blocks."""
    # The same measure on both sides: vLLM before 0.11 has none by requests.
    per_token = not (_total(old, REQUESTS) and _total(new, REQUESTS))
    first = STEP_SECONDS if per_token else SECONDS
    whole = _total(new, first + 1)
    if not whole or not _total(old, first + 1):
        return Speedup(problem="no request finished, or its time per output token is not known")
    prompt = ("prompt length",) if any(cell % _PROMPTS for cell in new) else ()
    found = Speedup()
    # In the same blocks first: what changes with time is the same for both.
    for cells, more in ((math.inf, ("block of time",)), (_CELLS, ())):
        before, after = (_sides(side, cells, first) for side in (old, new))
        strata = [(before[cell], after[cell]) for cell in sorted(before.keys() & after.keys())]
        speedup = combine(strata, concurrent=bool(more))
        low, high = speedup.low or 0.0, speedup.high or math.inf
        here, there = ({block for both in strata for block in both[side].blocks} for side in (1, 0))
        found = Speedup(
            speedup,
            effect="helped" if low > 1 else "worse" if high < 1 else "no certain difference",
            coverage=math.fsum(after.weight for _, after in strata) / whole,
            blocks=len(here),
            blocks_before=len(there),
            matched_by=("running requests", *prompt, *more),
            per_token=per_token,
            bins=tuple(_bins(strata, whole, concurrent=bool(more))),
        )
        if speedup.low and (more or found.coverage >= MINIMUM_COVERAGE):
            return found
    return replace(found, speedup=None, effect="", bins=(), problem=_problem(old, new, found))


def _problem(old: Cells, new: Cells, result: Speedup) -> str:
    blocks = [len({cell // _CELLS for cell in cells}) for cells in (new, old)]
    if min(blocks) >= MINIMUM_BLOCKS and result.coverage < MINIMUM_COVERAGE:
        return (
            f"{result.coverage:.0%} of its traffic has a counterpart at the same load and prompt length, and "
            f"{MINIMUM_COVERAGE:.0%} is needed"
        )
    if min(blocks) >= MINIMUM_BLOCKS:
        blocks = [result.blocks, result.blocks_before]
    return (
        f"{blocks[0]} blocks of time against {blocks[1]}, and {MINIMUM_BLOCKS} of about equal traffic are "
        "needed of each: more time, or a shorter --block"
    )


def _total(cells: Cells, place: int) -> float:
    return math.fsum(sums[place] for sums in cells.values())


def _sides(cells: Cells, different: float, first: int) -> dict[float, _Side]:
    """Return what finished by cell, of which so many are different."""
    found: dict[float, _Side] = {}
    for cell, sums in cells.items():
        if sums[first + 1] > 0:
            place = math.ceil(cell % _CELLS // _PROMPTS / _PARTS)  # of its load in `LOADS`
            side = found.setdefault(cell % different, _Side(place))
            side.add(cell // _CELLS, sums, first)
    return found


def _bins(strata: list[_Stratum], whole: float, *, concurrent: bool) -> Iterator[BinSpeedup]:
    for place in sorted({new.place for _, new in strata}):
        within = [both for both in strata if both[1].place == place]
        speedup = combine(within, concurrent=concurrent)
        log_load, generated = (math.fsum(getattr(n, s) for _, n in within) for s in ("log_load", "generated"))
        above, last = LOADS[place - 1] if place else 0, place == len(LOADS) - 1
        share = math.fsum(new.weight for _, new in within) / whole
        running = math.exp(log_load / generated)
        yield BinSpeedup(float(above), None if last else LOADS[place], running, speedup, share)


def combine(strata: list[_Stratum], *, concurrent: bool) -> Interval:
    """Return the speedup over all strata with its interval, without ends where there are too few blocks."""
    expected = math.fsum(new.weight * old.seconds / old.weight for old, new in strata)
    taken = math.fsum(new.seconds for _, new in strata)
    whole = math.fsum(new.weight for _, new in strata)
    if expected <= 0 or taken <= 0:
        return Interval(math.nan)
    speedup = expected / taken
    #: Of old and new, by block: seconds as they were, and as predicted from the other blocks.
    blocks: tuple[dict[int, tuple[float, float]], ...] = ({}, {})
    lower = higher = longer = 0.0
    for old, new in strata:
        pairs = (old, new, new.weight / old.weight, speedup), (new, old, 1.0, 1 / speedup)
        for sums, (side, other, counted, ratio) in zip(blocks, pairs, strict=True):
            for block, (seconds, weight) in side.blocks.items():
                left = side.weight - weight
                among = (side.seconds - seconds) / left if left > _ALONE * weight else 0.0
                rate = among or ratio * other.seconds / other.weight
                was, predicted = sums.get(block, (0.0, 0.0))
                sums[block] = was + counted * seconds, predicted + counted * rate * weight
        difference = new.log_load / new.generated - old.log_load / old.generated
        higher += new.weight / whole * max(0.0, difference)
        lower += new.weight / whole * max(0.0, -difference)
        longer += new.weight / whole * (new.log_prompt / new.generated - old.log_prompt / old.generated)
    sides = [[sums[block] for block in sorted(sums)] for sums in blocks]
    if min(map(len, sides)) < MINIMUM_BLOCKS or min(map(_effective, sides)) < MINIMUM_EFFECTIVE:
        return Interval(speedup)
    if concurrent:  # both sides differ by the same
        sides = sides[1:]
    reach = reach_of(*map(_uncertainty, sides))
    low, high = -reach - lower + min(0.0, longer), reach + higher + max(0.0, longer)
    return Interval(speedup, speedup * math.exp(low), speedup * math.exp(high))


def _effective(blocks: list[tuple[float, float]]) -> float:
    """Return how many blocks of equal weight are worth as much (Kish, "Survey Sampling", 1965)."""
    weights = [by_means for _, by_means in blocks]
    return math.fsum(weights) ** 2 / math.fsum(weight**2 for weight in weights)


def _uncertainty(blocks: list[tuple[float, float]]) -> Uncertainty:
    """Return the uncertainty of a side, of long blocks or of longer ones: the load may change slowly."""
    found = []
    for number in (MAX_BLOCKS, MAX_BLOCKS // 2):
        parts = _joined(blocks, number)
        taken, whole = (math.fsum(each) for each in zip(*parts, strict=True))
        residuals = (((y - taken / whole * p) / taken) ** 2 / (1 - p / whole) for y, p in parts)
        found.append(Uncertainty(math.fsum(residuals), max(1.0, _effective(parts) - 1)))
    return max(found, key=reach_of)


def _joined(blocks: list[tuple[float, float]], number: int) -> list[tuple[float, float]]:
    """Return at most so many sums of successive blocks, with about equal weight."""
    whole, before = math.fsum(weight for _, weight in blocks), 0.0
    parts: dict[int, tuple[float, float]] = {}
    for taken, weight in blocks:
        place = int(number * (before + weight / 2) / whole)
        y, p = parts.get(place, (0.0, 0.0))
        parts[place], before = (y + taken, p + weight), before + weight
    return list(parts.values())
