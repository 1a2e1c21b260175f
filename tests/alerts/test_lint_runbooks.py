"""Every alert has a runbook that explains, and asks for what exists."""

from __future__ import annotations

import pytest

from alerts import lint
from alerts.lint_examples import RATIO, alert, bundle, record, run

RUNBOOK = f"""# VLLMSpecDecodeExample

## Meaning

It is so.

## Impact

Little.

## Diagnosis

1. Ask:

   ```promql
   {RATIO}{{model_name="MODEL"}}
   ```

```sh
curl http://127.0.0.1:9850/metrics
```

## Mitigation

Mend it.
"""


def test_a_good_runbook_passes() -> None:
    assert lint.runbook_complaints("VLLMSpecDecodeExample", RUNBOOK, bundle()) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("# VLLMSpecDecodeExample", "# VLLMSpecDecodeOther", "begins with '# VLLMSpecDecodeOther'"),
        ("## Impact", "## Effect", "has the headings Meaning, Effect"),
        ("## Impact", "Impact", "has the headings Meaning, Diagnosis"),
        ("```promql", "```sh", "no ```promql query in Diagnosis"),
        ("## Mitigation", "```promql\nup\n```\n\n## Mitigation", ""),
        (RATIO, f"sum({RATIO}", "does not parse"),
        (RATIO, "vllm_specdec_nothing", "unknown metric vllm_specdec_nothing"),
        ("Mend it.", "```promql\nvllm_specdec_nothing\n```", "unknown metric vllm_specdec_nothing"),
        ("model_name=", "pod=", "has no label pod"),
    ],
)
def test_a_bad_runbook_is_caught(old: str, new: str, words: str) -> None:
    said = lint.runbook_complaints("VLLMSpecDecodeExample", RUNBOOK.replace(old, new, 1), bundle())
    assert any(words in one for one in said) if words else said == []


def test_a_runbook_may_ask_for_series_of_prometheus_and_a_rule_may_not() -> None:
    asks = RUNBOOK.replace("curl http", "").replace(
        f'{RATIO}{{model_name="MODEL"}}',
        "sum by (rule_group) (rate(prometheus_rule_evaluation_failures_total[5m]))",
    )
    assert lint.runbook_complaints("VLLMSpecDecodeExample", asks, bundle()) == []
    rule = record("rate(prometheus_rule_evaluation_failures_total[5m])")
    assert run("known_metrics", rule) == ["unknown metric prometheus_rule_evaluation_failures_total"]


def test_a_query_elsewhere_does_not_stand_in_for_one_in_the_diagnosis() -> None:
    moved = RUNBOOK.replace("```promql", "```sh").replace("It is so.", "```promql\nup\n```")
    assert lint.runbook_complaints("VLLMSpecDecodeExample", moved, bundle()) == [
        "has no ```promql query in Diagnosis"
    ]


def test_alerts_and_runbooks_are_held_against_each_other() -> None:
    rules = bundle(alert()).groups
    assert lint.missing_runbooks(lint.Bundle(rules, {"VLLMSpecDecodeExample.md": "", "README.md": ""})) == []
    assert lint.missing_runbooks(lint.Bundle(rules, {"VLLMSpecDecodeOther.md": ""})) == [
        "no runbook VLLMSpecDecodeExample.md",
        "VLLMSpecDecodeOther.md is the runbook of no alert",
    ]
    assert lint.missing_runbooks(lint.Bundle(rules, {"VLLMSpecDecodeExample.md": "", "notes.txt": ""})) == [
        "notes.txt is the runbook of no alert"
    ]
