"""Correction of a cost profile by the step times that were learned online."""

import math

from msgspec.structs import replace

from .cost import REACH, Basis, CostProfile
from .speculative_config import drafts_without_model
from .step_time import EngineSteps, StepFit

#: Least relative error of a cost from learned step times: batches and prompts are never
#: quite alike.
_MIN_ERROR = 0.05
#: A slope that differs from the profile's by more than this factor is not believed.
_MAX_LOAD = 10.0


def correct_by_steps(
    profile: CostProfile,
    steps: EngineSteps,
    drafted: float | None,
    batch: float | None,
    time: float,
    method: str,
) -> CostProfile:
    """Return the profile, corrected by the learned step times.

    Steps with and without drafts give the cost itself: its basis is then `measured`.
    Steps with drafts alone give the slope over the batch size, so that break-even moves
    with the batch as on this machine. With a drafter that is a model, steps without
    drafts (K=0) are not plain: vLLM still runs its first pass.

    Now are `drafted` tokens for each request and `batch` requests in the batch; step
    times of another K are not used. `method` is as vLLM calls it, empty if not known.
    """
    drafting = steps.drafting.fit(time)
    if not drafted or not batch or isinstance(drafting, str):
        return profile
    if steps.drafting.k != round(drafted):
        return profile
    plain = steps.plain.fit(time)
    if isinstance(plain, StepFit) and drafts_without_model(method):
        return _measured(profile, plain, drafting, drafted=drafted, batch=batch)
    if profile.basis is Basis.CALIBRATED:
        return profile
    return _sloped(profile, drafting, drafted)


def _measured(
    profile: CostProfile,
    plain: StepFit,
    drafting: StepFit,
    *,
    drafted: float,
    batch: float,
) -> CostProfile:
    smallest = max(plain.batches[0], drafting.batches[0])
    largest = min(plain.batches[1], drafting.batches[1])
    if not smallest / REACH <= batch <= largest * REACH:
        return profile
    modelled = profile.step_cost(drafted, max(1.0, batch)) - 1
    if modelled <= 0:
        return profile
    cost = drafting.seconds(batch) / plain.seconds(batch)
    error = math.expm1(math.hypot(math.log1p(plain.error), math.log1p(drafting.error)))
    uncertainty = max(_MIN_ERROR, error)
    # Drafts cannot save time: then other things than drafts differed.
    if cost * (1 + uncertainty) < 1:
        return profile
    return replace(
        profile,
        correction=profile.correction * max(0.0, cost - 1) / modelled,
        uncertainty=uncertainty,
        basis=Basis.MEASURED,
        batches=(smallest, largest),
        contexts=None,
    )


def _sloped(profile: CostProfile, drafting: StepFit, drafted: float) -> CostProfile:
    low, high = (max(1.0, batch) for batch in drafting.batches)
    _, seconds_alone = profile.step_times(drafted, 1)
    _, seconds_at_low = profile.step_times(drafted, low)
    _, seconds_at_high = profile.step_times(drafted, high)
    # What the batch adds, in steps of a request alone.
    added_at_low = seconds_at_low / seconds_alone - 1
    added_at_high = seconds_at_high / seconds_alone - 1
    # The load at which the profile rises as the learned steps do.
    ratio = drafting.seconds(high) / drafting.seconds(low)
    denominator = added_at_high - ratio * added_at_low
    if denominator <= 0:
        return profile
    load = (ratio - 1) / denominator
    if not 1 / _MAX_LOAD <= load <= _MAX_LOAD:
        return profile
    sloped = replace(profile, load=load)
    # Drafts cannot save time: then the slope of plain steps is another one.
    if min(sloped.step_cost(1, low), sloped.step_cost(1, high)) >= 1:
        return sloped
    return profile
