"""The request aggregator: counts observed requests by group, in total and within the
judged window.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ..config.thresholds import Thresholds
from ..config.values import format_duration
from ..exposition.histogram import HistogramAccumulator
from ..measures.measures import DraftShape
from .acceptance import BatchCost, summarise
from .grouping import BOUNDS, GroupKey, GroupLimiter, GroupOverflow, RequestSettings
from .observation import Observation, RecordState, Source
from .recent_window import RecentWindow, RequestCounts
from .summary import (
    GroupResult,
    ModelRequests,
    ObservationCount,
    Outcome,
    RequestsResult,
    TapResult,
    TenantResult,
    outcome_of,
)

#: Lifetime of the cached numbers of models, in seconds: they are the slowest part of a
#: result.
_CACHE_SECONDS = 1.0


class GroupTotal:
    """The cumulative counts of a group, and a histogram for each of `BOUNDS` that has
    values.
    """

    def __init__(self) -> None:
        self.counts = RequestCounts()
        self.histograms: dict[str, HistogramAccumulator] = {}

    def add(self, observation: Observation, outcome: Outcome | None) -> None:
        """Count a request; the outcome is ``None`` if nothing was drafted for it."""
        record = observation.record
        values = {
            "time_to_first_token_seconds": observation.ttft_seconds,
            "time_per_output_token_seconds": observation.tpot_seconds,
        }
        if record is not None and outcome is not None:
            values["acceptance_ratio"] = record.acceptance_ratio
            values["accepted_tokens_per_draft"] = record.accepted_per_draft
            self.counts.add(record, outcome, observation.completion_tokens or 0)
        for name, value in values.items():
            if value is not None:
                self.histograms.setdefault(
                    name, HistogramAccumulator(BOUNDS[name])
                ).add(value)

    def result(self, key: GroupKey) -> GroupResult:
        """Return the counts and histograms."""
        histograms: dict[str, Any] = {
            name: accumulator.histogram()
            for name, accumulator in self.histograms.items()
        }
        return GroupResult(
            *key,
            **histograms,
            outcomes=_by_name(self.counts.requests),
            generation_tokens=_by_name(self.counts.tokens),
            drafts=self.counts.drafts,
            draft_tokens=self.counts.draft_tokens,
            accepted_tokens=self.counts.accepted_tokens,
        )


def _by_name(counts: Counter[Outcome]) -> dict[str, int]:
    return {str(outcome): counts[outcome] for outcome in Outcome}


def _tenant_result(model: str, tenant: str, counts: RequestCounts) -> TenantResult:
    return TenantResult(
        model_name=model,
        tenant=tenant,
        outcomes=_by_name(counts.requests),
        generation_tokens=_by_name(counts.tokens),
        draft_tokens=counts.draft_tokens,
        accepted_tokens=counts.accepted_tokens,
    )


class RequestAggregator:
    """Counts requests. Its memory is bounded by the number of groups, not by the number
    of requests.

    The counts of `sources` are exposed from 0 on.
    """

    def __init__(
        self,
        settings: RequestSettings,
        thresholds: Thresholds,
        sources: Iterable[Source] = (),
    ) -> None:
        self.settings = settings
        self.thresholds = thresholds
        self.push_rejected_total = 0
        self._limiter = GroupLimiter(settings.classification, settings.temperatures)
        self._totals: defaultdict[GroupKey, GroupTotal] = defaultdict(GroupTotal)
        #: By model and tenant.
        self._tenants: defaultdict[tuple[str, str], RequestCounts] = defaultdict(
            RequestCounts
        )
        self._windows: dict[str, RecentWindow] = {}
        self._observations = Counter(
            {
                (source.value, state.value): 0
                for source in sources
                for state in RecordState
            }
        )
        self._models: tuple[ModelRequests, ...] = ()
        self._summarised_at: float | None = None

    def adopt(self, predecessor: RequestAggregator) -> None:
        """Continue the counts of `predecessor`, the aggregator before a reload.

        If requests are grouped differently or their outcomes are, the counts of groups,
        tenants and models start anew, as they do at a restart of the exporter.
        """
        self.push_rejected_total = predecessor.push_rejected_total
        self._observations.update(predecessor._observations)
        if (self.settings, self._zones) == (predecessor.settings, predecessor._zones):
            self._limiter = predecessor._limiter
            self._totals = predecessor._totals
            self._tenants = predecessor._tenants
            self._windows = predecessor._windows

    @property
    def _zones(self) -> tuple[float, float]:
        return (
            self.thresholds.disable_acceptance_ratio,
            self.thresholds.break_even_acceptance_ratio,
        )

    def add(
        self, observation: Observation, source: Source, time: float
    ) -> tuple[GroupOverflow, ...]:
        """Count a request that ended at `time`, in seconds of a monotonic clock.

        Returns its labels that became `other` because a limit is reached.
        """
        self._observations[(source.value, observation.state.value)] += 1
        key, overflow = self._limiter.place(observation)
        model = key.model_name
        record = observation.record
        outcome = None
        if record is not None:
            # A gain is of the tokens that reached the answer.
            delivered = record.delivered_tokens(observation.completion_tokens)
            if record.draft_tokens:
                ratio = delivered / record.draft_tokens
                outcome = outcome_of(ratio, self.thresholds)
        self._totals[key].add(observation, outcome)
        if record is None:
            self._window(model).add_unrecorded(time)
        elif outcome is not None:
            self._window(model).add(key, observation, outcome, time)
            tenant = self.settings.classification.known_tenant(observation.tenant)
            if tenant:
                tokens = observation.completion_tokens or 0
                self._tenants[(model, tenant)].add(record, outcome, tokens)
        return overflow

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
        """Return the result at `time`, in seconds of the clock of `add`; `loads` are by
        model, if known.
        """
        if (
            self._summarised_at is None
            or not 0 <= time - self._summarised_at < _CACHE_SECONDS
        ):
            self._models = tuple(
                self._summarise(model, time, loads) for model in sorted(self._windows)
            )
            self._summarised_at = time
        return RequestsResult(
            observations=tuple(
                ObservationCount(*key, n)
                for key, n in sorted(self._observations.items())
            ),
            push_rejected_total=self.push_rejected_total,
            groups=tuple(
                total.result(key) for key, total in sorted(self._totals.items())
            ),
            tenants=tuple(
                _tenant_result(*key, counts)
                for key, counts in sorted(self._tenants.items())
            ),
            models=self._models,
            tap=tap,
        )

    def _summarise(
        self, model: str, time: float, loads: Mapping[str, BatchCost]
    ) -> ModelRequests:
        # A model under another name, such as an adapter, belongs to the engine if there
        # is only one.
        load = loads.get(model)
        if load is None and len(loads) == 1:
            (load,) = loads.values()
        window = self._windows[model]
        seconds = self.settings.window_seconds
        name = format_duration(seconds) if math.isfinite(seconds) else ""
        return summarise(
            model,
            window=name,
            recent=window.whole(time),
            positions=window.since_start,
            thresholds=self.thresholds,
            load=load,
        )
