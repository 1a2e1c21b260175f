"""Ratios are quotients of sums, and nothing is divided by 0."""

# Expressions are as long as what they say.
# ruff: noqa: E501

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from alerts.lint_examples import (
    DRAFTS,
    ENGINE,
    LIMIT,
    MINIMUM,
    RATIO,
    SPEEDUP,
    Examples,
    M,
    bad_rules,
    good_rules,
    record,
    run,
)

if TYPE_CHECKING:
    from alerts import lint

EXAMPLES = {
    "averaged_ratio": Examples(
        bad=[
            (record(f"avg by ({M}) (engine:vllm_specdec_acceptance:ratio_rate5m)"), "avg of a ratio"),
            (record(f"avg_over_time({RATIO}[1h])"), "avg_over_time of a ratio"),
            (record("avg_over_time(vllm_specdec_acceptance_ratio[1h])"), "avg_over_time of a ratio"),
            (
                record(f"avg by ({M}) (last_over_time(vllm_specdec_mean_acceptance_length[3m]))"),
                "avg of a ratio",
            ),
            (record(f"quantile_over_time(0.5, {RATIO}[1h])"), "quantile_over_time of a ratio"),
            (record(f"quantile by ({M}) (0.5, {SPEEDUP})"), "quantile of a ratio"),
            (record(f"avg_over_time(({ENGINE} / ({ENGINE} > 0))[1h:1m])"), "avg_over_time of a ratio"),
            (record(f"avg by ({M}) (1 + {ENGINE} / ({ENGINE} > 0))"), "avg of a ratio"),
            (record(f"sum by ({M}) ({SPEEDUP})"), "sum of a ratio"),
            (record(f"sum without (basis) ({SPEEDUP})"), "sum of a ratio"),
        ],
        good=[
            record(f"stddev_over_time({RATIO}[1h])"),
            record(f"max_over_time({RATIO}[1h])"),
            record("avg_over_time(vllm_specdec_requests_running[5m])"),
            record(
                "avg_over_time(model:vllm_specdec_drafts:rate5m[1h]) / (avg_over_time(model:vllm_specdec_drafts:rate5m[1h]) > 0)"
            ),
            record('sum without (basis) (last_over_time(vllm_specdec_speedup{basis="measured"}[3m]))'),
            record(f"count by ({M}) ({SPEEDUP} < 1)"),
            record(f"avg by ({M}) ({ENGINE} / 60)"),
        ],
    ),
    "aggregated_apart": Examples(
        bad=[
            (record(f"sum by ({M}) ({ENGINE} / ({ENGINE} > 0))"), "sum of a quotient"),
            (record(f"max by ({M}) (1 + {ENGINE} / ({ENGINE} > 0))"), "max of a quotient"),
        ],
        good=[
            record(f"sum by ({M}) ({ENGINE}) / (sum by ({M}) ({ENGINE}) > 0)"),
            record(f"sum by ({M}) ({ENGINE} / 60)"),
        ],
    ),
    "denominator": Examples(
        bad=[
            (record(f"{ENGINE} / {ENGINE}"), "the denominator can be 0"),
            (record(f"{ENGINE} / ({ENGINE} >= 0)"), "the denominator can be 0"),
            (record(f"{ENGINE} / ({ENGINE} > bool 0)"), "the denominator can be 0"),
            (record(f"{ENGINE} / ({ENGINE} > -1)"), "the denominator can be 0"),
            (record(f"{ENGINE} / (({ENGINE} > 0) - 1)"), "the denominator can be 0"),
            (record(f"{ENGINE} / (({ENGINE} > 0) - ({ENGINE} > 0))"), "the denominator can be 0"),
            (record(f"{ENGINE} / (({ENGINE} > 0) or {ENGINE})"), "the denominator can be 0"),
            (record(f"{RATIO} / (1 - {LIMIT})"), "the denominator can be 0"),
            (record(f"{ENGINE} / 0"), "the denominator can be 0"),
            (record(f"{ENGINE} % {ENGINE}"), "the denominator can be 0"),
        ],
        good=[
            record(f"{ENGINE} / ({ENGINE} > 0)"),
            record(f"{ENGINE} / ({ENGINE} >= 0.1)"),
            record(f"{ENGINE} / ({ENGINE} < 0)"),
            record(f"{ENGINE} / -({ENGINE} > 0)"),
            record(f"{ENGINE} / (({ENGINE} > 1) - 1)"),
            record(f"{ENGINE} / sum without (engine) ({ENGINE} > 0)"),
            record(f"{ENGINE} / 60"),
            record(f"{RATIO} / (1 - model:vllm_specdec_worth_it_objective_ratio:threshold)"),
            record(f"{DRAFTS} / {MINIMUM}"),
            record(f"{ENGINE} / ((1 + ({ENGINE} > 0)) and {ENGINE})"),
            record(
                f"{DRAFTS} / histogram_quantile(0.5, sum by ({M}, le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))"
            ),
        ],
    ),
    "clamped_denominator": Examples(
        bad=[
            (record(f"{ENGINE} / clamp_min({ENGINE}, 1)"), "clamp_min in a denominator"),
            (record(f"{ENGINE} / (2 * clamp({ENGINE}, 1, 5))"), "clamp_min in a denominator"),
        ],
        good=[record(f"clamp_max({ENGINE} / ({ENGINE} > 0), 1)"), record(f"clamp_min({ENGINE}, 1)")],
    ),
}


@pytest.mark.parametrize(("check", "rule", "words"), bad_rules(EXAMPLES))
def test_a_bad_rule_is_caught(check: str, rule: lint.Rule, words: str) -> None:
    said = run(check, rule)
    assert any(words in one for one in said), said


@pytest.mark.parametrize(("check", "rule"), good_rules(EXAMPLES))
def test_a_good_rule_passes(check: str, rule: lint.Rule) -> None:
    assert run(check, rule) == []
