"""Calibration: a cost profile from step times measured with and without speculation. Pure.

Without speculation, a line over the batch size and the context; with speculation, what comes on top::

    plain(b)    = fixed + per_request * b                     + per_context_token * context * b
    step(k, b)  = plain(b) + draft.fixed + draft.per_position * k + (per_token + draft.per_token) * k * b

Both are fitted by least squares of relative errors, with no coefficient below 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cost import CostProfile, DraftCost, TargetCost
from .step_time import least_squares

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Relative error that 90 % of the calibrated estimates stay below: docs/reference/estimate-accuracy.md.
UNCERTAINTY = 0.15

#: Methods whose drafting time does not grow with K.
_CONSTANT = frozenset({"ngram", "ngram_gpu", "suffix", "medusa", "dflash", "dspark"})


class CalibrationError(ValueError):
    """Measurements that give no profile. The message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """One measured step time.

    Attributes:
        batch: requests in the batch, from 1 up.
        k: drafted tokens per request, 0 without speculation; a mean need not be whole.
        seconds: mean time of a step, above 0.
        context: mean tokens of context per request.
    """

    batch: float
    k: float
    seconds: float
    context: float = 0.0


def calibrate(rows: Sequence[StepTime], method: str = "", name: str = "calibrated") -> CostProfile:
    """Return the cost profile that the step times show.

    Args:
        rows: step times, with and without speculation, at two batch sizes or more.
        method: the method as vLLM calls it.
        name: name of the profile.

    Raises:
        CalibrationError: too few measurements, or times that fit no such profile.
    """
    plain = [row for row in rows if row.k == 0]
    drafting = [row for row in rows if row.k > 0]
    if not plain or not drafting:
        missing = "without" if drafting else "with"
        msg = f"no step time was measured {missing} speculation"
        raise CalibrationError(msg)
    context = sum(row.context for row in rows) / len(rows)
    fixed, per_request, per_context = _plain(plain)
    if fixed <= 0:
        msg = "the step time without speculation does not rise with the batch: measure more batch sizes"
        raise CalibrationError(msg)

    def without(row: StepTime) -> float:
        return fixed + (per_request + per_context * row.context) * row.batch

    extra = [(row, row.seconds - without(row)) for row in drafting]
    base, per_position, per_drafted = _extra(extra, constant=method in _CONSTANT)
    # A token costs at most what a request does; the rest of the slope belongs to the drafter.
    per_token = min(per_request, per_drafted)
    return CostProfile(
        name=name,
        target=TargetCost(fixed, per_token, per_context, per_request - per_token),
        draft=DraftCost(fixed=base, per_position=per_position, per_token=per_drafted - per_token),
        methods=(method,) if method else (),
        context_tokens=context,
        typical_k=max(1, round(drafting[0].k)),
        uncertainty=UNCERTAINTY,
        cheap=method != "draft_model" and bool(method),
    )


def _plain(rows: Sequence[StepTime]) -> tuple[float, float, float]:
    batches = {row.batch for row in rows}
    contexts = {row.context for row in rows}
    if len(batches) == 1:
        return rows[0].seconds, 0.0, 0.0
    if len(rows) > 2 and max(contexts) > 1.5 * max(1.0, min(contexts)):
        found = least_squares([((1.0, r.batch, r.batch * r.context), r.seconds, r.seconds**-2) for r in rows])
        if found and min(found) >= 0:
            return found[0], found[1], found[2]
    found = least_squares([((1.0, r.batch), r.seconds, r.seconds**-2) for r in rows])
    if found is None or found[1] < 0:
        return sum(r.seconds for r in rows) / len(rows), 0.0, 0.0
    return found[0], found[1], 0.0


def _extra(rows: Sequence[tuple[StepTime, float]], *, constant: bool) -> tuple[float, float, float]:
    """Return the fixed cost, the cost per position and that per drafted token of each request."""
    # Some drafts are shorter than K, so that means of one K differ a little.
    several = len({round(row.k) for row, _ in rows}) > 1 and not constant
    # Which of the three columns to use; with a single K, the first two are collinear.
    one = [(True, False), (False, False)] if constant else [(False, True), (False, False)]
    heads = [(True, True), (False, True), (True, False), (False, False)] if several else one
    candidates = [(*head, token) for head in heads for token in (True, False) if any(head) or token]
    best, least = (0.0, 0.0, 0.0), math.inf
    for use in candidates:
        columns = [
            (float(fixed), float(position) * row.k, float(token) * row.k * row.batch)
            for row, _ in rows
            for fixed, position, token in [use]
        ]
        used = [i for i in range(3) if use[i]]
        found = least_squares(
            [
                (tuple(column[i] for i in used), value, row.seconds**-2)
                for column, (row, value) in zip(columns, rows, strict=True)
            ]
        )
        if found is None or min(found) < 0:
            continue
        solution = [0.0, 0.0, 0.0]
        for i, coefficient in zip(used, found, strict=True):
            solution[i] = coefficient
        error = sum(
            ((sum(c * x for c, x in zip(solution, column, strict=True)) - value) / row.seconds) ** 2
            for column, (row, value) in zip(columns, rows, strict=True)
        )
        if error < least * 0.999:
            best, least = (solution[0], solution[1], solution[2]), error
    return best


def largest_error(profile: CostProfile, rows: Sequence[StepTime]) -> float:
    """Return the largest relative error of the profile's step times against the measured ones."""

    def seconds(row: StepTime) -> float:
        plain, drafting = profile.at_context(row.context).times(row.k, row.batch)
        return drafting if row.k else plain

    return max(abs(seconds(row) / row.seconds - 1) for row in rows)
