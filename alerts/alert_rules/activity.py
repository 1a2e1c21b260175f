"""Does speculation run as configured?"""

from . import series as s
from . import text as t
from .rule import Alert, Group


def groups() -> tuple[Group, ...]:
    """Return the groups of alerts on activity: of minutes, and of half an hour."""
    return (
        Group("vllm-specdec.activity", (_collapsed(),)),
        Group("vllm-specdec.activity.long", (_bypassed(),), s.LONG_INTERVAL),
    )


def _bypassed() -> Alert:
    return Alert(
        name="Bypassed",
        subject="activity",
        level="engine",
        expr=(
            "1800 * avg_over_time(engine:vllm_specdec_generation_tokens:rate5m[25m]) "
            "> 1000\n"
            "and engine:vllm_specdec_generation_tokens:rate5m offset 25m > 0\n"
            "unless max_over_time(engine:vllm_specdec_drafts:rate5m[25m]) > 0\n"
            f"and ignoring (state, {s.METADATA}) "
            '(max_over_time(vllm_specdec_activity{state="bypassed"}[30m]) == 1)\n'
            f"unless ignoring ({s.METADATA}) (\n"
            "  min_over_time(vllm_specdec_scheduled_num_speculative_tokens[30m]) == 0\n"
            "  or (vllm_specdec_generation_tokens_total unless "
            "vllm_specdec_drafts_total)\n"
            f"  and on ({s.MODEL}) model:vllm_specdec_drafts:rate30m > 0\n"
            ")"
        ),
        hold="5m",
        keep="15m",
        summary="Speculation is configured, but nothing is drafted.",
        description=(
            t.WHO["engine"]
            + (
                " has generated tokens for 30 minutes without a draft, and no "
                "schedule sets K = 0: speculation gains nothing."
            )
        ),
        action=(
            "Check vLLM's arguments: has a deployment lost --speculative-config? Then "
            "run vllm-specdec-exporter check against the server, and read vLLM's log."
        ),
        value="0 drafts, " + t.this(t.COUNT) + " tokens in 30m",
        why=(
            "At least 1,000 tokens in half an hour, so that the rule is silent for a "
            "nearly idle server; pauses in the traffic do not matter. A server "
            "without counters of speculation, beside others of the model that draft, "
            "is one half of an A/B test."
        ),
    )


def _collapsed() -> Alert:
    acceptance = s.rounded(s.JUDGED_ACCEPTANCE)
    collapsed = s.compare_each(acceptance, "<", "collapsed_acceptance_ratio")
    return Alert(
        name="Collapsed",
        subject="acceptance",
        expr=(
            f"{collapsed}\n"
            f"and on ({s.MODEL}) {s.ENOUGH_30M}\n"
            f"unless ({s.compare_each(s.JUDGED_SPEEDUP, '>=', 'beneficial_speedup')})"
        ),
        hold="5m",
        keep="10m",
        summary=(
            "Speculation has silently collapsed: almost all drafted tokens are "
            "rejected."
        ),
        description=(
            f"{t.WHO['model']}{t.BY_METHOD} accepts only {t.this(t.PERCENT)} of its "
            "draft tokens, over 5 minutes."
        ),
        action=(
            "Find what changed: an upgrade of vLLM, target and draft model that no "
            "longer fit (quantization, checkpoint, chat template), very high "
            "temperatures or long contexts. Switch speculation off until then."
        ),
        value=t.this(t.PERCENT) + " accepted",
        threshold=t.in_force("collapsed_acceptance_ratio", t.PERCENT),
        sample=t.drafts("5m"),
        why=(
            "Speculation is lossless, so there is no other symptom. Harmful pages if "
            "the lost speed is severe. Kept for 10 minutes only: a run of ten minutes "
            "is over before Alertmanager sends the ticket, so that it is not sent."
        ),
    )
