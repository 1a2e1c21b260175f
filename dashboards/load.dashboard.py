"""Latency and load: what users feel, whether it is load or drafts, and how it compares with the baseline."""

from __future__ import annotations

from grafana_panels import annotations, links, tiles, variables
from grafana_panels.dashboard import Dashboard
from grafana_panels.field import LIMIT, colored, fixed, limits, named
from grafana_panels.palette import BLUE, GREEN, GREY, ORANGE, PERCENTILES, SKY, VERMILION
from grafana_panels.panel import Panel, Stat, TimeSeries
from grafana_panels.promql import Flow, gauge, per_request, speedup, threshold, total, windowed
from grafana_panels.target import now, over_time
from grafana_panels.tiles import RATIO, TIMES
from grafana_panels.vllm import UNSEEN, counted, endings, mean, quantile

FLOW, TILE = Flow(), Flow(now=True)
QUANTILES = (0.5, 0.95, 0.99)
#: Latencies by the label of their ratio to the baseline.
LATENCIES = {"time_per_output_token": BLUE, "time_to_first_token": ORANGE, "end_to_end": GREEN}
TTFT = "time_to_first_token_seconds"
TPOT = "request_time_per_output_token_seconds"


def percentiles(title: str, name: str, description: str, middle: str = "") -> TimeSeries:
    """Return a panel with three percentiles of a latency, and its mean."""
    return TimeSeries(
        title=title,
        description=description,
        targets=[
            *(over_time(quantile(name, share), f"P{100 * share:.0f}") for share in QUANTILES),
            over_time(middle or mean(name), "mean"),
        ],
        unit="s",
        least=0,
        overrides=[
            *colored(PERCENTILES),
            named("mean", color=fixed(GREY), custom__lineStyle={"fill": "dash", "dash": [4, 4]}),
        ],
        no_value=UNSEEN,
        width=8,
    )


top: list[Panel] = [
    tiles.pays(),
    tiles.speed(),
    Stat(
        title="Running and waiting",
        description=(
            "Running and waiting requests of the selection, from `vllm_specdec_requests_running` and "
            "`vllm_specdec_requests_waiting`. Waiting requests mean a full server: every rejected draft token "
            "costs throughput, so lower K."
        ),
        targets=[
            now(total(gauge("requests_running")), "running"),
            now(total(gauge("requests_waiting")), "waiting"),
        ],
        text="value_and_name",
        unit="short",
        decimals=0,
        no_value="not known",
        width=5,
    ),
    Stat(
        title="Tokens per second",
        description=(
            "Generated tokens per second of the selection, and per running request (over 5 minutes), from "
            "`vllm_specdec_generation_tokens_per_second`, `vllm_specdec_generation_tokens_total` and "
            "`vllm_specdec_requests_running`. Users notice the second: if it falls while running requests rise, "
            "load is the cause."
        ),
        targets=[
            now(TILE.of("generation_tokens"), "all"),
            now(per_request(now=True), "each"),
        ],
        text="value_and_name",
        unit="suffix:tokens/s",
        decimals=0,
        no_value="not known",
        width=5,
    ),
    Stat(
        title="Fullest KV cache",
        description=(
            "KV cache usage of the fullest engine, from `vllm_specdec_kv_cache_usage_ratio`. Near 1 vLLM preempts "
            "requests: a draft model's memory is then better used as KV cache."
        ),
        targets=[now(total(gauge("kv_cache_usage_ratio"), operator="max"), "fullest")],
        **RATIO,
        no_value="not known",
    ),
]

feel: list[Panel] = [
    percentiles(
        "Time per output token",
        TPOT,
        (
            "Time per output token of finished requests, from `vllm:request_time_per_output_token_seconds_bucket` "
            "(vLLM 0.11 and later; percentiles below 10 ms, its first bucket, are not drawn); the mean of every version from `vllm:request_decode_time_seconds_sum` and "
            "`vllm:generation_tokens_total`. Speculation is meant to reduce it: if it grows, see *Is it load or "
            "drafts?* If P99 moves away from P50 after a change of K or drafter, requests with rejected drafts "
            "become slower: see *Requests*. Inter-token latency counts steps, not tokens, and rises with acceptance."
        ),
        f"{counted('request_decode_time_seconds_sum')} / ({counted('generation_tokens_total')} > 0)",
    ),
    percentiles(
        "Time to first token",
        TTFT,
        (
            "Time from the arrival of a request to its first token, from "
            "`vllm:time_to_first_token_seconds_bucket`. Speculation does not reduce it; a draft model's prefill "
            "and a full queue increase it. If it rises with the queue below: add replicas, or lower K."
        ),
    ),
    percentiles(
        "End-to-end latency",
        "e2e_request_latency_seconds",
        (
            "Time from the arrival of a request to its last token, from "
            "`vllm:e2e_request_latency_seconds_bucket`. It depends on the length of answers: check time per "
            "output token first. Percentiles below 0.3 s, the first bucket, are not drawn."
        ),
    ),
    TimeSeries(
        title="Latency against the baseline",
        description=(
            "Median and P99 latencies relative to the recorded baseline at the same load, the worst of the "
            "selected engines, from `vllm_specdec_latency_ratio`. Above 1: slower than without speculation. This "
            "is common for time to first token; for time per output token, lower K, or disable speculation at "
            "this load."
        ),
        targets=[
            *(
                over_time(
                    total(windowed("latency_ratio", percentile=str(percentile)), "latency", "max"),
                    f"{{{{latency}}}} P{percentile}",
                )
                for percentile in (50, 99)
            ),
            over_time(f"vector(1) and on () max({windowed('latency_ratio')})", LIMIT + "as the baseline"),
        ],
        **TIMES,
        least=0,
        overrides=[
            *colored({f"{name} P50": color for name, color in LATENCIES.items()}),
            *(
                named(f"{name} P99", color=fixed(color), custom__lineWidth=1, custom__fillOpacity=10)
                for name, color in LATENCIES.items()
            ),
            limits(VERMILION),
        ],
        no_value="no baseline: record one with vllm-specdec-exporter baseline",
        width=12,
    ),
    TimeSeries(
        title="Is it load or drafts?",
        description=(
            "Mean acceptance length (`vllm_specdec_accepted_tokens_total`, `vllm_specdec_drafts_total`), speedup "
            "(`vllm_specdec_speedup`), and running requests (`vllm_specdec_requests_running`, right axis). "
            "Speedup and length fall: acceptance is the cause, see *Acceptance anatomy*. Speedup falls, length is "
            "level, requests rise: load is the cause, see *K and cost*."
        ),
        targets=[
            over_time(FLOW.length(), "mean acceptance length"),
            over_time(speedup(), "speedup"),
            over_time(total(gauge("requests_running")), "running requests"),
        ],
        unit="short",
        decimals=2,
        overrides=[
            *colored({"mean acceptance length": BLUE, "speedup": ORANGE}),
            named(
                "running requests",
                decimals=0,
                min=0,
                color=fixed(GREY),
                custom__axisPlacement="right",
                custom__fillOpacity=15,
                custom__lineWidth=1,
            ),
        ],
        no_value=tiles.NOTHING,
        width=12,
    ),
]

load: list[Panel] = [
    TimeSeries(
        title="Requests running and waiting",
        description=(
            "Running and waiting requests, from `vllm_specdec_requests_running` and "
            "`vllm_specdec_requests_waiting`. A growing queue: add replicas, or draft less to free GPU time."
        ),
        targets=[
            over_time(total(gauge("requests_running")), "running"),
            over_time(total(gauge("requests_waiting")), "waiting"),
        ],
        unit="short",
        decimals=0,
        least=0,
        fill=15,
        overrides=colored({"running": BLUE, "waiting": ORANGE}),
        no_value="not known",
        width=8,
    ),
    percentiles(
        "Time in the queue",
        "request_queue_time_seconds",
        (
            "Time that requests waited before they ran, from `vllm:request_queue_time_seconds_bucket`. It is part "
            "of the time to first token. The first bucket ends at 0.3 s: percentiles below that are not drawn, see the "
            "mean. If it grows, the server is full: add replicas, or lower K."
        ),
    ),
    TimeSeries(
        title="Tokens per second, prompt and answer",
        description=(
            "Prompt tokens (`vllm:prompt_tokens_total`) and generated tokens "
            "(`vllm_specdec_generation_tokens_total`) per second. If generation falls while requests wait, "
            "speculation may cost throughput: see *K and cost*."
        ),
        targets=[
            over_time(FLOW.of("generation_tokens"), "generated"),
            over_time(counted("prompt_tokens_total"), "prompt"),
        ],
        unit="suffix:tokens/s",
        decimals=0,
        least=0,
        overrides=colored({"generated": BLUE, "prompt": GREY}),
        no_value="not known",
        width=8,
    ),
    TimeSeries(
        title="KV cache use",
        description=(
            "KV cache usage of the fullest engine and on average, from `vllm_specdec_kv_cache_usage_ratio`; "
            "dashed: the threshold `squeezed_kv_cache_usage_ratio`. Above it with preemptions: free the draft "
            "model's memory, or reduce the load."
        ),
        targets=[
            over_time(total(gauge("kv_cache_usage_ratio"), operator="max"), "fullest"),
            over_time(
                f"{total(gauge('kv_cache_usage_ratio'))} / count({gauge('kv_cache_usage_ratio')})", "mean"
            ),
            over_time(threshold("squeezed_kv_cache_usage_ratio"), LIMIT + "squeezed"),
        ],
        **RATIO,
        overrides=[*colored({"fullest": BLUE, "mean": SKY}), limits(VERMILION)],
        no_value="not known",
        width=8,
    ),
    TimeSeries(
        title="Prefix cache hits",
        description=(
            "Share of the prompt tokens found in the prefix cache, from `vllm:prefix_cache_hits_total` over "
            "`vllm:prefix_cache_queries_total`, or under their older names (`vllm:gpu_prefix_cache_hits_total`). "
            "If it falls, time to first token grows, but not because of speculation: look for other prompts or a "
            "full KV cache."
        ),
        targets=[
            over_time(
                f"{counted('prefix_cache_hits_total')} / ({counted('prefix_cache_queries_total')} > 0)\n"
                f"or {counted('gpu_prefix_cache_hits_total')} / ({counted('gpu_prefix_cache_queries_total')} > 0)",
                "hits",
            )
        ],
        **RATIO,
        overrides=colored({"hits": BLUE}),
        no_value=UNSEEN,
        width=8,
    ),
    TimeSeries(
        title="Preemptions",
        description=(
            "Preemptions per minute because the KV cache was full, from `vllm:num_preemptions_total`. A preempted "
            "request is recomputed. If there are many: use a smaller draft model or K, or reduce the load."
        ),
        targets=[over_time(f"60 * {counted('num_preemptions_total')}", "preemptions")],
        unit="suffix:/min",
        decimals=1,
        least=0,
        soft_most=1,
        overrides=colored({"preemptions": ORANGE}),
        no_value=UNSEEN,
        width=8,
    ),
    endings(
        "How do requests end?",
        (
            "Finished requests per second by reason, from `vllm:request_success_total`. Errors: see vLLM's log. "
            "Many that end by length or repetition: repetitive text raises acceptance."
        ),
        width=12,
    ),
    TimeSeries(
        title="Share of requests that fail",
        description=(
            "Requests that ended in an error over all that ended, from `vllm:request_success_total`; dashed: the "
            "threshold `failed_request_ratio`, above which an alert pages. If it rose with a change of K or "
            "drafter: revert that first."
        ),
        targets=[
            over_time(
                f"{counted('request_success_total', finished_reason='error')} / ({counted('request_success_total')} > 0)",
                "failed",
            ),
            over_time(threshold("failed_request_ratio"), LIMIT + "page above"),
        ],
        unit="percentunit",
        decimals=1,
        least=0,
        soft_most=0.1,
        overrides=[*colored({"failed": ORANGE}), limits(VERMILION)],
        no_value=UNSEEN,
        width=12,
    ),
]

dashboard = Dashboard(
    uid="vllm-specdec-load",
    title="Latency and load",
    description="What do users feel, and is it the load or the drafts?",
    sections=[("", top), ("What do users feel?", feel), ("How full is it?", load)],
    variables=[*variables.usual(), *variables.vllm()],
    marks=annotations.usual(),
    links=links.to_all(),
)
