"""Does speculation hurt users?"""

from __future__ import annotations

from mixin import CRITICAL

from .rule import (
    BY_METHOD,
    COUNT,
    ENOUGH_1H,
    ENOUGH_30M,
    JUDGED_ACCEPTANCE,
    JUDGED_SPEEDUP,
    LONG_INTERVAL,
    LOOK_BACK,
    MODEL,
    PERCENT,
    SPEEDUP,
    TIMES,
    WHO,
    Alert,
    Group,
    K,
    Promise,
    Record,
    Severity,
    compare,
    drafts,
    each,
    enough,
    in_force,
    labelled,
    this,
    threshold,
)

_HARMLESS = Promise("Do users wait longer because of it?", "collapse", "harm-on-a-few-drafts-is-not-judged")
_DISABLE = "Disable speculation, or set the K that the exporter recommends; look at acceptance and load for the cause."
_REQUESTS = "model:vllm_specdec_requests:avg1h"
_BASIS, _PROFILE = "model:vllm_specdec_basis:engines", "model:vllm_specdec_cost_profile:engines"
#: Both must have the same basis and the same cost profile.
_SAME_YARDSTICK = (
    f"unless on ({MODEL}) (count_over_time({_BASIS}[1h]) unless count_over_time({_BASIS}[1h] offset 1d))\n"
    f"unless on ({MODEL}) (count_over_time({_BASIS}[1h] offset 1d) unless count_over_time({_BASIS}[1h]))\n"
    f"unless on ({MODEL}) ({_PROFILE} unless {_PROFILE} offset 1d)"
)
_COMPARABLE = "model:vllm_specdec_is_as_loaded_as_yesterday:bool"
_CAUSE = "model:vllm_specdec_likely_cause:ratio"


def _causes() -> Record:
    """Return the record of likely causes, each only where it holds, by the label `cause`."""
    drafted, accepted, drafts = (
        f"model:vllm_specdec_{counter}:rate5m" for counter in ("draft_tokens", "accepted_tokens", "drafts")
    )

    def gauge(name: str, function: str = "last") -> str:
        return f"max by ({MODEL}) ({function}_over_time(vllm_specdec_{name}[{LOOK_BACK}]))"

    def requests(matcher: str = "") -> str:
        return f"sum by ({MODEL}) (increase(«vllm»request_success_total{{{matcher}}}[5m]))"

    failed = f"""{requests('finished_reason="error"')} / ({requests()} > 0)"""
    ttft = gauge('latency_ratio{latency="time_to_first_token"}')
    causes = {
        "rejected_share_of_the_verified_tokens_while_requests_wait": (
            f"(({drafted} - {accepted}) / (({drafted} + {drafts}) > 0) > {threshold('wasted_verification_ratio')} "
            f"and ({gauge('requests_waiting', 'min')} > 0))"
        ),
        "used_share_of_the_KV_cache": f"({gauge('kv_cache_usage_ratio')} > {threshold('squeezed_kv_cache_usage_ratio')})",
        "share_of_the_requests_that_end_in_an_error": f"({failed} > {threshold('failed_request_ratio')})",
        "time_to_first_token_over_the_baseline's": f"({ttft} > {threshold('widened_latency_ratio')})",
    }
    return Record(
        _CAUSE,
        labelled("cause", **causes),
        why="What may be behind a loss, each only while it is above its threshold.",
    )


#: What the speedup rests on, and likely causes.
_KNOWN_BY = "engines by the basis of their speedup: " + each(f"{_BASIS}{{MODEL}}", "basis", COUNT)
_LIKELY = each(f"{_CAUSE}{{MODEL}}", "cause", PERCENT, "; ")


def groups() -> tuple[Group, ...]:
    """Return the groups of alerts on harm: the page, and tickets on half an hour and more."""
    firing = f'ALERTS{{alertname="VLLMSpecDecodeHarmful", alertstate="firing", severity="{CRITICAL}"}}'
    page = _harmful(
        "critical",
        f"{JUDGED_SPEEDUP} < on ({MODEL}) group_left () {threshold('severe_speedup')}\n"
        f"or last_over_time({JUDGED_SPEEDUP}[1h]) < on ({MODEL}) group_left () last_over_time({threshold('severe_speedup')}[1h])\n"
        f"and on ({MODEL}, method) {firing}\n"
        f"unless on ({MODEL}, method) {JUDGED_ACCEPTANCE}",
        "severe_speedup",
        "5m",
        "10m",
        "Users get tokens far slower than without speculation: this pages. A speedup counts "
        "if its whole interval is below 1, or a loss is at least as probable as probable_loss_probability: of twenty such "
        "pages, at most one is wrong. While traffic is too thin to judge, a page stays for an hour, so "
        "that one fault is one page.",
    )
    half_hour = "model:vllm_specdec_speedup:ratio_rate30m"
    ticket = _harmful(
        "warning",
        f"{compare('model', half_hour, '<', 'harmful_speedup')}\n"
        f"and ({compare('model', f'max_over_time({half_hour}[12m])', '<', 'harmful_speedup')})\n"
        f"and ({half_hour} offset 12m)\n"
        f"and ({compare('model', SPEEDUP, '<', 'harmful_speedup')})\n"
        f"and {ENOUGH_30M}\nunless on ({MODEL}) {firing}",
        "harmful_speedup",
        "3m",
        "1h",
        "Over half an hour, for 15 minutes, and only while it loses: an idle server raises no ticket. Nor does what pages "
        "already. 12 of the 15 minutes are in the data, so that they count while it pages: soon after a page gives way to a smaller loss "
        "there is a ticket, and none after a gain.",
    )
    return (
        Group("vllm-specdec.harm", (_causes(), page)),
        Group("vllm-specdec.payoff", (ticket, _comparable(), _regressed()), LONG_INTERVAL),
    )


def _harmful(severity: Severity, expr: str, limit: str, hold: str, keep: str, why: str) -> Alert:
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
        context=_KNOWN_BY + _LIKELY,
        why=why,
        promise=_HARMLESS if severity == "critical" else None,
    )


def _comparable() -> Record:
    return Record(
        _COMPARABLE,
        f"group by ({MODEL}) (\n({_REQUESTS} <= 1.25 * ({_REQUESTS} offset 1d))\n"
        f"and ({K} == ({K} offset 1d))\n{_SAME_YARDSTICK}\n)",
        why="No higher load than a day ago, and the same K, basis and cost profile.",
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
            f"and {_COMPARABLE}\n"
            f"and {ENOUGH_1H}\n"
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
        context=_KNOWN_BY,
    )
