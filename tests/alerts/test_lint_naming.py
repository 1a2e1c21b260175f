"""Names say the level and the window, and are told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from alerts.lint_examples import ENGINE, UP, Examples, M, alert, bad_rules, good_rules, record, run

if TYPE_CHECKING:
    from alerts import lint

EXAMPLES = {
    "recorded_name": Examples(
        bad=[
            (record(f"sum by ({M}) ({ENGINE})", "vllm_specdec_drafts"), "not level:metric:operations"),
            (record(f"sum by ({M}) ({ENGINE})", "cluster:vllm_specdec_drafts:rate5m"), "with one of engine"),
            (record(f"sum by ({M}) ({ENGINE})", "model:vllm:drafts:rate5m"), "not level:metric:operations"),
            (record(f"sum by ({M}) ({ENGINE})", "engine:x:rate5m"), "level engine keeps the target labels"),
            (
                record(f"sum without (engine) ({ENGINE})", "engine:x:rate5m"),
                "level engine keeps the label engine",
            ),
            (record(ENGINE, "instance:x:rate5m"), "level instance has no label engine"),
            (
                record(f"sum by ({M}) ({ENGINE})", "instance:x:rate5m"),
                "level instance keeps the target labels",
            ),
            (record(f"sum without (engine) ({ENGINE})", "model:x:rate5m"), "level model has cluster"),
            (record(f"sum by (model_name) ({ENGINE})", "model:x:rate5m"), "level model has cluster"),
            (record(f"sum by ({M}, engine) ({ENGINE})", "model:x:rate5m"), "level model has cluster"),
            (record(f"sum by ({M}, instance) ({ENGINE})", "model:x:rate5m"), "level model has cluster"),
            (record("time()", "model:x:rate5m"), "a scalar has no level"),
        ],
        good=[
            record(ENGINE, "engine:x:rate5m"),
            record(f"sum without (engine) ({ENGINE})", "instance:x:rate5m"),
            record(f"sum by ({M}) ({ENGINE})", "model:x:rate5m"),
            record(
                f"sum by ({M}, le) (rate(vllm:time_to_first_token_seconds_bucket[5m]))",
                "model:x_bucket:rate5m",
            ),
            alert(),
        ],
    ),
    "recorded_window": Examples(
        bad=[
            (record(f"sum by ({M}) ({ENGINE})", "model:x:rate30m"), "says 30m, and is made of 5m"),
            (
                record("rate(vllm_specdec_drafts_total[1h])", "engine:x:ratio_rate5m"),
                "says 5m, and is made of 1h",
            ),
            (record("up", "engine:x:avg5m"), "made of none"),
        ],
        good=[
            record("rate(vllm_specdec_drafts_total[5m])", "engine:x:rate5m"),
            record(f"avg_over_time({ENGINE}[1h])", "engine:x:rate1h"),
            record(f"avg_over_time({ENGINE}[3d:1h])", "engine:x:ratio_rate3d"),
            record(f"sum by ({M}) ({ENGINE})", "model:x:rate5m"),
            record("up", "engine:x:max"),
            alert(),
        ],
    ),
    "alert_name": Examples(
        bad=[
            (alert(alert="SpecDecodeExample"), "not VLLMSpecDecode and CamelCase"),
            (alert(alert="VLLMSpecDecode"), "not VLLMSpecDecode and CamelCase"),
            (alert(alert="VLLMSpecDecodeexample"), "not VLLMSpecDecode and CamelCase"),
            (alert(alert="VLLMSpecDecodeLow_Acceptance"), "not VLLMSpecDecode and CamelCase"),
        ],
        good=[
            alert(),
            alert(alert="VLLMSpecDecodeKVCacheSqueezed"),
            alert(alert="VLLMSpecDecodePosition0Low"),
        ],
    ),
    "alert_level": Examples(
        bad=[
            (alert(level="engine"), "level engine keeps the target labels"),
            (alert(ENGINE), "level model has cluster"),
            (alert(ENGINE, level="instance"), "level instance has no label engine"),
            (alert(f"sum by ({M}) ({ENGINE})", level="instance"), "level instance has the label instance"),
        ],
        good=[
            alert(),
            alert(ENGINE, level="engine"),
            alert("last_over_time(vllm_specdec_up[3m]) == 0", level="instance"),
            alert(f"sum by (cluster) ({UP}) == 0", level=None),
        ],
    ),
    "same_name": Examples(
        bad=[(alert(), "there are two of it"), (alert(action="Run."), "there are two of it")],
        good=[
            alert(severity="critical"),
            alert(level="engine"),
            alert(reason="x"),
            alert(against="x"),
            alert(alert="VLLMSpecDecodeOther"),
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
