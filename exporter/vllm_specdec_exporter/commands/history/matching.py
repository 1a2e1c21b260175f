"""The speed of one configuration against another at the same load. Pure.

What finished in a block of time is sorted into cells by running requests and prompt
length. A stratum of `economics.equal_load` is what both configurations have of one
cell, if possible in one and the same block. What the prompts, the answers and the time
explain of the rest is corrected (`covariance`).

The time of prefills per prompt token is a negative control: it depends on machine,
model and server, and hardly on drafts. If it changed as well, so did something else
(Lipsitch, Tchetgen Tchetgen and Cohen, "Negative controls", 2010).
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...config.values import format_duration
from ...economics.baseline import LOADS
from ...economics.equal_load import (
    MINIMUM_BLOCKS,
    Finished,
    Stratum,
    prefix_cache_differs,
    speedup_over_strata,
    total,
)
from ...economics.statistics import Interval, format_ratio
from .cells import (
    HOURS,
    LOADS_IN_DOUBLING,
    BlockLength,
    CellKey,
    Cells,
    TimePerToken,
)
from .covariance import PACE, PREFILL, Slopes, slopes_within

#: Least share of the new configuration's traffic at loads that the old one had too.
MINIMUM_COVERAGE = 0.1


class BinSpeedup(Struct, frozen=True):
    """The speedup in one bin of running requests."""

    above: float  # running requests, more than this
    up_to: float | None  # and at most this; ``None`` for the last bin
    #: Geometric mean of the new configuration's running requests that are compared.
    running: float
    speedup: Interval  # without ends where there are too few blocks for them
    share: float  # of the new configuration's traffic


class Uncompared(Struct, frozen=True):
    """The part of the new configuration's traffic that has no counterpart."""

    share: float  # of its traffic
    running: float  # geometric mean of the running requests
    running_low: float  # the fewest of a cell
    running_high: float  # and the most
    prompt_tokens: float | None  # mean of a request; ``None`` if not known


class Change(Struct, frozen=True):
    """A configuration against no speculation or the one before it; without `speedup`,
    `problem` says why.
    """

    new: int  # its place among the configurations
    old: int  # that of the other one
    #: The old time per output token over the new one, at the same loads.
    speedup: Interval | None = None
    #: Helped, worse, or no certain difference: the interval has 1; or not certain to be
    #: its effect, where something else changed whose part is not known.
    effect: str = ""
    problem: str = ""  # what is missing
    coverage: float = 0.0  # share of the new configuration's traffic that is compared
    blocks: int = 0  # blocks of time of the new configuration that are compared
    blocks_before: int = 0  # those of the old one
    matched_by: tuple[str, ...] = ()  # what is equal on both sides
    corrected_for: tuple[str, ...] = ()  # what differs, and is corrected
    #: Whether the time is that of steps over tokens, for want of one by requests.
    per_token: bool = False
    bins: tuple[BinSpeedup, ...] = ()
    uncompared: Uncompared | None = None  # ``None`` if all is compared
    #: The old prefill time per prompt token over the new one; ``None`` if not known.
    prefill_speedup: Interval | None = None
    #: What changed at the same time and is no effect of drafts.
    other_changes: tuple[str, ...] = ()


class _Matching(NamedTuple):
    """What is equal within a stratum beside the load."""

    block: bool
    prompt: bool

    def stratum(self, key: CellKey) -> CellKey:
        """Return the stratum of a cell: 0 for what may differ."""
        if not self.block:
            key = key._replace(block=0)
        if not self.prompt:
            key = key._replace(prompt=0)
        return key


#: In the same blocks first: what changes with time is the same for both. Then by load
#: and prompt length, and if most traffic has no counterpart there, by load alone.
_MATCHINGS = (
    _Matching(block=True, prompt=True),
    _Matching(block=False, prompt=True),
    _Matching(block=False, prompt=False),
)
#: The label with the blocks of a KV cache, and the factor between two numbers of them
#: that may be of equal machines: a drafter takes up to a third.
_CACHE_SIZE = "num_gpu_blocks"
_SAME_CACHE = 1.5
#: The factor by which drafts may make prefills slower: a draft model has at most an
#: eighth of the target's size in most cases, and verifies little beside a prefill.
_PREFILL_OF_DRAFTS = 1.25
#: The logarithm of a ratio of prefill times that is worth a word although it is not
#: certain: the least gain of another GPU.
_PREFILLS_DIFFER = math.log(1.05)
_COMPARED = (TimePerToken.OF_REQUESTS, TimePerToken.OF_STEPS)
#: Share of the traffic from which on a finer matching is preferred to one that has more
#: of it.
_ENOUGH_COVERAGE = 0.5


class Compared(Struct):
    """All configurations of a model, of which two at a time are compared."""

    cells: Sequence[Cells]
    time: BlockLength = HOURS
    #: Those that were computed.
    known_slopes: dict[TimePerToken, Slopes] = {}

    def slopes(self, measure: TimePerToken) -> Slopes:
        """Return what shows within each configuration of what moves a time per
        token.
        """
        if measure not in self.known_slopes:
            conditions = PREFILL if measure is TimePerToken.OF_PREFILLS else PACE
            loads = _Matching(block=False, prompt=False)
            by_load = []
            for cells in self.cells:
                strata = _by_stratum(cells, measure, loads)
                by_load.append({key.load: blocks for key, blocks in strata.items()})
            self.known_slopes[measure] = slopes_within(
                by_load, conditions, self.time.seconds
            )
        return self.known_slopes[measure]


class _Sides(NamedTuple):
    """The two that are compared."""

    old: Cells
    new: Cells
    compared: Compared

    @property
    def know_prompts(self) -> bool:
        """Whether both know a prompt length."""
        return self.old.know_prompts and self.new.know_prompts


def judge_change(compared: Compared, new: int, old: int) -> Change:
    """Return what a change brought.

    Args:
        compared: all configurations.
        new: place in them.
        old: place in them of the one that the new one is compared with.
    """
    change = Change(new, old)
    sides = _Sides(compared.cells[old], compared.cells[new], compared)
    # The same measure on both sides: vLLM before 0.11 has none by requests.
    for measure in _COMPARED:
        # A number of requests without their time says nothing.
        here = sides.new.seconds_and_weight(measure)
        there = sides.old.seconds_and_weight(measure)
        if all((*here, *there)):
            break
    else:
        return replace(
            change,
            problem="no request finished, or the server stored neither "
            "request_time_per_output_token_seconds_sum nor "
            "inter_token_latency_seconds_sum (of Ray Serve, whose sums are not those "
            "of what was observed, neither is read)",
        )
    change = replace(change, per_token=measure is TimePerToken.OF_STEPS)
    judged = []
    for matching in _MATCHINGS:
        matched = _matched(change, sides, measure, matching)
        if matched is None:
            continue
        known = matched.speedup is not None and matched.speedup.low is not None
        if known and (matching.block or matched.coverage >= _ENOUGH_COVERAGE):
            return _with_control(matched, sides, matching)
        judged.append((known, matched.coverage, matched, matching))
    # At last what has a counterpart for most, of what has an interval at all.
    known, coverage, change, matching = max(judged, key=operator.itemgetter(0, 1))
    if known and coverage >= MINIMUM_COVERAGE:
        return _with_control(change, sides, matching)
    return replace(
        change,
        speedup=None,
        effect="",
        bins=(),
        problem=_missing(change, compared.time),
    )


def _matched(
    change: Change, sides: _Sides, measure: TimePerToken, matching: _Matching
) -> Change | None:
    """Return the change with its speedup, ``None`` where this matching says no more
    than another one.
    """
    if not matching.prompt and not sides.know_prompts:
        return None
    matched_by = ["running requests"]
    corrected_for = []
    if sides.new.know_prompts and matching.prompt:
        matched_by.append("prompt length")
    if sides.know_prompts:
        corrected_for += ["prompt length", "answer length"]
    if matching.block:
        matched_by.append("block of time")
    else:
        corrected_for.append("drift")
    strata = _Strata.of(sides, measure, matching)
    compared = strata.by_cell.values()
    _, weight = sides.new.seconds_and_weight(measure)
    change = replace(
        change,
        matched_by=tuple(matched_by),
        corrected_for=tuple(corrected_for),
        coverage=math.fsum(each.new_total.weight for each in compared) / weight,
        blocks=len(set().union(*(each.new for each in compared))),
        blocks_before=len(set().union(*(each.old for each in compared))),
    )
    if not compared:
        return change
    speedup = strata.speedup()
    return replace(
        change,
        speedup=speedup,
        effect=_effect(speedup),
        bins=tuple(_bins(strata, weight)),
        uncompared=_uncompared(strata, sides.new, measure),
    )


def _other_facts(sides: _Sides) -> Iterator[str]:
    """Yield what servers say of themselves that is not as it was, and the shares of
    prompts that they need not compute.
    """
    cached = sides.new.prefix_cache_hit_ratio
    cached_before = sides.old.prefix_cache_hit_ratio
    if prefix_cache_differs(cached, cached_before):
        yield (
            f"prompt tokens from the prefix cache {cached_before:.0%} to {cached:.0%}, "
            "which are not computed between the steps of others"
        )
    for name, values in sides.new.facts.items():
        values_before = sides.old.facts.get(name)
        if not values_before or values.keys() & values_before.keys():
            continue
        ((value, _),) = values.most_common(1)
        ((before, _),) = values_before.most_common(1)
        sizes = [_number(each) for each in (value, before)]
        # Drafters take memory, and each start finds a little more or less of it.
        if name == _CACHE_SIZE and max(sizes) <= _SAME_CACHE * min(sizes):
            continue
        yield f"{name} {before} to {value}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _with_control(change: Change, sides: _Sides, matching: _Matching) -> Change:
    """Return the change with its negative control, and with what that explains in its
    interval.
    """
    others = tuple(_other_facts(sides))
    controlled = _with_prefills(replace(change, other_changes=others), sides, matching)
    if others and controlled.prefill_speedup is None:
        # By how much it matters is not known.
        return replace(controlled, effect="not certain to be its effect")
    return controlled


def _with_prefills(change: Change, sides: _Sides, matching: _Matching) -> Change:
    """Return the change with what its prefill times explain."""
    speedup = change.speedup
    strata = _Strata.of(sides, TimePerToken.OF_PREFILLS, matching)
    if speedup is None or not strata.by_cell:
        return change
    control = strata.speedup()
    if control.low is None or control.high is None:
        return change
    change = replace(change, prefill_speedup=control)
    low, high = speedup.ends
    # Drafters read prompts too, and steps beside a prefill verify drafts.
    by_drafts = control
    if sides.old.drafting and not sides.new.drafting:
        by_drafts = control.inverse
    by_drafts_too = (
        sides.old.drafting != sides.new.drafting
        and 1 / _PREFILL_OF_DRAFTS < by_drafts.value < 1
    )
    # A machine may speed up steps, which wait for memory, more than prefills, which
    # compute: up to the square of it.
    power = 1 if by_drafts_too else 2
    certain = control.is_above(1) or control.is_below(1)
    if control.is_above(1):
        low /= control.high**power
    elif control.is_below(1):
        high /= control.low**power
    else:
        # Too uncertain to say that something changed, or that nothing did: what it
        # shows may be so, about one standard error more.
        low /= max(1.0, math.sqrt(control.value * control.high))
        high /= min(1.0, math.sqrt(control.value * control.low))
    speedup = Interval(speedup.value, low, high)
    change = replace(change, speedup=speedup, effect=_effect(speedup))
    noticeable = abs(math.log(control.value)) >= _PREFILLS_DIFFER
    if by_drafts_too or not (certain or noticeable):
        return change
    shown = format_ratio(control.value)
    other = f"prefills are {shown} times as fast per prompt token"
    if not certain:
        ends = " to ".join(map(format_ratio, (control.low, control.high)))
        other = f"prefills may be {shown} ({ends}) times as fast per prompt token"
    return replace(change, other_changes=(*change.other_changes, other))


def _missing(change: Change, time: BlockLength) -> str:
    """Return why there is no interval."""
    if change.coverage < MINIMUM_COVERAGE:
        equal = "load"
        if "prompt length" in change.matched_by:
            equal = "load and prompt length"
        return (
            f"{change.coverage:.0%} of its traffic has a counterpart at the same "
            f"{equal}, and {MINIMUM_COVERAGE:.0%} is needed"
        )
    needed = "more time"
    fewest = min(change.blocks, change.blocks_before)
    # Only so many blocks fit in the time that both have.
    if fewest * time.seconds >= MINIMUM_BLOCKS * time.shortest > 0:
        length = max(time.shortest, fewest * time.seconds / (2 * MINIMUM_BLOCKS))
        if length < time.seconds:
            needed += f", or a shorter --block, such as {format_duration(length)}"
    return (
        f"{change.blocks} blocks of time with loads of both, against "
        f"{change.blocks_before}, and {MINIMUM_BLOCKS} of about equal traffic are "
        f"needed of each: {needed}"
    )


class _Strata(Struct, frozen=True):
    """What both configurations have at one load, under the new one's conditions."""

    by_cell: Mapping[CellKey, Stratum]  # the block or prompt is 0 where it may differ
    slopes: Slopes
    #: Before the correction: what differs between the sides.
    uncorrected: Mapping[CellKey, Stratum]
    matching: _Matching

    @classmethod
    def of(cls, sides: _Sides, measure: TimePerToken, matching: _Matching) -> _Strata:
        """Return the strata of both sides."""
        of_old = _by_stratum(sides.old, measure, matching)
        uncorrected = {}
        for key, finished in sorted(_by_stratum(sides.new, measure, matching).items()):
            if key in of_old:
                uncorrected[key] = Stratum.of(of_old[key], finished)
        slopes = sides.compared.slopes(measure)
        by_cell = {
            key: slopes.at_conditions_of_new(stratum)
            for key, stratum in uncorrected.items()
        }
        return cls(by_cell, slopes, uncorrected, matching)

    def speedup(self, keys: Collection[CellKey] | None = None) -> Interval:
        """Return the speedup over the strata with these keys, or over all."""
        if keys is None:
            keys = self.by_cell.keys()
        return speedup_over_strata(
            [self.by_cell[key] for key in keys],
            concurrent=self.matching.block,
            conditions=self.slopes.uncertainty([self.uncorrected[key] for key in keys]),
        )


def _by_stratum(
    cells: Cells, measure: TimePerToken, matching: _Matching
) -> dict[CellKey, dict[int, Finished]]:
    """Return what finished by what is equal in a stratum, and then by block of time."""
    parts: dict[CellKey, dict[int, list[Finished]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for key, finished in cells.finished(measure):
        parts[matching.stratum(key)][key.block].append(finished)
    return {
        key: {block: total(each) for block, each in blocks.items()}
        for key, blocks in parts.items()
    }


def _effect(speedup: Interval) -> str:
    if speedup.is_above(1):
        return "helped"
    if speedup.is_below(1):
        return "worse"
    return "no certain difference"


def _uncompared(
    strata: _Strata, cells: Cells, measure: TimePerToken
) -> Uncompared | None:
    """Return what the new configuration did that has no counterpart."""
    rest: dict[CellKey, Finished] = {}
    everything = 0.0
    for key, finished in cells.finished(measure):
        everything += finished.weight
        if strata.matching.stratum(key) not in strata.by_cell:
            rest[key] = finished
    if not rest:
        return None
    of_rest = total(rest.values())
    loads = [each.log_load / each.generated for each in rest.values()]
    prompt_tokens: float | None = None
    if of_rest.begun > 0 and of_rest.prompt_tokens > 0:
        prompt_tokens = of_rest.prompt_tokens / of_rest.begun
    return Uncompared(
        share=of_rest.weight / everything,
        running=math.exp(of_rest.log_load / of_rest.generated),
        running_low=math.exp(min(loads)),
        running_high=math.exp(max(loads)),
        prompt_tokens=prompt_tokens,
    )


def _bins(strata: _Strata, weight: float) -> Iterator[BinSpeedup]:
    by_bin: dict[int, list[CellKey]] = defaultdict(list)
    for key in strata.by_cell:
        by_bin[math.ceil(key.load / LOADS_IN_DOUBLING)].append(key)
    for index, keys in sorted(by_bin.items()):
        new = total(strata.by_cell[key].new_total for key in keys)
        above = float(LOADS[index - 1]) if index > 0 else 0.0
        up_to = LOADS[index] if index < len(LOADS) - 1 else None
        yield BinSpeedup(
            above=above,
            up_to=up_to,
            running=math.exp(new.log_load / new.generated),
            speedup=strata.speedup(keys),
            share=new.weight / weight,
        )
