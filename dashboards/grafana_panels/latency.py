"""Panels of latency and load: what users feel, and whether load or drafts are the cause."""

from __future__ import annotations

from .field import COUNT, LENGTH, LIMIT, NOTHING, RATIO, TIMES, colored, fixed, named, threshold_lines
from .palette import BLUE, GREEN, GREY, ORANGE, PERCENTILES, SKY, VERMILION
from .panel import Panel, TimeSeries, over_time
from .promql import (
    INTERVAL,
    MODEL,
    MODEL_LEGEND,
    Flow,
    agreed,
    metric,
    or_without_rules,
    rate,
    recorded,
    speedup,
    total,
    windowed,
)
from .vllm import UNSEEN, mean, quantile, summed_rate

#: Latencies by the label of their ratio to the baseline.
LATENCIES = {"time_per_output_token": BLUE, "time_to_first_token": ORANGE, "end_to_end": GREEN}
RUNNING = metric("requests_running")


def percentiles(title: str, name: str, description: str, middle: str = "", rows: int = 8) -> TimeSeries:
    """Return a panel with three percentiles of a latency, and its mean."""
    return TimeSeries(
        title=title,
        description=description,
        targets=[
            *(over_time(quantile(name, int(word[1:]) / 100), word) for word in PERCENTILES),
            over_time(middle or mean(name), "mean"),
        ],
        unit="s",
        least=0,
        overrides=[
            *colored(PERCENTILES),
            named("mean", color=fixed(GREY)),
        ],
        no_value=UNSEEN,
        width=8,
        rows=rows,
    )


load_or_drafts = TimeSeries(
    title="Load or drafts?",
    description="Speedup falls with length: drafts. It falls while requests (right axis) rise: load.",
    targets=[
        over_time(Flow(MODEL).length(), "acceptance length"),
        over_time(or_without_rules("speedup:ratio_rate5m", speedup(MODEL)), "speedup"),
        over_time(total(RUNNING, MODEL), "running requests"),
    ],
    **LENGTH,
    overrides=[
        *colored({"acceptance length": BLUE, "speedup": ORANGE}),
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
    no_value=NOTHING,
    rows=9,
)

latency: list[Panel] = [
    percentiles(
        "Time per output token",
        "request_time_per_output_token_seconds",
        "Speculation reduces it. Below 10 ms, the first bucket, only the mean is drawn.",
        recorded("time_per_output_token_seconds:rate5m"),
    ),
    percentiles(
        "Time to first token",
        "time_to_first_token_seconds",
        "Speculation does not reduce it; a draft model's prefill and a full queue increase it.",
    ),
    percentiles(
        "End-to-end latency",
        "e2e_request_latency_seconds",
        "Depends on the length of answers. Percentiles below 0.3 s are not drawn.",
    ),
    TimeSeries(
        title="Latency against the baseline",
        description="At the same load, the worst engine. Above 1 is slower than without speculation.",
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
            threshold_lines(VERMILION),
        ],
        no_value="no baseline: run vllm-specdec-exporter history --out, or baseline",
        rows=9,
    ),
]

load: list[Panel] = [
    TimeSeries(
        title="Requests running and waiting",
        description="A growing queue: add replicas, or draft less to free GPU time.",
        targets=[
            over_time(total(RUNNING, MODEL), "running"),
            over_time(total(metric("requests_waiting"), MODEL), "waiting"),
        ],
        **COUNT,
        overrides=colored({"running": BLUE, "waiting": ORANGE}),
        no_value="no exporter, or not reported",
        width=8,
        rows=9,
    ),
    percentiles(
        "Time in the queue",
        "request_queue_time_seconds",
        "Part of time to first token. Below 0.3 s, only the mean is drawn.",
        rows=9,
    ),
    TimeSeries(
        title="Tokens per second",
        description="Generated, prompt, and (right axis) generated for each running request, which users feel.",
        targets=[
            over_time(rate("generation_tokens"), "generated"),
            over_time(summed_rate("prompt_tokens_total"), "prompt"),
            over_time(
                f"{rate('generation_tokens')} / (sum(avg_over_time({RUNNING}[{INTERVAL}])) > 0)",
                "each request",
            ),
        ],
        unit="suffix:tokens/s",
        decimals=0,
        least=0,
        overrides=[
            *colored({"generated": BLUE, "prompt": GREY}),
            named("each request", color=fixed(ORANGE), custom__axisPlacement="right"),
        ],
        no_value="no exporter, or not reported",
        width=8,
        rows=9,
    ),
    TimeSeries(
        title="KV cache use",
        description="Fullest engine and mean; dashed: squeezed. Above it with preemptions: free the draft model's memory.",
        targets=[
            over_time(total(metric("kv_cache_usage_ratio"), operator="max"), "fullest"),
            over_time(total(metric("kv_cache_usage_ratio"), operator="avg"), "mean"),
            over_time(agreed("squeezed_kv_cache_usage_ratio"), f"{LIMIT}squeezed {MODEL_LEGEND}"),
        ],
        **RATIO,
        overrides=[*colored({"fullest": BLUE, "mean": SKY}), threshold_lines(VERMILION)],
        no_value="no exporter, or not reported",
        width=6,
    ),
    TimeSeries(
        title="Prefix cache hits",
        description="Share of prompt tokens in the cache. If it falls, time to first token grows.",
        targets=[
            # Older servers name the cache of the GPU.
            over_time(
                f"{summed_rate(f'{of}prefix_cache_hits_total')} / ({summed_rate(f'{of}prefix_cache_queries_total')} > 0)",
                "hits",
            )
            for of in ("", "gpu_")
        ],
        **RATIO,
        overrides=colored({"hits": BLUE}),
        no_value=UNSEEN,
        width=6,
    ),
    TimeSeries(
        title="Preemptions",
        description="The KV cache was full: requests are computed again. Use a smaller draft model.",
        targets=[over_time(f"60 * {summed_rate('num_preemptions_total')}", "preemptions")],
        unit="suffix:/min",
        decimals=1,
        least=0,
        soft_most=1,
        overrides=colored({"preemptions": ORANGE}),
        no_value=UNSEEN,
        width=6,
    ),
    TimeSeries(
        title="Failed requests",
        description="Share that ended in an error. Rose with a change of K: revert it.",
        targets=[
            over_time(
                f"{summed_rate('request_success_total', finished_reason='error')} / ({summed_rate('request_success_total')} > 0)",
                "failed",
            ),
            over_time(agreed("failed_request_ratio"), f"{LIMIT}page above {MODEL_LEGEND}"),
        ],
        unit="percentunit",
        decimals=1,
        least=0,
        soft_most=0.1,
        overrides=[*colored({"failed": ORANGE}), threshold_lines(VERMILION)],
        no_value=UNSEEN,
        width=6,
    ),
]
