"""The linter of the rules sees each fault that it is there for, and has nothing to say of a good alert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alerts import lint
from alerts.lint_examples import DRAFTS, ENGINE, EVERY, M, alert, bundle, record, run

if TYPE_CHECKING:
    import pytest

#: For each check, a rule that it must complain of, and words of the complaint.
BAD = {
    "alert_labels": (alert(severity="page"), "severity page"),
    "steadiness": (alert(hold=None), "no for"),
    "judgement": (alert(value=None), "judges, and has no value"),
    "decision": (alert(subject="decision"), "no label action"),
    "summary": (alert(summary="Something is wrong"), "not one sentence"),
    "description": (alert(description="It is wrong."), "names no value and nobody"),
    "links": (alert(action=None), "no action"),
    "templates": (alert(context="{{ with $labels.namespace }}{{ . }}"), "a block without an end"),
    "template_queries": (alert(context='{{ query "sum(" }}'), "does not parse"),
    "rule_form": (alert(note="x"), "unknown key note"),
    "parses": (record("sum("), "does not parse"),
    "matching": (record(f"{ENGINE} / {DRAFTS}"), "labels never match"),
    "regex_matcher": (record('up{job=~"exporter"}'), "plain string"),
    "known_metrics": (
        record("last_over_time(vllm_specdec_nothing[3m])"),
        "unknown metric vllm_specdec_nothing",
    ),
    "thresholds": (alert("model:vllm_specdec_nothing:threshold > 0"), "unknown threshold nothing"),
    "orphan": (record(f"sum by ({M}) ({ENGINE})"), "used by no alert"),
    "recorded_name": (
        record(f"sum by ({M}) ({ENGINE})", "vllm_specdec_drafts"),
        "not level:metric:operations",
    ),
    "recorded_window": (record(f"sum by ({M}) ({ENGINE})", "model:x:rate30m"), "says 30m, and is made of 5m"),
    "alert_name": (alert(alert="SpecDecodeExample"), "not VLLMSpecDecode and CamelCase"),
    "alert_level": (alert(level="engine"), "level engine keeps the target labels"),
    "same_name": (alert(), "there are two of it"),
    "averaged_ratio": (
        record(f"avg by ({M}) (engine:vllm_specdec_acceptance:ratio_rate5m)"),
        "avg of a ratio",
    ),
    "aggregated_apart": (record(f"sum by ({M}) ({ENGINE} / ({ENGINE} > 0))"), "sum of a quotient"),
    "denominator": (record(f"{ENGINE} / {ENGINE}"), "the denominator can be 0"),
    "clamped_denominator": (record(f"{ENGINE} / clamp_min({ENGINE}, 1)"), "clamp_min in a denominator"),
    "counters": (record("rate(vllm_specdec_requests_running[5m])"), "no counter"),
    "bare_gauge": (alert("vllm_specdec_up == 0"), "vllm_specdec_up without a function over time"),
    "rate_of_sum": (
        record(f"rate((sum by ({M}) (vllm_specdec_drafts_total))[5m:1m])"),
        "rate of an expression",
    ),
    "short_range": (record("rate(vllm_specdec_drafts_total[3m])"), "less than 4 minutes"),
    "offset": (record("increase(vllm_specdec_drafts_total[5m] offset 1d)"), "neither recorded nor a gauge"),
}


def test_every_check_complains_of_its_bad_rule() -> None:
    assert set(BAD) == set(EVERY)
    said = {check: run(check, rule) for check, (rule, _) in BAD.items()}
    assert [check for check, (_, words) in BAD.items() if not any(words in one for one in said[check])] == []


def test_a_good_alert_passes_every_check() -> None:
    said = {check: EVERY[check](alert(), bundle(alert())) for check in EVERY}
    assert said == {check: [] for check in EVERY}


def test_an_excuse_that_is_not_needed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    key = ("bare_gauge", "VLLMSpecDecodeExample", "vllm_specdec_up")
    monkeypatch.setattr(lint.excuses, "EXCUSES", {key: "for this test"})
    assert lint.idle_excuses(bundle(alert())) == [", ".join(key)]
