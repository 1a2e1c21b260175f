"""The cost of speculation on the present machine, as far as its own steps show it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .cost import REACH, Basis
from .step_time import StepFit

if TYPE_CHECKING:
    from .cost import CostProfile
    from .step_time import EngineSteps

#: Least relative error of a cost from learned step times: batches and prompts are never quite alike.
_LEAST_ERROR = 0.05

#: A slope that differs from the profile's by more than this factor is not believed.
_MOST_LOAD = 10.0


def observed(
    profile: CostProfile, steps: EngineSteps, drafted: float | None, batch: float | None, time: float
) -> CostProfile:
    """Return the profile, corrected by what the engine's own steps show.

    Steps with and without drafts give the cost itself: its basis is then `measured`. Steps with drafts alone
    give the slope over the batch size, so that break-even moves with the batch as on this machine.

    Args:
        profile: of the method.
        steps: learned step times.
        drafted: tokens drafted for each request; other K than the learned one tell nothing.
        batch: requests in the batch.
        time: now, in seconds.
    """
    drafting = steps.drafting.fit(time)
    if not drafted or not batch or isinstance(drafting, str) or steps.drafting.k != round(drafted):
        return profile
    plain = steps.plain.fit(time)
    if isinstance(plain, StepFit):
        return _measured(profile, plain, drafting, drafted, batch)
    return profile if profile.basis is Basis.CALIBRATED else _sloped(profile, drafting, drafted)


def _measured(
    profile: CostProfile, plain: StepFit, drafting: StepFit, drafted: float, batch: float
) -> CostProfile:
    batches = max(plain.batches[0], drafting.batches[0]), min(plain.batches[1], drafting.batches[1])
    modelled = profile.step_cost(drafted, max(1.0, batch)) - 1
    if not batches[0] / REACH <= batch <= batches[1] * REACH or modelled <= 0:
        return profile
    cost = max(1.0, drafting.seconds(batch) / plain.seconds(batch))
    return replace(
        profile,
        correction=profile.correction * (cost - 1) / modelled,
        uncertainty=max(_LEAST_ERROR, plain.error + drafting.error),
        basis=Basis.MEASURED,
        batches=batches,
        contexts=None,
    )


def _sloped(profile: CostProfile, drafting: StepFit, drafted: float) -> CostProfile:
    low, high = (max(1.0, batch) for batch in drafting.batches)
    _, one = profile.times(drafted, 1)
    low_time, high_time = (profile.times(drafted, batch)[1] / one - 1 for batch in (low, high))
    ratio = drafting.seconds(high) / drafting.seconds(low)
    below = high_time - ratio * low_time
    load = (ratio - 1) / below if below > 0 else 0.0
    return replace(profile, load=load) if 1 / _MOST_LOAD <= load <= _MOST_LOAD else profile
