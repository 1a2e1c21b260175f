"""Requests: who gains and who loses, by temperature and type of request."""

from __future__ import annotations

from grafana_panels import annotations, links, per_request, request_groups, request_positions, vllm
from grafana_panels import request_sources as sources
from grafana_panels.dashboard import Dashboard
from grafana_panels.panel import Panel, Text, TimeSeries
from grafana_panels.request_groups import QUANTILE_COLORS, QUANTILES
from grafana_panels.target import PromTarget, over_time
from grafana_panels.variables import vllm as vllm_variables
from grafana_panels.vllm import UNSEEN, endings

TENANTS = "Tenants, where a header names them"


def sizes(name: str) -> list[PromTarget]:
    """Return quantiles of one of vLLM's own histograms of tokens per request."""
    return [over_time(vllm.quantile(name, share), legend) for legend, (share, _) in QUANTILES.items()]


top: list[Panel] = [
    Text(
        content=(
            "Averages hide the losing minority: six requests in ten with 82 % acceptance and four with 38 % look like a healthy 64 %. vLLM's own metrics do not tell requests apart. For data by request, start vLLM (0.29 or later) "
            "with `--per-request-spec-decode-metrics detailed`, and let the exporter see the answers: through its tap (`--tap.listen-address`), or from a gateway that pushes (`--push.bearer-token-file`).\n\n"
            "A request *loses* with an acceptance below the threshold `disable_acceptance_ratio`, is at *break-even* up to `break_even_acceptance_ratio`, and *gains* above: that is what its acceptance says, not a measurement of its speed. "
            "*Server* and *Engine* choose among vLLM's own series only. Shares and quantiles are over *Ratios over*, flows over what suits the zoom."
        ),
        rows=4,
    ),
    *request_groups.tiles,
]

by_vllm: list[Panel] = [
    TimeSeries(
        title="Length of answers",
        description=(
            "P10, P50 and P90 of generated tokens per request, from `vllm:request_generation_tokens_bucket`. Short answers gain little by speculation. "
            "If the length changes, end-to-end latency moves without any fault: compare time per output token instead."
        ),
        targets=sizes("request_generation_tokens"),
        unit="short",
        least=0,
        overrides=QUANTILE_COLORS,
        no_value=UNSEEN,
        width=8,
    ),
    TimeSeries(
        title="Length of prompts",
        description=(
            "P10, P50 and P90 of prompt tokens per request, from `vllm:request_prompt_tokens_bucket`. Long prompts help n-gram drafting, which copies from them. "
            "If they get shorter, expect less coverage."
        ),
        targets=sizes("request_prompt_tokens"),
        unit="short",
        least=0,
        overrides=QUANTILE_COLORS,
        no_value=UNSEEN,
        width=8,
    ),
    endings(
        "Requests by how they end",
        (
            "Finished requests a second by reason, from `vllm:request_success_total`: the traffic behind everything above. "
            "Many that end by repetition: high acceptance is no merit then."
        ),
        width=8,
    ),
]

dashboard = Dashboard(
    uid="vllm-specdec-requests",
    title="Requests",
    description="Which requests gain by speculation and which lose, by temperature and type?",
    sections=[
        ("", top),
        ("Which requests gain, and which lose?", request_groups.who),
        ("Where in a draft?", request_positions.along),
        ("What do users feel, and what do they ask for?", request_groups.felt),
        ("Is everything observed?", sources.observed),
        ("What vLLM itself tells of requests", by_vllm),
        (TENANTS, sources.tenants),
    ],
    folded=[TENANTS],
    variables=[*per_request.choices(), *vllm_variables()],
    marks=annotations.usual(),
    links=links.to_all(),
)
