"""The speed of one configuration against another at the same load. Pure.

What finished in a block of time is sorted into cells by running requests and prompt
length. A stratum of `economics.equal_load` is what both configurations have of one
cell, if possible in one and the same block.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct
from msgspec.structs import replace

from ...economics.baseline import LOADS
from ...economics.equal_load import (
    MINIMUM_BLOCKS,
    Finished,
    Stratum,
    speedup_over_strata,
    total,
)
from ...economics.statistics import Interval

#: Least share of the new configuration's traffic at loads that the old one had too.
MINIMUM_COVERAGE = 0.1
#: Cells per doubling of the running requests, so that loads within a cell differ by 19
#: % at most.
_LOADS_IN_DOUBLING = 4
_MAX_LOAD = _LOADS_IN_DOUBLING * (len(LOADS) - 1)
#: Numbers of prompt lengths: 0 if unknown, and two for each doubling up to 2^31 tokens.
_PROMPTS = 64
_CELLS = 64 * _PROMPTS  # numbers of cells in a block

#: What is summed in a cell, by its place in an array, which has a fifth of the memory
#: of an object. The logarithms are weighted by the generated tokens.
_SECONDS, _REQUESTS, _STEP_SECONDS, _TOKENS = range(4)
_LOG_LOAD, _LOG_PROMPT, _GENERATED = range(4, 7)


class TimePerToken(IntEnum):
    """Which time per output token is compared, by the place of its sum.

    That of what it is summed over follows.
    """

    OF_REQUESTS = _SECONDS  # over requests
    OF_STEPS = _STEP_SECONDS  # of steps over tokens, for want of one by requests


class Cells:
    """What finished in a configuration, by block of time, load and prompt length."""

    def __init__(self) -> None:
        self._sums: dict[int, array[float]] = {}

    def __bool__(self) -> bool:
        return bool(self._sums)

    def add(
        self,
        block: int,
        running: float,
        prompt_tokens: float,
        *,
        generated: float,
        seconds: float = 0.0,
        requests: float = 0.0,
        step_seconds: float = 0.0,
        tokens: float = 0.0,
    ) -> None:
        """Add what finished in a block at a load; the prompt length is NaN if it is not
        known.

        Args:
            block: number of the block.
            running: running requests.
            prompt_tokens: mean tokens of a prompt.
            generated: tokens that were generated.
            seconds: sum of the times per output token of `requests`.
            requests: requests that finished.
            step_seconds: sum of the times of steps that generated `tokens`.
            tokens: tokens of these steps.
        """
        load = 0
        if running > 1:
            load = min(_MAX_LOAD, math.ceil(_LOADS_IN_DOUBLING * math.log2(running)))
        prompt = 0
        log_prompt = 0.0
        if prompt_tokens >= 0:
            log_prompt = math.log(max(1.0, prompt_tokens))
            prompt = 1 + round(2 * math.log2(max(1.0, prompt_tokens)))
        cell = block * _CELLS + load * _PROMPTS + min(prompt, _PROMPTS - 1)
        sums = self._sums.setdefault(cell, array("d", (0.0,)) * 7)
        sums[_SECONDS] += seconds
        sums[_REQUESTS] += requests
        sums[_STEP_SECONDS] += step_seconds
        sums[_TOKENS] += tokens
        sums[_LOG_LOAD] += generated * math.log(max(1.0, running))
        sums[_LOG_PROMPT] += generated * log_prompt
        sums[_GENERATED] += generated

    @property
    def know_prompts(self) -> bool:
        """Whether a prompt length is known."""
        return any(cell % _PROMPTS for cell in self._sums)

    def seconds_and_weight(self, measure: TimePerToken) -> tuple[float, float]:
        """Return the sum of the times per output token, and what it is a sum over."""
        sums = self._sums.values()
        return (
            math.fsum(each[measure] for each in sums),
            math.fsum(each[measure + 1] for each in sums),
        )

    def finished(self, measure: TimePerToken) -> Iterator[tuple[int, int, Finished]]:
        """Yield block, number of load and prompt length, and what finished there."""
        for cell, sums in sorted(self._sums.items()):
            weight = sums[measure + 1]
            if weight > 0:
                block, number = divmod(cell, _CELLS)
                yield block, number, Finished(sums[measure], weight, *sums[_LOG_LOAD:])


class BinSpeedup(Struct, frozen=True):
    """The speedup in one bin of running requests."""

    above: float  # running requests, more than this
    up_to: float | None  # and at most this; ``None`` for the last bin
    #: Geometric mean of the new configuration's running requests that are compared.
    running: float
    speedup: Interval  # without ends where there are too few blocks for them
    share: float  # of the new configuration's traffic


class Change(Struct, frozen=True):
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


def judge_change(cells: Sequence[Cells], new: int, old: int) -> Change:
    """Return what a change brought; `new` and `old` are places in `cells`."""
    change = Change(new, old)
    # The same measure on both sides: vLLM before 0.11 has none by requests.
    for measure in TimePerToken:
        _, weight = cells[new].seconds_and_weight(measure)
        _, weight_before = cells[old].seconds_and_weight(measure)
        if weight and weight_before:
            break
    else:
        return replace(
            change,
            problem="no request finished, or the server stored neither "
            "request_time_per_output_token_seconds_sum nor "
            "inter_token_latency_seconds_sum",
        )
    matched_by = ["running requests"]
    if cells[new].know_prompts:
        matched_by.append("prompt length")
    # In the same blocks first: what changes with time is the same for both.
    for concurrent in (True, False):
        strata = _strata(cells[old], cells[new], measure, concurrent=concurrent)
        of_block = ["block of time"] * concurrent
        change = replace(
            _judged(change, strata, weight, concurrent=concurrent),
            matched_by=(*matched_by, *of_block),
            per_token=measure is TimePerToken.OF_STEPS,
        )
        if change.speedup is None or not change.speedup.low:
            continue
        if concurrent or change.coverage >= MINIMUM_COVERAGE:
            return change
    return replace(change, speedup=None, effect="", bins=(), problem=_missing(change))


def _missing(change: Change) -> str:
    """Return why there is no interval."""
    if change.coverage < MINIMUM_COVERAGE:
        return (
            f"{change.coverage:.0%} of its traffic has a counterpart at the same load "
            f"and prompt length, and {MINIMUM_COVERAGE:.0%} is needed"
        )
    return (
        f"{change.blocks} blocks of time with loads of both, against "
        f"{change.blocks_before}, and {MINIMUM_BLOCKS} of about equal traffic are "
        "needed of each: more time, or a shorter --block"
    )


#: Strata by what is equal in them: the number of load and prompt length, and the block
#: of time, or 0 where it is not.
_Strata = Mapping[tuple[int, int], Stratum]


def _strata(
    old: Cells, new: Cells, measure: TimePerToken, *, concurrent: bool
) -> _Strata:
    """Return what both have at one load and prompt length and, if `concurrent`, in the
    same block.
    """

    def by_stratum(cells: Cells) -> dict[tuple[int, int], dict[int, Finished]]:
        strata: dict[tuple[int, int], dict[int, Finished]] = defaultdict(dict)
        for block, number, finished in cells.finished(measure):
            strata[block * concurrent, number][block] = finished
        return strata

    of_old = by_stratum(old)
    return {
        key: Stratum.of(of_old[key], finished)
        for key, finished in sorted(by_stratum(new).items())
        if key in of_old
    }


def _judged(
    change: Change, strata: _Strata, weight: float, *, concurrent: bool
) -> Change:
    """Return the change with its speedup; `weight` is that of all traffic."""
    speedup = speedup_over_strata(strata.values(), concurrent=concurrent)
    effect = "no certain difference"
    if speedup.is_above(1):
        effect = "helped"
    elif speedup.is_below(1):
        effect = "worse"
    compared = 0.0
    new_blocks: set[int] = set()
    old_blocks: set[int] = set()
    for stratum in strata.values():
        compared += stratum.new_total.weight
        new_blocks.update(stratum.new)
        old_blocks.update(stratum.old)
    return replace(
        change,
        speedup=speedup,
        effect=effect,
        coverage=compared / weight,
        blocks=len(new_blocks),
        blocks_before=len(old_blocks),
        bins=tuple(_bins(strata, weight, concurrent=concurrent)),
    )


def _bins(strata: _Strata, weight: float, *, concurrent: bool) -> Iterator[BinSpeedup]:
    by_bin: dict[int, list[Stratum]] = defaultdict(list)
    for (_, number), stratum in strata.items():
        load = number // _PROMPTS
        by_bin[math.ceil(load / _LOADS_IN_DOUBLING)].append(stratum)
    for index, within in sorted(by_bin.items()):
        new = total(stratum.new_total for stratum in within)
        above = 0.0
        if index > 0:
            above = float(LOADS[index - 1])
        up_to: float | None = None
        if index < len(LOADS) - 1:
            up_to = LOADS[index]
        yield BinSpeedup(
            above=above,
            up_to=up_to,
            running=math.exp(new.log_load / new.generated),
            speedup=speedup_over_strata(within, concurrent=concurrent),
            share=new.weight / weight,
        )
