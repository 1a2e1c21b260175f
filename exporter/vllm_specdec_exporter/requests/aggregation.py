"""The book: every observed request, counted by group since the beginning, and by slices for the window."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..config.values import format_duration
from .findings import Coverage
from .grouping import GroupLimiter
from .judgement import judge
from .observation import RecordState
from .recent_window import RecentWindow
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
from .tally import Positions, Total

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..config.thresholds import Thresholds
    from ..measures.measures import DraftShape
    from .grouping import GroupKey, GroupOverflow
    from .judgement import BatchCost, RequestSettings
    from .observation import Observation, Source

#: How long a judgement is served before it is drawn anew, in seconds: it takes longer than all else here.
_FRESH = 1.0

#: How long a group that no request falls into after a reload is still told of, in seconds from its last one:
#: if the settings are taken back, its counters go on where they were.
LINGER = 3600.0


@dataclass(slots=True)
class _Tenant:
    outcomes: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(Outcome, 0)))
    tokens: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(Outcome, 0)))
    draft_tokens: int = 0
    accepted_tokens: int = 0


class RequestAggregator:
    """Counts requests. What it holds is bounded by the groups there can be, not by requests.

    Args:
        settings: how requests are grouped and judged.
        thresholds: the thresholds in force.
        sources: who may tell of requests; what they told is counted from 0 on.
    """

    def __init__(
        self, settings: RequestSettings, thresholds: Thresholds, sources: Iterable[Source] = ()
    ) -> None:
        self.settings = settings
        self.thresholds = thresholds
        self.push_rejected_total = 0
        self._room = GroupLimiter(settings.classification, settings.temperatures)
        self._coverage = Coverage(settings.window_seconds)
        self._totals: dict[GroupKey, Total] = {}
        self._past: set[GroupKey] = set()  # groups of earlier settings, that no request falls into
        self._tenants: dict[tuple[str, str], _Tenant] = {}
        self._positions: dict[str, Positions] = {}
        self._windows: dict[str, RecentWindow] = {}
        self._observations = Counter(
            {(source.value, state.value): 0 for source in sources for state in RecordState}
        )
        self._judged: tuple[ModelRequests, ...] = ()
        self._judged_at: float | None = None

    def adopt(self, other: RequestAggregator) -> None:
        """Go on from what `other`, the book before a reload, counted.

        Counters go on, for a counter that falls is a restart to Prometheus; those of groups that there are no
        more end `LINGER` after their last request. Histograms whose bounds changed begin anew, and so does
        the window where requests are grouped or judged otherwise.
        """
        self.push_rejected_total = other.push_rejected_total
        self._tenants, self._positions = other._tenants, other._positions
        self._observations.update(other._observations)
        self._totals = other._totals
        for total in self._totals.values():
            total.rebound(self.settings.bounds)
        self._room.follow(other._room, self._totals)
        self._past = {key for key in self._totals if not self._room.has(key)}
        self._windows = other._windows
        otherwise = self._judges_by() != other._judges_by()
        self._coverage.follow(other._coverage, anew=otherwise)
        if otherwise:
            self._windows = {model: RecentWindow(self.settings.window_seconds) for model in other._windows}

    def _judges_by(self) -> tuple[object, ...]:
        settings, types, zones = self.settings, self.settings.classification, self.thresholds
        return (
            settings.window_seconds,
            settings.temperatures,
            types.type_header,
            types.rules,
            zones.disable_acceptance_ratio,
            zones.break_even_acceptance_ratio,
        )

    def add(self, observation: Observation, source: Source, time: float) -> tuple[GroupOverflow, ...]:
        """Count a request that ended at `time`, in seconds of a clock that never goes back.

        Returns:
            What of its names had to become `other`, because there was no room for one more.
        """
        self._observations[(source.value, observation.state.value)] += 1
        key, crowded = self._room.place(observation)
        self._coverage.see(source, crowded, time)
        record = observation.record
        outcome = outcome_of(record.acceptance_ratio, self.thresholds) if record else None
        if key not in self._totals:
            self._totals[key] = Total(self.settings.bounds)
        self._past.discard(key)
        self._totals[key].add(observation, outcome)
        self._totals[key].last = time
        self._count_lately(key, observation, outcome, time)
        return crowded

    def _count_lately(
        self, key: GroupKey, observation: Observation, outcome: Outcome | None, time: float
    ) -> None:
        record = observation.record
        if record is None:
            self._window(key.model_name).add_unrecorded(time)
        if record is None or outcome is None:
            return
        tenant = self.settings.classification.known_tenant(observation.tenant)
        if tenant:
            self._add_tenant(key.model_name, tenant, observation, outcome)
        self._positions.setdefault(key.model_name, Positions()).add(record.steps)
        self._window(key.model_name).add(key, observation, outcome, time)

    def _window(self, model: str) -> RecentWindow:
        if model not in self._windows:
            self._windows[model] = RecentWindow(self.settings.window_seconds)
        return self._windows[model]

    def shapes(self, time: float) -> dict[str, DraftShape]:
        """Return how long the drafts of each model are, in the window at `time`."""
        return {model: window.shape(time) for model, window in self._windows.items()}

    def result(
        self, time: float, loads: Mapping[str, BatchCost], tap: TapResult | None = None
    ) -> RequestsResult:
        """Return all that is known at `time`.

        Args:
            time: in seconds of the clock of `add`.
            loads: what is known of how busy each model is.
            tap: the tap, where there is one.
        """
        self._end_past(time)
        if tap is not None:
            self._coverage.hear(tap, time)
        if self._judged_at is None or not 0 <= time - self._judged_at < _FRESH:
            self._judged = tuple(self._judge(model, time, loads) for model in sorted(self._windows))
            self._judged_at = time
        return RequestsResult(
            observations=tuple(
                ObservationCount(source, record, count)
                for (source, record), count in sorted(self._observations.items())
            ),
            push_rejected_total=self.push_rejected_total,
            groups=tuple(_group(key, total) for key, total in sorted(self._totals.items())),
            tenants=tuple(_tenant(*key, tenant) for key, tenant in sorted(self._tenants.items())),
            models=self._judged,
            tap=tap,
            findings=self._coverage.find(self._window_name, self.thresholds, time),
        )

    @property
    def _window_name(self) -> str:
        return format_duration(self.settings.window_seconds)

    def _end_past(self, time: float) -> None:
        for key in [key for key in self._past if time - self._totals[key].last >= LINGER]:
            self._past.discard(key)
            del self._totals[key]

    def _judge(self, model: str, time: float, loads: Mapping[str, BatchCost]) -> ModelRequests:
        # A model by another name, such as an adapter, is served by the only engine there is.
        load = loads.get(model) or (next(iter(loads.values())) if len(loads) == 1 else None)
        return judge(
            model,
            self._window_name,
            self._windows[model].whole(time),
            self._positions.get(model, Positions()),
            self.thresholds,
            load,
        )

    def _add_tenant(self, model: str, tenant: str, observation: Observation, outcome: Outcome) -> None:
        record = observation.record
        if record is None:
            return
        found = self._tenants.setdefault((model, tenant), _Tenant())
        found.outcomes[outcome] += 1
        found.tokens[outcome] += observation.completion_tokens or 0
        found.draft_tokens += record.draft_tokens
        found.accepted_tokens += record.accepted_tokens


def _group(key: GroupKey, total: Total) -> GroupResult:
    return GroupResult(
        model_name=key.model_name,
        temperature=key.temperature,
        request_type=key.request_type,
        acceptance_ratio=total.acceptance_ratio.observed(),
        accepted_tokens_per_draft=total.accepted_tokens_per_draft.observed(),
        time_to_first_token_seconds=total.time_to_first_token.observed(),
        time_per_output_token_seconds=total.time_per_output_token.observed(),
        outcomes=_by_name(total.outcomes),
        generation_tokens=_by_name(total.tokens),
        drafts=total.drafts,
        draft_tokens=total.draft_tokens,
        accepted_tokens=total.accepted_tokens,
    )


def _tenant(model: str, name: str, tenant: _Tenant) -> TenantResult:
    return TenantResult(
        model_name=model,
        tenant=name,
        outcomes=_by_name(tenant.outcomes),
        generation_tokens=_by_name(tenant.tokens),
        draft_tokens=tenant.draft_tokens,
        accepted_tokens=tenant.accepted_tokens,
    )


def _by_name(counts: Counter[str]) -> dict[str, int]:
    return {str(name): count for name, count in counts.items()}
