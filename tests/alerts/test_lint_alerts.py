"""Alerts reach whom they should, hold still, and judge with a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from alerts.lint_examples import (
    ADVICE,
    DRAFTS,
    JUDGES,
    LIMIT,
    MINIMUM,
    RATIO,
    Examples,
    M,
    alert,
    bad_rules,
    decided,
    good_rules,
    run,
)

if TYPE_CHECKING:
    from alerts import lint

EXAMPLES = {
    "alert_labels": Examples(
        bad=[
            (alert(severity="page"), "severity page"),
            (alert(severity=None), "severity None"),
            (alert(subject="weather"), "subject weather"),
            (alert(subject=None), "subject None"),
            (alert(level="pod"), "level pod"),
            (alert(severity="critical"), "acceptance may not page"),
            (alert(severity="critical", subject="decision"), "decision may not page"),
            (alert(reason="{{ $value }}"), "label reason is a template"),
        ],
        good=[
            alert(),
            alert(severity="critical", subject="errors"),
            alert(severity="none", subject="monitoring", level=None),
        ],
    ),
    "steadiness": Examples(
        bad=[
            (alert(hold=None), "no for"),
            (alert(keep=None), "neither keep_firing_for nor a dead band"),
        ],
        good=[
            alert(),
            alert('up == 0 or on () ALERTS{alertname="VLLMSpecDecodeExample"}', keep=None),
            alert("vector(1)", alert="VLLMSpecDecodeWatchdog", hold=None, keep=None),
        ],
    ),
    "judgement": Examples(
        bad=[
            (alert(value=None), "judges, and has no value"),
            (alert(threshold=None), "judges, and has no threshold"),
            (alert(sample=None), "judges, and has no sample"),
            (alert(f"{RATIO} < {LIMIT}"), "judges without a least sample"),
            (alert(f"{RATIO} < {LIMIT} and {DRAFTS} < {MINIMUM}"), "judges without a least sample"),
            (
                alert(threshold='{{ query "model:vllm_specdec_worth_it_objective_ratio:threshold" }}'),
                "does not compare",
            ),
            (alert(sample='{{ query "model:vllm_specdec_drafts:rate5m" }}'), "shows the sample"),
        ],
        good=[
            alert(),
            alert(f"{DRAFTS} >= {MINIMUM}", value=None, threshold=None, sample=None),
            alert("up == 0", value=None, threshold=None, sample=None),
        ],
    ),
    "decision": Examples(
        bad=[
            (alert(subject="decision"), "no label action"),
            (decided(JUDGES, subject="load", action="disable"), "an action, and no decision"),
            (decided(JUDGES, action="explode"), "action explode"),
            (decided(JUDGES, action="increase_k"), "has no recommended_k"),
            (decided(JUDGES, action="measure", recommended_k="3"), "has a recommended_k"),
            (decided(JUDGES, action="disable", recommended_k="1"), "to disable is recommended_k 0"),
            (decided(f"sum by ({M}, action) ({ADVICE.format('keep')})"), "action keep"),
        ],
        good=[
            alert(),
            decided(JUDGES, action="disable", recommended_k="0"),
            decided(JUDGES, action="measure"),
            decided(JUDGES, action="switch_method"),
            decided(f"""count_values by ({M}, action) ("recommended_k", {ADVICE.format("increase_k")})"""),
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
