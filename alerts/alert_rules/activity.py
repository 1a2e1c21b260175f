"""Does speculation run as configured?"""

from __future__ import annotations

from .rule import (
    COUNT,
    LOOK_BACK,
    PERCENT,
    WHO,
    Alert,
    Group,
    Level,
    compare,
    drafts,
    enough,
    in_force,
    this,
    unless_it_pays,
)

_BYPASSED = (
    f'sum without (state) (last_over_time(vllm_specdec_activity{{state="bypassed"}}[{LOOK_BACK}])) == 1'
)
_SCHEDULED = f"last_over_time(vllm_specdec_scheduled_num_speculative_tokens[{LOOK_BACK}])"


def group() -> Group:
    """Return the group of alerts on activity."""
    return Group(
        "vllm-specdec.activity",
        (_bypassed(), _by_schedule(), _schedule_ignored(), _collapsed("model"), _collapsed("engine")),
    )


def _bypassed() -> Alert:
    return Alert(
        name="Bypassed",
        severity="warning",
        subject="activity",
        level="engine",
        expr=(
            "increase(vllm_specdec_generation_tokens_total[30m]) > 1000\n"
            "and engine:vllm_specdec_generation_tokens:rate5m offset 25m > 0\n"
            "unless increase(vllm_specdec_drafts_total[30m]) > 0\n"
            'and ignoring (state) (max_over_time(vllm_specdec_activity{state="bypassed"}[30m]) == 1)\n'
            "unless min_over_time(vllm_specdec_scheduled_num_speculative_tokens[30m]) == 0"
        ),
        hold="5m",
        keep="15m",
        summary="Speculation is configured, but nothing is drafted.",
        description=(
            WHO["engine"]
            + " has generated tokens for 30 minutes without a draft, and no schedule sets K = 0: "
            "a draft model uses memory without any gain."
        ),
        action=(
            "Run vllm-specdec-exporter check against the server: n-gram may find nothing to draft in this traffic; "
            "otherwise check vLLM's log for the reason."
        ),
        dashboard="acceptance",
        value="0 drafts, " + this(COUNT) + " tokens in 30m",
        why=(
            "At least 1,000 tokens in half an hour, so that the rule is silent for a nearly idle server; pauses in the traffic do not "
            "matter."
        ),
    )


def _by_schedule() -> Alert:
    return Alert(
        name="DisabledBySchedule",
        severity="info",
        subject="activity",
        level="engine",
        expr=f"{_BYPASSED}\nand {_SCHEDULED} == 0",
        hold="10m",
        keep="10m",
        summary="The K schedule has switched speculation off at this load.",
        description=(
            WHO["engine"]
            + " drafts nothing, because its schedule has K = 0 for the current number of running requests."
        ),
        action="Nothing, if the schedule is intended; the recommended schedule is on the exporter's status page.",
        dashboard="cost",
    )


def _schedule_ignored() -> Alert:
    return Alert(
        name="ScheduleIgnored",
        severity="warning",
        subject="activity",
        level="instance",
        expr=f"count without (engine) ({_SCHEDULED}) > 1",
        hold="10m",
        keep="10m",
        summary="vLLM ignores the K schedule, because it runs with data parallelism.",
        description=(
            WHO["instance"]
            + " has a schedule of K by batch size and {{ $value | humanize }} engines. vLLM ignores "
            "the schedule with data parallelism and drafts the same K at every load."
        ),
        action="Remove the schedule and set the K that the exporter recommends, or run one engine per server.",
        dashboard="cost",
        value="{{ $value | humanize }} engines",
        threshold="1 engine",
    )


def _collapsed(level: Level) -> Alert:
    acceptance = f"{level}:vllm_specdec_acceptance:ratio_rate5m"
    return Alert(
        name="Collapsed",
        severity="warning",
        subject="acceptance",
        level=level,
        expr=(
            f"{compare(level, acceptance, '<', 'collapsed_acceptance_ratio')}\n"
            f"and {enough(level, '5m')}\n"
            f"unless {unless_it_pays(level)}"
        ),
        hold="5m" if level == "model" else "10m",
        keep="15m",
        summary="Speculation has silently collapsed: almost all drafted tokens are rejected.",
        description=WHO[level] + " answers normally, but accepts " + this(PERCENT) + " of its draft tokens.",
        action=(
            "Find what changed: an upgrade of vLLM, target and draft model that no longer fit (quantization, "
            "checkpoint, chat template), very high temperatures or long contexts. Disable speculation until then."
        ),
        dashboard="acceptance",
        value=this(PERCENT) + " accepted",
        threshold=in_force("collapsed_acceptance_ratio", PERCENT),
        sample=drafts("5m"),
        why=(
            "Speculation is lossless, so there is no other symptom. Harmful pages if the lost speed "
            "is severe."
            if level == "model"
            else ""
        ),
    )
