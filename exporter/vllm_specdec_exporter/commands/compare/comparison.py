"""The comparison: every further side against the first, with warnings and notes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from typing import TYPE_CHECKING

from ... import __version__
from ...economics import statistics
from .verdict import (
    TOLERANCE,
    Claim,
    Gain,
    LoadComparison,
    Speed,
    SpeedComparison,
    compare_load,
    judge_claim,
    judge_gain,
    judge_speed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...economics.statistics import Interval
    from .side import Side

FORMAT = "vllm-specdec-compare/1"

#: Least overlap, as a share of the longer period, at which two sides have the same period.
_SAME_PERIOD = 0.8


@dataclass(frozen=True, slots=True)
class LatencyComparison:
    """One kind of latency of a side over that of the reference; below 1 the side is faster."""

    name: str  # which one
    ratio: Interval | None  # mean over mean
    difference_seconds: Interval  # mean less mean
    #: Median over median: as coarse as the server's buckets, without an interval.
    p50_ratio: float | None = None
    p95_ratio: float | None = None  # 95th percentiles, likewise
    p99_ratio: float | None = None  # 99th percentiles, likewise


@dataclass(frozen=True, slots=True)
class Pair:
    """A side against the reference."""

    side: str
    reference: str
    speed: Speed
    gain: Gain | None  # of speculation, if exactly one of them speculates
    claim: Claim | None  # the result for the claimed speedup, if there is one
    latencies: tuple[LatencyComparison, ...]  # those that exist on both sides
    throughput_ratio: float | None  # generated tokens per second over those of the reference
    acceptance_ratio_difference: Interval | None  # acceptance ratio less that of the reference
    acceptance_length_difference: Interval | None  # mean acceptance length less that of the reference
    load: LoadComparison  # their loads


@dataclass(frozen=True, slots=True)
class Comparison:
    """Sides side by side."""

    format: str  # version of this document
    version: str  # of the exporter
    sides: tuple[Side, ...]  # the reference first
    pairs: tuple[Pair, ...]  # every further side against the reference, in order
    warnings: tuple[str, ...]  # reasons not to compare them
    notes: tuple[str, ...]  # background for reading the comparison

    @property
    def conclusive(self) -> bool:
        """Whether there is a result on the speed of any side."""
        return any(pair.speed.outcome is not SpeedComparison.UNKNOWN for pair in self.pairs)


def compare(sides: Sequence[Side], claim: float | None = None) -> Comparison:
    """Compare two or more sides with the first, the reference. `claim` is a claimed speedup, above 0.

    ValueError for fewer sides, two sides of one name, or another claim.
    """
    if len(sides) < 2:
        raise ValueError(f"two sides or more are needed, not {len(sides)}")
    if len({side.name for side in sides}) < len(sides):
        raise ValueError(f"sides need names of their own: {', '.join(side.name for side in sides)}")
    if claim is not None and not 0 < claim < float("inf"):
        raise ValueError(f"a claimed speedup lies above 0, not at {claim:g}")
    reference = sides[0]
    pairs = tuple(_pair(side, reference, claim) for side in sides[1:])
    warnings = (*_of_sides(sides), *_of_pairs(sides, pairs))
    return Comparison(FORMAT, __version__, tuple(sides), pairs, warnings, tuple(_notes(sides, pairs)))


def _pair(side: Side, reference: Side, claim: float | None) -> Pair:
    load = compare_load(side, reference)
    speed = judge_speed(side, reference, load)
    gain = judge_gain(side, reference, speed)
    drafting = side.acceptance, reference.acceptance
    both = side.speculating and reference.speculating
    return Pair(
        side=side.name,
        reference=reference.name,
        speed=speed,
        gain=gain,
        claim=None if claim is None else judge_claim(claim, speed, gain),
        latencies=tuple(_latencies(side, reference)),
        throughput_ratio=_over(side.generation_tokens_per_second, reference.generation_tokens_per_second),
        acceptance_ratio_difference=statistics.difference_of_ratios(*drafting) if both else None,
        acceptance_length_difference=statistics.difference_of_lengths(*drafting) if both else None,
        load=load,
    )


def _latencies(side: Side, reference: Side) -> Iterator[LatencyComparison]:
    for one in side.latencies:
        other = reference.latency(one.name)
        here, there = side.mean(one.name), reference.mean(one.name)
        if other is None or here is None or there is None:
            continue
        yield LatencyComparison(
            name=one.name,
            ratio=statistics.ratio_of_means(here, there),
            difference_seconds=statistics.difference_of_means(here, there),
            p50_ratio=_over(one.p50_seconds, other.p50_seconds),
            p95_ratio=_over(one.p95_seconds, other.p95_seconds),
            p99_ratio=_over(one.p99_seconds, other.p99_seconds),
        )


def _over(here: float | None, there: float | None) -> float | None:
    return here / there if here is not None and there else None


def _of_sides(sides: Sequence[Side]) -> Iterator[str]:
    models = {side.models for side in sides if side.models}
    if len(models) > 1:
        served = ", ".join(f"{side.name} {' and '.join(side.models) or 'no name'}" for side in sides)
        yield f"the sides serve models of different names ({served}): the same model, or not comparable"
    versions = {side.version for side in sides if side.version}
    if len(versions) > 1:
        told = ", ".join(f"{side.name} {side.version or 'not known'}" for side in sides)
        yield f"the sides run different versions of vLLM ({told}): the version makes a difference of its own"
    periods = [(side, _period(side)) for side in sides]
    apart = [
        f"{one.name} and {other.name}"
        for (one, first), (other, second) in combinations(periods, 2)
        if first and second and not _same(first, second)
    ]
    if apart:
        told = ", ".join(f"{side.name} {_clock(period)}" for side, period in periods if period)
        yield f"not over the same period ({told}, UTC): traffic may have changed between"
    for side in sides:
        if side.live and side.restarts:
            yield f"{side.name} restarted while it was watched: its period begins there"


def _of_pairs(sides: Sequence[Side], pairs: Sequence[Pair]) -> Iterator[str]:
    reference = sides[0]
    for side, pair in zip(sides[1:], pairs, strict=True):
        if pair.load.same is False:
            yield _of_load(pair)
        here, there = side.tokens_per_request, reference.tokens_per_request
        if here and there and max(here, there) > TOLERANCE * min(here, there):
            yield (
                f"requests of {side.name} had {here:.0f} tokens each, those of {reference.name} {there:.0f}: "
                "other requests, so end-to-end times cannot be compared"
            )


def _notes(sides: Sequence[Side], pairs: Sequence[Pair]) -> Iterator[str]:
    reference = sides[0]
    for side, pair in zip(sides[1:], pairs, strict=True):
        if pair.load.same_requests:
            busy, _ = _busy_and_idle(pair)
            yield (
                f"{busy} had more requests at a time for about the same requests a second "
                f"({_numbers(pair)}): being slower does that, and larger batches make it slower still"
            )
        k, other = side.num_speculative_tokens, reference.num_speculative_tokens
        if side.speculating and reference.speculating and k and other and k != other:
            yield (
                f"K is {k} in {side.name} and {other} in {reference.name}: the acceptance ratio falls with K "
                "by itself, so go by acceptance length and speed"
            )


def _of_load(pair: Pair) -> str:
    busy, idle = _busy_and_idle(pair)
    if pair.load.basis.startswith("requests"):
        return (
            f"not at the same load ({_numbers(pair)}): {busy} looks slower than it is beside {idle}, because "
            "larger batches take longer; speculation gains less there as well"
        )
    return (
        f"perhaps not at the same load ({_numbers(pair)}): that comes from more requests or from more speed, "
        "which these metrics do not tell apart"
    )


def _busy_and_idle(pair: Pair) -> tuple[str, str]:
    more = (pair.load.side or 0.0) > (pair.load.reference or 0.0)
    return (pair.side, pair.reference) if more else (pair.reference, pair.side)


def _numbers(pair: Pair) -> str:
    load = pair.load
    here, there = load.side or 0.0, load.reference or 0.0
    return f"{load.basis}: {pair.side} {here:,.1f}, {pair.reference} {there:,.1f}"


def _period(side: Side) -> tuple[float, float] | None:
    if side.ended_seconds is None or not side.span_seconds:
        return None
    return side.ended_seconds - side.span_seconds, side.ended_seconds


def _same(one: tuple[float, float], other: tuple[float, float]) -> bool:
    common = min(one[1], other[1]) - max(one[0], other[0])
    return common >= _SAME_PERIOD * max(one[1] - one[0], other[1] - other[0])


def _clock(period: tuple[float, float]) -> str:
    try:
        begin, end = (datetime.fromtimestamp(seconds, UTC) for seconds in period)
    except (OverflowError, ValueError, OSError):
        return "at no known time"
    return f"{begin:%Y-%m-%d %H:%M:%S} to {end:%H:%M:%S}"
