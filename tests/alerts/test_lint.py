"""The linter of the rules sees each fault that it is there for, and has nothing to say of a good alert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alerts import lint

if TYPE_CHECKING:
    import pytest

EVERY = {**lint.CHECKS, **lint.ALERT_CHECKS}

M = "cluster, namespace, model_name"
MINIMUM = "model:vllm_specdec_advice_minimum_drafts:threshold"
LIMIT = "model:vllm_specdec_poor_acceptance_ratio:threshold"
DRAFTS = "model:vllm_specdec_drafts:increase30m"
RATIO = "model:vllm_specdec_acceptance:ratio_rate30m"
ENGINE = "engine:vllm_specdec_drafts:rate5m"
#: An expression that judges as it should.
JUDGES = f"{RATIO} < {LIMIT} and {DRAFTS} >= {MINIMUM}"

#: What a recorded threshold is made of, by its name.
THRESHOLD = (
    f"min by ({M}) (max by (cluster, namespace, job, instance) "
    '(last_over_time(vllm_specdec_threshold{{name="{}"}}[3m])) '
    "* on (cluster, namespace, job, instance) group_right () last_over_time(vllm_specdec_info[3m]))"
)
#: What the examples are made of.
RECORDS = {
    ENGINE: "rate(vllm_specdec_drafts_total[5m])",
    "model:vllm_specdec_drafts:rate5m": f"sum by ({M}) ({ENGINE})",
    "model:vllm_specdec_speedup:ratio_rate30m": f"sum by ({M}) (rate(vllm_specdec_drafts_total[30m]))",
    DRAFTS: f"sum by ({M}) (increase(vllm_specdec_drafts_total[30m]))",
    RATIO: f"sum by ({M}) (rate(vllm_specdec_accepted_tokens_total[30m])) "
    f"/ (sum by ({M}) (rate(vllm_specdec_draft_tokens_total[30m])) > 0)",
    "model:vllm_specdec_accepted_tokens_per_position:rate5m": f"sum by ({M}, position) "
    "(rate(vllm_specdec_accepted_tokens_per_position_total[5m]))",
    MINIMUM: THRESHOLD.format("advice_minimum_drafts"),
    LIMIT: THRESHOLD.format("poor_acceptance_ratio"),
    "model:vllm_specdec_worth_it_objective_ratio:threshold": THRESHOLD.format("worth_it_objective_ratio"),
}


def record(expr: str, name: str = "model:vllm_specdec_example:rate5m", **more: Any) -> lint.Rule:
    """Return a recording rule."""
    return lint.Rule({"record": name, "expr": expr, **more})


def alert(expr: str = JUDGES, /, **changes: Any) -> lint.Rule:
    """Return an alert without fault, but for changes of keys, labels and annotations; None takes away."""
    labels = {"severity": "warning", "subject": "acceptance", "level": "model"}
    annotations = {
        "summary": "Something is wrong.",
        "description": "{{ $labels.model_name }} has {{ $value | humanize }}.",
        "action": "Mend it.",
        "value": "{{ $value | humanizePercentage }}",
        "threshold": f'{{{{ with query "{LIMIT}" }}}}{{{{ . | first | value | humanize }}}}{{{{ end }}}}',
        "sample": f'{{{{ with query "{DRAFTS}" }}}}{{{{ . | first | value | humanize }}}}{{{{ end }}}}',
        "runbook_url": "https://example.com/runbooks/VLLMSpecDecodeExample.md",
        "dashboard_url": "https://example.com/d/x?var-model_name={{ urlquery $labels.model_name }}",
    }
    name = changes.pop("alert", "VLLMSpecDecodeExample")
    body: dict[str, Any] = {"alert": name, "expr": expr, "for": "5m", "keep_firing_for": "5m"}
    keys = {"hold": "for", "keep": "keep_firing_for", "note": "note"}
    for key, value in changes.items():
        place = annotations if key in annotations or key == "context" else labels
        (body if key in keys else place)[keys.get(key, key)] = value
    parts: dict[str, Any] = {"labels": labels, "annotations": annotations}
    for part in (body, labels, annotations):
        for key in [key for key, value in part.items() if value is None]:
            del part[key]
    return lint.Rule({**body, **parts})


def bundle(*rules: lint.Rule) -> lint.Bundle:
    """Return a bundle of the usual records and some rules."""
    usual = [{"record": name, "expr": expr} for name, expr in RECORDS.items()]
    return lint.Bundle(
        ({"name": "vllm-specdec.usual", "rules": [*usual, *(dict(rule.body) for rule in rules)]},)
    )


def run(check: str, rule: lint.Rule) -> list[str]:
    """Return what a check says of a rule among the usual ones."""
    return EVERY[check](rule, bundle(rule))


#: For each check, a rule that it must complain of, and words of the complaint.
BAD = {
    "alert_labels": (alert(severity="critical"), "acceptance may not page"),
    "steadiness": (alert(hold=None), "no for"),
    "judgement": (alert(value=None), "judges, and has no value"),
    "decision": (alert(subject="decision"), "no label action"),
    "summary": (alert(summary="Something is wrong"), "not one sentence"),
    "templates": (alert(context="{{ $labels.nothing }}"), "no label nothing"),
    "matching": (record(f"{ENGINE} / {DRAFTS}"), "labels never match"),
    "known_metrics": (
        record("last_over_time(vllm_specdec_nothing[3m])"),
        "unknown metric vllm_specdec_nothing",
    ),
    "orphan": (record(f"sum by ({M}) ({ENGINE})"), "used by no alert"),
    "counters": (record("rate(vllm_specdec_requests_running[5m])"), "no counter"),
    "bare_gauge": (alert("vllm_specdec_up == 0"), "vllm_specdec_up without a function over time"),
    "rate_of_sum": (
        record(f"rate((sum by ({M}) (vllm_specdec_drafts_total))[5m:1m])"),
        "rate of an expression",
    ),
    "short_range": (record("rate(vllm_specdec_drafts_total[3m])"), "less than 4 minutes"),
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
