"""Does speculation, or its effect on latency, memory and errors, hurt users?"""

from __future__ import annotations

from .rule import (
    COUNT,
    LOOK_BACK,
    MODEL,
    NUMBER,
    PERCENT,
    SPEEDUP,
    TIMES,
    WHO,
    Alert,
    Group,
    Severity,
    compare,
    drafts,
    enough,
    in_force,
    of_model,
    this,
    threshold,
)

_DISABLE = "Disable speculation, or set the K that the exporter recommends; look at acceptance and load for the cause."
_K = "model:vllm_specdec_num_speculative_tokens:max"
_REQUESTS = "model:vllm_specdec_requests:avg1h"
#: A day is compared with the day before only if the load is at most this many times as high.
_SAME_LOAD = f"and ({_REQUESTS} <= 1.25 * ({_REQUESTS} offset 1d))"
_MEASURED, _PROFILE = "model:vllm_specdec_measured_speedup:min", "model:vllm_specdec_cost_profile:engines"
#: Both must be measured, or estimated with the same cost profile.
_SAME_YARDSTICK = (
    f"unless (count_over_time({_MEASURED}[1h]) unless count_over_time({_MEASURED}[1h] offset 1d))\n"
    f"unless (count_over_time({_MEASURED}[1h] offset 1d) unless count_over_time({_MEASURED}[1h]))\n"
    f"unless on ({MODEL}) ({_PROFILE} unless {_PROFILE} offset 1d)"
)
_SPECULATES = "and (model:vllm_specdec_drafts:rate1h > 0)"
_CONTEXT = (
    of_model("model:vllm_specdec_requests_running:avg5m", COUNT, "{} requests run per engine")
    + of_model("model:vllm_specdec_acceptance:ratio_rate5m", PERCENT, ", {} of the draft tokens are accepted")
    + of_model(
        "model:vllm_specdec_mean_acceptance_length:ratio_rate5m", NUMBER, ", mean acceptance length {}"
    )
)


def group() -> Group:
    """Return the group of alerts on harm."""
    return Group(
        "vllm-specdec.harm",
        (
            _harmful(
                "critical",
                SPEEDUP["model"],
                "severe_speedup",
                "5m",
                "5m",
                "10m",
                "Users get tokens far slower than without speculation: this pages. A modelled speedup counts only "
                "if its whole interval is below 1.",
            ),
            _harmful(
                "warning",
                "model:vllm_specdec_speedup:ratio_rate30m",
                "harmful_speedup",
                "30m",
                "15m",
                "30m",
                "Over half an hour, and only while there is a speedup: an idle server raises no ticket.",
                f"\nand {SPEEDUP['model']}",
            ),
            _harmful_engine(),
            _regressed(),
            *_spread(),
            *_first_token(),
            _saturated(),
            _squeezed(),
            _errors(),
        ),
    )


def _harmful(
    severity: Severity,
    series: str,
    limit: str,
    window: str,
    hold: str,
    keep: str,
    why: str = "",
    more: str = "",
) -> Alert:
    return Alert(
        name="Harmful",
        severity=severity,
        subject="payoff",
        level="model",
        expr=f"{compare('model', series, '<', limit)}\nand {enough('model', window)}{more}",
        hold=hold,
        keep=keep,
        summary="Speculation makes users wait longer than without it.",
        description=(
            f"{WHO['model']} generates at {this(TIMES)} the speed that it would have without speculation."
        ),
        action=_DISABLE,
        value=this(TIMES),
        threshold=in_force(limit, TIMES),
        sample=drafts(window),
        context=_CONTEXT,
        why=why,
    )


def _harmful_engine() -> Alert:
    return Alert(
        name="Harmful",
        severity="warning",
        subject="payoff",
        level="engine",
        expr=f"{compare('engine', SPEEDUP['engine'], '<', 'harmful_speedup')}\nand {enough('engine', '30m')}",
        hold="30m",
        keep="30m",
        summary="Speculation makes users of one engine wait longer than without it.",
        description=(
            f"{WHO['engine']} generates at {this(TIMES)} the speed that it would have without speculation."
        ),
        action="Compare its acceptance and its load with those of its peers; drain and restart it.",
        value=this(TIMES),
        threshold=in_force("harmful_speedup", TIMES),
        sample=drafts("30m", " of the model"),
    )


def _regressed() -> Alert:
    now = "model:vllm_specdec_speedup:ratio_rate1h"
    return Alert(
        name="SpeedupRegressed",
        severity="warning",
        subject="payoff",
        level="model",
        expr=(
            f"{now} < (1 - {threshold('drop_ratio')}) * ({now} offset 1d)\n"
            f"{_SAME_LOAD}\n"
            f"and ({_K} == ({_K} offset 1d))\n"
            f"{_SAME_YARDSTICK}\n"
            f"and {enough('model', '1h', 'comparison_minimum_drafts')}\n"
            f"and {enough('model', '1h', 'comparison_minimum_drafts', offset='1d')}"
        ),
        hold="30m",
        keep="1h",
        summary="Speculation gains less than yesterday at this time, at no higher load.",
        description=(
            f"{WHO['model']} generates at {this(TIMES)} the speed that it would have without speculation, over the last "
            "hour. Yesterday at this time it was far faster with the same K and a similar load."
        ),
        action="Compare traffic, version and drafter with yesterday's; vllm-specdec-exporter compare can do it from snapshots.",
        value=this(TIMES),
        threshold=in_force("drop_ratio", PERCENT, "{} below yesterday"),
        sample=drafts("1h"),
        context=_CONTEXT,
    )


def _requests(series: str, offset: str = "") -> str:
    back = f" offset {offset}" if offset else ""
    return f"and ({series}{back} >= 10 * {threshold('measurement_minimum_requests')})"


def _against_yesterday(now: str, then: str, requests: str) -> str:
    return (
        f"{now} > {threshold('widened_latency_ratio')} * {then}\n"
        f"{_SAME_LOAD}\n"
        f"{_requests(requests)}\n"
        f"{_requests(requests, '1d')}\n"
        f"{_SPECULATES}"
    )


def _latency_ratio(latency: str, percentile: int) -> str:
    """Return a percentile of a latency over the baseline's, by window."""
    matchers = f'latency="{latency}",percentile="{percentile}"'
    return f"last_over_time(vllm_specdec_latency_ratio{{{matchers}}}[{LOOK_BACK}])"


def _least(ratio: str, *labels: str) -> str:
    """Return the least of all windows: it is so in each of them."""
    return f"min without ({', '.join(('latency', 'window', *labels))}) ({ratio})"


def _spread() -> tuple[Alert, Alert]:
    tpot = "model:vllm_request_time_per_output_token_seconds"
    now = f"({tpot}:p99_rate1h / {tpot}:p50_rate1h)"
    then = f"({tpot}:p99_rate1h offset 1d / {tpot}:p50_rate1h offset 1d)"
    ratios = _least(
        f"{_latency_ratio('time_per_output_token', 99)} "
        f"/ ignoring (percentile) {_latency_ratio('time_per_output_token', 50)}"
    )
    action = "Look for a mixed workload: some requests lose by speculation. Route them apart, or set a K that suits both."
    summary = "The spread between slow and typical tokens has widened."
    return (
        Alert(
            name="LatencySpreadWidened",
            severity="warning",
            subject="latency",
            level="model",
            expr=_against_yesterday(now, then, f"{tpot}_count:increase1h"),
            hold="30m",
            keep="1h",
            summary=summary,
            description=(
                f"Time per output token of {WHO['model']}: P99 is {this(NUMBER)} times P50 over the last hour, far "
                "wider than yesterday at this time, at no higher load."
            ),
            action=action,
            dashboard="load",
            value=f"P99 {this(NUMBER)} times P50",
            threshold=in_force("widened_latency_ratio", NUMBER, "{} times yesterday's spread"),
            sample=of_model(f"{tpot}_count:increase1h", COUNT, "{} requests in 1h"),
            labels={"against": "yesterday"},
            why="From vLLM's own histogram, if scraped.",
        ),
        Alert(
            name="LatencySpreadWidened",
            severity="warning",
            subject="latency",
            level="engine",
            expr=f"{ratios} > on ({MODEL}) group_left () {threshold('widened_latency_ratio')}\nand {enough('engine', '30m')}",
            hold="30m",
            keep="1h",
            summary=summary,
            description=(
                f"Time per output token of {WHO['engine']}: the spread of P99 over P50 is {this(NUMBER)} times that of "
                "the baseline without speculation at the same load."
            ),
            action=action,
            dashboard="load",
            value=f"{this(NUMBER)} times the baseline's spread",
            threshold=in_force("widened_latency_ratio", NUMBER),
            sample=drafts("30m", " of the model"),
            labels={"against": "baseline"},
            why="Only with a baseline at the exporter.",
        ),
    )


def _first_token() -> tuple[Alert, Alert]:
    ttft = "model:vllm_time_to_first_token_seconds"
    action = (
        "Look at waiting requests and the KV cache: a draft model takes memory and time from prefill. If TTFT is the "
        "objective, speculation may be wrong at this load."
    )
    summary = "Users wait longer for the first token."
    return (
        Alert(
            name="TimeToFirstTokenRegressed",
            severity="warning",
            subject="latency",
            level="model",
            expr=_against_yesterday(
                f"{ttft}:p95_rate1h", f"({ttft}:p95_rate1h offset 1d)", f"{ttft}_count:increase1h"
            ),
            hold="30m",
            keep="1h",
            summary=summary,
            description=(
                f"P95 of the time to first token of {WHO['model']} is {this('humanizeDuration')} over the last hour, "
                "far above yesterday at this time, at no higher load."
            ),
            action=action,
            dashboard="load",
            value=f"P95 {this('humanizeDuration')}",
            threshold=in_force("widened_latency_ratio", NUMBER, "{} times yesterday's"),
            sample=of_model(f"{ttft}_count:increase1h", COUNT, "{} requests in 1h"),
            labels={"against": "yesterday"},
        ),
        Alert(
            name="TimeToFirstTokenRegressed",
            severity="warning",
            subject="latency",
            level="engine",
            expr=(
                f"{_least(_latency_ratio('time_to_first_token', 95), 'percentile')} > on ({MODEL}) group_left () "
                f"{threshold('widened_latency_ratio')}\nand {enough('engine', '30m')}"
            ),
            hold="30m",
            keep="1h",
            summary=summary,
            description=(
                f"P95 of the time to first token of {WHO['engine']} is {this(NUMBER)} times that of the baseline without "
                "speculation at the same load."
            ),
            action=action,
            dashboard="load",
            value=f"{this(NUMBER)} times the baseline's P95",
            threshold=in_force("widened_latency_ratio", NUMBER),
            sample=drafts("30m", " of the model"),
            labels={"against": "baseline"},
            why="Only with a baseline at the exporter.",
        ),
    )


def _saturated() -> Alert:
    wasted = "model:vllm_specdec_wasted_verification:ratio_rate5m"
    return Alert(
        name="WastedUnderSaturation",
        severity="warning",
        subject="load",
        level="model",
        expr=(
            f"{compare('model', wasted, '>', 'wasted_verification_ratio')}\n"
            f"and (sum by ({MODEL}) (min_over_time(vllm_specdec_requests_waiting[10m])) > 0)\n"
            f"and {enough('model', '5m')}\n"
            f"unless ({compare('model', SPEEDUP['model'], '>=', 'beneficial_speedup')})"
        ),
        hold="10m",
        keep="20m",
        summary="Requests wait while the GPU verifies rejected drafts.",
        description=(
            f"Requests of {WHO['model']} have been waiting for 10 minutes, and {this(PERCENT)} of the tokens that the "
            f"target model verifies are rejected drafts."
        ),
        action="Lower K, or set a schedule that drafts less in large batches: the exporter recommends one. Or add replicas.",
        dashboard="load",
        value=this(PERCENT) + " of verified tokens rejected",
        threshold=in_force("wasted_verification_ratio", PERCENT),
        sample=drafts("5m"),
        why="Under saturation a rejected draft token displaces a useful one. Silent if speculation is beneficial.",
    )


def _squeezed() -> Alert:
    usage = f"max by ({MODEL}) (avg_over_time(vllm_specdec_kv_cache_usage_ratio[10m]))"
    return Alert(
        name="KVCacheSqueezed",
        severity="warning",
        subject="load",
        level="model",
        expr=(
            f"{compare('model', usage, '>', 'squeezed_kv_cache_usage_ratio')}\n"
            f"and (60 * model:vllm_num_preemptions:rate5m > 1)\n"
            f"and {enough('model', '30m')}"
        ),
        hold="10m",
        keep="20m",
        summary="The KV cache is full, and requests are preempted while speculation takes memory.",
        description=(
            f"The KV cache of {WHO['model']} is {this(PERCENT)} used, and vLLM preempts requests. A draft model shrinks "
            "the KV cache by its own size."
        ),
        action=(
            "Run vllm-specdec-exporter plan with both models: a smaller drafter, n-gram, or no speculation frees "
            "memory. Or lower --max-num-seqs."
        ),
        dashboard="load",
        value=this(PERCENT) + " of the KV cache",
        threshold=in_force("squeezed_kv_cache_usage_ratio", PERCENT),
        sample=drafts("30m"),
        why="More than one preemption a minute; preemptions are vLLM's own series.",
    )


def _errors() -> Alert:
    return Alert(
        name="RequestsFail",
        severity="critical",
        subject="errors",
        level="model",
        expr=(
            "(model:vllm_failed_requests:increase5m / (model:vllm_requests:increase5m > 0))\n"
            f"> {threshold('failed_request_ratio')}\n"
            f"and {compare('model', 'model:vllm_requests:increase5m', '>=', 'measurement_minimum_requests')}\n"
            f"and {_K}"
        ),
        hold="5m",
        keep="10m",
        summary="Requests of a speculating model end in errors.",
        description=(
            f"{this(PERCENT)} of the requests of {WHO['model']} ended in an error within 5 minutes."
        ),
        action="Read vLLM's log. If it names speculative decoding, start it without --speculative-config.",
        dashboard="load",
        value=this(PERCENT) + " of the requests",
        threshold=in_force("failed_request_ratio", PERCENT),
        sample=of_model("model:vllm_requests:increase5m", COUNT, "{} requests in 5m"),
        why="vLLM counts requests that end in an error since 0.13.",
    )
