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
            "Averages hide a losing minority: six requests in ten with 82 % acceptance and four with 38 % appear as a healthy 64 %. vLLM's own metrics have no data by request. To get it, start vLLM (0.29 or later) "
            "with `--per-request-spec-decode-metrics detailed`, and use the exporter's tap (`--tap.listen-address`) or a gateway that pushes (`--push.bearer-token-file`).\n\n"
            "A request *loses* with an acceptance below the threshold `disable_acceptance_ratio`, is at *break-even* up to `break_even_acceptance_ratio`, and *gains* above. This follows from acceptance, not from a measurement of speed. "
            "*Server* and *Engine* filter only vLLM's own series. Shares and quantiles are over *Ratios over*, rates over an interval that suits the zoom."
        ),
        rows=4,
    ),
    *request_groups.tiles,
]

by_vllm: list[Panel] = [
    TimeSeries(
        title="Length of answers",
        description=(
            "P10, P50 and P90 of generated tokens per request, from `vllm:request_generation_tokens_bucket`. "
            "Short answers gain little. If the length changes, so does end-to-end latency, without any fault: "
            "compare time per output token instead."
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
            "P10, P50 and P90 of prompt tokens per request, from `vllm:request_prompt_tokens_bucket`. N-gram "
            "drafting copies from the prompt, so long prompts help. If they get shorter, expect less coverage."
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
            "Finished requests per second by reason, from `vllm:request_success_total`. If many end by "
            "repetition, high acceptance means little."
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
        ("Latency and mix of requests", request_groups.felt),
        ("Is everything observed?", sources.observed),
        ("Requests in vLLM's own metrics", by_vllm),
        (TENANTS, sources.tenants),
    ],
    folded=[TENANTS],
    variables=[*per_request.choices(), *vllm_variables()],
    marks=annotations.usual(),
    links=links.to_all(),
)
