"""Rule files are such that every rule server takes them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from alerts import lint
from alerts.lint_examples import Examples, alert, bad_rules, bundle, good_rules, record, run

EXAMPLES = {
    "rule_form": Examples(
        bad=[
            (alert(note="x"), "unknown key note"),
            (record("vector(1)", annotations={}), "unknown key annotations"),
            (record("", "model:x:y"), "no expr"),
            (alert(recommended_k=0), "recommended_k is 0, not a text"),
            (alert(reason=""), "reason is empty"),
            (alert(hold="soon"), "no duration"),
            (alert(hold=300), "for is no str"),
        ],
        good=[alert(), alert(keep=None), record("up", labels={"recommended_k": "0"})],
    ),
    "parses": Examples(
        bad=[
            (record("sum("), "does not parse"),
            (record("rate(up)"), "does not parse"),
            (record("no_function(up)"), "does not parse"),
        ],
        good=[record("up"), alert()],
    ),
}


@pytest.mark.parametrize(("check", "rule", "words"), bad_rules(EXAMPLES))
def test_a_bad_rule_is_caught(check: str, rule: lint.Rule, words: str) -> None:
    said = run(check, rule)
    assert any(words in one for one in said), said


@pytest.mark.parametrize(("check", "rule"), good_rules(EXAMPLES))
def test_a_good_rule_passes(check: str, rule: lint.Rule) -> None:
    assert run(check, rule) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("groups: []\nother: 1", "and no other"),
        ("[]", "and no other"),
        ("groups:\n- name: a\n  name: b\n  rules: []", "stands twice"),
        ("groups:\n- rules:\n  - alert: a\n    labels: {x: '1', x: '2'}", "stands twice"),
    ],
)
def test_a_file_that_other_readers_would_refuse_is_refused(text: str, words: str) -> None:
    with pytest.raises(yaml.YAMLError, match=words):
        lint.read_groups(text)


def test_a_rule_file_is_read() -> None:
    (group,) = lint.read_groups("groups:\n- name: a\n  rules:\n  - record: x\n    expr: up")
    assert group == {"name": "a", "rules": [{"record": "x", "expr": "up"}]}


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ({"name": "other", "rules": [{}]}, "does not begin with vllm-specdec."),
        ({"name": "vllm-specdec.usual", "rules": [{}]}, "two groups have this name"),
        ({"name": "vllm-specdec.a", "rules": [{}], "interval": "5m"}, "interval 5m"),
        ({"name": "vllm-specdec.a", "rules": [{}], "interval": "often"}, "interval often"),
        ({"name": "vllm-specdec.a", "rules": [{}], "partial_response_strategy": "warn"}, "unknown key"),
        ({"name": "vllm-specdec.a"}, "no rules"),
        ({"name": "vllm-specdec.a", "rules": []}, "no rules"),
    ],
)
def test_a_bad_group_is_caught(group: dict[str, Any], words: str) -> None:
    both = lint.Bundle((*bundle().groups, {"rules": [], **group}))
    said = lint.group_form(group, both)
    assert any(words in one for one in said), said


@pytest.mark.parametrize("more", [{}, {"interval": "1m"}, {"interval": "3m"}, {"interval": "4m59s"}])
def test_a_good_group_passes(more: dict[str, str]) -> None:
    group = {"name": "vllm-specdec.a", "rules": [{"record": "x", "expr": "up"}], **more}
    assert lint.group_form(group, lint.Bundle((*bundle().groups, group))) == []
