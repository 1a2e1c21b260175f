"""Requests: which gain by speculation and which lose, by temperature and type."""

from grafana_panels import (
    annotations,
    request_observation,
    request_outcomes,
    request_series,
)
from grafana_panels.dashboard import Dashboard
from grafana_panels.panel import Text

ABOUT = Text(
    content=(
        "Averages hide a losing minority: six requests in ten with 82 % acceptance "
        "and four with 38 % look like a healthy 64 %. vLLM's metrics have no data by "
        "request. To get it, start vLLM (0.29 or later) with "
        "`--per-request-spec-decode-metrics detailed`, and use the exporter's tap "
        "(`--tap.listen-address`) or a gateway that pushes "
        "(`--push.bearer-token-file`). *Lose* and *gain* follow from acceptance, not "
        "from a measurement of speed. Shares and quantiles are over 30 minutes."
    ),
    rows=3,
)
FOLDED = {
    "Acceptance over time": request_outcomes.over_time_panels,
    "Positions": request_outcomes.positions,
    "Mix": request_outcomes.mix,
    "What is observed": request_observation.observed,
    "By tenant": [request_observation.tenants],
}

dashboard = Dashboard(
    uid=request_series.UID,
    title="Requests",
    description=(
        "Which requests gain by speculation and which lose, by temperature and type?"
    ),
    page="requests.md",
    sections=[
        ("", [ABOUT, *request_outcomes.tiles, request_outcomes.kinds]),
        *FOLDED.items(),
    ],
    folded=tuple(FOLDED),
    variables=request_series.of_requests(),
    marks=annotations.marks(),
)
