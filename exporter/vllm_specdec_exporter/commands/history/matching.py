"""The speed of one configuration against another at the same load. Pure.

What finished in a block of time is sorted into cells by running requests and prompt
length. A stratum of `economics.equal_load` is what both configurations have of one
cell, if possible in one and the same block.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

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
#: Cells per doubling of the prompt length. They may be wide: what prompts differ by
#: within a cell widens the interval.
_PROMPTS_IN_DOUBLING = 2


class TimePerToken(Enum):
    """Which time per output token is compared."""

    OF_REQUESTS = "of requests"
    OF_STEPS = "of steps over their tokens"  # for want of one by requests


class CellKey(NamedTuple):
    """Where something finished. Numbers of load and prompt length rise with them."""

    block: int  # of time
    load: int
    prompt: int  # 0 where its length is not known


class _Cell(Struct):
    """Sums of what finished in one block at one load and prompt length."""

    seconds: float = 0.0  # times per output token of the requests
    requests: float = 0.0
    step_seconds: float = 0.0  # times of the steps that generated the tokens
    tokens: float = 0.0
    #: Logarithms of load and prompt length over the generated tokens.
    log_load: float = 0.0
    log_prompt: float = 0.0
    generated: float = 0.0

    def finished(self, measure: TimePerToken) -> Finished:
        """Return the sums with one of the times."""
        seconds = self.seconds
        weight = self.requests
        if measure is TimePerToken.OF_STEPS:
            seconds = self.step_seconds
            weight = self.tokens
        return Finished(
            seconds=seconds,
            weight=weight,
            log_load=self.log_load,
            log_prompt=self.log_prompt,
            generated=self.generated,
        )


class Cells:
    """What finished in a configuration, by block of time, load and prompt length."""

    def __init__(self) -> None:
        self._cells: dict[CellKey, _Cell] = defaultdict(_Cell)

    def __bool__(self) -> bool:
        return bool(self._cells)

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
            length = max(1.0, prompt_tokens)
            log_prompt = math.log(length)
            prompt = 1 + round(_PROMPTS_IN_DOUBLING * math.log2(length))
        cell = self._cells[CellKey(block, load, prompt)]
        cell.seconds += seconds
        cell.requests += requests
        cell.step_seconds += step_seconds
        cell.tokens += tokens
        cell.log_load += generated * math.log(max(1.0, running))
        cell.log_prompt += generated * log_prompt
        cell.generated += generated

    @property
    def know_prompts(self) -> bool:
        """Whether a prompt length is known."""
        return any(key.prompt for key in self._cells)

    def seconds_and_weight(self, measure: TimePerToken) -> tuple[float, float]:
        """Return the sum of the times per output token, and what it is a sum over."""
        finished = [cell.finished(measure) for cell in self._cells.values()]
        return (
            math.fsum(each.seconds for each in finished),
            math.fsum(each.weight for each in finished),
        )

    def finished(self, measure: TimePerToken) -> Iterator[tuple[CellKey, Finished]]:
        """Yield what finished in each cell, in the order of time."""
        for key, cell in sorted(self._cells.items()):
            finished = cell.finished(measure)
            if finished.weight > 0:
                yield key, finished


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
        equal = list(matched_by)
        if concurrent:
            equal.append("block of time")
        change = replace(
            _judged(change, strata, weight, concurrent=concurrent),
            matched_by=tuple(equal),
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


#: Strata by what is equal in them; the block of time is 0 where it is not.
_Strata = Mapping[CellKey, Stratum]


def _strata(
    old: Cells, new: Cells, measure: TimePerToken, *, concurrent: bool
) -> _Strata:
    """Return what both have at one load and prompt length and, if `concurrent`, in the
    same block.
    """

    def by_stratum(cells: Cells) -> dict[CellKey, dict[int, Finished]]:
        strata: dict[CellKey, dict[int, Finished]] = defaultdict(dict)
        for key, finished in cells.finished(measure):
            stratum = key if concurrent else key._replace(block=0)
            strata[stratum][key.block] = finished
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
    for key, stratum in strata.items():
        by_bin[math.ceil(key.load / _LOADS_IN_DOUBLING)].append(stratum)
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
