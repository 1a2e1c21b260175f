"""Single requests on the status page: who gains and who loses, by temperature and type, and who told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...requests.observation import RecordState
from ...requests.result import RequestsVerdict, is_problem, requests_verdict
from ..markup import (
    Html,
    bar,
    count,
    element,
    facts,
    join,
    length,
    name,
    none,
    percent,
    pill,
    row,
    section,
    table,
    times,
)
from ..request_report import FLAG
from .request_panels import NO_TOKENS, OF_ALL, PANELS, or_none, worst
from .summary import finding_list, notice

if TYPE_CHECKING:
    from ...judgement.findings import Finding
    from ...requests.result import GroupWindow, ModelRequests, RequestsResult

_FEW = "too few requests to be judged"


def requests(result: RequestsResult, now: float) -> Html:
    """Return all that is known of single requests.

    Args:
        result: what to show.
        now: Unix time of the rendering.
    """
    heading = element("h2", "Single requests", id="requests")
    models = (
        _model(found, f"requests-{place}", now)
        for place, found in enumerate(result.models)
        if found.window_requests
    )
    return element(
        "section",
        element("div", heading, facts(_observed(result)), class_="server"),
        _unrecorded(result),
        *map(_notice, result.findings),
        *models,
        _sources(result),
        class_="target",
        aria_labelledby="requests",
    )


def pointer(result: RequestsResult) -> Html:
    """Return a line that leads to the requests of models that have a problem, for the top of the page."""
    lines = [
        element(
            "p",
            element("strong", "Single requests: "),
            pill("problem", requests_verdict(found).value),
            " · ",
            element("a", _title(found), href=f"#requests-{place}"),
        )
        for place, found in enumerate(result.models)
        if is_problem((found,))
    ]
    return element("div", *lines, class_="notice problem") if lines else Html()


def _observed(result: RequestsResult) -> tuple[tuple[str, str], ...]:
    recorded = sum(item.requests for item in result.observations if item.record != RecordState.NONE)
    pairs = [
        ("Observed", count(sum(item.requests for item in result.observations))),
        ("With a record of speculation", count(recorded)),
    ]
    if result.tap is not None:
        pairs.append(("Connections through the tap", count(result.tap.connections)))
    return tuple(pairs)


def _notice(finding: Finding) -> Html:
    return notice(finding.text, element("p", finding.action), kind=finding.severity.value)


def _unrecorded(result: RequestsResult) -> Html:
    """Say what to do where no answer tells of speculation."""
    total = sum(item.requests for item in result.observations)
    if not total:
        title = "No request was observed yet"
        words = join("Requests pass through the tap, or are pushed; none has ended so far.")
    elif all(item.record == RecordState.NONE for item in result.observations if item.requests):
        title = "No answer tells of speculation"
        words = join("Start vLLM (0.29 or newer) with ", element("code", FLAG), ".")
    else:
        return Html()
    return notice(title, element("p", words), kind="hint")


def _title(found: ModelRequests) -> Html:
    return name(found.model_name) if found.model_name else Html("unnamed model")


def _model(found: ModelRequests, anchor: str, now: float) -> Html:
    panels = (show(found, anchor) for show in PANELS)
    return element(
        "article",
        element("div", element("h3", _title(found), id=anchor), class_="head"),
        _answer(found),
        finding_list(found.findings, f"{anchor}-findings"),
        _groups(found, anchor),
        element("div", *panels, class_="panels"),
        worst(found, anchor, now),
        class_=requests_verdict(found).name.lower(),
        aria_labelledby=anchor,
    )


def _answer(found: ModelRequests) -> Html:
    stands, number = requests_verdict(found), count(found.window_requests)
    in_window = f"{number} requests in the last {found.window} had something drafted"
    losing, tokens = found.losing_requests_ratio, found.losing_tokens_ratio
    quantiles = found.acceptance_quantiles
    worst = quantiles.get("0.1")
    others = ", ".join(
        f"P{100 * float(quantile):g} {percent(ratio)}"
        for quantile, ratio in quantiles.items()
        if quantile != "0.1"
    )
    together = found.acceptance_ratio
    words = f"nine in ten requests exceed it; {others}"
    tiles = (
        (
            "Single requests",
            none(_FEW) if stands is RequestsVerdict.UNKNOWN else pill(stands.name.lower(), stands.value),
            element(
                "p", f"{in_window}{', too few to be judged' if stands is RequestsVerdict.UNKNOWN else ''}"
            ),
        ),
        (
            "Acceptance by request, P10",
            none("nothing was drafted") if worst is None else percent(worst),
            join(
                element("p", words if others else "nothing was drafted"),
                element("p", f"{percent(together)} of all drafted tokens together")
                if together is not None
                else Html(),
            ),
        ),
        (
            "Losing requests",
            none("nothing was drafted") if losing is None else percent(losing),
            join(
                element("p", _shares(found)),
                element("p", NO_TOKENS if tokens is None else f"{percent(tokens)} of the generated tokens"),
                bar(losing or 0.0),
            ),
        ),
    )
    return element(
        "dl",
        *(
            element("div", element("dt", title), element("dd", element("p", value, class_="big"), told))
            for title, value, told in tiles
        ),
        class_="answer",
    )


def _shares(found: ModelRequests) -> str:
    gaining = found.gaining_requests_ratio
    return "nothing was drafted" if gaining is None else f"of the requests; {percent(gaining)} gain"


def _groups(found: ModelRequests, anchor: str) -> Html:
    if not found.groups:
        return Html()
    title = "By temperature and type"
    heads = [*("Temperature", "Type", "Requests", "Share", "Outcome", "Accepted", "P10", "P50")]
    heads += ["Tokens per draft", "Losing", "Rejected tokens", "Estimated speedup"]
    content = table(heads, map(_group, found.groups), label=title, class_="numbers groups")
    note = (
        "Outcome by the acceptance of all its requests together; losing is the share of its own requests, "
        "rejected tokens its share of the model's. The speedup is estimated for the present batch."
    )
    note = element("p", note, class_="note")
    return section(title, content, note, anchor=f"{anchor}-groups", note=f"last {found.window}")


def _group(group: GroupWindow) -> Html:
    outcome = none(_FEW)
    if group.judged and group.outcome is not None:
        outcome = pill(group.outcome.value, group.outcome.value.replace("_", " "))
    return row(
        group.temperature,
        (
            name(group.request_type),
            count(group.requests),
            percent(group.requests_ratio),
            outcome,
            or_none(group.acceptance_ratio, percent),
            or_none(group.p10, percent),
            or_none(group.p50, percent),
            or_none(group.mean_acceptance_length, length),
            or_none(group.losing_requests_ratio, percent),
            or_none(group.rejected_ratio, percent, "no drafted token was rejected"),
            or_none(group.estimated_speedup, times, "the batch of the server is not known"),
        ),
    )


def _sources(result: RequestsResult) -> Html:
    """What was observed, by whom, and whose it is."""
    panels = element("div", *(show(result) for show in OF_ALL), class_="panels")
    heading = element("h3", "Sources", id="requests-sources")
    return element(
        "article", element("div", heading, class_="head"), panels, aria_labelledby="requests-sources"
    )
