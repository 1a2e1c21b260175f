"""Alerts say who, what and what to do, in templates that every rule server knows."""

# Expressions are as long as what they say.
# ruff: noqa: E501

from __future__ import annotations

import pytest

from alerts import lint
from alerts.lint_examples import DRAFTS, ENGINE, UP, Examples, alert, bad_rules, good_rules, run

EXAMPLES = {
    "summary": Examples(
        bad=[
            (alert(summary="Something is wrong"), "not one sentence"),
            (alert(summary="Something. It is wrong."), "not one sentence"),
            (alert(summary="something is wrong."), "not one sentence"),
            (alert(summary="{{ $labels.model_name }} is wrong."), "has a template"),
            (alert(summary=None), "not one sentence"),
        ],
        good=[alert(), alert(summary="vLLM is wrong: it says so.")],
    ),
    "description": Examples(
        bad=[
            (alert(description="It is wrong."), "names no value and nobody"),
            (alert(description=None), "no description"),
        ],
        good=[
            alert(),
            alert("vector(1)", description="It always fires."),
            alert(f"absent({UP.replace('=', '=~')})", description="None is."),
        ],
    ),
    "links": Examples(
        bad=[
            (alert(action=None), "no action"),
            (alert(runbook_url=None), "no runbook_url"),
            (alert(dashboard_url=None), "no dashboard_url"),
            (
                alert(runbook_url="https://example.com/VLLMSpecDecodeOther.md"),
                "does not end in the alert's name",
            ),
        ],
        good=[alert()],
    ),
    "templates": Examples(
        bad=[
            (alert(context="{{ with $labels.namespace }}{{ . }}"), "a block without an end"),
            (alert(context="{{ . }}{{ end }}"), "end without a block"),
            (alert(context="{{ else }}"), "else without a block"),
            (alert(context="{{ $value | toTime }}"), "toTime is not known"),
            (alert(context="{{ graphLink 1 }}"), "graphLink is not known"),
            (alert(context="{{ if $value }}x{{ end }}"), "if is not known"),
            (alert(context="{{ with $labels.pod }}{{ . | toUpper }}{{ end }}"), "toUpper is not known"),
            (alert(context="{{ $labels.pod }}"), "the alert has no label pod"),
            (alert(context="{{ with $labels.engine }}{{ . }}{{ end }}"), "the alert has no label engine"),
            (alert(context="{{ $externalURL }}"), "$externalURL is none of"),
            (alert(context="{{ .Value }}"), "no simple template"),
            (alert(context="{{ $value "), "a brace too many"),
            (alert(context="$value }}"), "a brace too many"),
            (alert(context='{{ printf "%q %q" $value }}'), "2 verbs and 1 values"),
            (alert(context='{{ $value | printf "no verb" }}'), "0 verbs and 1 values"),
        ],
        good=[
            alert(),
            alert(context="{{ with $labels.namespace }} in {{ . }}{{ else }} nowhere{{ end }}"),
            alert(context='{{ $value | printf "%.2f" }} of {{ $labels.reason }}', reason="x"),
            alert(
                context=f'{{{{ with printf "{DRAFTS}{{model_name=%q}}" $labels.model_name | query }}}}{{{{ . | first | value | humanize }}}}{{{{ end }}}}'
            ),
            alert(ENGINE, context="{{ with $labels.pod }}{{ . }}{{ else }}{{ $labels.instance }}{{ end }}"),
            alert(context='{{ printf "100 %% of %s" $labels.model_name }}'),
        ],
    ),
    "template_queries": Examples(
        bad=[
            (alert(context='{{ query "sum(" }}'), "does not parse"),
            (alert(context='{{ query "vllm_specdec_nothing" }}'), "unknown metric vllm_specdec_nothing"),
            (alert(context="{{ query `vllm_specdec_nothing` }}"), "unknown metric vllm_specdec_nothing"),
            (
                alert(
                    context=f'{{{{ with printf "{DRAFTS}{{pod=%q}}" $labels.model_name | query }}}}{{{{ end }}}}'
                ),
                "has no label pod",
            ),
            (
                alert(context='{{ query "vllm_specdec_activity{state=\\"asleep\\"}" }}'),
                'never has state="asleep"',
            ),
        ],
        good=[
            alert(),
            alert(
                context=f'{{{{ with printf "{DRAFTS}{{model_name=%q}}" $labels.model_name | query }}}}{{{{ end }}}}'
            ),
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


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ('{{ query "up" }}', ["up"]),
        ('{{ query `up{job="x"}` }}', ['up{job="x"}']),
        ('{{ query "up{job=\\"x\\"}" | first | value }}', ['up{job="x"}']),
        (
            '{{ with printf "up{job=%q}" $labels.job | query }}x{{ end }} and {{ query "b" }}',
            ['up{job="x"}', "b"],
        ),
        ("{{ $value | humanize }} query", []),
    ],
)
def test_queries_are_found_in_templates(text: str, queries: list[str]) -> None:
    assert lint.queries(text) == queries
