"""The cost of a step with drafts by the engine's own inter-token latency.

The engine measures how long its steps with drafts take, but while it drafts it has no
plain steps to compare them with. So the observed time is taken as it is, and only the
plain step comes from the model of the hardware: one modelled number instead of two.

What the model lacks lengthens both steps, so a part of it corrects the plain one
(`SHARED_ERROR`): the more a step contradicts its model, the less is known of the other.
A step that is shorter than any plain one by the model shows another hardware: then the
cost is unknown. Prompts that are computed in the same steps are taken out
of the observed time here, and make the speedup smaller in `economics.speedup`.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from .cost import Basis, CostProfile
from .hardware import (
    PLAIN,
    SHARED_ERROR,
    SHARED_ERROR_REACH,
    STEP,
    context_error,
    plain_kind,
)

#: Least share of a request's steps that must have drafts, so that the mean step shows
#: those.
MIN_DRAFTING_SHARE = 0.5
#: Largest share of a step that prompts are taken to be. Where they would be more, the
#: model of their time is wrong: decoding does not take next to nothing.
_MOST_PROMPTS = 0.75


class ObservedStep(Struct, frozen=True):
    """The mean step of an engine that drafts, by its own inter-token latency."""

    seconds: float  # of a step, above 0
    batch: float  # requests in the batch, from 1 up
    drafted: float  # drafted tokens per draft, above 0
    share: float  # of a request's steps, those with drafts, 0 to 1
    emitted: float  # tokens of each request, from 1 up


class _ModelledStep(Struct, frozen=True):
    """The same step by the model of the hardware, without prompts."""

    plain_seconds: float  # of one without drafts
    seconds: float  # mean of those with drafts and those without
    draft_extra: float  # cost of a step with drafts beyond a plain one
    mean_extra: float  # the same of the mean step

    @classmethod
    def of(cls, profile: CostProfile, step: ObservedStep) -> _ModelledStep:
        """Return what `profile` says of a step."""
        plain_seconds, drafting_seconds = profile.step_times(step.drafted, step.batch)
        draft_extra = profile.step_cost(step.drafted, step.batch) - 1
        idle_extra = profile.idle_cost(step.batch) - 1 if profile.idles else 0.0
        drafting_part = step.share * drafting_seconds
        idle_part = (1 - step.share) * plain_seconds * (1 + idle_extra)
        return cls(
            plain_seconds=plain_seconds,
            seconds=drafting_part + idle_part,
            draft_extra=draft_extra,
            mean_extra=step.share * draft_extra + (1 - step.share) * idle_extra,
        )


class _DecodingSeconds(Struct, frozen=True):
    """The time of an observed step without that of its prompts, in seconds."""

    low: float
    typical: float
    high: float

    @classmethod
    def of(
        cls, profile: CostProfile, step: ObservedStep, plain_seconds: float
    ) -> _DecodingSeconds:
        """Return what is left of a step beside the prompts that `profile` has."""
        prompts = profile.prompt_times(step.batch)
        unit = plain_seconds * step.emitted * prompts.drafting
        return cls(
            low=without_prompts(step.seconds, prompts.high * unit),
            typical=without_prompts(step.seconds, prompts.typical * unit),
            high=without_prompts(step.seconds, prompts.low * unit),
        )


def with_observed_step(
    profile: CostProfile,
    step: ObservedStep,
    plain_error: tuple[float, float] | None = None,
) -> CostProfile:
    """Return the profile with the cost that the engine's own step shows.

    Unchanged unless the profile models the hardware and most steps have drafts.
    `plain_error` is the least and the largest factor of the plain step's time over the
    modelled one, with a short context, by default that of the hardware; the page of
    accuracy gives its own.
    """
    physical = profile.physical
    if (
        physical is None
        or profile.basis is not Basis.MODELLED
        or step.share < MIN_DRAFTING_SHARE
    ):
        return profile
    modelled = _ModelledStep.of(profile, step)
    if modelled.draft_extra <= 0:
        return profile
    observed = _DecodingSeconds.of(profile, step, modelled.plain_seconds)
    low, high = _widened(
        plain_error or PLAIN[plain_kind(physical.target)], profile.context_tokens
    )
    power = 0.0 if physical.drafter.apart else SHARED_ERROR
    shared = math.pow(observed.high / modelled.seconds, power)
    fastest = modelled.plain_seconds * low * shared
    if observed.high < fastest:
        contradiction = (
            f"a step takes {_milliseconds(observed.high)}, by the model of the "
            f"hardware a plain one at least {_milliseconds(fastest)}"
        )
        return replace(profile, errors=(0.0, math.inf), contradiction=contradiction)

    def cost_of(seconds: float, plain_factor: float = 1.0) -> float:
        """Return the cost of a step with drafts that takes `seconds`, for a plain one
        that takes so many times the expected one.
        """
        excess = math.log(max(seconds, fastest) / modelled.seconds)
        error = math.log(plain_factor)
        if error:
            of_share = SHARED_ERROR_REACH * excess
            error = math.copysign(math.hypot(error, of_share), error)
        plain = modelled.plain_seconds * math.exp(power * excess + error)
        # A step that verifies drafts takes at least as long as a plain one.
        extra = max(0.0, max(seconds, fastest) / plain - 1)
        return 1 + extra * modelled.draft_extra / modelled.mean_extra

    cost = cost_of(observed.typical)
    lowest = cost_of(observed.low, high)
    highest = cost_of(observed.high, low)
    return replace(
        profile,
        correction=profile.correction * (cost - 1) / modelled.draft_extra,
        errors=(lowest / cost, highest / cost),
        basis=Basis.OBSERVED,
        contradiction=_contradiction(observed, modelled, cost),
    )


def _widened(factors: tuple[float, float], context: float) -> tuple[float, float]:
    """Return the factors of an interval with a short context for one of so many
    tokens.
    """
    wider = math.exp(context_error(context))
    low, high = factors
    return low / wider, high * wider


def without_prompts(seconds: float, prompts: float) -> float:
    """Return the time of a step without that of its prompts, both in seconds."""
    return max(seconds - prompts, seconds * (1 - _MOST_PROMPTS))


def _contradiction(
    observed: _DecodingSeconds, modelled: _ModelledStep, cost: float
) -> str:
    """Return how a step's time contradicts the modelled one or the cost, empty if it
    does not.
    """
    if observed.high * STEP < modelled.seconds:
        seconds = observed.high
    elif observed.low > modelled.seconds * STEP:
        seconds = observed.low
    elif cost <= 1:
        return (
            f"a step takes {_milliseconds(observed.typical)}, no longer than a plain "
            "one by the model of the hardware: what drafts cost is not known"
        )
    else:
        return ""
    return (
        f"a step takes {_milliseconds(seconds)}, by the model of the hardware "
        f"{_milliseconds(modelled.seconds)}: the engine's own time counts"
    )


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"
