"""What the linter is tested with: a small bundle without fault, and rules to put into it."""

from __future__ import annotations

from typing import Any

from alerts import lint

EVERY = {**lint.CHECKS, **lint.ALERT_CHECKS}

M = "cluster, namespace, model_name"
MINIMUM = "model:vllm_specdec_advice_minimum_drafts:threshold"
LIMIT = "model:vllm_specdec_poor_acceptance_ratio:threshold"
DRAFTS = "model:vllm_specdec_drafts:increase30m"
RATIO = "model:vllm_specdec_acceptance:ratio_rate30m"
ENGINE = "engine:vllm_specdec_drafts:rate5m"
#: An expression that judges as it should.
JUDGES = f"{RATIO} < {LIMIT} and {DRAFTS} >= {MINIMUM}"

UP = 'up{job="x"}'
ADVICE = 'last_over_time(vllm_specdec_recommendation{{action="{}"}}[3m])'
SPEEDUP = "last_over_time(vllm_specdec_speedup[3m])"

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


def decided(expr: str, **labels: str) -> lint.Rule:
    """Return an alert with these labels, and `decision` for its subject."""
    return lint.Rule({**alert(expr).body, "labels": {"subject": "decision", **labels}})


def bundle(*rules: lint.Rule) -> lint.Bundle:
    """Return a bundle of the usual records and some rules."""
    usual = [{"record": name, "expr": expr} for name, expr in RECORDS.items()]
    return lint.Bundle(
        ({"name": "vllm-specdec.usual", "rules": [*usual, *(dict(rule.body) for rule in rules)]},)
    )


def run(check: str, rule: lint.Rule) -> list[str]:
    """Return what a check says of a rule among the usual ones."""
    twin = (alert(),) if check == "same_name" and rule.name == "VLLMSpecDecodeExample" else ()
    return EVERY[check](rule, bundle(rule, *twin))
