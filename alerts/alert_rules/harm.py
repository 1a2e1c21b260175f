"""Does speculation hurt users?"""

from __future__ import annotations

from mixin import CRITICAL

from .rule import (
    BY_METHOD,
    CERTAIN_SPEEDUP,
    COUNT,
    LONG_INTERVAL,
    LOOK_BACK,
    METHOD_SPEEDUP,
    MODEL,
    NUMBER,
    PERCENT,
    SPEEDUP,
    TIMES,
    WHO,
    Alert,
    Group,
    Promise,
    Severity,
    cause,
    compare,
    drafts,
    enough,
    in_force,
    of_model,
    this,
    threshold,
)

_HARMLESS = Promise("Do users wait longer because of it?", "collapse", "harm-on-a-few-drafts-is-not-judged")
_DISABLE = "Disable speculation, or set the K that the exporter recommends; look at acceptance and load for the cause."
_K = "model:vllm_specdec_num_speculative_tokens:max"
_REQUESTS = "model:vllm_specdec_requests:avg1h"
#: A day is compared with the day before only if the load is at most this many times as high.
_SAME_LOAD = f"and ({_REQUESTS} <= 1.25 * ({_REQUESTS} offset 1d))"
_BASIS, _PROFILE = "model:vllm_specdec_basis:engines", "model:vllm_specdec_cost_profile:engines"
#: Both must have the same basis and the same cost profile.
_SAME_YARDSTICK = (
    f"unless on ({MODEL}) (count_over_time({_BASIS}[1h]) unless count_over_time({_BASIS}[1h] offset 1d))\n"
    f"unless on ({MODEL}) (count_over_time({_BASIS}[1h] offset 1d) unless count_over_time({_BASIS}[1h]))\n"
    f"unless on ({MODEL}) ({_PROFILE} unless {_PROFILE} offset 1d)"
)
_ERRORS = 'sum(increase(«vllm»request_success_total{finished_reason="error",MODEL}[5m]))'
_WASTED = "model:vllm_specdec_wasted_verification:ratio_rate5m"


def _over(name: str) -> str:
    """Return the comparison of a value of the alert's model with a threshold."""
    return f"> on () group_left () {threshold(name)}{{MODEL}}"


#: What a person should know at once, and likely causes, each named only where it holds.
_CONTEXT = (
    of_model("model:vllm_specdec_requests_running:avg5m", COUNT, "{} requests run per engine")
    + of_model("model:vllm_specdec_acceptance:ratio_rate5m", PERCENT, ", {} of the draft tokens are accepted")
    + of_model(
        "model:vllm_specdec_mean_acceptance_length:ratio_rate5m", NUMBER, ", mean acceptance length {}"
    )
    + cause(
        f"({_WASTED}{{MODEL}} {_over('wasted_verification_ratio')}) "
        "and on () (sum(min_over_time(vllm_specdec_requests_waiting{MODEL}[5m])) > 0)",
        PERCENT,
        ", requests wait while {} of the verified tokens are rejected drafts",
    )
    + cause(
        f"max(last_over_time(vllm_specdec_kv_cache_usage_ratio{{MODEL}}[{LOOK_BACK}])) "
        f"{_over('squeezed_kv_cache_usage_ratio')}",
        PERCENT,
        ", the KV cache is {} full",
    )
    + cause(
        'max(last_over_time(vllm_specdec_latency_ratio{latency="time_to_first_token",MODEL}[3m])) '
        f"{_over('widened_latency_ratio')}",
        NUMBER,
        ", the time to first token is {} times the baseline's",
    )
    # The second query only if there is an error: it is of all reasons.
    + cause(
        f"{_ERRORS} > 0",
        COUNT,
        cause(
            f"({_ERRORS} / (sum(increase(«vllm»request_success_total{{MODEL}}[5m])) > 0)) "
            f"{_over('failed_request_ratio')}",
            PERCENT,
            ", {} of the requests end in an error",
        ),
    )
)


def groups() -> tuple[Group, ...]:
    """Return the groups of alerts on harm: the page, and tickets on half an hour and more."""
    severe = f"({compare('model', SPEEDUP, '<', 'severe_speedup')} and {enough('model', '5m')})"
    limit = f"< on ({MODEL}) group_left () {threshold('severe_speedup')}"
    held = f"last_over_time({CERTAIN_SPEEDUP}[1h]) < last_over_time({threshold('severe_speedup')}[1h])"
    not_thin = f"({enough('model', '5m')})"
    not_thin_by_method = "method:vllm_specdec_certain_acceptance:ratio_rate5m"
    firing = f'ALERTS{{alertname="VLLMSpecDecodeHarmful", alertstate="firing", severity="{CRITICAL}"}}'
    page = _harmful(
        "critical",
        f"({severe}\nor {held} and on ({MODEL}) {firing} unless on ({MODEL}) {not_thin})\n"
        f"unless on ({MODEL}) {METHOD_SPEEDUP}\n"
        f"or {METHOD_SPEEDUP} {limit}\n"
        f"or last_over_time({METHOD_SPEEDUP}[1h]) {limit}\n"
        f"and on ({MODEL}, method) {firing}\n"
        f"unless on ({MODEL}, method) {not_thin_by_method}",
        "severe_speedup",
        "5m",
        "5m",
        "10m",
        "Users get tokens far slower than without speculation: this pages. A speedup counts "
        "if its whole interval is below 1, or a loss is at least as probable as probable_loss_probability: of twenty such "
        "pages, at most one is wrong. A model with several methods is judged by method. While traffic is too thin to judge, a page stays for an hour, so "
        "that one fault is one page.",
    )
    half_hour = "model:vllm_specdec_speedup:ratio_rate30m"
    ticket = _harmful(
        "warning",
        f"{compare('model', half_hour, '<', 'harmful_speedup')}\n"
        f"and ({compare('model', f'max_over_time({half_hour}[12m])', '<', 'harmful_speedup')})\n"
        f"and ({half_hour} offset 12m)\n"
        f"and ({compare('model', SPEEDUP, '<', 'harmful_speedup')})\n"
        f"and {enough('model', '30m')}\nunless on ({MODEL}) {firing}",
        "harmful_speedup",
        "30m",
        "3m",
        "1h",
        "Over half an hour, for 15 minutes, and only while it loses: an idle server raises no ticket. Nor does what pages "
        "already. 12 of the 15 minutes are in the data, so that they count while it pages: soon after a page gives way to a smaller loss "
        "there is a ticket, and none after a gain.",
    )
    return (
        Group("vllm-specdec.harm", (page,)),
        Group("vllm-specdec.payoff", (ticket, _regressed()), LONG_INTERVAL),
    )


def _harmful(severity: Severity, expr: str, limit: str, window: str, hold: str, keep: str, why: str) -> Alert:
    return Alert(
        name="Harmful",
        severity=severity,
        subject="payoff",
        level="model",
        expr=expr,
        hold=hold,
        keep=keep,
        summary="Speculation makes users wait longer than without it.",
        description=(
            f"{WHO['model']}{BY_METHOD if severity == 'critical' else ''} generates at {this(TIMES)} the speed that it would have without speculation."
        ),
        action=_DISABLE,
        value=this(TIMES),
        threshold=in_force(limit, TIMES),
        sample=drafts(window),
        context=_CONTEXT,
        why=why,
        promise=_HARMLESS if severity == "critical" else None,
    )


def _regressed() -> Alert:
    now = "model:vllm_specdec_speedup:ratio_rate1h"
    return Alert(
        name="SpeedupRegressed",
        promise=Promise(
            "Does it gain as much as yesterday?", "erosion", "without-a-yesterday-there-is-no-fall"
        ),
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
