"""Panels of requests by what speculation does to them, by temperature and by type."""

from __future__ import annotations

from .field import LIMIT, Json, colored, fixed, limits, named, words
from .palette import AMBER, BLUE, GREY, ORANGE, SKY, VERMILION
from .panel import BarGauge, Heatmap, Panel, Stat, TimeSeries
from .per_request import (
    ACCEPTANCE,
    ACCEPTED,
    DRAFT_TOKENS,
    EXPORTER,
    MODEL,
    OBSERVED,
    OUTCOMES,
    REQUESTS,
    TEMPERATURE,
    TOKENS,
    TPOT,
    TTFT,
    TYPE,
    acceptance,
    buckets_of,
    by_outcome,
    counted,
    flow,
    judged,
    losing,
    only,
    quantile,
    with_record,
)
from .promql import PLACE, threshold
from .table import Column, joined
from .target import buckets, now, over_time
from .tiles import RATIO

ABSENT = "no per-request data"
#: Quantiles of acceptance, best first.
QUANTILES = {"P90": (0.9, SKY), "P50": (0.5, BLUE), "P10": (0.1, ORANGE)}
QUANTILE_COLORS = colored({name: color for name, (_, color) in QUANTILES.items()})
#: What becomes of requests: good, indifferent, bad.
COLORS = colored(dict(zip(OUTCOMES.values(), (BLUE, SKY, ORANGE), strict=True)))
KIND = f"{TYPE}, {TEMPERATURE}"
#: By what the exporter judges: itself, and the model.
JUDGED = f"{PLACE}, model_name"
#: Requests of each kind for which something was drafted.
JUDGEABLE = f"({counted(REQUESTS, KIND)} > 0)"
#: Lines of outcomes, one upon the other.
_BY_OUTCOME: Json = {
    "least": 0,
    "fill": 25,
    "stack": True,
    "overrides": COLORS,
    "no_value": ABSENT,
    "width": 8,
}
#: Bars of acceptance, one for each group.
_ACCEPTANCE_BARS: Json = {**RATIO, "color": fixed(BLUE), "no_value": ABSENT, "width": 6, "rows": 10}
MIXED = words({1: ("● MIXED", AMBER), 0: ("not mixed", GREY)})


def _rejected(by: str = "") -> str:
    return f"{counted(DRAFT_TOKENS, by)} - {counted(ACCEPTED, by)}"


tiles: list[Panel] = [
    Stat(
        title="Data by request?",
        description=(
            "Whether the exporter observes requests, and whether their answers have records of speculation "
            "(`vllm_specdec_request_observations_total`). NO: configure a tap or a push, see above. NO RECORDS: "
            "start vLLM with --per-request-spec-decode-metrics, and see *Which records do answers have?*"
        ),
        targets=[
            now(
                f"2 * group({with_record()} > 0)\n"
                f"or group({counted(OBSERVED, '', EXPORTER)} > 0)\nor vector(0)",
                "per-request data",
            ),
        ],
        mappings=words({0: ("NO: means only", GREY), 1: ("● NO RECORDS", AMBER), 2: ("▲ YES", BLUE)}),
        background=True,
        no_value="NO: means only",
    ),
    Stat(
        title="Is the workload mixed?",
        description=(
            "Whether a model has many requests that gain and many that lose "
            "(`vllm_specdec_request_workload_mixed`; the threshold is mixed_requests_ratio), over the exporter's "
            "window and all types. MIXED: no mean describes them, so find the losing requests below, and route "
            "them to a server without speculation."
        ),
        targets=[now(f"max(vllm_specdec_request_workload_mixed{{{MODEL}}})", "mixed")],
        mappings=MIXED,
        background=True,
        no_value="not judged",
    ),
    Stat(
        title="How much loses?",
        description=(
            "Share of the requests with acceptance below disable_acceptance_ratio, and their share of the "
            "generated tokens, from `vllm_specdec_request_outcomes_total` and "
            "`vllm_specdec_request_generation_tokens_total`. A large share while the mean looks healthy: route "
            "these requests to a server without speculation."
        ),
        targets=[now(losing(REQUESTS), "requests"), now(losing(TOKENS), "tokens")],
        text="value_and_name",
        **RATIO,
        no_value=ABSENT,
    ),
    Stat(
        title="P10 of acceptance",
        description=(
            "Acceptance rate that nine of ten requests exceed, from "
            "`vllm_specdec_request_acceptance_ratio_bucket`, beside the pooled rate. It is interpolated between "
            "histogram bounds, never below 0.025; the share of losing requests is exact. Below "
            "poor_request_acceptance_ratio while the mean is healthy: part of the traffic loses, see which below."
        ),
        targets=[now(quantile(ACCEPTANCE, 0.1), "P10"), now(acceptance(), "together")],
        text="value_and_name",
        **RATIO,
        no_value=ABSENT,
    ),
    Stat(
        title="Requests with data",
        description=(
            "Requests per second with drafts and a record, from `vllm_specdec_request_outcomes_total`. If vLLM "
            "finishes far more, see *Is all traffic observed?*"
        ),
        targets=[now(counted(REQUESTS), "requests")],
        unit="reqps",
        decimals=1,
        no_value=ABSENT,
    ),
    Stat(
        title="Answers with a record",
        description=(
            "Share of the observed requests whose answers had a record, from "
            "`vllm_specdec_request_observations_total`. If it is low, this dashboard describes only part of the "
            "traffic: see *Which records do answers have?*"
        ),
        targets=[
            now(
                f"({with_record()} or 0 * {counted(OBSERVED, '', EXPORTER)})\n/ ({counted(OBSERVED, '', EXPORTER)} > 0)",
                "with a record",
            )
        ],
        **RATIO,
        no_value=ABSENT,
    ),
]

who: list[Panel] = [
    joined(
        "Which requests lose?",
        (
            "Requests by type and temperature, most losing first: share that loses, P10 and median of acceptance "
            "(`vllm_specdec_request_acceptance_ratio_bucket`), pooled acceptance, their share of all rejected "
            "tokens, and P95 of the time per output token. Route losing groups to a server without speculation; "
            "click a type or a temperature to filter."
        ),
        {TYPE: "Type", TEMPERATURE: "Temperature"},
        [
            Column("Requests", JUDGEABLE, "reqps", 2),
            Column("Lose", losing(REQUESTS, KIND), "percentunit", 0),
            Column("P10", quantile(ACCEPTANCE, 0.1, KIND), "percentunit", 0),
            Column("P50", quantile(ACCEPTANCE, 0.5, KIND), "percentunit", 0),
            Column("Acceptance", acceptance(KIND), "percentunit", 0),
            Column(
                "Of all rejected",
                f"({_rejected(KIND)}) / on () group_left () (({_rejected()}) > 0)",
                "percentunit",
                0,
            ),
            Column("TPOT P95", f"({quantile(TPOT, 0.95, KIND)}) and {JUDGEABLE}", "s"),
        ],
        overrides=[
            named("Type", links=[only("Only this type", TYPE, "Type")]),
            named("Temperature", links=[only("Only this temperature", TEMPERATURE, "Temperature")]),
        ],
        no_value="-",
        sort=("Lose", True),
        rows=10,
    ),
    BarGauge(
        title="Acceptance by temperature",
        description=(
            "Median acceptance rate of requests by temperature bucket, from "
            "`vllm_specdec_request_acceptance_ratio_bucket`. It falls as temperature rises; where it no longer "
            "pays, route such requests elsewhere, or lower K."
        ),
        targets=[now(f"sort_desc({quantile(ACCEPTANCE, 0.5, TEMPERATURE)})", "{{temperature}}")],
        **_ACCEPTANCE_BARS,
    ),
    BarGauge(
        title="Acceptance by type of request",
        description=(
            "Median acceptance rate of requests of each type, from "
            "`vllm_specdec_request_acceptance_ratio_bucket`. It is high for code and extraction, low for creative "
            "text. If a type loses, route it to a server without speculation."
        ),
        targets=[now(f"sort_desc({quantile(ACCEPTANCE, 0.5, TYPE)})", "{{request_type}}")],
        **_ACCEPTANCE_BARS,
    ),
    Heatmap(
        title="Acceptance of requests",
        description=(
            "Distribution of requests by acceptance rate, from `vllm_specdec_request_acceptance_ratio_bucket`. "
            "Two bands mean two kinds of traffic: the mean describes neither, so see the bars beside it."
        ),
        targets=[buckets(buckets_of(ACCEPTANCE))],
        unit="short",
        label="acceptance",
        no_value=ABSENT,
        width=12,
        rows=10,
    ),
    TimeSeries(
        title="Quantiles of acceptance by request",
        description=(
            "P10, P50 and P90 of the acceptance rate of requests, from "
            "`vllm_specdec_request_acceptance_ratio_bucket`; dashed: the threshold of P10 "
            "(poor_request_acceptance_ratio). They are interpolated between histogram bounds: if line and "
            "threshold are close, use the share that loses. If the lines spread while P50 stays level: a losing "
            "minority grows."
        ),
        targets=[
            *(over_time(quantile(ACCEPTANCE, share), name) for name, (share, _) in QUANTILES.items()),
            over_time(
                f"{threshold('poor_request_acceptance_ratio')} and on () count(vllm_specdec_window_requests{{{MODEL}}})",
                LIMIT + "P10 poor below",
            ),
        ],
        **RATIO,
        overrides=[*QUANTILE_COLORS, limits(VERMILION)],
        no_value=ABSENT,
        width=8,
    ),
    TimeSeries(
        title="Requests by outcome",
        description=(
            "Requests per second by acceptance, from `vllm_specdec_request_outcomes_total`: below "
            "disable_acceptance_ratio they lose, above break_even_acceptance_ratio they gain, between them there "
            "is little difference. If the losing part grows: find its temperature or type, and route it."
        ),
        targets=[over_time(by_outcome(REQUESTS), "{{outcome}}")],
        unit="reqps",
        **_BY_OUTCOME,
    ),
    TimeSeries(
        title="Tokens by outcome",
        description=(
            "Generated tokens per second of these requests by outcome, from "
            "`vllm_specdec_request_generation_tokens_total`. If the losing part is larger than for requests: long "
            "answers lose, so check their type."
        ),
        targets=[over_time(by_outcome(TOKENS), "{{outcome}}")],
        unit="suffix:tokens/s",
        decimals=0,
        **_BY_OUTCOME,
    ),
    TimeSeries(
        title="Which type loses, and since when?",
        description=(
            "Share of losing requests by type, from `vllm_specdec_request_outcomes_total`. If one type rises "
            "alone: its prompts or parameters changed. If all rise: look for a release, or another draft model."
        ),
        targets=[over_time(losing(REQUESTS, TYPE), "{{request_type}}")],
        **RATIO,
        no_value=ABSENT,
        width=12,
    ),
    TimeSeries(
        title="Which temperature loses, and since when?",
        description=(
            "Share of losing requests by temperature bucket, from `vllm_specdec_request_outcomes_total`. If only "
            "high temperatures lose: let the gateway route by temperature."
        ),
        targets=[over_time(losing(REQUESTS, TEMPERATURE), "{{temperature}}")],
        **RATIO,
        no_value=ABSENT,
        width=12,
    ),
    joined(
        "What does the exporter judge?",
        (
            "The exporter's verdict for each model over its window (requests.window), for all types and "
            "temperatures: whether it is mixed (`vllm_specdec_request_workload_mixed`), and exact percentiles "
            "(`vllm_specdec_request_acceptance_ratio_percentile`). One pod worse than its peers: compare its "
            "traffic and version. Fewer requests than minimum_requests: no verdict, wait."
        ),
        {
            "cluster": "Cluster",
            "namespace": "Namespace",
            "pod": "Pod",
            "instance": "Instance",
            "model_name": "Model",
        },
        [
            Column(
                "Mixed?", judged("request_workload_mixed", JUDGED), width=105, mappings=MIXED, filled=True
            ),
            Column("Requests", judged("window_requests", JUDGED), "locale", 0, 90),
            Column("Lose", judged("request_losing_ratio", JUDGED), "percentunit", 0, 75),
            Column("Gain", judged("request_gaining_ratio", JUDGED), "percentunit", 0, 70),
            Column("Losing tokens", judged("request_losing_tokens_ratio", JUDGED), "percentunit", 0, 120),
            *(
                Column(
                    f"P{percentile}",
                    judged("request_acceptance_ratio_percentile", JUDGED, percentile=percentile),
                    "percentunit",
                    0,
                    70,
                )
                for percentile in ("10", "50", "90")
            ),
        ],
        hidden=["job"],
        overrides=[
            named("Cluster", custom__width=80),
            named("Namespace", custom__width=100),
            named("Pod", custom__width=105),
            named("Instance", custom__width=135),
            named("Model", custom__width=255),
        ],
        no_value="-",
        sort=("Lose", True),
        rows=6,
    ),
]

felt: list[Panel] = [
    TimeSeries(
        title="Time per output token by type",
        description=(
            "P95 of the time per output token of each type of request, from "
            "`vllm_specdec_request_time_per_output_token_seconds_bucket`. If one type is above the others: "
            "compare its acceptance and length."
        ),
        targets=[over_time(quantile(TPOT, 0.95, TYPE), "{{request_type}}")],
        unit="s",
        least=0,
        no_value=ABSENT,
        width=6,
    ),
    TimeSeries(
        title="Time to first token by type",
        description=(
            "P95 of the time to first token of each type of request, from "
            "`vllm_specdec_request_time_to_first_token_seconds_bucket`. Long prompts increase it; if it grows for "
            "all types, the server is full."
        ),
        targets=[over_time(quantile(TTFT, 0.95, TYPE), "{{request_type}}")],
        unit="s",
        least=0,
        no_value=ABSENT,
        width=6,
    ),
    TimeSeries(
        title="Requests by temperature",
        description=(
            "Requests per second by temperature bucket, from `vllm_specdec_request_outcomes_total`. If "
            "temperatures rise, acceptance falls without any fault, and K may be too large."
        ),
        targets=[over_time(flow(REQUESTS, TEMPERATURE), "{{temperature}}")],
        unit="reqps",
        least=0,
        stack=True,
        fill=25,
        no_value=ABSENT,
        width=6,
    ),
    TimeSeries(
        title="Requests by type",
        description=(
            "Requests per second by type, from `vllm_specdec_request_outcomes_total`. If the mix of types "
            "changes, so does acceptance: tune K for the current mix."
        ),
        targets=[over_time(flow(REQUESTS, TYPE), "{{request_type}}")],
        unit="reqps",
        least=0,
        stack=True,
        fill=25,
        no_value=ABSENT,
        width=6,
    ),
]
