"""What is used exists, and what exists is used."""

# Expressions are as long as what they say.
# ruff: noqa: E501

from __future__ import annotations

import pytest

from alerts import lint
from alerts.lint_examples import (
    DRAFTS,
    ENGINE,
    JUDGES,
    LIMIT,
    RATIO,
    RECORDS,
    THRESHOLD,
    Examples,
    M,
    alert,
    bad_rules,
    bundle,
    good_rules,
    record,
    run,
)

EXAMPLES = {
    "known_metrics": Examples(
        bad=[
            (record("last_over_time(vllm_specdec_nothing[3m])"), "unknown metric vllm_specdec_nothing"),
            (record("rate(vllm:spec_decode_num_drafts[5m])"), "unknown metric vllm:spec_decode_num_drafts"),
            (record("rate(vllm_specdec_accepted_tokens_per_draft[5m])"), "unknown metric"),
            (record("model:vllm_specdec_nothing:rate5m"), "unknown metric model:vllm_specdec_nothing:rate5m"),
            (record('{__name__="vllm_specdec_nothing"}'), "unknown metric vllm_specdec_nothing"),
            (record('vllm_specdec_up{engine="0"}'), "vllm_specdec_up has no label engine"),
            (record(f'{DRAFTS}{{pod="x"}}'), f"{DRAFTS} has no label pod"),
            (record('vllm_specdec_activity{state="asleep"}'), 'never has state="asleep"'),
            (record('vllm_specdec_activity{state!="asleep"}'), 'never has state="asleep"'),
            (record('vllm_specdec_threshold{name="poor"}'), 'never has name="poor"'),
            (record('vllm_specdec_poll_errors_total{reason="bad"}'), 'never has reason="bad"'),
            (record('vllm_specdec_latency_ratio{percentile="0.95"}'), 'never has percentile="0.95"'),
            (record('vllm_specdec_speedup{basis="guessed"}'), 'never has basis="guessed"'),
            (
                record('vllm:request_success_total{finished_reason="failed"}'),
                'never has finished_reason="failed"',
            ),
            (
                record('ALERTS{alertname="VLLMSpecDecodeNothing"}'),
                'never has alertname="VLLMSpecDecodeNothing"',
            ),
            (
                record('ALERTS{alertname="VLLMSpecDecodeExample", alertstate="on"}'),
                'never has alertstate="on"',
            ),
            (
                alert('ALERTS{alertname="VLLMSpecDecodeExample", reason="x"}', reason="y"),
                'never has reason="x"',
            ),
            (record(f"sum by (pod, {M}) ({DRAFTS})"), "pod: a label that the series never have"),
            (record(f"sum without (position) ({ENGINE})"), "position: a label that the series never have"),
        ],
        good=[
            alert(),
            record('vllm_specdec_activity{state="off", engine="0", pod="x"}'),
            record("vllm_specdec_accepted_tokens_per_draft_bucket"),
            record('vllm:request_success_total{finished_reason="repetition"}'),
            record('vllm_specdec_poll_errors_total{reason!="refused"}'),
            record('vllm_specdec_threshold{name="poor_acceptance_ratio"}'),
            record('model:vllm_specdec_accepted_tokens_per_position:rate5m{position="0"}'),
            alert(
                f'{JUDGES} and on ({M}) ALERTS{{alertname="VLLMSpecDecodeExample", alertstate="firing", reason="x"}}',
                reason="x",
            ),
            record('up{job="x"}'),
        ],
    ),
    "thresholds": Examples(
        bad=[
            (alert("model:vllm_specdec_nothing:threshold > 0"), "unknown threshold nothing"),
            (
                record("vector(1)", "model:vllm_specdec_awful_ratio:threshold"),
                "unknown threshold awful_ratio",
            ),
        ],
        good=[alert(), record("vector(1)", LIMIT)],
    ),
    "orphan": Examples(
        bad=[(record(f"sum by ({M}) ({ENGINE})"), "used by no alert")],
        good=[
            alert(),
            lint.Rule({"record": RATIO, "expr": RECORDS[RATIO]}),
        ],
    ),
}


@pytest.mark.parametrize(("check", "rule", "words"), bad_rules(EXAMPLES))
def test_a_bad_rule_is_caught(check: str, rule: lint.Rule, words: str) -> None:
    said = run(check, rule)
    assert any(words in one for one in said), said


@pytest.mark.parametrize(("check", "rule"), good_rules(EXAMPLES))
def test_a_good_rule_passes(check: str, rule: lint.Rule) -> None:
    assert run(check, rule) == []


def test_a_record_that_only_an_orphan_uses_is_an_orphan() -> None:
    unused = record(ENGINE, "engine:vllm_specdec_unused:rate5m")
    user = record("engine:vllm_specdec_unused:rate5m", "engine:vllm_specdec_user:rate5m")
    with_orphans = bundle(alert(), unused, user)
    assert lint.orphan(unused, with_orphans) != []
    assert lint.orphan(user, with_orphans) != []
    with_user = bundle(
        alert(), unused, user, alert("engine:vllm_specdec_user:rate5m > 1", alert="VLLMSpecDecodeX")
    )
    assert lint.orphan(unused, with_user) == lint.orphan(user, with_user) == []


def test_a_record_that_an_annotation_asks_for_is_none() -> None:
    shown = record(ENGINE, "engine:vllm_specdec_shown:rate5m")
    assert lint.orphan(shown, bundle(alert(), shown)) != []
    template = "{{ with query `engine:vllm_specdec_shown:rate5m` }}{{ . | first | value }}{{ end }}"
    assert lint.orphan(shown, bundle(alert(context=template), shown)) == []


def test_a_threshold_for_alerts_that_none_compares_with_is_named() -> None:
    idle = lint.idle_thresholds(bundle(alert()))
    assert any("collapsed_acceptance_ratio" in words for words in idle)
    limit = "model:vllm_specdec_collapsed_acceptance_ratio:threshold"
    compared = bundle(
        record(THRESHOLD.format("collapsed_acceptance_ratio"), limit), alert(f"{RATIO} < {limit}")
    )
    assert set(idle) - set(lint.idle_thresholds(compared)) == {
        "threshold collapsed_acceptance_ratio is for alerts, and none compares with it"
    }
