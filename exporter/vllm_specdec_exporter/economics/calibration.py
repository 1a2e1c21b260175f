"""Calibration: the cost of speculation from measured step times.

Without speculation a step's time is a line over the batch size and the context, and
with it something comes on top::

    plain(b)   = fixed + per_request * b + per_context_token * context * b
    step(k, b) = plain(b) + draft.fixed + draft.per_position * k
                 + (per_token + draft.per_token) * k * b

Both are fitted together by least squares of the logarithms, with the error from
residuals and covariance (Student's t). Measurements that contradict the model are
refused. Coefficients below 0 are set to 0, and the interval then includes the cost with
them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from operator import attrgetter
from statistics import mean

from msgspec import Struct
from msgspec.structs import replace

from .cost import REACH, CostProfile, DraftCost, TargetCost
from .least_squares import LeastSquares, least_squares
from .statistics import t_quantile

#: Relative error that 90 % of the calibrated estimates stay below:
#: docs/reference/estimate-accuracy.md.
UNCERTAINTY = 0.15
#: Methods whose drafting time does not grow with K.
_CONSTANT = frozenset({"ngram", "ngram_gpu", "suffix", "medusa", "dflash", "dspark"})
#: Factor between contexts from which their cost can be told apart.
_CONTEXTS_DIFFER = 1.5
#: Of the fit of logarithms; with errors of a third it takes six to settle.
_ITERATIONS = 10
#: Share of a plain step that drafts may seem to save without contradicting the model.
_SAVING = 0.05
#: The features of a step time. With a single K, the cost of a draft and that of a
#: position are collinear.
_FEATURES = range(6)
_FIXED, _REQUEST, _CONTEXT, _DRAFT, _POSITION, _DRAFTED = _FEATURES


class CalibrationError(ValueError):
    """Measurements that give no profile. The message is one line with the reason."""


class StepTime(Struct, frozen=True):
    """One measured step time."""

    batch: float  # requests in the batch, from 1 up
    #: Drafted tokens per request, 0 without speculation; a mean need not be whole.
    k: float
    seconds: float  # mean time of a step, above 0
    context: float = 0.0  # mean tokens of context per request
    #: The same for repeats of one measurement; empty: those of equal batch and context.
    cell: str = ""

    @property
    def place(self) -> object:
        """What repeats of one measurement have in common."""
        return self.cell or (self.batch, self.context)

    @property
    def plain(self) -> StepTime:
        """The same step without drafts."""
        return replace(self, k=0.0)

    @property
    def features(self) -> tuple[float, ...]:
        """What the coefficients are multiplied with."""
        drafted = self.k * self.batch
        contexts = self.context * self.batch
        return 1.0, self.batch, contexts, float(self.k > 0), self.k, drafted


class StepTimeFit(Struct, frozen=True):
    """A fit of step times by some of the features."""

    used: tuple[int, ...]
    solution: LeastSquares
    squares: float  # sum of the squared residuals, in logarithms
    freedom: int  # step times beyond the number of coefficients

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Those of all features, 0 for the ones that are not used."""
        by_feature = dict(zip(self.used, self.solution.coefficients, strict=True))
        return tuple(by_feature.get(feature, 0.0) for feature in _FEATURES)

    def seconds(self, row: StepTime) -> float:
        """Return the time of a step."""
        return _product(self.coefficients, row.features)

    def cost(self, row: StepTime) -> float:
        """Return the time of a step with drafts in plain steps; 0 if one of them would
        be negative.
        """
        plain = self.seconds(row.plain)
        drafting = self.seconds(row)
        if plain > 0 and drafting > 0:
            return drafting / plain
        return 0.0

    def reach(self, gradient: Sequence[float]) -> float:
        """Return the half-width of the interval of a value with this gradient by the
        coefficients; 0 where nothing shows the error.
        """
        if self.freedom < 1:
            return 0.0
        variance = self.squares / self.freedom
        variance *= self.solution.variance(_picked(gradient, self.used))
        return t_quantile(self.freedom) * math.sqrt(variance)

    def reach_of_cost(self, row: StepTime) -> float:
        """Return the half-width of the interval of a cost's logarithm."""
        plain = self.seconds(row.plain)
        drafting = self.seconds(row)
        # The gradient of ln(drafting / plain) by each coefficient.
        return self.reach(
            [
                with_drafts / drafting - without / plain
                for with_drafts, without in zip(
                    row.features, row.plain.features, strict=True
                )
            ]
        )


def _picked(values: Sequence[float], used: Sequence[int]) -> tuple[float, ...]:
    return tuple(map(values.__getitem__, used))


def _product(coefficients: Sequence[float], features: Sequence[float]) -> float:
    return math.fsum(map(operator.mul, coefficients, features))


def _batch_range(rows: Sequence[StepTime]) -> tuple[float, float]:
    batches = [row.batch for row in rows]
    return min(batches), max(batches)


def _mean_context(rows: Sequence[StepTime]) -> float:
    return mean(row.context for row in rows)


def _differ(batches: tuple[float, float]) -> bool:
    """Return whether the cost of a request shows between batches."""
    smallest, largest = batches
    return largest >= REACH * smallest


def _free_fit(
    rows: Sequence[StepTime],
    plain: Sequence[StepTime],
    drafting: Sequence[StepTime],
    *,
    constant: bool,
) -> StepTimeFit:
    """Return the fit by all features that the measurements can tell apart, or raise
    CalibrationError; `constant` is whether drafting takes as long for every K.
    """
    used = [_FIXED]
    if _differ(_batch_range(plain)):
        used.append(_REQUEST)
        contexts = [row.context for row in plain]
        if max(contexts) > _CONTEXTS_DIFFER * max(1.0, min(contexts)):
            used.append(_CONTEXT)
    # Some drafts are shorter than K, so that means of one K differ a little.
    ks = {round(row.k) for row in drafting}
    if constant or len(ks) > 1:
        used.append(_DRAFT)
    if not constant:
        used.append(_POSITION)
    if _differ(_batch_range(drafting)) and _REQUEST in used:
        used.append(_DRAFTED)
    fit = _fitted(rows, used)
    if fit is None and _CONTEXT in used:
        used.remove(_CONTEXT)
        fit = _fitted(rows, used)
    if fit is None:
        raise _too_few(rows, used)
    return fit


_MORE = "measure more batch sizes (--concurrency), or each more often (--repeats)"


def _too_few(rows: Sequence[StepTime], used: Sequence[int]) -> CalibrationError:
    return CalibrationError(
        f"{len(rows)} step times cannot carry {len(used)} coefficients and show their "
        f"error: {_MORE}"
    )


def _fitted(rows: Sequence[StepTime], used: Sequence[int]) -> StepTimeFit | None:
    """Return the fit with the least squares of logarithms (Gauss-Newton), ``None`` if
    it is collinear.
    """
    features = [_picked(row.features, used) for row in rows]
    fitted = [row.seconds for row in rows]
    solution: LeastSquares | None = None
    squares = 0.0
    for _ in range(_ITERATIONS):
        weighted_rows = []
        for x, value, row in zip(features, fitted, rows, strict=True):
            # The logarithm of the time, in a straight line through the present fit.
            linear = value * (1 + math.log(row.seconds / value))
            weighted_rows.append((x, linear, value**-2))
        solution = least_squares(weighted_rows)
        if solution is None:
            return None
        squares = 0.0
        for index, row in enumerate(rows):
            # A fit that contradicts a measurement by more than this is refused or has
            # no use anyway.
            value = max(
                _product(solution.coefficients, features[index]), 0.1 * row.seconds
            )
            fitted[index] = value
            squares += math.log(row.seconds / value) ** 2
    assert solution is not None
    return StepTimeFit(tuple(used), solution, squares, len(rows) - len(used))


def _check(fit: StepTimeFit, rows: Sequence[StepTime]) -> None:
    """Raise CalibrationError where the steps contradict the model: plain ones that get
    shorter with the batch or start below 0, and drafts that save time.
    """
    _check_plain_steps(fit, rows)
    if fit.freedom < 1:
        raise _too_few(rows, fit.used)
    for row in rows:
        if not row.k:
            continue
        cost = fit.cost(row)
        if not cost or math.log(cost) + fit.reach_of_cost(row) < -math.log1p(_SAVING):
            raise CalibrationError(
                f"steps with drafts took {cost:.2f} times as long as steps without at "
                f"a batch of {row.batch:.3g}: the servers were not alike, or busy with "
                "something else"
            )


def _check_plain_steps(fit: StepTimeFit, rows: Sequence[StepTime]) -> None:
    plain = [row for row in rows if not row.k]
    plain.sort(key=attrgetter("batch", "seconds"))
    smallest = plain[0]
    largest = plain[-1]
    ends = (
        f"{smallest.seconds:.3g} s at a batch of {smallest.batch:.3g}, "
        f"{largest.seconds:.3g} s at {largest.batch:.3g}"
    )
    if fit.coefficients[_FIXED] <= 0:
        raise CalibrationError(
            "the step time without speculation rises more steeply than the batch "
            f"({ends}): {_MORE}, and see that nothing else runs"
        )
    # What a request more adds, at the mean context.
    slope = [0.0] * len(_FEATURES)
    slope[_REQUEST] = 1.0
    slope[_CONTEXT] = _mean_context(rows)
    if _product(fit.coefficients, slope) < -fit.reach(slope):
        raise CalibrationError(
            "the step time without speculation does not rise with the batch "
            f"({ends}): {_MORE}"
        )


def _without_negative(fit: StepTimeFit, rows: Sequence[StepTime]) -> StepTimeFit:
    """Return the fit without the coefficients that would be below 0: nothing takes less
    than no time.
    """
    while True:
        # The worst first, by the time that it takes in a typical step: without it the
        # others may be above 0.
        columns = zip(*(row.features for row in rows), strict=True)
        typical = map(mean, columns)
        seconds = list(map(operator.mul, fit.coefficients, typical))
        if min(seconds) >= 0:
            return fit
        worst = seconds.index(min(seconds))
        used = list(fit.used)
        used.remove(worst)
        smaller = _fitted(rows, used)
        if smaller is None or smaller.coefficients[_FIXED] <= 0:
            raise CalibrationError(
                f"the step times fit no line over the batch size: {_MORE}"
            )
        fit = smaller


def calibrate(
    rows: Sequence[StepTime], method: str = "", name: str = "calibrated"
) -> CostProfile:
    """Return the cost profile that the step times show, or raise CalibrationError.

    `rows` are with and without speculation, at two batch sizes or more; the more
    repeats of each, the smaller the profile's uncertainty. `method` is as vLLM calls
    it.

    If the line of steps without speculation is extrapolated to batch sizes with
    speculation, the profile's provenance names both ranges, its `batches` are those
    with speculation, and its interval includes the plain time at the nearest measured
    batch. Otherwise provenance and `batches` are left to the caller.
    """
    drafting = [row for row in rows if row.k]
    plain = [row for row in rows if not row.k]
    if not plain:
        raise CalibrationError("no step time was measured without speculation")
    if not drafting:
        raise CalibrationError("no step time was measured with speculation")
    plain_batches = _batch_range(plain)
    batches = _batch_range(drafting)
    extrapolated = _is_extrapolated(plain_batches, batches)
    if extrapolated and not _differ(plain_batches):
        raise CalibrationError(
            "step times were measured without speculation only at a batch size of "
            f"{plain_batches[0]:.3g}, and with it at others: measure more batch sizes "
            "without speculation"
        )
    free = _free_fit(rows, plain, drafting, constant=method in _CONSTANT)
    _check(free, rows)
    fit = _without_negative(free, rows)
    profile = replace(
        _profile(fit.coefficients, method, name),
        context_tokens=_mean_context(rows),
        typical_k=max(1, round(drafting[0].k)),
    )
    errors = [UNCERTAINTY, largest_error(profile, rows)]
    for row in drafting:
        # Setting a coefficient to 0 moves the cost as well.
        moved = abs(math.log(fit.cost(row) / free.cost(row)))
        errors.append(math.expm1(moved + free.reach_of_cost(row)))
    if extrapolated:
        errors += [_extrapolation_error(fit, row, plain_batches) for row in drafting]
        provenance = (
            "measured without speculation at batch sizes of "
            f"{plain_batches[0]:.3g} to {plain_batches[1]:.3g}, with speculation at "
            f"{batches[0]:.3g} to {batches[1]:.3g}: plain steps are extrapolated"
        )
        profile = replace(profile, batches=batches, provenance=provenance)
    return replace(profile, uncertainty=max(errors))


#: Coefficients that a fit of several batch sizes and contexts has.
_USUAL_COEFFICIENTS = 5


def expected_uncertainty(scatter: float, rows: int) -> float:
    """Return about how well costs will be known by so many step times, as a relative
    error.

    `scatter` is the standard deviation of the logarithms of like step times. A fit
    knows a value with a variance of coefficients / rows on average, and about twice as
    much at its ends; a cost is a ratio of two.
    """
    freedom = max(1, rows - _USUAL_COEFFICIENTS)
    variance = 4 * _USUAL_COEFFICIENTS / rows * scatter**2
    return math.expm1(t_quantile(freedom) * math.sqrt(variance))


def _is_extrapolated(
    plain_batches: tuple[float, float], batches: tuple[float, float]
) -> bool:
    """Return whether drafts were measured at batches beyond those of plain steps."""
    too_large = plain_batches[0] > REACH * batches[0]
    too_small = plain_batches[1] * REACH < batches[1]
    return too_large or too_small


def _profile(coefficients: tuple[float, ...], method: str, name: str) -> CostProfile:
    """Return the profile of the fitted coefficients."""
    fixed, per_request, per_context, draft, per_position, per_drafted = coefficients
    # A token costs at most what a request does; the rest of the slope belongs to the
    # drafter.
    per_token = min(per_request, per_drafted)
    return CostProfile(
        name=name,
        target=TargetCost(
            fixed=fixed,
            per_token=per_token,
            per_context_token=per_context,
            per_request=per_request - per_token,
        ),
        draft=DraftCost(draft, per_position, per_token=per_drafted - per_token),
        methods=tuple(filter(None, (method,))),
        cheap=method not in ("", "draft_model"),
    )


def _extrapolation_error(
    fit: StepTimeFit, row: StepTime, plain_batches: tuple[float, float]
) -> float:
    """Return the relative error of a plain step if it took as long as at the nearest
    measured batch.
    """
    smallest, largest = plain_batches
    nearest = replace(row.plain, batch=min(max(row.batch, smallest), largest))
    ratio = fit.seconds(nearest) / fit.seconds(row.plain)
    return max(ratio - 1, 1 / ratio - 1)


def largest_error(profile: CostProfile, rows: Sequence[StepTime]) -> float:
    """Return the largest relative error of the profile's step costs against the
    measured ones.

    Repeats of one measurement count by their mean. Each with drafts is compared with
    the nearest without. Logarithms make it the same for a cost that is too low and for
    one that is too high.
    """
    errors_of_plain = _errors_of_cells(
        profile, [row for row in rows if not row.k], drafts=False
    )
    largest = 0.0
    for row, error in _errors_of_cells(
        profile, [row for row in rows if row.k], drafts=True
    ):
        _, error_of_nearest = min(
            errors_of_plain, key=lambda plain: _distance(row, plain[0])
        )
        largest = max(largest, abs(error - error_of_nearest))
    return math.expm1(largest)


def _errors_of_cells(
    profile: CostProfile, rows: Sequence[StepTime], *, drafts: bool
) -> list[tuple[StepTime, float]]:
    """Return the first repeat of each measurement, and the mean error of all of them,
    as a logarithm.
    """
    cells: dict[object, list[StepTime]] = {}
    for row in rows:
        cells.setdefault(row.place, []).append(row)
    errors = []
    for repeats in cells.values():
        logarithms = []
        for row in repeats:
            profile_there = profile.at_context(row.context)
            plain, drafting = profile_there.step_times(row.k, row.batch)
            seconds = drafting if drafts else plain
            logarithms.append(math.log(seconds / row.seconds))
        errors.append((repeats[0], mean(logarithms)))
    return errors


def _distance(first: StepTime, second: StepTime) -> float:
    """Return how far apart two measurements are, by batch and context."""
    batches = abs(math.log(first.batch / second.batch))
    contexts = abs(math.log((first.context + 1) / (second.context + 1)))
    return batches + contexts
