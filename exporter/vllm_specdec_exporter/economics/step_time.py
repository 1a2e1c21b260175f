"""A line of the step time over the batch size, learned online.

Intervals between two readings (`step_totals`) are averaged in bins of the batch size,
and a line is fitted through the bins::

    step_seconds(batch, kv_cache) = fixed + per_request * batch
                                    + per_kv_cache * kv_cache

Bins instead of intervals keep the memory bounded and let rare batch sizes count as much
as frequent ones. An old interval loses its weight with `HALF_LIFE`; one that differs
from its bin by more than `OUTLIER` counts as that much. Times come in with the
intervals.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from .least_squares import LeastSquares, least_squares
from .statistics import Z, t_quantile
from .step_totals import StepIncrease

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
#: Weight beyond which more intervals say no more of a batch size: so the usual one does
#: not drown the others.
_MAX_WEIGHT = 20.0
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
    increase: StepIncrease, batch: float | None, kv_cache: float | None
) -> tuple[StepInterval, float] | None:
    """Return the steps between two readings, and the tokens drafted for each request in
    them.

    ``None`` without steps, or if the engine does not print them.
    """
    seconds = increase.mean_step_seconds
    observations = increase.steps.step_observations
    generated = increase.generation_tokens
    drafted = increase.draft_tokens
    if not (seconds and observations and batch and generated) or drafted < 0:
        return None
    prompts = increase.steps.prompt_tokens or 0.0
    interval = StepInterval(
        seconds=seconds,
        batch=batch,
        kv_cache=kv_cache,
        prefill_share=prompts / (prompts + generated),
    )
    return interval, drafted / observations


class StepBin(Struct, frozen=True):
    """Weighted means of the intervals with similar batch sizes."""

    weight: float  # intervals, of which old ones count less
    seconds: float
    batch: float
    kv_cache: float | None
    time: float  # when it got `weight`, in seconds
    variance: float = 0.0  # of the intervals' step times, relative

    def aged(self, time: float) -> float:
        """Return the weight at `time`."""
        return self.weight * math.exp2(-max(0.0, time - self.time) / HALF_LIFE)

    def joined(self, interval: StepInterval, time: float) -> StepBin:
        """Return the bin with an interval that ended at `time`."""
        weight = self.aged(time)
        if weight < _MIN_WEIGHT / 2:
            return new_bin(interval, time)
        total = weight + 1.0

        def mean(past: float, present: float) -> float:
            return (past * weight + present) / total

        bound = OUTLIER * self.seconds
        seconds = max(interval.seconds, self.seconds - bound)
        seconds = min(seconds, self.seconds + bound)
        difference = seconds / self.seconds - 1
        kv_cache = self.kv_cache
        if kv_cache is None:
            kv_cache = interval.kv_cache
        elif interval.kv_cache is not None:
            kv_cache = mean(kv_cache, interval.kv_cache)
        return StepBin(
            weight=total,
            seconds=mean(self.seconds, seconds),
            batch=mean(self.batch, interval.batch),
            kv_cache=kv_cache,
            time=time,
            variance=mean(self.variance, difference**2 * weight / total),
        )


def new_bin(interval: StepInterval, time: float) -> StepBin:
    """Return a bin with this interval alone."""
    return StepBin(
        weight=1.0,
        seconds=interval.seconds,
        batch=interval.batch,
        kv_cache=interval.kv_cache,
        time=time,
    )


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

    def seconds_of(self, bin_: StepBin) -> float:
        """Return the time that the line has for a bin."""
        return self.seconds(bin_.batch, bin_.kv_cache or 0.0)


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
        state = self if drafted == self.k else StepRegression(drafted)
        refused = _why_refused(interval)
        if refused:
            return replace(state, refused=refused)
        number = round(_RESOLUTION * math.log2(interval.batch))
        bins = dict(state.bins)
        if number in bins:
            bins[number] = bins[number].joined(interval, time)
        else:
            bins[number] = new_bin(interval, time)
        added = replace(state, bins=tuple(sorted(bins.items())), refused="")
        # Each of the first intervals, and each new batch size, changes the line.
        settled = sum(bin_.weight for bin_ in bins.values()) >= _YOUNG
        settled = settled and len(bins) == len(state.bins)
        if settled and time - state.line_time < _REFRESH:
            return added
        return replace(added, line=added._fit(time), line_time=time)

    def fit(self, time: float) -> StepFit | str:
        """Return the line through the bins at `time`, or why there is none.

        It is at most about a minute old while intervals come in, and ten minutes while
        none does.
        """
        if self.bins and time - self.line_time < _KEEP:
            return self.line
        return self._fit(time)

    def _fit(self, time: float) -> StepFit | str:
        bins = []
        for _, bin_ in self.bins:
            weight = bin_.aged(time)
            if weight >= _MIN_WEIGHT:
                bins.append(replace(bin_, weight=min(weight, _MAX_WEIGHT)))
        if not bins:
            return self.refused or "no steps observed"
        return _line_through(bins)


def _why_refused(interval: StepInterval) -> str:
    """Return why an interval shows no step time, empty if it does."""
    if interval.prefill_share > PREFILL_SHARE:
        return f"{interval.prefill_share:.0%} of the tokens are prompts"
    if not 0 < interval.seconds < math.inf or not interval.batch >= 1:
        return "no step time in the interval"
    return ""


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


def _line_through(bins: list[StepBin]) -> StepFit | str:
    """Return the line through these bins, or why there is none."""
    smallest = min(bin_.batch for bin_ in bins)
    largest = max(bin_.batch for bin_ in bins)
    if largest < MIN_SPREAD * smallest:
        return f"only batch sizes of {smallest:.1f} to {largest:.1f} observed"
    features, solution = _solve(bins)
    if solution is None:
        return f"batch sizes of {smallest:.1f} to {largest:.1f} show no line"
    # Without one of its own, the KV cache counts as a part of the other coefficients.
    fixed, per_request, per_kv_cache, *_ = (*solution.coefficients, 0.0)
    if per_request < 0:
        return "step time does not rise with the batch"
    if fixed <= 0:
        return "step time rises more steeply than the batch"
    line = StepFit(
        fixed=fixed,
        per_request=per_request,
        per_kv_cache=per_kv_cache,
        error=0.0,
        batches=(smallest, largest),
    )
    squares = sum(
        bin_.weight * (line.seconds_of(bin_) / bin_.seconds - 1) ** 2 for bin_ in bins
    )
    weight = sum(bin_.weight for bin_ in bins)
    deviation = math.sqrt(squares / weight)
    if deviation > MAX_ERROR:
        return f"step times differ by {deviation:.0%} from a line over the batch size"
    freedom = math.floor(weight) - len(solution.coefficients)
    if freedom < 1:
        return "too few intervals to tell how much the step times scatter"
    # The scatter between the bins, and that within them.
    variance = squares + sum(bin_.weight * bin_.variance for bin_ in bins)
    # Of the line at the bin where it is known least.
    line_variance = max(
        solution.variance(row) / line.seconds_of(bin_) ** 2
        for row, bin_ in zip(features, bins, strict=True)
    )
    scatter = t_quantile(freedom) * math.sqrt(variance / freedom * line_variance)
    if scatter > MAX_SCATTER:
        return f"step times scatter: the line is known within {scatter:.0%} only"
    return replace(line, error=math.hypot(scatter, Z * deviation))


def _solve(
    bins: list[StepBin],
) -> tuple[list[tuple[float, ...]], LeastSquares | None]:
    """Return the features of each bin, and the coefficients with the least weighted
    relative squares.
    """
    kv_caches = [bin_.kv_cache or 0.0 for bin_ in bins]
    if len(bins) > 3 and 0 < _KV_SPREAD * min(kv_caches) < max(kv_caches):
        features: list[tuple[float, ...]] = [
            (1.0, bin_.batch, bin_.kv_cache or 0.0) for bin_ in bins
        ]
        solution = _relative_fit(features, bins)
        if solution is not None and min(solution.coefficients) >= 0:
            return features, solution
    features = [(1.0, bin_.batch) for bin_ in bins]
    return features, _relative_fit(features, bins)


def _relative_fit(
    features: list[tuple[float, ...]], bins: list[StepBin]
) -> LeastSquares | None:
    rows = zip(features, bins, strict=True)
    return least_squares(
        [(row, bin_.seconds, bin_.weight / bin_.seconds**2) for row, bin_ in rows]
    )
