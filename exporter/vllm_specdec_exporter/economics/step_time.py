"""Step times between two readings of an engine, and a line over the batch size, learned
online.

vLLM's `inter_token_latency_seconds` has one observation for each request and step, so
its mean over a poll interval is the mean step time, whatever was accepted. Intervals
are averaged in bins of the batch size, and a line is fitted through the bins::

    step_seconds(batch, kv_cache) = fixed + per_request * batch + per_kv_cache * kv_cache

Bins instead of intervals keep the memory bounded and let rare batch sizes count as much as frequent ones.
An old interval loses its weight with `HALF_LIFE`; one that differs from its bin by more than `OUTLIER` counts
as that much. Times come in with the intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from ..engines.reading import Counters, Steps
from .statistics import Z, t_quantile

_MIN_REQUESTS = 10  # requests that a mean context needs
#: Share of accepted tokens from which the observations show what they are of.
_SHOWING = 0.1
HALF_LIFE = 1800.0  # seconds after which an interval counts half
OUTLIER = 0.5  # largest relative difference from its bin that an interval counts with
#: Seconds for which a line is kept while intervals come in, and while none comes in.
_REFRESH = 60.0
_KEEP = 600.0
_YOUNG = 20.0  # intervals up to which each one changes the line noticeably
_RESOLUTION = 2  # bins per doubling of the batch size
#: Largest share of the tokens of an interval that may be prompts: prefill makes steps
#: long.
PREFILL_SHARE = 0.2
_MIN_WEIGHT = 0.5  # bins below this weight (intervals, aged) are not used
MIN_SPREAD = 2.0  # a line needs bins whose batch sizes differ by this factor at least
#: Above this relative error the engine's step time depends on something else, such as
#: throttling.
MAX_ERROR = 0.15
#: Largest error of a line, by the scatter of its intervals: beyond it, even a clear
#: gain cannot be told.
MAX_SCATTER = 0.5
#: The KV cache has a coefficient of its own only where its use varies by this factor
#: between bins.
_KV_SPREAD = 1.5


def mean_step_seconds(
    before: tuple[Counters, Steps], after: tuple[Counters, Steps]
) -> float | None:
    """Return the mean time of the steps between two readings without a reset; ``None``
    if not known.

    An engine that observes tokens shows none (vLLM's pull request 47382): drafts make
    no observation fewer.
    """
    (first, first_steps), (last, last_steps) = before, after
    seconds = _increase(first_steps.step_seconds, last_steps.step_seconds)
    observed = _increase(first_steps.step_observations, last_steps.step_observations)
    tokens = (last.generation_tokens or 0.0) - (first.generation_tokens or 0.0)
    # the first is not observed
    tokens -= (last_steps.requests or 0.0) - (first_steps.requests or 0.0)
    accepted = (last.accepted_tokens or 0.0) - (first.accepted_tokens or 0.0)
    # Less what was accepted behind the end of an answer.
    accepted = min(accepted, tokens - (last.drafts or 0.0) + (first.drafts or 0.0))
    if (
        seconds is None
        or not observed
        or (accepted > _SHOWING * tokens and observed > tokens - accepted / 4)
    ):
        return None
    return seconds / observed


def mean_context(
    before: tuple[Counters, Steps], after: tuple[Counters, Steps]
) -> float | None:
    """Return the tokens of context per request: the mean prompt, and half of the mean
    response.

    ``None`` if they are not known, or with few requests. If requests differ much, the
    long ones take more steps, so the context of the mean step is longer.
    """
    (first, first_steps), (last, last_steps) = before, after
    requests = _increase(first_steps.requests, last_steps.requests)
    prompts = _increase(first_steps.prompt_tokens, last_steps.prompt_tokens)
    generated = _increase(first.generation_tokens, last.generation_tokens)
    if (
        prompts is None
        or generated is None
        or requests is None
        or requests < _MIN_REQUESTS
    ):
        return None
    return (prompts + generated / 2) / requests


def prompts_per_token(
    before: tuple[Counters, Steps], after: tuple[Counters, Steps]
) -> float | None:
    """Return the prompt tokens for each generated one between two readings; ``None`` if
    not known.
    """
    (first, first_steps), (last, last_steps) = before, after
    prompts = _increase(first_steps.prompt_tokens, last_steps.prompt_tokens)
    generated = _increase(first.generation_tokens, last.generation_tokens)
    if prompts is not None and generated:
        return prompts / generated
    return None


def draft_share(first: Steps, last: Steps) -> float | None:
    """Return the time of drafting over that of verification, ``None`` if either is not
    known.
    """
    draft = _increase(first.draft_seconds, last.draft_seconds)
    verify = _increase(first.verify_seconds, last.verify_seconds)
    if draft and verify:
        return draft / verify
    return None


def _increase(before: float | None, after: float | None) -> float | None:
    """Return the increase of a total, ``None`` if it is not known or fell."""
    if before is None or after is None or after < before:
        return None
    return after - before


class StepInterval(Struct, frozen=True):
    """The steps of one poll interval."""

    seconds: float  # mean time of a step
    batch: float  # mean requests in the batch, at least 1
    #: Share of the KV cache in use, 0 to 1: the context of all requests. ``None`` if
    #: not known.
    kv_cache: float | None = None
    #: Prompt tokens over all tokens computed or emitted, 0 to 1.
    prefill_share: float = 0.0


def step_interval(
    before: tuple[Counters, Steps],
    after: tuple[Counters, Steps],
    batch: float | None,
    kv_cache: float | None,
) -> tuple[StepInterval, float] | None:
    """Return the steps between two readings without a reset, and the tokens drafted for
    each request in them.

    ``None`` without steps, or if the engine does not print them.
    """
    (first, first_steps), (last, last_steps) = before, after
    seconds = mean_step_seconds(before, after)
    observed = _increase(first_steps.step_observations, last_steps.step_observations)
    drafted = _increase(first.draft_tokens or 0.0, last.draft_tokens or 0.0)
    generated = _increase(first.generation_tokens, last.generation_tokens)
    if not (seconds and observed and batch and generated) or drafted is None:
        return None
    prompts = _increase(first_steps.prompt_tokens, last_steps.prompt_tokens) or 0.0
    return StepInterval(
        seconds, batch, kv_cache, prompts / (prompts + generated)
    ), drafted / observed


class StepBin(Struct, frozen=True):
    """Weighted means of the intervals with similar batch sizes."""

    weight: float
    seconds: float
    batch: float
    kv_cache: float | None
    time: float
    variance: float = 0.0  # of the intervals' step times, relative

    def aged(self, time: float) -> float:
        """Return the weight at `time`."""
        return self.weight * math.exp2(-max(0.0, time - self.time) / HALF_LIFE)


class StepFit(Struct, frozen=True):
    """The line through the bins.

    Attributes:
        fixed: seconds of a step, whatever the batch.
        per_request: seconds for each request in the batch.
        per_kv_cache: seconds if the whole KV cache is in use; 0 if that cannot be told
            apart.
        error: relative error of a step's time that 95 % of such lines stay below,
            between these batches.
        batches: least and most requests in the bins: the line is known between them
            only.
    """

    fixed: float
    per_request: float
    per_kv_cache: float
    error: float
    batches: tuple[float, float]

    def seconds(self, batch: float, kv_cache: float = 0.0) -> float:
        """Return the time of a step."""
        return self.fixed + self.per_request * batch + self.per_kv_cache * kv_cache


class StepRegression(Struct, frozen=True):
    """The step times of one engine since its last counter reset, at one K."""

    k: int = 0  # drafted tokens per request, rounded; another K starts anew
    bins: tuple[tuple[int, StepBin], ...] = ()  # from the bin's number to its means
    refused: str = ""  # why the newest interval was not used, empty if it was
    #: The line at `line_time`, or why there was none. It is kept because fitting takes
    #: longer than the rest of a poll.
    line: StepFit | str = "no steps observed"
    line_time: float = -math.inf  # in seconds

    def add(self, interval: StepInterval, k: float, time: float) -> StepRegression:
        """Return the state after an interval that ended at `time` seconds."""
        drafted = round(k)
        before = self if drafted == self.k else StepRegression(drafted)
        if interval.prefill_share > PREFILL_SHARE:
            return replace(
                before,
                refused=f"{interval.prefill_share:.0%} of the tokens are prompts",
            )
        if not (
            math.isfinite(interval.seconds)
            and interval.seconds > 0
            and interval.batch >= 1
        ):
            return replace(before, refused="no step time in the interval")
        number = round(_RESOLUTION * math.log2(interval.batch))
        bins = dict(before.bins)
        bins[number] = _joined(bins.get(number), interval, time)
        after = replace(before, bins=tuple(sorted(bins.items())), refused="")
        young = sum(bin_.weight for bin_ in bins.values()) < _YOUNG
        if (
            time - before.line_time < _REFRESH
            and len(bins) == len(before.bins)
            and not young
        ):
            return after
        return replace(after, line=after._fit(time), line_time=time)

    def fit(self, time: float) -> StepFit | str:
        """Return the line through the bins at `time`, a minute old at most, or why
        there is none.
        """
        if self.bins and time - self.line_time < _KEEP:
            return self.line
        return self._fit(time)

    def _fit(self, time: float) -> StepFit | str:
        bins = [
            (bin_, min(weight, 20.0))
            for _, bin_ in self.bins
            if (weight := bin_.aged(time)) >= _MIN_WEIGHT
        ]
        if not bins:
            return self.refused or "no steps observed"
        least = min(b.batch for b, _ in bins)
        most = max(b.batch for b, _ in bins)
        if most < MIN_SPREAD * least:
            return f"only batch sizes of {least:.1f} to {most:.1f} observed"
        columns, solution = _solve(bins)
        if solution is None:
            return f"batch sizes of {least:.1f} to {most:.1f} show no line"
        fixed, per_request, per_kv = (*solution.coefficients, 0.0)[:3]
        if per_request < 0:
            return "step time does not rise with the batch"
        if fixed <= 0:
            return "step time rises more steeply than the batch"
        line = StepFit(fixed, per_request, per_kv, 0.0, (least, most))
        errors = [
            line.seconds(b.batch, b.kv_cache or 0.0) / b.seconds - 1 for b, _ in bins
        ]
        squares = sum(
            weight * error**2 for error, (_, weight) in zip(errors, bins, strict=True)
        )
        rest = math.sqrt(squares / sum(weight for _, weight in bins))
        if rest > MAX_ERROR:
            return f"step times differ by {rest:.0%} from a line over the batch size"
        scatter = _scatter(line, columns, solution, bins, squares)
        if scatter is None:
            return "too few intervals to tell how much the step times scatter"
        if scatter > MAX_SCATTER:
            return f"step times scatter: the line is known within {scatter:.0%} only"
        return replace(line, error=math.hypot(scatter, Z * rest))


class EngineSteps(Struct, frozen=True):
    """The step times of one engine since its last counter reset, with and without
    drafts.
    """

    #: Steps without any draft, such as those of a K schedule with K = 0.
    plain: StepRegression = StepRegression()
    drafting: StepRegression = StepRegression()  # steps with drafts, at the present K

    def add(self, interval: StepInterval, k: float, time: float) -> EngineSteps:
        """Return the state after an interval in which `k` tokens were drafted for each
        request and step.
        """
        if k == 0:
            return replace(self, plain=self.plain.add(interval, 0, time))
        if round(k) == 0:
            return replace(
                self, drafting=replace(self.drafting, refused="few steps have drafts")
            )
        return replace(self, drafting=self.drafting.add(interval, k, time))


def _joined(bin_: StepBin | None, interval: StepInterval, time: float) -> StepBin:
    weight = bin_.aged(time) if bin_ else 0.0
    if bin_ is None or weight < _MIN_WEIGHT / 2:
        return StepBin(1.0, interval.seconds, interval.batch, interval.kv_cache, time)
    bound = OUTLIER * bin_.seconds
    seconds = min(max(interval.seconds, bin_.seconds - bound), bin_.seconds + bound)
    total = weight + 1.0

    def mean(old: float, new: float) -> float:
        return (old * weight + new) / total

    kv_cache = bin_.kv_cache
    if interval.kv_cache is not None:
        if kv_cache is None:
            kv_cache = interval.kv_cache
        else:
            kv_cache = mean(kv_cache, interval.kv_cache)
    difference = seconds / bin_.seconds - 1
    return StepBin(
        weight=total,
        seconds=mean(bin_.seconds, seconds),
        batch=mean(bin_.batch, interval.batch),
        kv_cache=kv_cache,
        time=time,
        variance=mean(bin_.variance, difference**2 * weight / total),
    )


def _solve(
    bins: list[tuple[StepBin, float]],
) -> tuple[list[tuple[float, ...]], LeastSquares | None]:
    """Return the features of each bin, and the coefficients with the least weighted
    relative squares.
    """
    known = [bin_.kv_cache for bin_, _ in bins if bin_.kv_cache]
    weights = [weight / bin_.seconds**2 for bin_, weight in bins]
    seconds = [bin_.seconds for bin_, _ in bins]
    if len(known) == len(bins) > 3 and max(known) > _KV_SPREAD * min(known):
        columns: list[tuple[float, ...]] = [
            (1.0, b.batch, b.kv_cache or 0.0) for b, _ in bins
        ]
        solution = least_squares(list(zip(columns, seconds, weights, strict=True)))
        if solution is not None and min(solution.coefficients) >= 0:
            return columns, solution
    columns = [(1.0, b.batch) for b, _ in bins]
    return columns, least_squares(list(zip(columns, seconds, weights, strict=True)))


def _scatter(
    line: StepFit,
    columns: list[tuple[float, ...]],
    solution: LeastSquares,
    bins: list[tuple[StepBin, float]],
    squares: float,
) -> float | None:
    """Return the largest relative error of the line at its bins, from the scatter
    within and between them.

    By Student's t at 95 %; ``None`` where too few intervals leave no degree of freedom.
    """
    freedom = math.floor(sum(weight for _, weight in bins)) - len(columns[0])
    if freedom < 1:
        return None
    variance = (
        squares + sum(weight * bin_.variance for bin_, weight in bins)
    ) / freedom
    largest = max(
        solution.variance(features)
        / line.seconds(bin_.batch, bin_.kv_cache or 0.0) ** 2
        for features, (bin_, _) in zip(columns, bins, strict=True)
    )
    return t_quantile(freedom) * math.sqrt(variance * largest)


class LeastSquares(Struct, frozen=True):
    """Coefficients with the least weighted squares, and their covariance where
    residuals vary by 1.
    """

    coefficients: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]

    def variance(self, direction: Sequence[float]) -> float:
        """Return the variance of the coefficients' sum, weighted by `direction`."""
        pairs = product(enumerate(direction), repeat=2)
        return max(
            0.0,
            sum(one * other * self.covariance[i][j] for (i, one), (j, other) in pairs),
        )


def least_squares(
    rows: Sequence[tuple[tuple[float, ...], float, float]],
) -> LeastSquares | None:
    """Return the coefficients with the least weighted squares, ``None`` if the features
    are collinear.

    A row has features, value and weight of an observation; for relative errors, the
    weight is 1 / scale².
    """
    size = len(rows[0][0])
    scale = [max(abs(row[0][i]) for row in rows) or 1.0 for i in range(size)]
    # The normal matrix, the right side, and the unit matrix, which becomes the inverse.
    matrix = [
        [0.0] * (size + 1) + [float(i == j) for j in range(size)] for i in range(size)
    ]
    for features, value, weight in rows:
        scaled = [feature / unit for feature, unit in zip(features, scale, strict=True)]
        for i in range(size):
            for j in range(size):
                matrix[i][j] += weight * scaled[i] * scaled[j]
            matrix[i][size] += weight * scaled[i] * value
    largest = max(1e-300, *(abs(matrix[i][i]) for i in range(size)))
    for i in range(size):
        pivot = max(range(i, size), key=lambda row: abs(matrix[row][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        if abs(matrix[i][i]) < 1e-12 * largest:
            return None
        matrix[i] = [value / matrix[i][i] for value in matrix[i]]
        for row in range(size):
            if row != i:
                factor = matrix[row][i]
                matrix[row] = [
                    a - factor * b for a, b in zip(matrix[row], matrix[i], strict=True)
                ]
    return LeastSquares(
        tuple(matrix[i][size] / scale[i] for i in range(size)),
        tuple(
            tuple(matrix[i][size + 1 + j] / scale[i] / scale[j] for j in range(size))
            for i in range(size)
        ),
    )
