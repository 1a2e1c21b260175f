"""Verdicts: was the load the same, which side is faster, and what does speculation
gain? Pure.

The load is requests at a time per engine (Little 1961: finished per second times mean
time end to end). A step takes longer with a larger batch, but at most in proportion to
it, because it has a fixed part. So a side with twice the requests can look up to twice
as slow as at the other's load, and never more: that bounds what a difference in load
explains, without a model of the hardware.

A faster side has fewer requests at a time under the same traffic. So sides that finish
about as many requests a second, of about as many tokens, count as equally loaded.
"""

from dataclasses import dataclass
from enum import StrEnum

from ...economics.statistics import MINIMUM_REQUESTS, Interval, ratio_of_means, times
from ...judgement.payoff import PayoffVerdict, leans, loss_probability
from ...publish.wording import range_words
from .side import PER_TOKEN, Side

#: Largest factor between equal loads.
TOLERANCE = 1.25
_LEANING = {
    PayoffVerdict.HARMFUL: "likely loses",
    PayoffVerdict.BENEFICIAL: "likely gains",
}


@dataclass(frozen=True, slots=True)
class LoadComparison:
    """The load of a side over that of the reference."""

    basis: str = ""  # what was compared; empty if requests at a time are not known
    side: float | None = None  # requests at a time per engine of the side
    reference: float | None = None  # the same of the reference
    #: Whether they count as equally loaded; ``None`` if not known.
    same: bool | None = None
    #: The largest factor by which the side's speed may be overstated, from 1 up.
    overstated: float = 1.0
    #: The largest factor by which it may be understated, from 1 up.
    understated: float = 1.0


def compare_load(side: Side, reference: Side) -> LoadComparison:
    """Return the load of `side` compared with that of `reference`."""
    here, there = (
        (one.requests_at_a_time or 0) / max(1, one.engines) for one in (side, reference)
    )
    if not here or not there:
        return LoadComparison()
    same_traffic = _near(
        side.requests_per_second, reference.requests_per_second
    ) and _near(side.tokens_per_request, reference.tokens_per_request)
    same = same_traffic or _near(here, there)
    return LoadComparison(
        basis="requests at a time"
        + (" and engine" if max(side.engines, reference.engines) > 1 else ""),
        side=here,
        reference=there,
        same=same,
        overstated=1.0 if same else max(1.0, there / here),
        understated=1.0 if same else max(1.0, here / there),
    )


def _near(one: float | None, other: float | None) -> bool:
    if not one or not other:
        return False
    # Symmetric, despite rounding of a ratio and its inverse.
    return max(one, other) <= TOLERANCE * min(one, other)


class SpeedComparison(StrEnum):
    """The speed of a side compared with the reference."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no_difference"
    UNKNOWN = "unknown"


class ClaimOutcome(StrEnum):
    """The result for a claimed speedup."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of a side against the reference."""

    outcome: SpeedComparison  # faster, slower, no significant difference, or unknown
    #: Mean time per output token of the reference over the side's: above 1, the side is
    #: faster.
    speedup: Interval | None
    #: Lower end of its 95 % interval, widened for a difference in load.
    low: float | None
    high: float | None  # upper end
    text: str  # the verdict in words


@dataclass(frozen=True, slots=True)
class Gain:
    """The gain of speculation, if exactly one side speculates."""

    speculating: str  # the side with speculation
    speedup: Interval  # times as fast per output token as without
    low: float | None  # lower end of its interval, widened for a difference in load
    high: float | None  # upper end
    #: The estimate of the cost profile for all tokens of the side.
    estimated: float | None
    #: Whether that agrees with the measurement; ``None`` without an estimate.
    agrees: bool | None
    text: str  # the same in words


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed speedup against the measured one."""

    speedup: float  # the claim
    outcome: ClaimOutcome  # confirmed, refuted, or not decided by the interval
    text: str  # the same in words


def judge_speed(side: Side, reference: Side, load: LoadComparison) -> Speed:
    """Return the speed of `side` against `reference`, by the mean time per output
    token.
    """
    why = [reason for one in (reference, side) if (reason := _why_unknown(one))]
    here = side.mean(PER_TOKEN)
    there = reference.mean(PER_TOKEN)
    speedup = ratio_of_means(there, here) if here and there else None
    if speedup is None or speedup.low is None or speedup.high is None:
        reasons = "; ".join(why)
        text = f"{side.name} against {reference.name}: cannot be told: {reasons}"
        return Speed(SpeedComparison.UNKNOWN, speedup, None, None, text)
    low = speedup.low / load.overstated
    high = speedup.high * load.understated
    if load.same is not False:
        outcome = SpeedComparison.NO_DIFFERENCE
    else:
        outcome = SpeedComparison.UNKNOWN
    if low > 1 or high < 1:
        if low > 1:
            outcome = SpeedComparison.FASTER
        else:
            outcome = SpeedComparison.SLOWER
    return Speed(
        outcome,
        speedup,
        low,
        high,
        _words(outcome, side.name, reference.name, speedup, load),
    )


def judge_gain(side: Side, reference: Side, speed: Speed) -> Gain | None:
    """Return the gain of speculation, ``None`` unless exactly one side speculates and
    the speed is known.
    """
    if (
        speed.outcome is SpeedComparison.UNKNOWN
        or speed.speedup is None
        or not speed.low
        or not speed.high
    ):
        return None
    if side.speculating and reference.speculating is False:
        on = side
        speedup = speed.speedup
        low = speed.low
        high = speed.high
    elif reference.speculating and side.speculating is False:
        on = reference
        speedup = speed.speedup.inverse
        low = 1 / speed.high
        high = 1 / speed.low
    else:
        return None
    if (low, high) == (speedup.low, speedup.high):
        where = "at this load"
    else:
        where = "with loads apart"
    if low > 1:
        words = (
            f"speculation ({on.name}) gains {times(speedup.value)}x {where} "
            f"({range_words(speedup)})"
        )
    elif high < 1:
        words = (
            f"speculation ({on.name}) loses: {times(speedup.value)}x {where} "
            f"({range_words(speedup)})"
        )
    else:
        loss = loss_probability(speedup.value, low, high)
        likely = leans(loss)
        leaning = _LEANING[likely] if likely else "neither gains nor loses"
        words = (
            f"speculation ({on.name}) {leaning} {where}, as far as the sample shows: "
            f"{times(low)} to "
            f"{times(high)}x, and it loses with a probability of {loss:.0%}"
        )
    estimate = on.estimated_speedup
    if estimate is None or estimate.value <= 0:
        return Gain(on.name, speedup, low, high, None, None, words)
    # with and without drafts
    estimated = on.measures.estimate.of_all(on.measures.coverage_ratio)[0]
    agrees = abs(speedup.value / estimated - 1) <= on.disagreement_ratio
    if agrees:
        fits = f"they agree within {on.disagreement_ratio:.0%}"
    else:
        fits = (
            f"more than {on.disagreement_ratio:.0%} apart, so it does not fit this "
            "deployment"
        )
    if on.cost_profile == "unknown":
        fits += "; its method is not known here, so choose one with --cost.profile"
    words += (
        f"; the cost profile {on.cost_profile or 'in force'} estimates "
        f"{times(estimated)}x: {fits}"
    )
    return Gain(on.name, speedup, low, high, estimated, agrees, words)


def judge_claim(claimed: float, speed: Speed, gain: Gain | None) -> Claim:
    """Return the result for a claimed speedup, above 0.

    If exactly one of the two speculates, the claim is about speculation, else about the
    side against the reference.
    """
    low, high = (gain.low, gain.high) if gain else (speed.low, speed.high)
    what = f"the claim of {claimed:g}x"
    if low is None or high is None:
        return Claim(
            claimed,
            ClaimOutcome.UNDECIDED,
            f"{what} is not decided: the speed cannot be told",
        )
    if low >= claimed:
        return Claim(
            claimed,
            ClaimOutcome.CONFIRMED,
            f"{what} is confirmed: it is at least {times(low)}x",
        )
    if high < claimed:
        return Claim(
            claimed,
            ClaimOutcome.REFUTED,
            f"{what} is refuted: it is at most {times(high)}x",
        )
    text = (
        f"{what} is not decided: it lies between {times(low)}x and {times(high)}x; "
        "watch for longer"
    )
    return Claim(claimed, ClaimOutcome.UNDECIDED, text)


def _words(
    outcome: SpeedComparison,
    side: str,
    reference: str,
    speedup: Interval,
    load: LoadComparison,
) -> str:
    seen = times(speedup.value)
    interval = range_words(speedup)
    if outcome is SpeedComparison.NO_DIFFERENCE:
        return (
            f"{side} against {reference}: no difference that the sample supports "
            f"({interval} times as fast per output token)"
        )
    if outcome is SpeedComparison.UNKNOWN:
        busier, factor = (
            (reference, load.overstated)
            if load.overstated > 1
            else (side, load.understated)
        )
        if (speedup.low or 0) <= 1 <= (speedup.high or 0):
            hidden = "hide a difference"
        else:
            hidden = "explain it"
        return (
            f"{side} against {reference}: cannot be told: it looks {seen} times as "
            "fast per output token "
            f"({interval}), but {busier} had {factor:.1f} times as many requests at "
            "a time, "
            f"which could {hidden}"
        )
    bound = ""
    if outcome is SpeedComparison.FASTER and load.overstated > 1:
        bound = f"at least {times((speedup.low or 0) / load.overstated)}"
    if outcome is SpeedComparison.SLOWER and load.understated > 1:
        bound = f"at most {times((speedup.high or 0) * load.understated)}"
    if bound:
        bound = f"; {bound} times if the load explains all it can"
    verb = "is" if outcome is SpeedComparison.FASTER else "is slower:"
    return (
        f"{side} {verb} {seen} times as fast per output token as {reference} "
        f"({interval}){bound}"
    )


def _why_unknown(side: Side) -> str:
    """Return why the speed of one side is unknown, empty if it is known."""
    per_token = side.latency(PER_TOKEN)
    if side.why_no_latencies:
        return f"{side.name}: {side.why_no_latencies}"
    if per_token is None:
        return (
            f"{side.name}: its metrics have no time per output token "
            "(vllm:request_time_per_output_token_seconds came with vLLM 0.11)"
        )
    if per_token.requests < MINIMUM_REQUESTS:
        return (
            f"{side.name}: only {per_token.requests:.0f} requests finished, "
            f"{MINIMUM_REQUESTS} are needed"
        )
    if per_token.mean_seconds <= 0:
        return f"{side.name}: no request had more than one token"
    if per_token.error_seconds is None:
        return (
            f"{side.name}: its snapshot is of an older version, without the error of a "
            "mean: take it anew"
        )
    return ""
