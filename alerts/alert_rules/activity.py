"""Does speculation run as configured?"""

from . import series as s
from . import text as t
from .rule import Alert, Group


def groups() -> tuple[Group, ...]:
    """Return the groups of alerts on activity: of minutes, and of half an hour."""
    return (
        Group("vllm-specdec.activity", (_collapsed(),), s.PAGE_INTERVAL),
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
            "vllm_specdec_drafts_total\n"
            f"    and on ({s.MODEL}) model:vllm_specdec_drafts:rate30m > 0)\n"
            ")"
        ),
        hold="5m",
        keep="15m",
        summary="Speculation is configured, but no drafts are counted.",
        description=(
            t.WHO["engine"]
            + (
                " has generated tokens for 30 minutes, no draft was counted, and no "
                "schedule sets K = 0. Either nothing is drafted, or this version of "
                "vLLM counts drafts under a name that the exporter does not know."
            )
        ),
        action=(
            "Does vLLM's /metrics have counters of drafts under other names? Then "
            "upgrade the exporter. Else check vLLM's arguments: has a deployment lost "
            "--speculative-config? Then "
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
        hold="7m",
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
            "Read some answers: an engine whose answers are garbled is drained first. "
            "Then find what changed: an upgrade of vLLM, target and draft model that "
            "no longer fit (quantization, checkpoint, chat template), very high "
            "temperatures or long contexts. Until then switch speculation off"
            f"{t.ON_METHOD}."
        ),
        value=t.this(t.PERCENT) + " accepted",
        threshold=t.in_force("collapsed_acceptance_ratio", t.PERCENT),
        sample=t.drafts("5m", t.OF_ALL),
        why=(
            "Speed is the only other symptom where answers are not garbled as well: "
            "verification is lossless, but what breaks the drafter, such as a broken "
            "KV cache, may break the target too. Harmful pages if "
            "the lost speed is severe. Not of a run of ten minutes: rates over 5 "
            "minutes are low for 6 of them. Kept for 10 minutes only: a longer run "
            "may be over before Alertmanager sends the ticket, so that it is not sent."
        ),
    )
