"""Calibration: the cost of speculation from measured step times, in a quiet server or
while it serves.

`calibrate` fits a profile: without speculation a line over the batch size and the
context, and with it what comes on top::

    plain(b)    = fixed + per_request * b                     + per_context_token * context * b
    step(k, b)  = plain(b) + draft.fixed + draft.per_position * k + (per_token + draft.per_token) * k * b

Both are fitted together by least squares of the logarithms, with the error from residuals and covariance
(Student's t). Measurements that contradict the model are refused. Coefficients below 0 are set to 0, and the
interval then includes the cost with them. `correct_by_steps` corrects a profile by the step times that were
learned online (`step_time`).
"""

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from .cost import REACH, Basis, CostProfile, DraftCost, TargetCost
from .speculative_config import drafts_without_model
from .statistics import t_quantile
from .step_time import EngineSteps, LeastSquares, StepFit, least_squares

#: Relative error that 90 % of the calibrated estimates stay below:
#: docs/reference/estimate-accuracy.md.
UNCERTAINTY = 0.15
#: Least relative error of a cost from learned step times: batches and prompts are never
#: quite alike.
_MIN_ERROR = 0.05
#: A slope that differs from the profile's by more than this factor is not believed.
_MAX_LOAD = 10.0
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
_FIXED, _REQUEST, _CONTEXT, _DRAFT, _POSITION, _DRAFTED = range(6)


class CalibrationError(ValueError):
    """Measurements that give no profile. The message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """One measured step time."""

    batch: float  # requests in the batch, from 1 up
    #: Drafted tokens per request, 0 without speculation; a mean need not be whole.
    k: float
    seconds: float  # mean time of a step, above 0
    context: float = 0.0  # mean tokens of context per request
    #: The same for repeats of one measurement; empty: those of equal batch and context.
    cell: str = ""

    @property
    def place(self) -> tuple[bool, object]:
        """What repeats of one measurement have in common."""
        return self.k > 0, self.cell or (self.batch, self.context)


@dataclass(frozen=True, slots=True)
class StepTimeFit:
    """A fit of step times by some of the features."""

    used: tuple[int, ...]
    solution: LeastSquares
    squares: float  # sum of the squared residuals, in logarithms

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Those of all features, 0 for the ones that are not used."""
        known = dict(zip(self.used, self.solution.coefficients, strict=True))
        return tuple(known.get(feature, 0.0) for feature in range(6))

    def seconds(self, k: float, batch: float, context: float) -> float:
        """Return the time of a step."""
        return _product(
            self.solution.coefficients, _features(self.used, k, batch, context)
        )

    def cost(self, row: StepTime) -> float:
        """Return the time of a step with drafts in plain steps; 0 if one of them would
        be negative.
        """
        plain, drafting = (
            self.seconds(k, row.batch, row.context) for k in (0.0, row.k)
        )
        if plain > 0 and drafting > 0:
            return drafting / plain
        return 0.0

    def variance_of_cost(self, row: StepTime) -> float:
        """Return the variance of the cost's logarithm where residuals vary by 1."""
        plain, drafting = (
            _features(self.used, k, row.batch, row.context) for k in (0.0, row.k)
        )
        without, taken = (self.seconds(k, row.batch, row.context) for k in (0.0, row.k))
        return self.solution.variance(
            [d / taken - p / without for d, p in zip(drafting, plain, strict=True)]
        )


def _features(
    used: Sequence[int], k: float, batch: float, context: float
) -> tuple[float, ...]:
    values = (1.0, batch, batch * context, float(k > 0), k, k * batch)
    return tuple(values[feature] for feature in used)


def _product(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(map(operator.mul, one, other))


def _extent(rows: Sequence[StepTime]) -> tuple[float, float]:
    return min(row.batch for row in rows), max(row.batch for row in rows)


def _free_fit(
    rows: Sequence[StepTime],
    plain: Sequence[StepTime],
    drafting: Sequence[StepTime],
    *,
    constant: bool,
) -> StepTimeFit:
    """Return the fit by all features that the measurements can tell apart, or raise
    CalibrationError.
    """
    used = [_FIXED]
    (least, most), (fewest, largest) = _extent(plain), _extent(drafting)
    if most >= REACH * least:
        used.append(_REQUEST)
        contexts = {row.context for row in plain}
        if max(contexts) > _CONTEXTS_DIFFER * max(1.0, min(contexts)):
            used.append(_CONTEXT)
    # Some drafts are shorter than K, so that means of one K differ a little.
    several = len({round(row.k) for row in drafting}) > 1 and not constant
    used += [_DRAFT] if constant else [_DRAFT, _POSITION] if several else [_POSITION]
    if largest >= REACH * fewest and _REQUEST in used:
        used.append(_DRAFTED)
    fit = _fitted(rows, tuple(used))
    if fit is None and _CONTEXT in used:
        fit = _fitted(rows, tuple(feature for feature in used if feature != _CONTEXT))
    if fit is None:
        raise CalibrationError(_TOO_FEW.format(len(rows), len(used)))
    return fit


_MORE = "measure more batch sizes (--concurrency), or each more often (--repeats)"
_TOO_FEW = (
    f"{{}} step times cannot carry {{}} coefficients and show their error: {_MORE}"
)


def _fitted(rows: Sequence[StepTime], used: tuple[int, ...]) -> StepTimeFit | None:
    """Return the fit with the least squares of logarithms (Gauss-Newton), ``None`` if
    it is collinear.
    """
    fitted = [row.seconds for row in rows]
    features = [_features(used, row.k, row.batch, row.context) for row in rows]
    solution: LeastSquares | None = None
    for _ in range(_ITERATIONS):
        solution = least_squares(
            [
                (x, value * (1 + math.log(row.seconds / value)), value**-2)
                for x, value, row in zip(features, fitted, rows, strict=True)
            ]
        )
        if solution is None:
            return None
        # A fit that contradicts a measurement by more than this is refused or has no
        # use anyway.
        fitted = [
            max(_product(solution.coefficients, x), 0.1 * row.seconds)
            for x, row in zip(features, rows, strict=True)
        ]
    assert solution is not None
    squares = sum(
        math.log(row.seconds / value) ** 2
        for row, value in zip(rows, fitted, strict=True)
    )
    return StepTimeFit(used, solution, squares)


def _reach_of_cost(
    fit: StepTimeFit, rows: Sequence[StepTime]
) -> Callable[[StepTime], float]:
    """Return the half-width of the interval of a cost's logarithm, or raise
    CalibrationError.

    It is refused where the steps contradict the model: plain ones that get shorter with
    the batch or start below 0, and drafts that save time.
    """
    freedom = len(rows) - len(fit.used)
    if freedom > 0:
        quantile = t_quantile(freedom) * math.sqrt(fit.squares / freedom)
    else:
        quantile = 0.0
    plain = sorted((row.batch, row.seconds) for row in rows if row.k == 0)
    ends = "{1:.3g} s at a batch of {0:.3g}, {3:.3g} s at {2:.3g}".format(
        *plain[0], *plain[-1]
    )
    if fit.coefficients[_FIXED] <= 0:
        raise CalibrationError(
            "the step time without speculation rises more steeply than the batch "
            f"({ends}): {_MORE}, and see that nothing else runs"
        )
    context = mean(row.context for row in rows)
    slope = [
        float(feature == _REQUEST) + context * (feature == _CONTEXT)
        for feature in fit.used
    ]
    rise = _product(slope, fit.solution.coefficients)
    if rise < -quantile * math.sqrt(fit.solution.variance(slope)):
        raise CalibrationError(
            "the step time without speculation does not rise with the batch "
            f"({ends}): {_MORE}"
        )
    if freedom < 1:
        raise CalibrationError(_TOO_FEW.format(len(rows), len(fit.used)))

    def reach(row: StepTime) -> float:
        return quantile * math.sqrt(fit.variance_of_cost(row))

    for row in rows:
        if row.k and (
            not fit.cost(row)
            or math.log(fit.cost(row)) + reach(row) < -math.log1p(_SAVING)
        ):
            raise CalibrationError(
                f"steps with drafts took {fit.cost(row):.2f} times as long as steps "
                "without at a batch of "
                f"{row.batch:.3g}: the servers were not alike, or busy with "
                "something else"
            )
    return reach


def _without_negative(fit: StepTimeFit, rows: Sequence[StepTime]) -> StepTimeFit:
    """Return the fit without the coefficients that would be below 0: nothing takes less
    than no time.
    """
    while True:
        typical = [
            mean(
                _features((feature,), row.k, row.batch, row.context)[0] for row in rows
            )
            for feature in fit.used
        ]
        shares = list(map(operator.mul, fit.solution.coefficients, typical))
        if min(shares) >= 0:
            return fit
        worst = shares.index(min(shares))
        smaller = _fitted(rows, fit.used[:worst] + fit.used[worst + 1 :])
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
    plain = [row for row in rows if row.k == 0]
    drafting = [row for row in rows if row.k > 0]
    if not plain or not drafting:
        missing = "without" if drafting else "with"
        raise CalibrationError(f"no step time was measured {missing} speculation")
    (least, most), seen = _extent(plain), _extent(drafting)
    extrapolated = least > REACH * seen[0] or most * REACH < seen[1]
    if extrapolated and most < REACH * least:
        raise CalibrationError(
            "step times were measured without speculation only at a batch size of "
            f"{least:.3g}, and with it "
            "at others: measure more batch sizes without speculation"
        )
    free = _free_fit(rows, plain, drafting, constant=method in _CONSTANT)
    reach = _reach_of_cost(free, rows)
    fit = _without_negative(free, rows)
    logarithm = max(
        abs(math.log(fit.cost(row) / free.cost(row))) + reach(row) for row in drafting
    )
    uncertainty = max(UNCERTAINTY, math.expm1(logarithm))
    provenance = ""
    if extrapolated:
        for row in drafting:
            nearest = fit.seconds(0, min(max(row.batch, least), most), row.context)
            ratio = nearest / fit.seconds(0, row.batch, row.context)
            uncertainty = max(uncertainty, ratio - 1, 1 / ratio - 1)
        provenance = (
            f"measured without speculation at batch sizes of {least:.3g} to "
            f"{most:.3g}, with speculation at "
            "{:.3g} to {:.3g}: plain steps are extrapolated".format(*seen)
        )
    fixed, per_request, per_context, draft, per_position, per_drafted = fit.coefficients
    # A token costs at most what a request does; the rest of the slope belongs to the
    # drafter.
    per_token = min(per_request, per_drafted)
    profile = CostProfile(
        name=name,
        target=TargetCost(fixed, per_token, per_context, per_request - per_token),
        draft=DraftCost(draft, per_position, per_token=per_drafted - per_token),
        methods=(method,) if method else (),
        context_tokens=sum(row.context for row in rows) / len(rows),
        typical_k=max(1, round(drafting[0].k)),
        provenance=provenance,
        batches=seen if extrapolated else None,
        cheap=method != "draft_model" and bool(method),
    )
    return replace(profile, uncertainty=max(uncertainty, largest_error(profile, rows)))


def largest_error(profile: CostProfile, rows: Sequence[StepTime]) -> float:
    """Return the largest relative error of the profile's step costs against the
    measured ones.

    Repeats of one measurement count by their mean. Each with drafts is compared with
    the nearest without. Logarithms make it the same for a cost that is too low and for
    one that is too high.
    """
    cells = defaultdict(list)
    for row in rows:
        cells[row.place].append(row)
    errors: dict[bool, list[tuple[StepTime, float]]] = {True: [], False: []}
    for (drafts, _), repeats in cells.items():
        logarithms = []
        for row in repeats:
            plain, drafting = profile.at_context(row.context).times(row.k, row.batch)
            logarithms.append(math.log((drafting if drafts else plain) / row.seconds))
        errors[drafts].append((repeats[0], mean(logarithms)))

    def distance(one: StepTime, other: StepTime) -> float:
        return abs(math.log(one.batch / other.batch)) + abs(
            math.log((one.context + 1) / (other.context + 1))
        )

    largest = 0.0
    for row, error in errors[True]:
        _, nearest = min(errors[False], key=lambda plain: distance(row, plain[0]))
        largest = max(largest, abs(error - nearest))
    return math.expm1(largest)


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
    if (
        not drafted
        or not batch
        or isinstance(drafting, str)
        or steps.drafting.k != round(drafted)
    ):
        return profile
    plain = steps.plain.fit(time)
    if isinstance(plain, StepFit) and drafts_without_model(method):
        return _measured(profile, plain, drafting, drafted, batch)
    if profile.basis is Basis.CALIBRATED:
        return profile
    return _sloped(profile, drafting, drafted)


def _measured(
    profile: CostProfile,
    plain: StepFit,
    drafting: StepFit,
    drafted: float,
    batch: float,
) -> CostProfile:
    batches = (
        max(plain.batches[0], drafting.batches[0]),
        min(plain.batches[1], drafting.batches[1]),
    )
    modelled = profile.step_cost(drafted, max(1.0, batch)) - 1
    cost = drafting.seconds(batch) / plain.seconds(batch)
    error = math.expm1(math.hypot(math.log1p(plain.error), math.log1p(drafting.error)))
    # Drafts cannot save time: then other things than drafts differed.
    saves = cost * (1 + max(_MIN_ERROR, error)) < 1
    if saves or not batches[0] / REACH <= batch <= batches[1] * REACH or modelled <= 0:
        return profile
    return replace(
        profile,
        correction=profile.correction * max(0.0, cost - 1) / modelled,
        uncertainty=max(_MIN_ERROR, error),
        basis=Basis.MEASURED,
        batches=batches,
        contexts=None,
    )


def _sloped(profile: CostProfile, drafting: StepFit, drafted: float) -> CostProfile:
    low, high = (max(1.0, batch) for batch in drafting.batches)
    _, one = profile.times(drafted, 1)
    low_time, high_time = (
        profile.times(drafted, batch)[1] / one - 1 for batch in (low, high)
    )
    ratio = drafting.seconds(high) / drafting.seconds(low)
    below = high_time - ratio * low_time
    load = (ratio - 1) / below if below > 0 else 0.0
    if not 1 / _MAX_LOAD <= load <= _MAX_LOAD:
        return profile
    sloped = replace(profile, load=load)
    # Drafts cannot save time: then the slope of plain steps is another one.
    if min(sloped.step_cost(1, batch) for batch in (low, high)) >= 1:
        return sloped
    return profile
