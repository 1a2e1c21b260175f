"""The cost of a step with drafts by the engine's own inter-token latency.

The engine measures how long its steps with drafts take, but while it drafts it has no
plain steps to compare them with. So the observed time is taken as it is, and only the
plain step comes from the model of the hardware: one modelled number instead of two.

What the model of a mixture of experts lacks lengthens both steps, so a part of it
corrects the plain one (`SHARED_ERROR`). A step that is shorter than any plain one by
the model shows another hardware: then nothing is known of the cost. Prompts computed in
the same steps make both longer, in proportion to what they emit. How many of their
tokens the prefix cache had is not known: from none to all.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from .cost import Basis, CostProfile
from .hardware import PLAIN, SHARED_ERROR, STEP, PhysicalModel, regime

#: Least share of a request's steps that must have drafts, so that the mean step shows
#: those.
MIN_DRAFTING_SHARE = 0.5


class ObservedStep(Struct, frozen=True):
    """The mean step of an engine that drafts, by its own inter-token latency."""

    seconds: float  # of a step, above 0
    batch: float  # requests in the batch, from 1 up
    drafted: float  # drafted tokens per draft, above 0
    share: float  # of a request's steps, those with drafts, 0 to 1
    emitted: float  # tokens of each request, from 1 up
    prompts_per_token: float  # prompt tokens for each generated one, from 0 up


class _ModelledStep(Struct, frozen=True):
    """The same step by the model of the hardware."""

    plain_seconds: float  # of one without drafts
    seconds: float  # mean of those with drafts and those without
    prompt_seconds: float  # of the prompts computed in one, if the cache has none
    draft_extra: float  # cost of a step with drafts beyond a plain one
    mean_extra: float  # the same of the mean step

    @classmethod
    def of(
        cls, profile: CostProfile, physical: PhysicalModel, step: ObservedStep
    ) -> _ModelledStep:
        """Return what `profile`, which has this model, says of a step."""
        plain_seconds, drafting_seconds = profile.step_times(step.drafted, step.batch)
        draft_extra = profile.step_cost(step.drafted, step.batch) - 1
        idle_extra = 0.0
        if profile.idles:
            idle_extra = profile.idle_cost(step.batch) - 1
        drafting_part = step.share * drafting_seconds
        idle_part = (1 - step.share) * plain_seconds * (1 + idle_extra)
        prompt_tokens = step.batch * step.prompts_per_token
        return cls(
            plain_seconds=plain_seconds,
            seconds=drafting_part + idle_part,
            prompt_seconds=prompt_tokens * physical.prompt_token_seconds(),
            draft_extra=draft_extra,
            mean_extra=step.share * draft_extra + (1 - step.share) * idle_extra,
        )


def with_observed_step(
    profile: CostProfile,
    step: ObservedStep,
    plain_error: tuple[float, float] | None = None,
) -> CostProfile:
    """Return the profile with the cost that the engine's own step shows.

    Unchanged unless the profile models the hardware and most steps have drafts.
    `plain_error` is the least and the largest factor of the plain step's time over the
    modelled one, by default that of the hardware.
    """
    physical = profile.physical
    if (
        physical is None
        or profile.basis is not Basis.MODELLED
        or step.share < MIN_DRAFTING_SHARE
    ):
        return profile
    modelled = _ModelledStep.of(profile, physical, step)
    target_regime = regime(physical.target)
    shared_error = SHARED_ERROR[target_regime]
    low, high = plain_error or PLAIN[target_regime]
    excess = math.pow(step.seconds / modelled.seconds, shared_error)
    fastest = modelled.plain_seconds * low * excess
    if step.seconds < fastest:
        contradiction = (
            f"a step takes {_milliseconds(step.seconds)}, by the model of the hardware "
            f"a plain one at least {_milliseconds(fastest)}"
        )
        return replace(profile, errors=(0.0, math.inf), contradiction=contradiction)
    if modelled.draft_extra <= 0:
        return profile

    def cost_with(prompts: float, plain_factor: float = 1.0) -> float:
        with_prompts = modelled.seconds + prompts * step.emitted
        shared = math.pow(step.seconds / with_prompts, shared_error)
        # A step that verifies drafts takes at least as long as a plain one.
        plain = min(modelled.plain_seconds * shared, step.seconds)
        plain = plain * plain_factor + prompts
        extra = max(0.0, step.seconds / plain - 1)
        return 1 + extra * modelled.draft_extra / modelled.mean_extra

    cost = cost_with(modelled.prompt_seconds / 2)
    lowest = cost_with(modelled.prompt_seconds, high)
    highest = cost_with(0, low)
    return replace(
        profile,
        correction=profile.correction * (cost - 1) / modelled.draft_extra,
        errors=(lowest / cost, highest / cost),
        basis=Basis.OBSERVED,
        contradiction=_contradiction(step, modelled, cost),
    )


def _contradiction(step: ObservedStep, modelled: _ModelledStep, cost: float) -> str:
    """Return how a step's time contradicts the modelled ones or the cost, empty if it
    does not.
    """
    seconds = _milliseconds(step.seconds)
    without_prompts = modelled.seconds
    with_prompts = modelled.seconds + modelled.prompt_seconds * step.emitted
    if not without_prompts / STEP <= step.seconds <= with_prompts * STEP:
        nearest = min(with_prompts, max(without_prompts, step.seconds))
        return (
            f"a step takes {seconds}, by the model of the hardware "
            f"{_milliseconds(nearest)}: the engine's own time counts"
        )
    if cost <= 1:
        return (
            f"a step takes {seconds}, no longer than a plain one by the model of the "
            "hardware: what drafts cost is not known"
        )
    return ""


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"
