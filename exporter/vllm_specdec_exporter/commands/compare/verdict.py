"""Verdicts: was the load the same, which side is faster, and what does speculation
gain? Pure.

The load is requests at a time per engine (Little 1961: finished per second times mean
time end to end). The speed is that of `economics.equal_load`, with all that a side did
as one stratum, because a snapshot has its means and not its blocks of time. What a
difference in load explains is bounded there, without a model of the hardware.

A faster side has fewer requests at a time under the same traffic. So sides that finish
about as many requests a second, of about as many tokens, count as equally loaded.
"""

import math
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from ...economics.equal_load import prefix_cache_differs, speedup_of_means
from ...economics.statistics import MINIMUM_REQUESTS, Interval, format_ratio
from ...judgement.payoff import PayoffVerdict, leans, loss_probability
from ...publish.wording import range_words
from .side import END_TO_END, PACE, Side

#: Largest factor between equal loads.
TOLERANCE = 1.25
#: Factor to either side of 1 up to which an interval that includes 1 says that there is
#: no difference to speak of: a gain beyond it would be beneficial.
_ALIKE = 1.2
_LEANING = {
    PayoffVerdict.HARMFUL: "likely loses",
    PayoffVerdict.BENEFICIAL: "likely gains",
}


class LoadComparison(Struct, frozen=True, rename={"quantity": "basis"}):
    """The load of a side over that of the reference."""

    #: What was compared, in words; empty if requests at a time are not known.
    quantity: str = ""
    side: float | None = None  # requests at a time per engine of the side
    reference: float | None = None  # the same of the reference
    #: Whether they count as equally loaded; ``None`` if not known.
    same: bool | None = None
    #: The largest factor by which the side's speed may be overstated, from 1 up.
    overstated: float = 1.0
    #: The largest factor by which it may be understated, from 1 up.
    understated: float = 1.0

    @property
    def gap(self) -> float:
        """Logarithm of the side's load over the reference's, as far as it counts."""
        return math.log(self.understated / self.overstated)


def compare_load(side: Side, reference: Side) -> LoadComparison:
    """Return the load of `side` compared with that of `reference`."""
    load = (side.requests_at_a_time or 0) / max(1, side.engines)
    reference_load = (reference.requests_at_a_time or 0) / max(1, reference.engines)
    if not load or not reference_load:
        return LoadComparison()
    quantity = "requests at a time"
    if max(side.engines, reference.engines) > 1:
        quantity = "requests at a time and engine"
    compared = LoadComparison(quantity, load, reference_load, same=True)
    same_rate = near(side.requests_per_second, reference.requests_per_second)
    same_length = near(side.tokens_per_request, reference.tokens_per_request)
    if (same_rate and same_length) or near(load, reference_load):
        return compared
    return replace(
        compared,
        same=False,
        overstated=max(1.0, reference_load / load),
        understated=max(1.0, load / reference_load),
    )


def near(value: float | None, reference: float | None) -> bool:
    """Return whether both are known and within `TOLERANCE` of each other."""
    if not value or not reference:
        return False
    # Symmetric, despite rounding of a ratio and its inverse.
    return max(value, reference) <= TOLERANCE * min(value, reference)


def prefix_caches_differ(side: Side, reference: Side) -> bool:
    """Return whether so different shares of their prompts were found in the prefix
    cache that times per output token cannot be compared.
    """
    return prefix_cache_differs(
        side.measures.prefix_cache_hit_ratio, reference.measures.prefix_cache_hit_ratio
    )


def _slowed_by_prompts(side: Side, reference: Side) -> Side | None:
    """Return which of the two looks slower than it is because it computes prompts that
    the other finds in its prefix cache; ``None`` if neither does.
    """
    if not prefix_caches_differ(side, reference):
        return None
    return min(
        (side, reference), key=lambda each: each.measures.prefix_cache_hit_ratio or 0.0
    )


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


class Speed(Struct, frozen=True):
    """The speed of a side against the reference."""

    outcome: SpeedComparison  # faster, slower, no significant difference, or unknown
    #: Mean time per output token of the reference over the side's: above 1, the side is
    #: faster.
    speedup: Interval | None
    #: Lower end of its 95 % interval, widened for a difference in load.
    low: float | None
    high: float | None  # upper end
    text: str  # the verdict in words

    @property
    def widened(self) -> Interval | None:
        """The speedup with the interval that is widened for a difference in load."""
        if self.speedup is None:
            return None
        return Interval(self.speedup.value, self.low, self.high)


class Gain(Struct, frozen=True):
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

    @property
    def widened(self) -> Interval:
        """The speedup with the interval that is widened for a difference in load."""
        return Interval(self.speedup.value, self.low, self.high)


class Claim(Struct, frozen=True):
    """A claimed speedup against the measured one."""

    speedup: float  # the claim
    outcome: ClaimOutcome  # confirmed, refuted, or not decided by the interval
    text: str  # the same in words


def judge_speed(side: Side, reference: Side, load: LoadComparison) -> Speed:
    """Return the speed of `side` against `reference`, by the mean time per output
    token.
    """
    means = reference.mean(PACE), side.mean(PACE)
    speedup = speedup_of_means(*means)
    widened = speedup_of_means(*means, load.gap)
    names = f"{side.name} against {reference.name}"
    if speedup is None or widened is None or widened.low is None:
        reasons = "; ".join(filter(None, map(_why_unknown, (reference, side))))
        text = f"{names}: cannot be told: {reasons}"
        return Speed(SpeedComparison.UNKNOWN, speedup, low=None, high=None, text=text)
    slowed = _slowed_by_prompts(side, reference)
    slower: Side | None = None
    if not widened.holds(1):
        slower = reference if widened.is_above(1) else side
    as_fast = f"{format_ratio(speedup.value)} times as fast per output token"
    if slowed is not None and slower in (None, slowed):
        text = (
            f"{names}: cannot be told: it looks {as_fast} ({range_words(speedup)}), "
            f"but {slowed.name} computed prompts that the other found in its prefix "
            "cache, and steps that hold prompts take longer"
        )
        # How much longer is not known, so no bound holds either.
        return Speed(SpeedComparison.UNKNOWN, speedup, low=None, high=None, text=text)
    if widened.is_above(1):
        outcome = SpeedComparison.FASTER
        text = (
            f"{side.name} is {as_fast} as {reference.name} ({range_words(speedup)})"
            f"{_bound_by_load(outcome, widened, load)}"
        )
    elif widened.is_below(1):
        outcome = SpeedComparison.SLOWER
        text = (
            f"{side.name} is slower: {as_fast} as {reference.name} "
            f"({range_words(speedup)}){_bound_by_load(outcome, widened, load)}"
        )
    elif load.same is False:
        outcome = SpeedComparison.UNKNOWN
        text = (
            f"{names}: cannot be told: it looks {as_fast} ({range_words(speedup)}), "
            f"but {_explained_by_load(side, reference, speedup, load)}"
        )
    else:
        outcome = SpeedComparison.NO_DIFFERENCE
        text = (
            f"{names}: no difference that the sample supports "
            f"({range_words(speedup)} times as fast per output token)"
        )
    return Speed(outcome, speedup, low=widened.low, high=widened.high, text=text)


def _explained_by_load(
    side: Side, reference: Side, speedup: Interval, load: LoadComparison
) -> str:
    busier = side.name
    factor = load.understated
    if load.overstated > 1:
        busier = reference.name
        factor = load.overstated
    could = "hide a difference" if speedup.holds(1) else "explain it"
    return (
        f"{busier} had {factor:.1f} times as many requests at a time, which could "
        f"{could}"
    )


def _bound_by_load(
    outcome: SpeedComparison, widened: Interval, load: LoadComparison
) -> str:
    """Return what is certain whatever the load explains, empty if it explains nothing
    against the outcome.
    """
    low, high = map(format_ratio, widened.ends)
    if outcome is SpeedComparison.FASTER and load.overstated > 1:
        bound = f"at least {low}"
    elif outcome is SpeedComparison.SLOWER and load.understated > 1:
        bound = f"at most {high}"
    else:
        return ""
    return f"; {bound} times if the load explains all it can"


def judge_gain(side: Side, reference: Side, speed: Speed) -> Gain | None:
    """Return the gain of speculation, ``None`` unless exactly one side speculates and
    the speed is known.
    """
    speedup = speed.speedup
    widened = speed.widened
    if speed.outcome is SpeedComparison.UNKNOWN or speedup is None or widened is None:
        return None
    if side.speculating and reference.speculating is False:
        on = side
    elif reference.speculating and side.speculating is False:
        on = reference
        speedup = speedup.inverse
        widened = widened.inverse
    else:
        return None
    text = f"speculation ({on.name}) {_gain_in_words(speedup, widened)}"
    gain = Gain(
        speculating=on.name,
        speedup=speedup,
        low=widened.low,
        high=widened.high,
        estimated=None,
        agrees=None,
        text=text,
    )
    # Of all tokens: those with drafts and those without.
    estimate = on.measures.estimate.of_all_tokens(on.measures.coverage_ratio)
    if estimate is None or estimate.value <= 0:
        return gain
    return _with_estimate(gain, on, estimate.value)


def _gain_in_words(speedup: Interval, widened: Interval) -> str:
    where = "at this load" if widened == speedup else "with loads apart"
    found = f"{format_ratio(speedup.value)}x {where} ({range_words(speedup)})"
    if widened.is_above(1):
        return f"gains {found}"
    if widened.is_below(1):
        return f"loses: {found}"
    loss = loss_probability(widened)
    low, high = widened.ends
    leaning = "may gain or lose"
    if low >= 1 / _ALIKE and high <= _ALIKE:
        leaning = "neither gains nor loses"
    verdict = leans(loss, (low, high))
    if verdict:
        leaning = _LEANING[verdict]
    return (
        f"{leaning} {where}, as far as the sample shows: {range_words(widened)}x, and "
        f"it loses with a probability of {loss:.0%}"
    )


def _with_estimate(gain: Gain, on: Side, estimated: float) -> Gain:
    """Return the gain beside the estimate of the cost profile."""
    agrees = abs(gain.speedup.value / estimated - 1) <= on.disagreement_ratio
    fits = f"they agree within {on.disagreement_ratio:.0%}"
    if not agrees:
        fits = (
            f"more than {on.disagreement_ratio:.0%} apart, so it does not fit this "
            "deployment"
        )
    if on.cost_profile == "unknown":
        fits += "; its method is not known here, so choose one with --cost.profile"
    text = (
        f"{gain.text}; the cost profile {on.cost_profile or 'in force'} estimates "
        f"{format_ratio(estimated)}x: {fits}"
    )
    return replace(gain, estimated=estimated, agrees=agrees, text=text)


def judge_claim(claimed: float, speed: Speed, gain: Gain | None) -> Claim:
    """Return the result for a claimed speedup, above 0.

    If exactly one of the two speculates, the claim is about speculation, else about the
    side against the reference.
    """
    widened = gain.widened if gain is not None else speed.widened
    outcome = ClaimOutcome.UNDECIDED
    if widened is None or widened.low is None:
        result = "not decided: the speed cannot be told"
    elif widened.low >= claimed:
        outcome = ClaimOutcome.CONFIRMED
        result = f"confirmed: it is at least {format_ratio(widened.low)}x"
    elif widened.is_below(claimed):
        outcome = ClaimOutcome.REFUTED
        _, high = widened.ends
        result = f"refuted: it is at most {format_ratio(high)}x"
    else:
        between = "x and ".join(map(format_ratio, widened.ends))
        result = f"not decided: it lies between {between}x; watch for longer"
    return Claim(claimed, outcome, f"the claim of {claimed:g}x is {result}")


def _why_unknown(side: Side) -> str:
    """Return why the speed of one side is unknown, empty if it is known."""
    per_token = side.latency(PACE)
    if side.why_no_latencies:
        return f"{side.name}: {side.why_no_latencies}"
    if per_token is None and side.latency(END_TO_END) is None:
        begun = max(latency.requests for latency in side.measures.latencies)
        return (
            f"{side.name}: no request finished in its "
            f"{side.measures.span_seconds or 0:.0f} s, {begun:.0f} had their first "
            "token: watch for longer"
        )
    if per_token is None:
        return (
            f"{side.name}: its metrics have no time per output token "
            "(request_time_per_output_token_seconds came with vLLM 0.11)"
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
