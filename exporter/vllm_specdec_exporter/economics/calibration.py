"""Calibration: the cost of speculation from measured step times, in a quiet server or while it serves.

`calibrate` fits a profile: without speculation a line over the batch size and the context, and with it what
comes on top::

    plain(b)    = fixed + per_request * b                     + per_context_token * context * b
    step(k, b)  = plain(b) + draft.fixed + draft.per_position * k + (per_token + draft.per_token) * k * b

Both are fitted by least squares of relative errors, with no coefficient below 0. `correct_by_steps` corrects
a profile by the step times that were learned online (`step_time`).
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .cost import REACH, Basis, CostProfile, DraftCost, TargetCost
from .step_time import StepFit, least_squares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .step_time import EngineSteps

#: Relative error that 90 % of the calibrated estimates stay below: docs/reference/estimate-accuracy.md.
UNCERTAINTY = 0.15
#: Least relative error of a cost from learned step times: batches and prompts are never quite alike.
_MIN_ERROR = 0.05
_MAX_LOAD = 10.0  # a slope that differs from the profile's by more than this factor is not believed
#: Methods whose drafting time does not grow with K.
_CONSTANT = frozenset({"ngram", "ngram_gpu", "suffix", "medusa", "dflash", "dspark"})


class CalibrationError(ValueError):
    """Measurements that give no profile. The message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """One measured step time."""

    batch: float  # requests in the batch, from 1 up
    k: float  # drafted tokens per request, 0 without speculation; a mean need not be whole
    seconds: float  # mean time of a step, above 0
    context: float = 0.0  # mean tokens of context per request


def calibrate(rows: Sequence[StepTime], method: str = "", name: str = "calibrated") -> CostProfile:
    """Return the cost profile that the step times show, or raise CalibrationError.

    Args:
        rows: step times, with and without speculation, at two batch sizes or more.
        method: the method as vLLM calls it.
        name: name of the profile.

    If the line of steps without speculation is extrapolated to batch sizes with speculation, the profile's
    provenance names both ranges, its `batches` are those with speculation, and its interval includes the
    plain time at the nearest measured batch. Otherwise provenance and `batches` are left to the caller.
    """
    plain = [row for row in rows if row.k == 0]
    drafting = [row for row in rows if row.k > 0]
    if not plain or not drafting:
        missing = "without" if drafting else "with"
        raise CalibrationError(f"no step time was measured {missing} speculation")
    (least, most), seen = _extent(plain), _extent(drafting)
    extrapolated = least > REACH * seen[0] or most * REACH < seen[1]
    if extrapolated and most < REACH * least:
        raise CalibrationError(
            f"step times were measured without speculation only at a batch size of {least:.3g}, and with it "
            "at others: measure more batch sizes without speculation"
        )
    context = sum(row.context for row in rows) / len(rows)
    fixed, per_request, per_context = _plain(plain)
    if fixed <= 0:
        raise CalibrationError(
            "the step time without speculation does not rise with the batch: measure more batch sizes"
        )

    def without(batch: float, context: float) -> float:
        return fixed + (per_request + per_context * context) * batch

    extra = [(row, row.seconds - without(row.batch, row.context)) for row in drafting]
    base, per_position, per_drafted = _extra(extra, constant=method in _CONSTANT)
    # A token costs at most what a request does; the rest of the slope belongs to the drafter.
    per_token = min(per_request, per_drafted)
    uncertainty, provenance = UNCERTAINTY, ""
    if extrapolated:
        for row in drafting:
            nearest = without(min(max(row.batch, least), most), row.context)
            ratio = nearest / without(row.batch, row.context)
            uncertainty = max(uncertainty, ratio - 1, 1 / ratio - 1)
        provenance = (
            f"measured without speculation at batch sizes of {least:.3g} to {most:.3g}, with speculation at "
            "{:.3g} to {:.3g}: plain steps are extrapolated".format(*seen)
        )
    return CostProfile(
        name=name,
        target=TargetCost(fixed, per_token, per_context, per_request - per_token),
        draft=DraftCost(fixed=base, per_position=per_position, per_token=per_drafted - per_token),
        methods=(method,) if method else (),
        context_tokens=context,
        typical_k=max(1, round(drafting[0].k)),
        uncertainty=uncertainty,
        provenance=provenance,
        batches=seen if extrapolated else None,
        cheap=method != "draft_model" and bool(method),
    )


def _extent(rows: Sequence[StepTime]) -> tuple[float, float]:
    """Return the least and the largest batch size."""
    return min(row.batch for row in rows), max(row.batch for row in rows)


def _plain(rows: Sequence[StepTime]) -> tuple[float, float, float]:
    contexts = {row.context for row in rows}
    if len(rows) > 2 and max(contexts) > 1.5 * max(1.0, min(contexts)):
        solution = least_squares(
            [((1.0, r.batch, r.batch * r.context), r.seconds, r.seconds**-2) for r in rows]
        )
        if solution and min(solution) >= 0:
            return solution[0], solution[1], solution[2]
    solution = least_squares([((1.0, r.batch), r.seconds, r.seconds**-2) for r in rows])
    if solution is None or solution[1] < 0:
        return sum(r.seconds for r in rows) / len(rows), 0.0, 0.0
    return solution[0], solution[1], 0.0


def _extra(rows: Sequence[tuple[StepTime, float]], *, constant: bool) -> tuple[float, float, float]:
    """Return the fixed cost, the cost per position and that per drafted token of each request."""
    # Some drafts are shorter than K, so that means of one K differ a little.
    several = len({round(row.k) for row, _ in rows}) > 1 and not constant
    # Which of the three features to use; with a single K, the first two are collinear.
    heads: list[tuple[int, ...]] = [(0,), ()] if constant else [(1,), ()]
    if several:
        heads = [(0, 1), (1,), (0,), ()]
    features = [(1.0, row.k, row.k * row.batch) for row, _ in rows]
    best, least = [0.0, 0.0, 0.0], math.inf
    for used in ((*head, *token) for head in heads for token in ((2,), ()) if head or token):
        coefficients = least_squares(
            [
                (tuple(x[i] for i in used), value, row.seconds**-2)
                for x, (row, value) in zip(features, rows, strict=True)
            ]
        )
        if coefficients is None or min(coefficients) < 0:
            continue
        solution = [coefficients[used.index(i)] if i in used else 0.0 for i in range(3)]
        error = sum(
            ((sum(map(operator.mul, solution, x)) - value) / row.seconds) ** 2
            for x, (row, value) in zip(features, rows, strict=True)
        )
        if error < least * 0.999:
            best, least = solution, error
    return best[0], best[1], best[2]


def largest_error(profile: CostProfile, rows: Sequence[StepTime]) -> float:
    """Return the largest relative error of the profile's step times against the measured ones."""

    def seconds(row: StepTime) -> float:
        plain, drafting = profile.at_context(row.context).times(row.k, row.batch)
        return drafting if row.k else plain

    return max(abs(seconds(row) / row.seconds - 1) for row in rows)


def correct_by_steps(
    profile: CostProfile, steps: EngineSteps, drafted: float | None, batch: float | None, time: float
) -> CostProfile:
    """Return the profile, corrected by the learned step times.

    Steps with and without drafts give the cost itself: its basis is then `measured`. Steps with drafts alone
    give the slope over the batch size, so that break-even moves with the batch as on this machine.

    Args:
        profile: of the method.
        steps: learned step times.
        drafted: tokens drafted for each request; step times of another K are not used.
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
        uncertainty=max(_MIN_ERROR, plain.error + drafting.error),
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
    return replace(profile, load=load) if 1 / _MAX_LOAD <= load <= _MAX_LOAD else profile
