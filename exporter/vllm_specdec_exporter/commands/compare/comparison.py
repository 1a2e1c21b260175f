"""The comparison: a side against the reference, with warnings and notes. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec import Struct

from ... import __version__
from ...economics.statistics import Interval, difference_of_means
from .side import END_TO_END, Side
from .verdict import (
    Claim,
    Gain,
    LoadComparison,
    Speed,
    compare_load,
    judge_claim,
    judge_gain,
    judge_speed,
    near,
    prefix_caches_differ,
)

FORMAT = "vllm-specdec-compare/2"

#: Least overlap, as a share of the longer period, at which two sides have the same
#: period.
_SAME_PERIOD = 0.8


class Comparison(Struct, frozen=True):
    """A side against the reference."""

    format: str  # version of this document
    version: str  # of the exporter
    reference: Side
    side: Side
    speed: Speed
    gain: Gain | None  # of speculation, if exactly one of them speculates
    claim: Claim | None  # the result for the claimed speedup, if there is one
    #: Mean time of a request, end to end, less that of the reference.
    end_to_end_difference_seconds: Interval | None
    #: Acceptance ratio less that of the reference.
    acceptance_ratio_difference: Interval | None
    #: Mean acceptance length less that of the reference.
    acceptance_length_difference: Interval | None
    load: LoadComparison  # their loads
    warnings: tuple[str, ...]  # reasons not to compare them
    notes: tuple[str, ...]  # background for reading the comparison

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both sides, the reference first."""
        return self.reference, self.side


def compare(reference: Side, side: Side, claim: float | None = None) -> Comparison:
    """Compare a side with the reference. `claim` is a claimed speedup, above 0."""
    load = compare_load(side, reference)
    speed = judge_speed(side, reference, load)
    gain = judge_gain(side, reference, speed)
    claim_result = judge_claim(claim, speed, gain) if claim is not None else None
    ratio_difference: Interval | None = None
    length_difference: Interval | None = None
    notes: list[str] = []
    if side.speculating and reference.speculating:
        ratio_difference = difference_of_means(
            side.acceptance.ratio_sample, reference.acceptance.ratio_sample
        )
        length_difference = difference_of_means(
            side.acceptance.length_sample, reference.acceptance.length_sample
        )
        notes += _notes(side, reference)
    return Comparison(
        format=FORMAT,
        version=__version__,
        reference=reference,
        side=side,
        speed=speed,
        gain=gain,
        claim=claim_result,
        end_to_end_difference_seconds=difference_of_means(
            side.mean(END_TO_END), reference.mean(END_TO_END)
        ),
        acceptance_ratio_difference=ratio_difference,
        acceptance_length_difference=length_difference,
        load=load,
        warnings=tuple(_warnings(side, reference, load)),
        notes=tuple(notes),
    )


def _notes(side: Side, reference: Side) -> Iterator[str]:
    k = side.num_speculative_tokens
    k_of_reference = reference.num_speculative_tokens
    if k and k_of_reference and k != k_of_reference:
        yield (
            f"K is {k} in {side.name} and {k_of_reference} in {reference.name}: the "
            "acceptance ratio falls with K by itself, so go by acceptance length and "
            "speed"
        )


def _warnings(side: Side, reference: Side, load: LoadComparison) -> Iterator[str]:
    sides = (reference, side)
    if side.models and reference.models and side.models != reference.models:
        served = [f"{each.name} {' and '.join(each.models)}" for each in sides]
        yield (
            f"the sides serve models of different names ({', '.join(served)}): the "
            "same model, or not comparable"
        )
    if side.version and reference.version and side.version != reference.version:
        versions = [f"{each.name} {each.version}" for each in sides]
        yield (
            f"the sides run different versions of vLLM ({', '.join(versions)}): the "
            "version makes a difference of its own"
        )
    period = _period(side)
    period_of_reference = _period(reference)
    if period and period_of_reference and not _overlap(period, period_of_reference):
        yield (
            f"not over the same period ({reference.name} "
            f"{_clock(period_of_reference)}, {side.name} {_clock(period)}, UTC): "
            "traffic may have changed between"
        )
    for each in sides:
        if each.live and each.restarts:
            yield f"{each.name} restarted while it was watched: its period begins there"
    if load.same is False:
        yield _load_warning(side, reference, load)
    if prefix_caches_differ(side, reference):
        yield _prefix_cache_warning(side, reference)
    tokens = side.tokens_per_request
    tokens_of_reference = reference.tokens_per_request
    if tokens and tokens_of_reference and not near(tokens, tokens_of_reference):
        yield (
            f"requests of {side.name} had {tokens:.0f} tokens each, those of "
            f"{reference.name} {tokens_of_reference:.0f}: other requests, so "
            "end-to-end times cannot be compared"
        )


def _load_warning(side: Side, reference: Side, load: LoadComparison) -> str:
    load_of_side = load.side or 0.0
    load_of_reference = load.reference or 0.0
    busy = side
    idle = reference
    if load_of_side <= load_of_reference:
        busy = reference
        idle = side
    return (
        f"not at the same load ({load.quantity}: {side.name} {load_of_side:,.1f}, "
        f"{reference.name} {load_of_reference:,.1f}): {busy.name} looks slower than it "
        f"is beside {idle.name}, because larger batches take longer; speculation gains "
        "less there as well"
    )


def _prefix_cache_warning(side: Side, reference: Side) -> str:
    found = [
        f"{each.name} {each.measures.prefix_cache_hit_ratio or 0.0:.0%}"
        for each in (reference, side)
    ]
    return (
        "different shares of the prompt tokens came from the prefix cache "
        f"({', '.join(found)}): times per output token with and without the "
        "computation of other prompts between them are not of one load"
    )


def _period(side: Side) -> tuple[float, float] | None:
    if side.ended_seconds is None or not side.measures.span_seconds:
        return None
    return side.ended_seconds - side.measures.span_seconds, side.ended_seconds


def _overlap(period: tuple[float, float], other_period: tuple[float, float]) -> bool:
    begin, end = period
    other_begin, other_end = other_period
    common = min(end, other_end) - max(begin, other_begin)
    longer = max(end - begin, other_end - other_begin)
    return common >= _SAME_PERIOD * longer


def _clock(period: tuple[float, float]) -> str:
    try:
        begin, end = (datetime.fromtimestamp(seconds, UTC) for seconds in period)
    except (OverflowError, ValueError, OSError):
        return "at no known time"
    return f"{begin:%Y-%m-%d %H:%M:%S} to {end:%H:%M:%S}"
