"""What is matched with what is said, and can match."""

# Expressions are as long as what they say.
# ruff: noqa: E501

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from alerts.lint_examples import DRAFTS, ENGINE, RATIO, Examples, M, bad_rules, good_rules, record, run

if TYPE_CHECKING:
    from alerts import lint

EXAMPLES = {
    "matching": Examples(
        bad=[
            (record(f"{ENGINE} / {DRAFTS}"), "labels never match"),
            (record(f"{ENGINE} and {DRAFTS}"), "labels never match"),
            (record(f"{ENGINE} or {DRAFTS}"), "the sides of or have different labels"),
            (record(f"{ENGINE} > on ({M}) {DRAFTS}"), "several series of the left side match"),
            (record(f"{DRAFTS} > on ({M}) {ENGINE}"), "several series of the right side match"),
            (record(f"{DRAFTS} > on ({M}) group_left () {ENGINE}"), "several series of the right side match"),
            (record(f"{ENGINE} / on () {ENGINE}"), "on () matches everything"),
            (record(f"{DRAFTS} and on () {RATIO}"), "on () matches everything"),
            (record(f"{DRAFTS} and on (pod) {RATIO}"), "on (pod), which the left side never has"),
            (
                record(f"{ENGINE} / on (position, {M}) group_left () {DRAFTS}"),
                "on (position), which the left",
            ),
            (
                record(
                    'last_over_time(vllm_specdec_activity{state="off"}[3m]) == 1 and (rate(vllm_specdec_drafts_total[5m]) > 0)'
                ),
                "labels never match",
            ),
            (
                record("rate(vllm_specdec_drafts_total[5m]) / rate(vllm:spec_decode_num_drafts_total[5m])"),
                "labels never match",
            ),
            (
                record(
                    'last_over_time(vllm_specdec_speedup{basis="measured"}[3m]) / last_over_time(vllm_specdec_speedup{basis="estimated"}[3m])'
                ),
                "labels never match",
            ),
            (
                record(
                    f"model:vllm_specdec_accepted_tokens_per_position:rate5m / ignoring (position) {DRAFTS}"
                ),
                "several series of the left side match: they differ in position",
            ),
        ],
        good=[
            record(f"{DRAFTS} / {RATIO}"),
            record(f"{DRAFTS} and {RATIO} unless {RATIO} > 1"),
            record(f"{ENGINE} / on ({M}) group_left () {DRAFTS}"),
            record(f"{DRAFTS} * on ({M}) group_right () {ENGINE}"),
            record(f"{ENGINE} and on ({M}) {DRAFTS}"),
            record(
                f"model:vllm_specdec_accepted_tokens_per_position:rate5m / ignoring (position) group_left () {DRAFTS}"
            ),
            record(
                'last_over_time(vllm_specdec_activity{state="off"}[3m]) == 1 and ignoring (state) (rate(vllm_specdec_drafts_total[5m]) > 0)'
            ),
            record(
                'last_over_time(vllm_specdec_speedup{basis="measured"}[3m]) / ignoring (basis) last_over_time(vllm_specdec_speedup{basis="estimated"}[3m])'
            ),
            record(
                "rate(vllm_specdec_drafts_total[5m]) and on (pod) rate(vllm:spec_decode_num_drafts_total[5m])"
            ),
            record(f"2 * {ENGINE} > 3"),
            record(f"topk(1, {ENGINE}) and {ENGINE}"),
        ],
    ),
    "regex_matcher": Examples(
        bad=[
            (record('up{job=~"exporter"}'), "plain string"),
            (record('up{job!~"exporter"}'), "plain string"),
        ],
        good=[record('up{job=~"(.+/)?exporter.*", pod!~"a|b"}'), record('up{job="exporter"}')],
    ),
}


@pytest.mark.parametrize(("check", "rule", "words"), bad_rules(EXAMPLES))
def test_a_bad_rule_is_caught(check: str, rule: lint.Rule, words: str) -> None:
    said = run(check, rule)
    assert any(words in one for one in said), said


@pytest.mark.parametrize(("check", "rule"), good_rules(EXAMPLES))
def test_a_good_rule_passes(check: str, rule: lint.Rule) -> None:
    assert run(check, rule) == []
