"""Single requests on the status page: verdict, groups, positions and worst requests by
model, and sources.
"""

from ...per_request.acceptance import every_k, position_acceptances
from ...per_request.observation import RECORD_STATES, RecordState
from ...per_request.summary import (
    GroupWindow,
    ModelRequests,
    RequestsResult,
    RequestsVerdict,
    Routing,
    TapResult,
    TenantResult,
    WorstRequest,
    is_problem,
    requests_verdict,
)
from .. import markup as h
from ..markup import Html, element
from ..request_report import FLAG, percentiles, tenant_ratios
from .answer import tile
from .view import finding_list, notice

_FEW = "too few requests to be judged"
_NOTHING = "nothing was drafted"
_NO_TOKENS = "no response has its number of tokens"
_SINCE = "since the exporter started"


def requests_section(result: RequestsResult, now: float) -> Html:
    """Return the section of single requests, rendered at the Unix time `now`."""
    heading = element("h2", "Single requests", id="requests")
    models = (
        _model(model, f"requests-{place}", now)
        for place, model in enumerate(result.models)
        if model.window_requests
    )
    return element(
        "section",
        element("div", heading, h.facts(_observed(result)), class_="server"),
        _unrecorded(result),
        *models,
        _sources(result),
        class_="target",
        aria_labelledby="requests",
    )


def pointer(result: RequestsResult) -> Html:
    """Return links to the models with a problem, for the top of the page; empty if
    there is none.
    """
    lines = [
        element(
            "p",
            element("strong", "Single requests: "),
            h.pill("problem", requests_verdict(model).value),
            " · ",
            element("a", _title(model), href=f"#requests-{place}"),
        )
        for place, model in enumerate(result.models)
        if is_problem((model,))
    ]
    if lines:
        return element("div", *lines, class_="notice problem")
    return Html()


def _observed(result: RequestsResult) -> list[tuple[str, str]]:
    observed = sum(item.requests for item in result.observations)
    recorded = sum(
        item.requests for item in result.observations if item.record != RecordState.NONE
    )
    pairs = [
        ("Observed", h.count(observed)),
        ("With a record of speculation", h.count(recorded)),
    ]
    if result.tap is not None:
        pairs.append(("Connections through the tap", h.count(result.tap.connections)))
    return pairs


def _unrecorded(result: RequestsResult) -> Html:
    """Return what to do if no observation has a record of speculation."""
    total = sum(item.requests for item in result.observations)
    if not total:
        title = "No request was observed yet"
        words = h.join(
            "Requests that pass through the tap, or are pushed, are counted when "
            "they end."
        )
    elif all(
        item.record == RecordState.NONE for item in result.observations if item.requests
    ):
        title = "No response has a record of speculation"
        words = h.join("Start vLLM (0.29 or newer) with ", element("code", FLAG), ".")
    else:
        return Html()
    return notice(title, element("p", words), kind="hint")


def _title(model: ModelRequests) -> Html:
    if model.model_name:
        return h.name(model.model_name)
    return Html("unnamed model")


def _model(model: ModelRequests, anchor: str, now: float) -> Html:
    last = f"last {model.window}"
    panels = (
        _routing(model, f"{anchor}-routing", last),
        _positions(model, f"{anchor}-positions", last),
        _every_k(model, f"{anchor}-k", last),
    )
    return element(
        "article",
        element("div", element("h3", _title(model), id=anchor), class_="head"),
        _answer(model),
        finding_list(model.findings, f"{anchor}-findings"),
        _groups(model, f"{anchor}-groups", last),
        element("div", *panels, class_="panels"),
        _worst(model, f"{anchor}-worst", last, now),
        class_=requests_verdict(model).name.lower(),
        aria_labelledby=anchor,
    )


def _answer(model: ModelRequests) -> Html:
    verdict = requests_verdict(model)
    judged = verdict is not RequestsVerdict.UNKNOWN
    if judged:
        shown = h.pill(verdict.name.lower(), verdict.value)
    else:
        shown = h.none(_FEW)
    words = (
        f"{h.count(model.window_requests)} requests in the last {model.window} had "
        "something drafted"
    )
    first = element("p", words if judged else f"{words}, too few to be judged")

    quantiles = dict(model.acceptance_quantiles)
    p10 = quantiles.pop("0.1", None)
    others = percentiles(quantiles)
    second = element(
        "p", f"nine in ten requests exceed it; {others}" if others else _NOTHING
    )
    if model.acceptance_ratio is not None:
        together = f"{h.percent(model.acceptance_ratio)} of all drafted tokens together"
        second = h.join(second, element("p", together))

    losing = model.losing_requests_ratio
    gaining = model.gaining_requests_ratio
    tokens = model.losing_tokens_ratio
    third = h.join(
        element(
            "p",
            _NOTHING
            if gaining is None
            else f"of the requests; {h.percent(gaining)} gain",
        ),
        element(
            "p",
            _NO_TOKENS
            if tokens is None
            else f"{h.percent(tokens)} of the generated tokens",
        ),
        h.bar(losing or 0.0),
    )
    return element(
        "dl",
        tile("Single requests", shown, first),
        tile("Acceptance by request, P10", h.or_none(p10, h.percent, _NOTHING), second),
        tile("Losing requests", h.or_none(losing, h.percent, _NOTHING), third),
        class_="answer",
    )


def _groups(model: ModelRequests, anchor: str, last: str) -> Html:
    if not model.groups:
        return Html()
    heads = [
        "Temperature",
        "Type",
        "Requests",
        "Share",
        "Outcome",
        "Accepted",
        "P10",
        "P50",
    ]
    heads += ["Tokens per draft", "Losing", "Rejected tokens", "Estimated speedup"]
    below = h.note(
        "Outcome by the acceptance of all its requests together; losing is the share "
        "of its own requests, "
        "rejected tokens its share of the model's. The speedup is estimated for the "
        "present batch."
    )
    rows = map(_group, model.groups)
    title = "By temperature and type"
    return h.table_section(
        title, heads, rows, below, anchor=anchor, beside=last, class_="numbers groups"
    )


def _group(group: GroupWindow) -> Html:
    outcome = h.none(_FEW)
    if group.judged and group.outcome is not None:
        outcome = h.pill(group.outcome.value, group.outcome.value.replace("_", " "))
    return h.row(
        group.temperature,
        (
            h.name(group.request_type),
            h.count(group.requests),
            h.percent(group.requests_ratio),
            outcome,
            h.or_none(group.acceptance_ratio, h.percent, _NOTHING),
            h.or_none(group.p10, h.percent, _NOTHING),
            h.or_none(group.p50, h.percent, _NOTHING),
            h.or_none(group.mean_acceptance_length, h.length, _NOTHING),
            h.or_none(group.losing_requests_ratio, h.percent, _NOTHING),
            h.or_none(group.rejected_ratio, h.percent, "no drafted token was rejected"),
            h.or_none(
                group.estimated_speedup, h.times, "the batch of the server is not known"
            ),
        ),
    )


def _routing(model: ModelRequests, anchor: str, last: str) -> Html:
    routing = model.routing
    if routing is None:
        return Html()
    pairs = (
        ("Requests", _routed(routing)),
        ("Share of the requests", h.percent(routing.requests_ratio)),
        ("Share of the rejected tokens", h.percent(routing.rejected_ratio)),
        ("Acceptance now", h.or_none(routing.acceptance_before, h.percent, _NOTHING)),
        (
            "Acceptance without them",
            h.or_none(routing.acceptance_after, h.percent, _NOTHING),
        ),
        (
            "Their speedup now, estimated",
            h.or_none(routing.speedup, h.times, "the batch is not known"),
        ),
    )
    title = "To send to a server without speculation"
    return h.section(title, h.facts(pairs, "list"), anchor=anchor, beside=last)


def _routed(routing: Routing) -> Html:
    if routing.request_types:
        return h.join("of type ", h.name(", ".join(routing.request_types)))
    return h.join("at temperature ", ", ".join(routing.temperatures))


def _positions(model: ModelRequests, anchor: str, last: str) -> Html:
    title = "Acceptance where drafted"
    every = position_acceptances(model)
    if not every:
        why = h.join(
            "None: no detailed record. Start vLLM with ", element("code", FLAG), "."
        )
        return h.section(
            title, element("p", why, class_="empty"), anchor=anchor, beside=last
        )
    rows = (
        h.row(
            str(place),
            (h.gauge(position.where_drafted), h.gauge(position.of_all_drafts)),
        )
        for place, position in enumerate(every)
    )
    heads = ("Position", "Where drafted", "Of all drafts")
    words = (
        "Counted over all drafts, as on /metrics, a position that is not always "
        "drafted looks worse."
    )
    return h.table_section(
        title, heads, rows, h.note(words), anchor=anchor, beside=last, class_="bars"
    )


def _every_k(model: ModelRequests, anchor: str, last: str) -> Html:
    options = every_k(model)
    if not options:
        return Html()
    rows = (
        h.row(
            str(option.num_speculative_tokens),
            map(
                h.length,
                (
                    option.draft_length,
                    option.acceptance_length - 1,
                    option.acceptance_length,
                ),
            ),
        )
        for option in options
    )
    title = "What a smaller K would have given at least"
    heads = ("K", "Drafted", "Accepted", "Tokens per draft")
    return h.table_section(
        title, heads, rows, anchor=anchor, beside=last, class_="numbers"
    )


def _worst(model: ModelRequests, anchor: str, last: str, now: float) -> Html:
    if not model.worst:
        return Html()
    heads = ["Request", "Ended", "Accepted", "Drafts", "Drafted", "Generated"]
    heads += ["Temperature", "Type", "Time per token"]
    rows = (_request(request, now) for request in model.worst)
    below = h.note("Requests are named as vLLM's own log has them.")
    title = "Requests with the lowest acceptance"
    return h.table_section(
        title, heads, rows, below, anchor=anchor, beside=last, class_="numbers worst"
    )


def _request(request: WorstRequest, now: float) -> Html:
    identifier = element("code", request.request_id)
    return h.row(
        identifier
        if request.request_id
        else h.none("the server did not assign its identifier"),
        (
            h.moment(request.time, now),
            h.percent(request.acceptance_ratio),
            h.count(request.drafts),
            h.count(request.draft_tokens),
            h.or_none(request.completion_tokens, h.count, _NO_TOKENS),
            request.temperature,
            h.name(request.request_type),
            h.or_none(
                request.tpot_seconds,
                h.duration,
                "it did not stream, or has several choices",
            ),
        ),
    )


def _sources(result: RequestsResult) -> Html:
    panels = (_records(result), _tap(result.tap), _tenants(result.tenants))
    heading = element(
        "div", element("h3", "Sources", id="requests-sources"), class_="head"
    )
    return element(
        "article",
        heading,
        element("div", *panels, class_="panels"),
        aria_labelledby="requests-sources",
    )


def _records(result: RequestsResult) -> Html:
    title = "Records of speculation"
    anchor = "requests-records"
    rejected = Html()
    if result.push_rejected_total:
        rejected = h.note(
            f"{h.count(result.push_rejected_total)} pushed observations could not "
            "be used."
        )
    observations = [item for item in result.observations if item.requests]
    if not observations:
        if rejected:
            return h.section(title, rejected, anchor=anchor, beside=_SINCE)
        return Html()
    meanings = {state.value: words for state, words in RECORD_STATES.items()}
    rows = (
        h.row(
            item.source,
            (
                item.record.replace("_", " "),
                h.count(item.requests),
                meanings.get(item.record, ""),
            ),
        )
        for item in observations
    )
    heads = ("Source", "Record", "Requests", "Meaning")
    return h.table_section(
        title, heads, rows, rejected, anchor=anchor, beside=_SINCE, class_="words"
    )


def _tap(tap: TapResult | None) -> Html:
    if tap is None:
        return Html()
    pairs = [
        ("Address", h.name(tap.address)),
        ("Server behind", h.name(tap.upstream)),
        ("Connections open", h.count(tap.connections)),
        ("Connections in total", h.count(tap.connections_total)),
        ("Requests passed on", h.count(tap.requests_total)),
        ("Not observed", h.counts(tap.unobserved_total) or "0"),
        (
            "Failed connections to the server",
            h.counts(tap.upstream_errors_total) or "0",
        ),
    ]
    return h.section(
        "Tap", h.facts(pairs, "list"), anchor="requests-tap", beside=_SINCE
    )


def _tenants(tenants: tuple[TenantResult, ...]) -> Html:
    if not tenants:
        return Html()
    rows = []
    for tenant in tenants:
        total, accepted, losing = tenant_ratios(tenant)
        ratios = (
            h.or_none(accepted, h.percent, _NOTHING),
            h.or_none(losing, h.percent, _NOTHING),
        )
        rows.append(
            h.row(
                h.name(tenant.tenant),
                (h.count(total), *ratios, h.name(tenant.model_name)),
            )
        )
    title = "By tenant"
    heads = ("Tenant", "Requests", "Accepted", "Losing", "Model")
    class_ = "numbers tenants"
    return h.table_section(
        title, heads, rows, anchor="requests-tenants", beside=_SINCE, class_=class_
    )
