"""Rows of single requests: by group, tenant and model, and of the tap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .metric import POSITION, SINGLE, Breakdown, Kind, Metric, Scope, by_name, row_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...requests.result import ObservationCount, TapResult
    from .metric import Samples

_RECORD = "metrics.speculative_decoding of answers"

_group_histogram = row_of(Scope.GROUP, Kind.HISTOGRAM)
_group_counter = row_of(Scope.GROUP, Kind.COUNTER)
_tenant_counter = row_of(Scope.TENANT, Kind.COUNTER)
_model_counter = row_of(Scope.MODEL, Kind.COUNTER)
_model = row_of(Scope.MODEL)
_recent = row_of(Scope.RECENT)
_requests_counter = row_of(Scope.REQUESTS, Kind.COUNTER)


def _percentiles(values: Mapping[str, float]) -> Samples:
    return [((f"{100 * float(quantile):g}",), value) for quantile, value in values.items()]


def _observations(counts: Iterable[ObservationCount]) -> Samples:
    return [((item.source, item.record), float(item.requests)) for item in counts]


def _tap(kind: Kind, name: str, text: str, attribute: str, by: Breakdown = SINGLE) -> Metric:
    """Return a row for an attribute of the tap. Without a tap it has no samples."""

    def expand(tap: TapResult | None) -> Samples:
        return () if tap is None else by.expand(getattr(tap, attribute))

    return row_of(Scope.REQUESTS, kind)(name, text, field="tap", by=Breakdown(by.labels, expand))


#: Metrics of single requests.
REQUESTS: tuple[Metric, ...] = (
    _group_histogram(
        "request_acceptance_ratio",
        "Accepted over drafted tokens of each request, 0 to 1.",
        _RECORD,
        field="acceptance_ratio",
    ),
    _group_histogram(
        "request_accepted_tokens_per_draft",
        "Accepted tokens per draft of each request, 0 to K.",
        _RECORD,
        field="accepted_tokens_per_draft",
    ),
    _group_histogram(
        "request_time_to_first_token_seconds",
        "Time from the end of a request to its first token; without streaming only where vLLM tells it.",
        field="time_to_first_token_seconds",
    ),
    _group_histogram(
        "request_time_per_output_token_seconds",
        "Time from the first token to the last, over the tokens after the first; likewise.",
        field="time_per_output_token_seconds",
    ),
    _group_counter(
        "request_outcomes_total",
        "Requests for which something was drafted, by the zone of their acceptance ratio: loses below the "
        "threshold disable_acceptance_ratio, break_even up to break_even_acceptance_ratio, gains above.",
        _RECORD,
        field="outcomes",
        by=by_name("outcome"),
    ),
    _group_counter(
        "request_generation_tokens_total",
        "Generated tokens of these requests, by the same.",
        "usage of answers",
        field="generation_tokens",
        by=by_name("outcome"),
    ),
    _group_counter("request_drafts_total", "Drafts of these requests.", _RECORD, field="drafts"),
    _group_counter(
        "request_draft_tokens_total", "Drafted tokens of these requests.", _RECORD, field="draft_tokens"
    ),
    _group_counter(
        "request_accepted_tokens_total",
        "Accepted tokens of these requests.",
        _RECORD,
        field="accepted_tokens",
    ),
    _model_counter(
        "request_drafted_per_position_total",
        "Drafts that were long enough to have this position, counted from 0.",
        "detailed records",
        field="drafted_per_position",
        by=POSITION,
    ),
    _model_counter(
        "request_accepted_per_position_total",
        "Drafts in which the token at this position was accepted.",
        "detailed records",
        field="accepted_per_position",
        by=POSITION,
    ),
    _recent(
        "request_acceptance_ratio_percentile",
        "Acceptance ratio that this percentage of the requests does not exceed, rounded down to a "
        "thousandth, 0 to 1.",
        _RECORD,
        field="acceptance_quantiles",
        by=Breakdown(("percentile",), _percentiles),
    ),
    _recent("window_requests", "Requests for which something was drafted.", _RECORD),
    _recent(
        "request_losing_ratio", "Share of them that lose, 0 to 1.", _RECORD, field="losing_requests_ratio"
    ),
    _recent(
        "request_gaining_ratio", "Share of them that gain, 0 to 1.", _RECORD, field="gaining_requests_ratio"
    ),
    _recent(
        "request_losing_tokens_ratio",
        "Share of their generated tokens that requests which lose have, 0 to 1.",
        _RECORD,
        field="losing_tokens_ratio",
    ),
    _recent(
        "request_position_acceptance_ratio",
        "Share of the drafts that had this position drafted in which it was accepted, 0 to 1: without the "
        "bias that drafts of varying length give to position_acceptance_ratio.",
        "detailed records",
        field="position_acceptance_ratio",
        by=POSITION,
    ),
    _model(
        "request_workload_mixed",
        "1 if some requests gain and some lose, by the threshold mixed_requests_ratio; absent with too few.",
        _RECORD,
        field="mixed",
    ),
    _tenant_counter(
        "tenant_requests_total",
        "Requests of a tenant for which something was drafted, by outcome.",
        _RECORD,
        field="outcomes",
        by=by_name("outcome"),
    ),
    _tenant_counter(
        "tenant_generation_tokens_total",
        "Generated tokens of these requests, by outcome.",
        "usage of answers",
        field="generation_tokens",
        by=by_name("outcome"),
    ),
    _tenant_counter(
        "tenant_draft_tokens_total", "Drafted tokens of a tenant's requests.", _RECORD, field="draft_tokens"
    ),
    _tenant_counter(
        "tenant_accepted_tokens_total",
        "Accepted tokens of a tenant's requests.",
        _RECORD,
        field="accepted_tokens",
    ),
    _requests_counter(
        "request_observations_total",
        "Observed requests, by who saw them and by what their answers told of speculation.",
        field="observations",
        by=Breakdown(("source", "record"), _observations),
    ),
    _requests_counter("push_rejected_total", "Pushed observations that could not be used."),
    _tap(Kind.GAUGE, "tap_listening", "1 if clients can connect to the tap, else 0.", "listening"),
    _tap(Kind.GAUGE, "tap_open_connections", "Connections through the tap.", "connections"),
    _tap(
        Kind.COUNTER,
        "tap_connections_total",
        "Connections that clients opened to the tap.",
        "connections_total",
    ),
    _tap(
        Kind.COUNTER,
        "tap_requests_total",
        "Requests that passed through the tap while their connection could be followed.",
        "requests_total",
    ),
    _tap(
        Kind.COUNTER,
        "tap_upstream_errors_total",
        "Connections to the server that failed, by reason; their clients got a 502.",
        "upstream_errors_total",
        by_name("reason"),
    ),
    _tap(
        Kind.COUNTER,
        "tap_unobserved_total",
        "Requests for text that passed without an observation while their connection could be followed.",
        "unobserved_total",
        by_name("reason"),
    ),
)
