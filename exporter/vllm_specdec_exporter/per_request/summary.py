"""Results of single requests, by group and by model. Immutable, and part of the
snapshot.

``None`` means that a value does not exist or is not known.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct, field

from ..config.thresholds import Thresholds

# Imported at run time: msgspec reads the annotations.
from ..exposition.histogram import Histogram
from ..judgement.findings import Finding, Severity


class Outcome(StrEnum):
    """The effect of speculation on a request, by its acceptance ratio: values of the
    label `outcome`.
    """

    LOSES = "loses"
    BREAK_EVEN = "break_even"
    GAINS = "gains"


class GroupResult(Struct, frozen=True):
    """All requests of one group since the exporter started. Cumulative.

    Attributes:
        model_name: the model.
        temperature: the bucket of temperature, such as ``0.5-0.7``.
        request_type: the type of request.
        acceptance_ratio: accepted over drafted tokens of each request, 0 to 1.
        accepted_tokens_per_draft: accepted tokens per draft of each request, 0 to K.
        time_to_first_token_seconds: of streamed requests.
        time_per_output_token_seconds: of streamed requests, without the first token.
        outcomes: requests by `Outcome`.
        generation_tokens: generated tokens of requests by their `Outcome`.
        drafts: drafts of all its requests.
        draft_tokens: drafted tokens of all its requests.
        accepted_tokens: accepted tokens of all its requests.
    """

    model_name: str
    temperature: str
    request_type: str
    acceptance_ratio: Histogram | None = None
    accepted_tokens_per_draft: Histogram | None = None
    time_to_first_token_seconds: Histogram | None = None
    time_per_output_token_seconds: Histogram | None = None
    outcomes: dict[str, int] = field(default_factory=dict)
    generation_tokens: dict[str, int] = field(default_factory=dict)
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0


class TenantResult(Struct, frozen=True):
    """All requests of one tenant since the exporter started; the fields are those of
    `GroupResult`.
    """

    model_name: str
    tenant: str
    outcomes: dict[str, int] = field(default_factory=dict)
    generation_tokens: dict[str, int] = field(default_factory=dict)
    draft_tokens: int = 0
    accepted_tokens: int = 0


class GroupWindow(Struct, frozen=True):
    """One group within the judged window.

    Attributes:
        temperature: the bucket of temperature.
        request_type: the type of request.
        requests: requests for which something was drafted.
        requests_ratio: share of the model's requests.
        acceptance_ratio: accepted over drafted tokens of all its requests together.
        p10: acceptance ratio that nine of ten requests reach.
        p50: acceptance ratio that half of the requests reach.
        mean_acceptance_length: tokens delivered per draft, 1 to 1 + K.
        outcome: by the acceptance ratio of all its requests together.
        losing_requests_ratio: share of its requests that lose.
        rejected_ratio: its share of the model's drafted tokens that were rejected.
        estimated_speedup: at the current batch, by the cost profile; ``None`` if the
            batch is not known.
        judged: whether it has enough requests to be judged.
    """

    temperature: str
    request_type: str
    requests: int = 0
    requests_ratio: float = 0.0
    acceptance_ratio: float | None = None
    p10: float | None = None
    p50: float | None = None
    mean_acceptance_length: float | None = None
    outcome: Outcome | None = None
    losing_requests_ratio: float | None = None
    rejected_ratio: float | None = None
    estimated_speedup: float | None = None
    judged: bool = False


class Routing(Struct, frozen=True):
    """Which requests to send to a server without speculation, and the effect.

    Attributes:
        request_types: types of which every judged group loses; never `other`.
        temperatures: temperature buckets of which every judged group loses; empty if
            there are types.
        requests_ratio: share of the model's requests.
        rejected_ratio: their share of the model's rejected drafted tokens.
        acceptance_before: accepted over drafted tokens of all requests now.
        acceptance_after: the same without the routed requests.
        speedup: of the routed requests at the current batch, by the cost profile;
            ``None`` if not known.
    """

    request_types: tuple[str, ...] = ()
    temperatures: tuple[str, ...] = ()
    requests_ratio: float = 0.0
    rejected_ratio: float = 0.0
    acceptance_before: float | None = None
    acceptance_after: float | None = None
    speedup: float | None = None


class WorstRequest(Struct, frozen=True):
    """One of the losing requests with the lowest acceptance ratio; without its content.

    Attributes:
        time: Unix time of its end, in seconds.
        request_id: the server's identifier, for its logs; empty if the server did not
            generate it.
        temperature: the bucket of temperature.
        request_type: the type of request.
        acceptance_ratio: accepted over drafted tokens.
        drafts: its drafts.
        draft_tokens: its drafted tokens.
        completion_tokens: generated tokens, if known.
        tpot_seconds: time per output token, if known.
    """

    time: float
    request_id: str
    temperature: str
    request_type: str
    acceptance_ratio: float
    drafts: int
    draft_tokens: int
    completion_tokens: int | None = None
    tpot_seconds: float | None = None


class ModelRequests(Struct, frozen=True):
    """The requests of one model.

    Attributes:
        model_name: the model.
        window: the name of the judged window, such as ``30m``; empty for all requests
            of a file.
        window_requests: requests in it for which something was drafted.
        window_unrecorded_requests: requests in it whose responses had no record.
        acceptance_quantiles: acceptance ratio by request, rounded down to a thousandth,
            by quantile (``0.1``, ``0.5``, ``0.9``); empty without requests.
        acceptance_ratio: accepted over drafted tokens of all requests together, as in
            `/metrics`.
        losing_requests_ratio: share of the requests that lose.
        losing_tokens_ratio: share of the generated tokens of requests that lose.
        gaining_requests_ratio: share of the requests that gain.
        mixed: whether many gain and many lose, so that no mean describes them; ``None``
            with too few.
        position_acceptance_ratio: at index i, the share of the drafts that had position
            i drafted in which it was accepted; from detailed records only.
        mean_draft_length_at: at index i, the mean tokens per draft with K = i + 1; the
            same.
        drafted_per_position: cumulative: at index i, drafts that had position i
            drafted.
        accepted_per_position: cumulative: at index i, drafts that had position i
            accepted.
        groups: within the window, those with most requests first.
        findings: what is wrong and what to do about it.
        routing: which requests to send elsewhere, if any.
        worst: the losing requests of the window with the lowest acceptance, the worst
            first.
    """

    model_name: str
    window: str
    window_requests: int = 0
    window_unrecorded_requests: int = 0
    acceptance_quantiles: dict[str, float] = field(default_factory=dict)
    acceptance_ratio: float | None = None
    losing_requests_ratio: float | None = None
    losing_tokens_ratio: float | None = None
    gaining_requests_ratio: float | None = None
    mixed: bool | None = None
    position_acceptance_ratio: tuple[float | None, ...] = ()
    mean_draft_length_at: tuple[float, ...] = ()
    drafted_per_position: tuple[int, ...] = ()
    accepted_per_position: tuple[int, ...] = ()
    groups: tuple[GroupWindow, ...] = ()
    findings: tuple[Finding, ...] = ()
    routing: Routing | None = None
    worst: tuple[WorstRequest, ...] = ()


class TapResult(Struct, frozen=True):
    """The state of the tap. Counts are cumulative.

    Attributes:
        address: where it listens.
        upstream: the server behind it, without secrets.
        listening: whether clients can connect.
        connections: open connections.
        connections_total: opened connections.
        requests_total: requests on connections that could be followed.
        upstream_errors_total: connections to the server that failed, by reason.
        unobserved_total: requests for text that passed without an observation, by
            reason.
    """

    address: str = ""
    upstream: str = ""
    listening: bool = False
    connections: int = 0
    connections_total: int = 0
    requests_total: int = 0
    upstream_errors_total: dict[str, int] = field(default_factory=dict)
    unobserved_total: dict[str, int] = field(default_factory=dict)


class ObservationCount(Struct, frozen=True):
    """Observed requests of a source, by the record of their responses. Cumulative."""

    source: str
    record: str
    requests: int


class RequestsResult(Struct, frozen=True):
    """The results of single requests.

    Attributes:
        observations: observed requests by source and record.
        push_rejected_total: invalid observations in pushes. Cumulative.
        groups: requests by model, temperature and type. Cumulative.
        tenants: requests by tenant. Cumulative.
        models: requests by model, judged.
        tap: the tap, if configured.
    """

    observations: tuple[ObservationCount, ...] = ()
    push_rejected_total: int = 0
    groups: tuple[GroupResult, ...] = ()
    tenants: tuple[TenantResult, ...] = ()
    models: tuple[ModelRequests, ...] = ()
    tap: TapResult | None = None


def outcome_of(
    acceptance_ratio: float | None, thresholds: Thresholds
) -> Outcome | None:
    """Return the outcome of an acceptance ratio, ``None`` without one."""
    if acceptance_ratio is None:
        return None
    if acceptance_ratio < thresholds.disable_acceptance_ratio:
        return Outcome.LOSES
    if acceptance_ratio <= thresholds.break_even_acceptance_ratio:
        return Outcome.BREAK_EVEN
    return Outcome.GAINS


#: Share of requests that determines the verdict.
_MAJORITY = 0.5


class RequestsVerdict(StrEnum):
    """The verdict on the requests of a model."""

    MIXED = "mixed"
    LOSING = "losing"
    PARTLY_LOSING = "partly losing"
    BREAK_EVEN = "near break-even"
    GAINING = "gaining"
    UNKNOWN = "unknown"


def requests_verdict(requests: ModelRequests) -> RequestsVerdict:
    """Return the verdict on the requests of a model; unknown with too few of them."""
    losing = requests.losing_requests_ratio
    gaining = requests.gaining_requests_ratio
    if requests.mixed is None or losing is None or gaining is None:
        return RequestsVerdict.UNKNOWN
    if requests.mixed:
        return RequestsVerdict.MIXED
    if losing >= _MAJORITY:
        return RequestsVerdict.LOSING
    if is_problem((requests,)):
        return RequestsVerdict.PARTLY_LOSING
    if gaining >= _MAJORITY:
        return RequestsVerdict.GAINING
    return RequestsVerdict.BREAK_EVEN


def is_problem(models: Iterable[ModelRequests]) -> bool:
    """Return whether any of these models has a problem among its findings."""
    return any(
        finding.severity is Severity.PROBLEM
        for model in models
        for finding in model.findings
    )
