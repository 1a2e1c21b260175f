"""Raw series are read as what they are: counters as rates, gauges over some time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from alerts.lint_examples import DRAFTS, ENGINE, RATIO, Examples, M, alert, bad_rules, good_rules, record, run

if TYPE_CHECKING:
    from alerts import lint

EXAMPLES = {
    "counters": Examples(
        bad=[
            (record("rate(vllm_specdec_requests_running[5m])"), "no counter"),
            (record(f"increase({ENGINE}[5m])"), "no counter"),
            (record("irate(vllm:num_requests_running[5m])"), "no counter"),
            (record(f"sum by ({M}) (vllm_specdec_drafts_total)"), "is a counter, and stands outside"),
            (record("vllm:request_success_total > 5"), "is a counter, and stands outside"),
            (record("avg_over_time(vllm_specdec_drafts_total[5m])"), "is a counter, and stands outside"),
            (record("vllm_specdec_drafts_total and up"), "is a counter, and stands outside"),
            (record("up and (vllm_specdec_drafts_total > 5)"), "is a counter, and stands outside"),
            (record("up or vllm_specdec_drafts_total"), "is a counter, and stands outside"),
            (record("vllm_specdec_accepted_tokens_per_draft_bucket > 0"), "is a counter, and stands outside"),
        ],
        good=[
            record("rate(vllm_specdec_drafts_total[5m])"),
            record("increase(vllm:time_to_first_token_seconds_count[1h])"),
            record("rate(vllm_specdec_accepted_tokens_per_draft_bucket[5m])"),
            record("changes(vllm_specdec_drafts_total[5m]) + resets(vllm_specdec_drafts_total[5m])"),
            record(f"count by ({M}) (vllm_specdec_drafts_total)"),
            record("absent(vllm_specdec_drafts_total)"),
            record("up unless on (pod) vllm_specdec_drafts_total"),
            record("up and on (pod) (vllm_specdec_drafts_total unless on (pod) vllm:num_preemptions_total)"),
            record(f"{DRAFTS} > 1"),
        ],
    ),
    "bare_gauge": Examples(
        bad=[
            (alert("vllm_specdec_up == 0"), "vllm_specdec_up without a function over time"),
            (record(f"max by ({M}) (vllm_specdec_requests_running)"), "requests_running without"),
            (record("vllm_specdec_info offset 1h"), "info without"),
        ],
        good=[
            record("last_over_time(vllm_specdec_up[3m]) == 0"),
            record("changes(vllm_specdec_drafts_total[5m])"),
            record("changes(vllm_specdec_num_speculative_tokens[30m]) > 0"),
            record("up == 0"),
            record(DRAFTS),
        ],
    ),
    "rate_of_sum": Examples(
        bad=[
            (record(f"rate((sum by ({M}) (vllm_specdec_drafts_total))[5m:1m])"), "rate of an expression"),
            (
                record("increase((vllm_specdec_drafts_total + vllm_specdec_drafts_total)[5m:])"),
                "increase of an",
            ),
        ],
        good=[record(f"sum by ({M}) (rate(vllm_specdec_drafts_total[5m]))")],
    ),
    "short_range": Examples(
        bad=[
            (record("rate(vllm_specdec_drafts_total[3m])"), "less than 4 minutes"),
            (record("irate(vllm_specdec_drafts_total[1m])"), "less than 4 minutes"),
        ],
        good=[record("rate(vllm_specdec_drafts_total[4m])"), record("last_over_time(vllm_specdec_up[3m])")],
    ),
    "offset": Examples(
        bad=[
            (record("increase(vllm_specdec_drafts_total[5m] offset 1d)"), "neither recorded nor a gauge"),
            (record("absent(vllm:num_preemptions_total offset 5m)"), "neither recorded nor a gauge"),
        ],
        good=[record(f"{RATIO} offset 1d"), record("last_over_time(vllm_specdec_info[3m] offset 2h)")],
    ),
}


@pytest.mark.parametrize(("check", "rule", "words"), bad_rules(EXAMPLES))
def test_a_bad_rule_is_caught(check: str, rule: lint.Rule, words: str) -> None:
    said = run(check, rule)
    assert any(words in one for one in said), said


@pytest.mark.parametrize(("check", "rule"), good_rules(EXAMPLES))
def test_a_good_rule_passes(check: str, rule: lint.Rule) -> None:
    assert run(check, rule) == []
