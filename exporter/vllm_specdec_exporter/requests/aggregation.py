"""The request aggregator: counts observed requests by group, in total and within the judged window."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import fields
from itertools import accumulate
from typing import TYPE_CHECKING

from ..config.values import format_duration
from ..exposition.histogram import Histogram
from .findings import Coverage
from .grouping import Bounds, GroupLimiter
from .judgement import judge
from .observation import RecordState
from .recent_window import RecentWindow, RequestCounts, StepCounts
from .result import (
    GroupResult,
    ModelRequests,
    ObservationCount,
    Outcome,
    RequestsResult,
    TapResult,
    TenantResult,
    outcome_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..config.thresholds import Thresholds
    from ..measures.measures import DraftShape
    from .grouping import GroupKey, GroupOverflow, RequestSettings
    from .judgement import BatchCost
    from .observation import Observation, Source

#: Lifetime of a cached judgement, in seconds: judging is the slowest part of a result.
_CACHE_SECONDS = 1.0

#: How long the counters of a group are kept that no request falls into after a reload, in seconds since its
#: last request: if the settings are reverted, the counters continue.
LINGER = 3600.0


class HistogramAccumulator:
    """Values counted in the buckets of a histogram with finite, ascending `bounds`."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float | None) -> None:
        """Count a value of at least 0; ``None`` is ignored."""
        if value is None:
            return
        self._counts[bisect_left(self.bounds, value)] += 1
        self._sum += value

    def observed(self) -> Histogram | None:
        """Return the histogram, ``None`` if it is empty, such as the times of a group that never streams."""
        if not any(self._counts):
            return None
        counts = tuple(map(float, accumulate(self._counts)))
        return Histogram(self.bounds, counts[:-1], counts[-1], self._sum)


class GroupTotal:
    """The cumulative counts of a group, and one histogram for each field of `Bounds`."""

    def __init__(self, bounds: Bounds) -> None:
        self.counts = RequestCounts()
        self.histograms: dict[str, HistogramAccumulator] = {}
        self.change_bounds(bounds)
        self.last = 0.0  # when its last request ended, in seconds of the aggregator's clock

    def change_bounds(self, bounds: Bounds) -> None:
        """Reset the histograms whose bounds have changed."""
        for item in fields(Bounds):
            upper, present = getattr(bounds, item.name), self.histograms.get(item.name)
            if present is None or present.bounds != upper:
                self.histograms[item.name] = HistogramAccumulator(upper)

    def add(self, observation: Observation, outcome: Outcome | None) -> None:
        """Count a request; the outcome is ``None`` if nothing was drafted for it."""
        histograms, record = self.histograms, observation.record
        histograms["time_to_first_token"].add(observation.ttft_seconds)
        histograms["time_per_output_token"].add(observation.tpot_seconds)
        if record is not None and outcome is not None:
            histograms["acceptance_ratio"].add(record.acceptance_ratio)
            histograms["accepted_tokens_per_draft"].add(record.accepted_per_draft)
            self.counts.add(record, outcome, observation.completion_tokens or 0)

    def result(self, key: GroupKey) -> GroupResult:
        """Return the counts and histograms."""
        observed = {name: histogram.observed() for name, histogram in self.histograms.items()}
        return GroupResult(
            *key,
            acceptance_ratio=observed["acceptance_ratio"],
            accepted_tokens_per_draft=observed["accepted_tokens_per_draft"],
            time_to_first_token_seconds=observed["time_to_first_token"],
            time_per_output_token_seconds=observed["time_per_output_token"],
            outcomes=_by_name(self.counts.requests),
            generation_tokens=_by_name(self.counts.tokens),
            drafts=self.counts.drafts,
            draft_tokens=self.counts.draft_tokens,
            accepted_tokens=self.counts.accepted_tokens,
        )


def _tenant_result(model: str, tenant: str, counts: RequestCounts) -> TenantResult:
    return TenantResult(
        model_name=model,
        tenant=tenant,
        outcomes=_by_name(counts.requests),
        generation_tokens=_by_name(counts.tokens),
        draft_tokens=counts.draft_tokens,
        accepted_tokens=counts.accepted_tokens,
    )


def _by_name(counts: Counter[Outcome]) -> dict[str, int]:
    return {str(outcome): counts[outcome] for outcome in Outcome}


class RequestAggregator:
    """Counts requests. Its memory is bounded by the number of groups, not by the number of requests.

    The counts of `sources` are exposed from 0 on.
    """

    def __init__(
        self, settings: RequestSettings, thresholds: Thresholds, sources: Iterable[Source] = ()
    ) -> None:
        self.settings = settings
        self.thresholds = thresholds
        self.push_rejected_total = 0
        self._limiter = GroupLimiter(settings.classification, settings.temperatures)
        self._coverage = Coverage(settings.window_seconds)
        self._totals: dict[GroupKey, GroupTotal] = {}
        self._retired: set[GroupKey] = set()  # groups of earlier settings that no request falls into
        self._tenants: dict[tuple[str, str], RequestCounts] = {}
        self._positions: dict[str, StepCounts] = {}
        self._windows: dict[str, RecentWindow] = {}
        self._observations = Counter(
            {(source.value, state.value): 0 for source in sources for state in RecordState}
        )
        self._judged: tuple[ModelRequests, ...] = ()
        self._judged_at: float | None = None

    def adopt(self, other: RequestAggregator) -> None:
        """Continue the counts of `other`, the aggregator before a reload.

        Counters continue, because Prometheus reads a decrease as a restart; those of removed groups end
        `LINGER` after their last request. Histograms with changed bounds are reset, and so is the window if
        requests are grouped or judged differently.
        """
        self.push_rejected_total = other.push_rejected_total
        self._tenants, self._positions = other._tenants, other._positions
        self._observations.update(other._observations)
        self._totals = other._totals
        for total in self._totals.values():
            total.change_bounds(self.settings.bounds)
        self._limiter.adopt(other._limiter, self._totals)
        self._retired = {key for key in self._totals if not self._limiter.has(key)}
        self._windows = other._windows
        changed = self._judgement_settings() != other._judgement_settings()
        self._coverage.adopt(other._coverage, reset=changed)
        if changed:
            self._windows = {model: RecentWindow(self.settings.window_seconds) for model in other._windows}

    def _judgement_settings(self) -> tuple[object, ...]:
        settings, types, limits = self.settings, self.settings.classification, self.thresholds
        groups = settings.window_seconds, settings.temperatures, types.type_header, types.rules
        return *groups, limits.disable_acceptance_ratio, limits.break_even_acceptance_ratio

    def add(self, observation: Observation, source: Source, time: float) -> tuple[GroupOverflow, ...]:
        """Count a request that ended at `time`, in seconds of a monotonic clock.

        Returns its labels that became `other` because a limit is reached.
        """
        self._observations[(source.value, observation.state.value)] += 1
        key, overflow = self._limiter.place(observation)
        self._coverage.add_observed(source, overflow, time)
        record = observation.record
        outcome = outcome_of(record.acceptance_ratio, self.thresholds) if record else None
        if key not in self._totals:
            self._totals[key] = GroupTotal(self.settings.bounds)
        total = self._totals[key]
        self._retired.discard(key)
        total.add(observation, outcome)
        total.last = time
        self._add_recent(key, observation, outcome, time)
        return overflow

    def _add_recent(
        self, key: GroupKey, observation: Observation, outcome: Outcome | None, time: float
    ) -> None:
        model, record = key.model_name, observation.record
        if record is None:
            self._window(model).add_unrecorded(time)
        if record is None or outcome is None:
            return
        tenant = self.settings.classification.known_tenant(observation.tenant)
        if tenant:
            counts = self._tenants.setdefault((model, tenant), RequestCounts())
            counts.add(record, outcome, observation.completion_tokens or 0)
        self._positions.setdefault(model, StepCounts()).add(record.steps)
        self._window(model).add(key, observation, outcome, time)

    def _window(self, model: str) -> RecentWindow:
        if model not in self._windows:
            self._windows[model] = RecentWindow(self.settings.window_seconds)
        return self._windows[model]

    def shapes(self, time: float) -> dict[str, DraftShape]:
        """Return the lengths of each model's drafts in the window at `time`."""
        return {model: window.shape(time) for model, window in self._windows.items()}

    def result(
        self, time: float, loads: Mapping[str, BatchCost], tap: TapResult | None = None
    ) -> RequestsResult:
        """Return the result at `time`, in seconds of the clock of `add`; `loads` are by model, if known."""
        for key in [key for key in self._retired if time - self._totals[key].last >= LINGER]:
            self._retired.discard(key)
            del self._totals[key]
        if tap is not None:
            self._coverage.add_unobserved(tap, time)
        if self._judged_at is None or not 0 <= time - self._judged_at < _CACHE_SECONDS:
            self._judged = tuple(self._judge(model, time, loads) for model in sorted(self._windows))
            self._judged_at = time
        return RequestsResult(
            observations=tuple(ObservationCount(*key, n) for key, n in sorted(self._observations.items())),
            push_rejected_total=self.push_rejected_total,
            groups=tuple(total.result(key) for key, total in sorted(self._totals.items())),
            tenants=tuple(_tenant_result(*key, counts) for key, counts in sorted(self._tenants.items())),
            models=self._judged,
            tap=tap,
            findings=self._coverage.findings(self._window_name, self.thresholds, time),
        )

    @property
    def _window_name(self) -> str:
        return format_duration(self.settings.window_seconds)

    def _judge(self, model: str, time: float, loads: Mapping[str, BatchCost]) -> ModelRequests:
        # A model under another name, such as an adapter, belongs to the engine if there is only one.
        load = loads.get(model) or (next(iter(loads.values())) if len(loads) == 1 else None)
        recent, positions = self._windows[model].whole(time), self._positions.get(model, StepCounts())
        return judge(model, self._window_name, recent, positions, self.thresholds, load)
