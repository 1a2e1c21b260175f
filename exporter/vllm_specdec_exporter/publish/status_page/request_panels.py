"""Panels of single requests on the status page: the numbers behind the answer, and who told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...requests.judgement import every_k, positions
from ...requests.observation import RECORD_STATES, RecordState
from ..markup import (
    Html,
    count,
    duration,
    element,
    facts,
    gauge,
    join,
    length,
    moment,
    name,
    none,
    percent,
    row,
    section,
    table,
    times,
)
from ..request_report import FLAG

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...requests.result import ModelRequests, RequestsResult, Routing, WorstRequest

NO_TOKENS = "no answer told how many tokens it has"


def or_none(value: float | None, form: Callable[[float], str], why: str = "nothing was drafted") -> str:
    """Return a value as it is written, or a dash that says why there is none."""
    return none(why) if value is None else form(value)


def _routing(found: ModelRequests, anchor: str) -> Html:
    routing = found.routing
    if routing is None:
        return Html()
    title = "To send to a server without speculation"
    pairs = (
        ("Requests", _whom(routing)),
        ("Share of the requests", percent(routing.requests_ratio)),
        ("Share of the rejected tokens", percent(routing.rejected_ratio)),
        ("Acceptance now", or_none(routing.acceptance_before, percent)),
        ("Acceptance without them", or_none(routing.acceptance_after, percent)),
        ("Their speedup now, estimated", or_none(routing.speedup, times, "the batch is not known")),
    )
    note = f"last {found.window}"
    return section(title, facts(pairs, "list"), anchor=f"{anchor}-routing", note=note)


def _whom(routing: Routing) -> Html:
    if routing.request_types:
        return join("of type ", name(", ".join(routing.request_types)))
    return join("at temperature ", ", ".join(routing.temperatures))


def _positions(found: ModelRequests, anchor: str) -> Html:
    title, anchor, window = "Acceptance where drafted", f"{anchor}-positions", f"last {found.window}"
    every = positions(found)
    if not every:
        words = join("None: no detailed record. Start vLLM with ", element("code", FLAG), ".")
        return section(title, element("p", words, class_="empty"), anchor=anchor, note=window)
    rows = (
        row(
            str(place),
            (
                gauge(position.where_drafted, percent(position.where_drafted)),
                gauge(position.of_all_drafts, percent(position.of_all_drafts)),
            ),
        )
        for place, position in enumerate(every)
    )
    content = table(("Position", "Where drafted", "Of all drafts"), rows, label=title, class_="bars")
    note = "Counted over all drafts, as on /metrics, a position that is not always drafted looks worse."
    return section(title, content, element("p", note, class_="note"), anchor=anchor, note=window)


def _every_k(found: ModelRequests, anchor: str) -> Html:
    options = every_k(found)
    if not options:
        return Html()
    title = "What a smaller K would have given"
    rows = (
        row(
            str(option.num_speculative_tokens),
            (
                length(option.draft_length),
                length(option.acceptance_length - 1),
                length(option.acceptance_length),
            ),
        )
        for option in options
    )
    heads = ("K", "Drafted", "Accepted", "Tokens per draft")
    content = table(heads, rows, label=title, class_="numbers")
    return section(title, content, anchor=f"{anchor}-k", note=f"last {found.window}")


def worst(found: ModelRequests, anchor: str, now: float) -> Html:
    """Return the requests with the lowest acceptance, across the whole width."""
    if not found.worst:
        return Html()
    title = "Requests with the lowest acceptance"
    heads = ["Request", "Ended", "Accepted", "Drafts", "Drafted", "Generated"]
    heads += ["Temperature", "Type", "Time per token"]
    rows = (_request(request, now) for request in found.worst)
    content = table(heads, rows, label=title, class_="numbers worst")
    note = element("p", "Requests are named as vLLM's own log has them.", class_="note")
    return section(title, content, note, anchor=f"{anchor}-worst", note=f"last {found.window}")


def _request(request: WorstRequest, now: float) -> Html:
    named = (
        element("code", request.request_id)
        if request.request_id
        else none("it has no name that the server made")
    )
    return row(
        named,
        (
            moment(request.time, now),
            percent(request.acceptance_ratio),
            count(request.drafts),
            count(request.draft_tokens),
            or_none(request.completion_tokens, count, NO_TOKENS),
            request.temperature,
            name(request.request_type),
            or_none(request.tpot_seconds, duration, "it did not stream, or not as one answer"),
        ),
    )


def _records(result: RequestsResult) -> Html:
    found = [item for item in result.observations if item.requests]
    if not found and not result.push_rejected_total:
        return Html()
    title = "What answers told"
    rows = (
        row(
            item.source,
            (
                item.record.replace("_", " "),
                count(item.requests),
                RECORD_STATES[RecordState(item.record)] if item.record in set(RecordState) else "",
            ),
        )
        for item in found
    )
    heads = ("Seen by", "Record", "Requests", "Meaning")
    content = table(heads, rows, label=title, class_="words") if found else Html()
    rejected = f"{count(result.push_rejected_total)} pushed observations could not be used."
    note = element("p", rejected, class_="note") if result.push_rejected_total else Html()
    return section(title, content, note, anchor="requests-records", note="since the exporter started")


def _tap(result: RequestsResult) -> Html:
    tap = result.tap
    if tap is None:
        return Html()
    pairs = [
        ("Address", name(tap.address)),
        ("Server behind", name(tap.upstream)),
        ("Connections open", count(tap.connections)),
        ("Connections ever", count(tap.connections_total)),
        ("Requests passed on", count(tap.requests_total)),
        ("Not looked at", _reasons(tap.unobserved_total)),
        ("Server not reached", _reasons(tap.upstream_errors_total)),
    ]
    return section("Tap", facts(pairs, "list"), anchor="requests-tap", note="since the exporter started")


def _reasons(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count(number)}" for reason, number in counts.items() if number) or "0"


def _tenants(result: RequestsResult) -> Html:
    if not result.tenants:
        return Html()
    title = "By tenant"
    rows = []
    for tenant in result.tenants:
        total = sum(tenant.outcomes.values())
        losing = tenant.outcomes.get("loses", 0) / total if total else None
        ratio = tenant.accepted_tokens / tenant.draft_tokens if tenant.draft_tokens else None
        cells = (
            count(total),
            or_none(ratio, percent),
            or_none(losing, percent),
            name(tenant.model_name),
        )
        rows.append(row(name(tenant.tenant), cells))
    heads = ("Tenant", "Requests", "Accepted", "Losing", "Model")
    content = table(heads, rows, label=title, class_="numbers tenants")
    return section(title, content, anchor="requests-tenants", note="since the exporter started")


#: What is shown of a model below its groups, and of all requests, in this order.
PANELS: tuple[Callable[[ModelRequests, str], Html], ...] = (_routing, _positions, _every_k)
OF_ALL: tuple[Callable[[RequestsResult], Html], ...] = (_records, _tap, _tenants)
