"""The comparison: a side against the reference, with warnings and notes. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from ... import __version__
from ...economics.statistics import Interval, difference_of_means
from .side import END_TO_END, Side
from .verdict import (
    TOLERANCE,
    Claim,
    Gain,
    LoadComparison,
    Speed,
    compare_load,
    judge_claim,
    judge_gain,
    judge_speed,
)

FORMAT = "vllm-specdec-compare/2"

#: Least overlap, as a share of the longer period, at which two sides have the same
#: period.
_SAME_PERIOD = 0.8


@dataclass(frozen=True, slots=True)
class Comparison:
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
    if side.speculating and reference.speculating:
        drafts = [side.acceptance, reference.acceptance]
    else:
        drafts = []
    k = side.num_speculative_tokens
    other = reference.num_speculative_tokens
    note = (
        f"K is {k} in {side.name} and {other} in {reference.name}: the acceptance "
        "ratio falls with K by "
        "itself, so go by acceptance length and speed"
    )
    return Comparison(
        format=FORMAT,
        version=__version__,
        reference=reference,
        side=side,
        speed=speed,
        gain=gain,
        claim=None if claim is None else judge_claim(claim, speed, gain),
        end_to_end_difference_seconds=difference_of_means(
            side.mean(END_TO_END), reference.mean(END_TO_END)
        ),
        acceptance_ratio_difference=difference_of_means(
            *(one.ratio_sample for one in drafts)
        ),
        acceptance_length_difference=difference_of_means(
            *(one.length_sample for one in drafts)
        ),
        load=load,
        warnings=tuple(_warnings(side, reference, load)),
        notes=(note,) if drafts and k and other and k != other else (),
    )


def _warnings(side: Side, reference: Side, load: LoadComparison) -> Iterator[str]:
    sides = reference, side
    if side.models and reference.models and side.models != reference.models:
        served = ", ".join(f"{one.name} {' and '.join(one.models)}" for one in sides)
        yield (
            f"the sides serve models of different names ({served}): the same model, or "
            "not comparable"
        )
    if side.version and reference.version and side.version != reference.version:
        run = ", ".join(f"{one.name} {one.version}" for one in sides)
        yield (
            f"the sides run different versions of vLLM ({run}): the version makes a "
            "difference of its own"
        )
    periods = [period for one in sides if (period := _period(one))]
    if len(periods) == 2 and not _overlap(*periods):
        clocks = ", ".join(
            f"{one.name} {_clock(period)}"
            for one, period in zip(sides, periods, strict=True)
        )
        yield (
            f"not over the same period ({clocks}, UTC): traffic may have changed "
            "between"
        )
    for one in sides:
        if one.live and one.restarts:
            yield f"{one.name} restarted while it was watched: its period begins there"
    if load.same is False:
        here = load.side or 0.0
        there = load.reference or 0.0
        busy, idle = (side, reference) if here > there else (reference, side)
        yield (
            f"not at the same load ({load.basis}: {side.name} {here:,.1f}, "
            f"{reference.name} {there:,.1f}): "
            f"{busy.name} looks slower than it is beside {idle.name}, because larger "
            "batches take longer; "
            "speculation gains less there as well"
        )
    own = side.tokens_per_request
    other = reference.tokens_per_request
    if own and other and max(own, other) > TOLERANCE * min(own, other):
        yield (
            f"requests of {side.name} had {own:.0f} tokens each, those of "
            f"{reference.name} {other:.0f}: "
            "other requests, so end-to-end times cannot be compared"
        )


def _period(side: Side) -> tuple[float, float] | None:
    if side.ended_seconds is None or not side.measures.span_seconds:
        return None
    return side.ended_seconds - side.measures.span_seconds, side.ended_seconds


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    common = min(one[1], other[1]) - max(one[0], other[0])
    return common >= _SAME_PERIOD * max(one[1] - one[0], other[1] - other[0])


def _clock(period: tuple[float, float]) -> str:
    try:
        begin, end = (datetime.fromtimestamp(seconds, UTC) for seconds in period)
    except (OverflowError, ValueError, OSError):
        return "at no known time"
    return f"{begin:%Y-%m-%d %H:%M:%S} to {end:%H:%M:%S}"
