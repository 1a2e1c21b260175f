"""Does speculation hurt users?"""

from mixin import CRITICAL

from . import series as s
from . import text as t
from .rule import Alert, Group, Record, Severity

_DISABLE = (
    f"Switch speculation off{t.ON_METHOD}, or set the K that the exporter recommends, "
    "if it recommends one; look at acceptance and load for the cause."
)
#: Both must have the same basis and the same cost profile.
_SAME_YARDSTICK = (
    f"unless on ({s.MODEL}) (count_over_time({s.BASES}[1h]) unless "
    f"count_over_time({s.BASES}[1h] offset 1d))\n"
    f"unless on ({s.MODEL}) (count_over_time({s.BASES}[1h] offset 1d) unless "
    f"count_over_time({s.BASES}[1h]))\n"
    f"unless on ({s.MODEL}) ({s.PROFILES} unless {s.PROFILES} offset 1d)"
)
_COMPARABLE = "model:vllm_specdec_is_as_loaded_as_yesterday:bool"
#: The threshold of the latency over that of the baseline.
WIDENED = "widened_latency_ratio"
_PAGED_LATELY = "method:vllm_specdec_paged_lately:bool"
_HELD = "method:vllm_specdec_held_speedup:last1h"
_FIRING = s.firing("Harmful", f'severity="{CRITICAL}"')
_CAUSE = "model:vllm_specdec_likely_cause:ratio"
_BEST = "model:vllm_specdec_best_speedup:max12m"


def _causes() -> Record:
    """Return the record of likely causes, each only where it holds, by the label
    `cause`.
    """
    drafted, accepted, drafts = (
        f"model:vllm_specdec_{counter}:rate5m"
        for counter in ("draft_tokens", "accepted_tokens", "drafts")
    )

    def gauge(name: str, function: str = "last", more: str = "") -> str:
        return (
            f"max by ({s.MODEL}) "
            f"({function}_over_time(vllm_specdec_{name}[{s.LOOK_BACK}]){more})"
        )

    def requests(matcher: str = "") -> str:
        return (
            f"sum by ({s.MODEL}) "
            f"(increase(«vllm»request_success_total{{{matcher}}}[5m]))"
        )

    rejected = f"({drafted} - {accepted}) / (({drafted} + {drafts}) > 0)"
    failed = f"""{requests('finished_reason="error"')} / ({requests()} > 0)"""
    above = f" > on ({s.TARGET}) group_left () {s.threshold_of_targets(WIDENED)}"
    ttft = gauge('latency_ratio{latency="time_to_first_token"}', more=above)
    causes = {
        "rejected_share_of_the_verified_tokens_while_requests_wait": (
            f"({s.compare(rejected, '>', 'wasted_verification_ratio')} and "
            f"({gauge('requests_waiting', 'min')} > 0))"
        ),
        "used_share_of_the_KV_cache": s.compare(
            gauge("kv_cache_usage_ratio"), ">", "squeezed_kv_cache_usage_ratio"
        ),
        "share_of_the_requests_that_end_in_an_error": s.compare(
            failed, ">", "failed_request_ratio"
        ),
        "time_to_first_token,_of_the_baseline's": ttft,
    }
    return Record(
        _CAUSE,
        s.labelled("cause", **causes),
        why="What may be behind a loss, each only while it is above its threshold.",
    )


def _unknown(gauge: str) -> str:
    """Return a gauge of the engines whose verdict is unknown, and that are judged."""
    return (
        f"vllm_specdec_{gauge} and ignoring (bound, verdict) "
        '(vllm_specdec_payoff{verdict="unknown",MODEL} == 1) '
        "and ignoring (bound) vllm_specdec_judged_speedup{MODEL}"
    )


#: What the speedup rests on, now or when it was last known.
_OF_MODEL = t.of_model(s.BASES)
_BASES = f"{_OF_MODEL} or on () last_over_time({_OF_MODEL}[1h]) or " + (
    s.tagged(
        "count(engine:vllm_specdec_drafts:rate5m{MODEL} > 0 unless "
        f"{s.ENGINE_SPEEDUP}{{MODEL}})",
        "basis",
        "not known",
    )
)
#: Between what the speed may lie where the verdict is unknown.
_BOUNDS = " or ".join(
    s.tagged(
        f"{end}({_unknown(f'speedup_interval{{bound={bound},MODEL}}')})", "speed", said
    )
    for end, bound, said in (("min", '"low"', "from"), ("max", '"high"', "up to"))
)
_UNKNOWN = "the verdict is unknown and a loss probable, their speed may be "


def groups() -> tuple[Group, ...]:
    """Return the groups of alerts on harm: the page, and tickets on half an hour and
    more.
    """
    page = _harmful(
        "critical",
        f"({s.compare_each(s.JUDGED_SPEEDUP, '<', 'severe_speedup')}\n"
        f"  and on ({s.MODEL}) {s.ENOUGH_30M}\n"
        f"  unless on ({s.MODEL}, method) {_PAGED_LATELY})\n"
        f"or {_HELD} < on ({s.MODEL}) group_left () "
        f"last_over_time({s.threshold('severe_speedup')}[1h])",
        limit="severe_speedup",
        hold="5m",
        keep="10m",
        summary="Speculation makes users wait far longer than without it.",
        over=(
            "5 minutes (while traffic is too thin to judge, the last that could be "
            "judged)"
        ),
        others="Engines of which nothing is known count as 1",
        why=(
            "Page: users get tokens far slower than without speculation, by "
            "severe_speedup, also if all engines of which nothing is known are as fast "
            "as without: a slow loss of one of many is a ticket. The exporter gives a "
            "speedup only if its whole interval is below or above 1, or a loss is at "
            "least as probable as probable_loss_probability. While traffic is too thin "
            "to judge, a page stays for an hour, so that one fault is one page."
        ),
    )
    ticket = _harmful(
        "warning",
        f"{s.HALF_HOUR}\n"
        f"and ({s.compare_each(_BEST, '<', 'harmful_speedup')})\n"
        f"and {s.HALF_HOUR} offset 30m\n"
        f"and on ({s.MODEL}) {s.ENOUGH_30M}\n"
        f"unless on ({s.MODEL}) {_FIRING}",
        limit="harmful_speedup",
        hold="3m",
        keep="1h",
        summary=(
            "Over half an hour users have waited longer than without speculation."
        ),
        over="the last 30 minutes",
        others=(
            "Engines of which nothing is known "
            "{{ if $labels.method }}count as 1{{ else }}do not count{{ end }}"
        ),
        why=(
            "Ticket: a loss by harmful_speedup over half an hour, for 15 minutes, and "
            "only while it loses; of each method of a model that has several. Half an "
            "hour ago something was known of it. None begins while the page fires, and "
            "Alertmanager hides one that was there. 12 of the 15 minutes are in the "
            "data, so that they count while it pages: soon after a page gives way to a "
            "smaller loss there is a ticket, and none after a gain."
        ),
    )
    return (
        Group("vllm-specdec.harm.lately", (_paged_lately(), _held())),
        Group("vllm-specdec.harm", (page,), s.PAGE_INTERVAL),
        Group(
            "vllm-specdec.payoff",
            (_causes(), _best(), ticket, _comparable(), _regressed()),
            s.LONG_INTERVAL,
        ),
    )


def _best() -> Record:
    half_hours = f"max_over_time({s.HALF_HOUR}[12m])"
    now = f"({s.SPEEDUP} or {s.JUDGED_SPEEDUP})"
    return Record(
        _BEST,
        f"({half_hours} > {now})\nor {now}",
        why=(
            "The speedup now, or that of the best half hour of the last 12 minutes if "
            "it was higher. Now is also of few drafts: of thin traffic half an hour "
            "has enough of them, and five minutes never have."
        ),
    )


def _paged_lately() -> Record:
    gained = s.compare_each(
        f"max_over_time({s.JUDGED_SPEEDUP}[15m])", ">=", "severe_speedup"
    )
    return Record(
        _PAGED_LATELY,
        f"group by ({s.MODEL}, method) (\n"
        f"  count_over_time({_FIRING}[4h]) unless {_FIRING}\n"
        f"  and on ({s.MODEL}, method) (\n"
        f"    {gained}\n"
        f"    or count_over_time({s.JUDGED_ACCEPTANCE}[15m])\n"
        f"    > count_over_time({s.JUDGED_SPEEDUP}[15m])\n"
        "  )\n)",
        why=(
            "It paged within four hours and does not now: then it pages again only "
            "after a loss of a quarter of an hour, so that runs of ten minutes page "
            "once. It has not lost for so long if it was well, or if nothing was known "
            "of it while there were enough drafts to judge by."
        ),
    )


def _held() -> Record:
    return Record(
        _HELD,
        f"last_over_time({s.JUDGED_SPEEDUP}[1h])\n"
        f"and on ({s.MODEL}, method) {_FIRING}\n"
        f"unless on ({s.MODEL}, method) {s.JUDGED_ACCEPTANCE}\n"
        f"and on ({s.MODEL}, method) (\n"
        f"  group by ({s.MODEL}, method) "
        f"(last_over_time(vllm_specdec_info[{s.LOOK_BACK}]))\n"
        "  or model:vllm_specdec_generation_tokens:rate5m\n)\n"
        f"unless on ({s.MODEL}) ({s.UNDRAFTED})",
        why=(
            "The last speedup of what pages, while traffic is too thin to judge it. "
            "Not if it is switched off or gone: no drafts for the tokens, or no "
            "engines of the model or, in an A/B test, of the method."
        ),
    )


def _harmful(
    severity: Severity,
    expr: str,
    limit: str,
    hold: str,
    keep: str,
    summary: str,
    over: str,
    others: str,
    why: str,
) -> Alert:
    probably = t.each(_BOUNDS, "speed", t.TIMES, f"; of some {_UNKNOWN}")
    return Alert(
        name="Harmful",
        severity=severity,
        subject="payoff",
        expr=expr,
        hold=hold,
        keep=keep,
        summary=summary,
        description=(
            f"{t.WHO['model']}{t.BY_METHOD} generates at {t.this(t.TIMES)} the speed "
            f"that it would have without speculation, over {over}. {others}"
            f"{probably}."
        ),
        action=_DISABLE,
        value=t.this(t.TIMES),
        threshold=t.in_force(limit, t.TIMES),
        context=t.every(
            f"{_BASES} or {_CAUSE}{{MODEL}}",
            {"basis": t.COUNT, "cause": t.PERCENT},
            f"engines{t.OF_ALL} by the basis of their speedup, likely causes: ",
        ),
        why=why,
    )


def _comparable() -> Record:
    def requests(ago: str = "") -> str:
        waiting = (
            f"avg by ({s.MODEL}) "
            f"(avg_over_time(vllm_specdec_requests_waiting[1h]{ago}))"
        )
        return f"model:vllm_specdec_requests_running:avg1h{ago} + {waiting}"

    return Record(
        _COMPARABLE,
        f"group by ({s.MODEL}) (\n"
        f"({requests()}\n"
        f"<= 1.25 * ({requests(' offset 1d')}))\n"
        f"and ({s.K} == ({s.K} offset 1d))\n"
        f"and {s.enough('1h', 'comparison_minimum_drafts')}\n"
        f"and {s.enough('1h', 'comparison_minimum_drafts', offset='1d')}\n"
        f"{_SAME_YARDSTICK}\n"
        ")",
        why=(
            "A load at most a quarter above that of a day ago, the same K, basis and "
            "cost profile, and enough drafts then and now. Waiting requests count, "
            "because a full batch does not grow."
        ),
    )


def _regressed() -> Alert:
    now = "model:vllm_specdec_speedup:ratio_rate1h"
    return Alert(
        name="SpeedupRegressed",
        subject="payoff",
        expr=(
            f"{now} < on ({s.MODEL}) (1 - {s.threshold('drop_ratio')}) "
            f"* on ({s.MODEL}) ({now} offset 1d)\n"
            f"and {_COMPARABLE}"
        ),
        hold="30m",
        keep="1h",
        summary=(
            "Speculation gains less than yesterday at this time, at a similar load."
        ),
        description=(
            f"{t.WHO['model']} generates at {t.this(t.TIMES)} the speed that it would "
            "have without speculation, over the last hour. Yesterday at this time it "
            "was faster, with the same K and at least four fifths of the load."
        ),
        action=(
            "Compare traffic, version and drafter with yesterday's; "
            "vllm-specdec-exporter compare can do it from snapshots."
        ),
        value=t.this(t.TIMES),
        threshold=t.in_force("drop_ratio", t.PERCENT, "{} below")
        + t.value(f"{now}{{MODEL}} offset 1d", t.TIMES, " yesterday's {}"),
        context=t.every(
            f"{_BASES} or {_BOUNDS}",
            {"basis": t.COUNT, "speed": t.TIMES},
            "engines by the basis of their speedup, interval of unknown verdicts: ",
        ),
    )
