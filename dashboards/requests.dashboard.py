"""Requests: who gains and who loses, by temperature and type of request."""

from __future__ import annotations

from grafana_panels import annotations, links, variables, vllm
from grafana_panels.dashboard import Dashboard
from grafana_panels.field import LIMIT, colored, fixed, limits, words
from grafana_panels.palette import BLUE, GREY, ORANGE, SKY, VERMILION
from grafana_panels.panel import BarGauge, Heatmap, Panel, Stat, Text, TimeSeries
from grafana_panels.per_request import (
    ACCEPTANCE,
    OUTCOMES,
    REQUESTS,
    SELECT,
    TEMPERATURE,
    TOKENS,
    TPOT,
    TTFT,
    TYPE,
    counted,
    quantile,
)
from grafana_panels.promql import INTERVAL, renamed, threshold
from grafana_panels.target import PromTarget, buckets, now, over_time
from grafana_panels.tiles import RATIO
from grafana_panels.vllm import UNSEEN, endings

ABSENT = "no per-request data"
PERCENTS = {"P90": (0.9, SKY), "P50": (0.5, BLUE), "P10": (0.1, ORANGE)}
#: What becomes of requests: good, indifferent, bad.
COLORS = {"gains": BLUE, "break-even": SKY, "loses": ORANGE}


def by_outcome(name: str) -> str:
    """Return a per-request counter by outcome, in words."""
    return renamed(counted(name, "outcome"), "outcome", OUTCOMES)


def sizes(name: str) -> list[PromTarget]:
    """Return quantiles of one of vLLM's own histograms of tokens per request."""
    return [over_time(vllm.quantile(name, share), legend) for legend, (share, _) in PERCENTS.items()]


top: list[Panel] = [
    Text(
        content=(
            "Averages hide the losing minority. vLLM's own metrics do not tell requests apart, so the upper part of this page is empty until per-request data comes in: "
            "the first tile says whether it does. The lower part is what vLLM tells of requests by itself."
        )
    ),
    Stat(
        title="Is there per-request data?",
        description=(
            "Whether series by request come in (`vllm_specdec_request_acceptance_ratio_count`). If not, the panels of this section stay empty, "
            "and the other dashboards show means over all requests: see those."
        ),
        targets=[
            now(f"(count({ACCEPTANCE}_count{{{SELECT}}}) > bool 0) or vector(0)", "per-request data"),
        ],
        mappings=words({0: ("NO: means only", GREY), 1: ("▲ YES", BLUE)}),
        background=True,
        no_value="NO: means only",
        width=6,
    ),
    Stat(
        title="Share of the tokens that lose",
        description=(
            "Generated tokens of requests for which speculation was slower than none, of all, from `vllm_specdec_request_generation_tokens_total`. "
            "A large share while the mean looks healthy: route these types of request to a server without speculation."
        ),
        targets=[now(f"{counted(TOKENS, outcome='loses')} / ({counted(TOKENS)} > 0)", "lose")],
        **RATIO,
        no_value=ABSENT,
        width=6,
    ),
    Stat(
        title="P10 of acceptance by request",
        description=(
            "The acceptance rate that nine of ten requests exceed, from `vllm_specdec_request_acceptance_ratio_bucket`. Below a half while the mean is healthy: "
            "two kinds of traffic are mixed, see below which."
        ),
        targets=[now(quantile(ACCEPTANCE, 0.1), "P10")],
        **RATIO,
        no_value=ABSENT,
        width=6,
    ),
    Stat(
        title="Requests with data",
        description=(
            "Finished requests a second that per-request series cover, from `vllm_specdec_request_outcomes_total`. If vLLM finishes far more (below), "
            "some traffic is not observed."
        ),
        targets=[now(counted(REQUESTS), "requests")],
        unit="reqps",
        decimals=1,
        no_value=ABSENT,
        width=6,
    ),
]

who: list[Panel] = [
    BarGauge(
        title="Acceptance by temperature",
        description=(
            "Median acceptance rate of requests in each bucket of temperature, from `vllm_specdec_request_acceptance_ratio_bucket`. It falls as temperature rises; "
            "where it falls below what pays, route hot requests elsewhere, or lower K."
        ),
        targets=[now(f"sort_desc({quantile(ACCEPTANCE, 0.5, TEMPERATURE)})", "{{temperature}}")],
        **RATIO,
        color=fixed(BLUE),
        no_value=ABSENT,
        width=6,
        rows=9,
    ),
    BarGauge(
        title="Acceptance by type of request",
        description=(
            "Median acceptance rate of requests of each type, from `vllm_specdec_request_acceptance_ratio_bucket`. Code and extraction accept much, creative text little; "
            "give the losing types a server without speculation."
        ),
        targets=[now(f"sort_desc({quantile(ACCEPTANCE, 0.5, TYPE)})", "{{request_type}}")],
        **RATIO,
        color=fixed(BLUE),
        no_value=ABSENT,
        width=6,
        rows=9,
    ),
    Heatmap(
        title="Acceptance of requests",
        description=(
            "How many requests had which acceptance rate, from `vllm_specdec_request_acceptance_ratio_bucket`. Two bands are two kinds of traffic: "
            "the mean between them describes neither, so look at the bars beside it."
        ),
        targets=[buckets(f"sum by (le) (increase({ACCEPTANCE}_bucket{{{SELECT}}}[{INTERVAL}]))")],
        unit="short",
        label="acceptance",
        no_value=ABSENT,
        width=12,
        rows=9,
    ),
    TimeSeries(
        title="Quantiles of acceptance by request",
        description=(
            "P10, P50 and P90 of the acceptance rate of requests, from `vllm_specdec_request_acceptance_ratio_bucket`; dashed the threshold of poor acceptance. "
            "Lines that spread while P50 stays: a losing minority grows."
        ),
        targets=[
            *(over_time(quantile(ACCEPTANCE, share), name) for name, (share, _) in PERCENTS.items()),
            over_time(
                f"{threshold('poor_acceptance_ratio')} and on () count({ACCEPTANCE}_count{{{SELECT}}})",
                LIMIT + "poor below",
            ),
        ],
        **RATIO,
        overrides=[
            *colored({name: color for name, (_, color) in PERCENTS.items()}),
            limits(VERMILION),
        ],
        no_value=ABSENT,
        width=8,
    ),
    TimeSeries(
        title="Who gains, who loses?",
        description=(
            "Generated tokens a second by what speculation did to their request, from `vllm_specdec_request_generation_tokens_total`. "
            "If the losing part grows: see which temperature or type it is, and route it."
        ),
        targets=[over_time(by_outcome(TOKENS), "{{outcome}}")],
        unit="suffix:tokens/s",
        decimals=0,
        least=0,
        fill=25,
        stack=True,
        overrides=colored(COLORS),
        no_value=ABSENT,
        width=8,
    ),
    TimeSeries(
        title="Time per output token by type",
        description=(
            "P95 of the time per output token of each type of request, from `vllm_specdec_request_time_per_output_token_seconds_bucket`. "
            "A type above the others loses by speculation or by its length: compare its acceptance."
        ),
        targets=[over_time(quantile(TPOT, 0.95, TYPE), "{{request_type}}")],
        unit="s",
        least=0,
        no_value=ABSENT,
        width=8,
    ),
    TimeSeries(
        title="Time to first token by type",
        description=(
            "P95 of the time to first token of each type of request, from `vllm_specdec_request_time_to_first_token_seconds_bucket`. "
            "Long prompts make it long; if it grows for all, the server is full."
        ),
        targets=[over_time(quantile(TTFT, 0.95, TYPE), "{{request_type}}")],
        unit="s",
        least=0,
        no_value=ABSENT,
        width=8,
    ),
    TimeSeries(
        title="Requests by temperature",
        description=(
            "Finished requests a second by bucket of temperature, from `vllm_specdec_request_outcomes_total`. A shift to hotter requests explains a fall of acceptance "
            "that no release explains: nothing is broken then, but K may be too large."
        ),
        targets=[over_time(counted(REQUESTS, TEMPERATURE), "{{temperature}}")],
        unit="reqps",
        least=0,
        stack=True,
        fill=25,
        no_value=ABSENT,
        width=8,
    ),
    TimeSeries(
        title="Requests by type",
        description=(
            "Finished requests a second by type, from `vllm_specdec_request_outcomes_total`. A shift of types explains a change of acceptance "
            "better than a release does: tune K for the mix that you have."
        ),
        targets=[over_time(counted(REQUESTS, TYPE), "{{request_type}}")],
        unit="reqps",
        least=0,
        stack=True,
        fill=25,
        no_value=ABSENT,
        width=8,
    ),
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
        overrides=colored({name: color for name, (_, color) in PERCENTS.items()}),
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
        overrides=colored({name: color for name, (_, color) in PERCENTS.items()}),
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
        ("Which requests gain, and which lose?", who),
        ("What vLLM itself tells of requests", by_vllm),
    ],
    variables=[*variables.usual(windowed=False), *variables.vllm()],
    marks=annotations.usual(),
    links=links.to_all(),
)
