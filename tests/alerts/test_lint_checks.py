"""Every check is tested, and a complaint stands only where it is excused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alerts import (
    lint,
    test_lint_alerts,
    test_lint_annotations,
    test_lint_form,
    test_lint_joins,
    test_lint_metrics,
    test_lint_naming,
    test_lint_quotients,
    test_lint_rates,
)
from alerts.lint_examples import EVERY, alert, bundle

if TYPE_CHECKING:
    import pytest

TOPICS = (
    test_lint_alerts,
    test_lint_annotations,
    test_lint_form,
    test_lint_joins,
    test_lint_metrics,
    test_lint_naming,
    test_lint_quotients,
    test_lint_rates,
)


def test_every_check_is_tested_with_bad_and_good_rules() -> None:
    examples = {check: found for topic in TOPICS for check, found in topic.EXAMPLES.items()}
    assert set(examples) == set(EVERY)
    assert all(found.bad and found.good for found in examples.values())


def test_the_usual_alert_passes_every_check() -> None:
    said = {check: EVERY[check](alert(), bundle(alert())) for check in EVERY}
    assert said == {check: [] for check in EVERY}


def test_a_complaint_is_excused_only_for_its_rule_check_and_text(monkeypatch: pytest.MonkeyPatch) -> None:
    down = alert("vllm_specdec_up == 0 and vllm_specdec_poll_duration_seconds > 1", level="instance")
    assert len(lint.complaints(bundle(down), "bare_gauge")) == 2
    key = ("bare_gauge", "VLLMSpecDecodeExample", "vllm_specdec_up")
    monkeypatch.setattr(lint.excuses, "EXCUSES", {key: "for this test"})
    assert len(lint.complaints(bundle(down), "bare_gauge")) == 1
    assert lint.idle_excuses(bundle(down)) == []
    assert lint.idle_excuses(bundle(alert())) == [", ".join(key)]
    other = lint.Rule({**down.body, "alert": "VLLMSpecDecodeOther"})
    assert len(lint.complaints(bundle(other), "bare_gauge")) == 2


def test_checks_of_alerts_leave_records_alone() -> None:
    assert lint.complaints(bundle(), "steadiness") == []
    assert len(lint.complaints(bundle(alert(hold=None)), "steadiness")) == 1
