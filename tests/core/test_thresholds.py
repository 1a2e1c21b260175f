from __future__ import annotations

import re

import pytest

from vllm_specdec_exporter.thresholds import Thresholds, describe

RUBRIC = {
    "minimum_drafts": 100,
    "poor_mean_acceptance_length": 1.3,
    "poor_acceptance_ratio": 0.40,
    "poor_position_0_acceptance_ratio": 0.70,
    "poor_position_decay_ratio": 0.50,
    "healthy_mean_acceptance_length": 1.5,
    "healthy_acceptance_ratio": 0.60,
    "healthy_position_0_acceptance_ratio": 0.90,
    "healthy_last_position_acceptance_ratio": 0.20,
    "optimal_mean_acceptance_length": 2.0,
    "optimal_acceptance_ratio": 0.70,
    "optimal_position_decay_ratio": 0.75,
    "optimal_mean_acceptance_length_deviation": 0.2,
    "disable_mean_acceptance_length": 1.2,
    "disable_acceptance_ratio": 0.50,
    "break_even_acceptance_ratio": 0.65,
    "raise_k_last_position_acceptance_ratio": 0.30,
    "lower_k_last_position_acceptance_ratio": 0.10,
    "harmful_speedup": 1.0,
    "beneficial_speedup": 1.2,
    "disagreement_ratio": 0.20,
    "measurement_minimum_requests": 20,
    "minimum_requests": 50,
    "poor_request_acceptance_ratio": 0.50,
    "mixed_requests_ratio": 0.20,
    "advice_minimum_drafts": 500,
    "advice_minimum_gain": 0.01,
    "usual_mean_acceptance_length": 1,
    "low_coverage_ratio": 0.50,
    "abnormal_acceptance_ratio": 0.98,
    "unrecorded_requests_ratio": 0.20,
    "severe_speedup": 0.9,
    "collapsed_acceptance_ratio": 0.05,
    "drop_ratio": 0.15,
    "step_acceptance_ratio": 0.05,
    "outlier_ratio": 0.2,
    "comparison_minimum_drafts": 5000,
    "wasted_verification_ratio": 0.5,
    "squeezed_kv_cache_usage_ratio": 0.9,
    "widened_latency_ratio": 1.5,
    "failed_request_ratio": 0.05,
    "worth_it_objective_ratio": 0.95,
}


def test_the_defaults_are_the_published_rubric() -> None:
    """Every threshold, by the name under which it is exported."""
    assert dict(Thresholds().items()) == RUBRIC


def test_a_changed_threshold() -> None:
    """One threshold is changed, the others stay; the original is left alone."""
    original = Thresholds()
    changed = original.with_values({"poor_acceptance_ratio": 0.5, "minimum_drafts": 20})

    assert dict(changed.items()) == {**RUBRIC, "poor_acceptance_ratio": 0.5, "minimum_drafts": 20}
    assert dict(original.items()) == RUBRIC


def test_nothing_changed() -> None:
    """No values leave the thresholds as they are."""
    assert Thresholds() == Thresholds().with_values({})


def test_an_unknown_name() -> None:
    """A misspelt threshold is refused with those that it may have meant, the likeliest first."""
    with pytest.raises(
        ValueError, match=r"^unknown threshold 'poor_aceptance_ratio'; most like it: "
    ) as caught:
        Thresholds().with_values({"poor_aceptance_ratio": 0.5})
    assert str(caught.value).split(": ")[1].startswith("poor_acceptance_ratio, ")


@pytest.mark.parametrize(
    ("name", "value", "shown", "allowed"),
    [
        ("poor_acceptance_ratio", -0.1, "-0.1", "between 0 and 1"),
        ("poor_acceptance_ratio", 1.1, "1.1", "between 0 and 1"),
        ("poor_acceptance_ratio", float("nan"), "nan", "between 0 and 1"),
        ("poor_mean_acceptance_length", 0.9, "0.9", "at least 1"),
        ("poor_mean_acceptance_length", float("inf"), "inf", "at least 1"),
        ("minimum_drafts", 0, "0", "at least 1"),
        ("minimum_drafts", float("nan"), "nan", "at least 1"),
        ("optimal_mean_acceptance_length_deviation", -0.01, "-0.01", "at least 0"),
        ("disable_mean_acceptance_length", 0.99, "0.99", "at least 1"),
        ("disable_acceptance_ratio", 1.01, "1.01", "between 0 and 1"),
        ("raise_k_last_position_acceptance_ratio", -0.5, "-0.5", "between 0 and 1"),
        ("harmful_speedup", -1, "-1", "between 0 and 1"),
        ("harmful_speedup", 1.1, "1.1", "between 0 and 1"),
        ("beneficial_speedup", float("inf"), "inf", "at least 0"),
        ("disagreement_ratio", -0.1, "-0.1", "at least 0"),
        ("measurement_minimum_requests", 0.5, "0.5", "at least 1"),
        ("minimum_requests", 0.5, "0.5", "at least 1"),
        ("poor_request_acceptance_ratio", 1.01, "1.01", "between 0 and 1"),
        ("mixed_requests_ratio", 0, "0", "between 0.01 and 0.5"),
        ("mixed_requests_ratio", 0.51, "0.51", "between 0.01 and 0.5"),
        ("advice_minimum_drafts", 0, "0", "at least 1"),
        ("advice_minimum_gain", float("nan"), "nan", "at least 0"),
        ("usual_mean_acceptance_length", 0.99, "0.99", "at least 1"),
        ("low_coverage_ratio", 1.01, "1.01", "between 0 and 1"),
        ("abnormal_acceptance_ratio", 1.01, "1.01", "between 0 and 1"),
        ("unrecorded_requests_ratio", -0.01, "-0.01", "between 0 and 1"),
    ],
)
def test_a_value_out_of_range(name: str, value: float, shown: str, allowed: str) -> None:
    """A value out of its range is refused with the range."""
    message = f"threshold {name} is {shown}; allowed: {allowed}"

    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Thresholds().with_values({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("poor_acceptance_ratio", 0),
        ("optimal_acceptance_ratio", 1),
        ("poor_mean_acceptance_length", 1),
        ("optimal_mean_acceptance_length", 100),
        ("minimum_drafts", 1),
        ("mixed_requests_ratio", 0.01),
        ("mixed_requests_ratio", 0.5),
    ],
)
def test_the_ends_of_a_range(name: str, value: float) -> None:
    """A range includes its ends."""
    assert value == dict(Thresholds().with_values({name: value}).items())[name]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"poor_acceptance_ratio": 0.61},
            "threshold poor_acceptance_ratio (0.61) exceeds healthy_acceptance_ratio (0.6)",
        ),
        (
            {"optimal_acceptance_ratio": 0.5},
            "threshold healthy_acceptance_ratio (0.6) exceeds optimal_acceptance_ratio (0.5)",
        ),
        (
            {"healthy_mean_acceptance_length": 2.5},
            "threshold healthy_mean_acceptance_length (2.5) exceeds optimal_mean_acceptance_length (2)",
        ),
        (
            {"poor_mean_acceptance_length": 1.6},
            "threshold poor_mean_acceptance_length (1.6) exceeds healthy_mean_acceptance_length (1.5)",
        ),
        (
            {"poor_position_0_acceptance_ratio": 0.95},
            (
                "threshold poor_position_0_acceptance_ratio (0.95) exceeds "
                "healthy_position_0_acceptance_ratio (0.9)"
            ),
        ),
        (
            {"optimal_position_decay_ratio": 0.45},
            "threshold poor_position_decay_ratio (0.5) exceeds optimal_position_decay_ratio (0.45)",
        ),
        (
            {"disable_acceptance_ratio": 0.7},
            "threshold disable_acceptance_ratio (0.7) exceeds break_even_acceptance_ratio (0.65)",
        ),
        (
            {"lower_k_last_position_acceptance_ratio": 0.4},
            (
                "threshold lower_k_last_position_acceptance_ratio (0.4) exceeds "
                "raise_k_last_position_acceptance_ratio (0.3)"
            ),
        ),
        (
            {"beneficial_speedup": 0.9},
            "threshold harmful_speedup (1) exceeds beneficial_speedup (0.9)",
        ),
    ],
)
def test_levels_that_contradict_each_other(values: dict[str, float], message: str) -> None:
    """A level cannot ask for more than the level above it."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Thresholds().with_values(values)


def test_levels_that_meet() -> None:
    """Two levels may have the same threshold."""
    changed = Thresholds().with_values({"poor_acceptance_ratio": 0.6})

    assert changed.poor_acceptance_ratio == changed.healthy_acceptance_ratio


def test_levels_moved_together() -> None:
    """Order is checked over all the values given, not one by one."""
    changed = Thresholds().with_values({"poor_acceptance_ratio": 0.7, "healthy_acceptance_ratio": 0.7})

    assert (
        changed.poor_acceptance_ratio,
        changed.healthy_acceptance_ratio,
        changed.optimal_acceptance_ratio,
    ) == (0.7, 0.7, 0.7)


def test_one_of_several_values() -> None:
    """A single value is checked by itself where others are still to come."""
    assert (
        Thresholds().with_values({"poor_acceptance_ratio": 0.65}, ordered=False).poor_acceptance_ratio == 0.65
    )


def test_every_threshold_is_described() -> None:
    """Each has a default and a meaning for the documentation."""
    described = list(describe())

    assert {name: default for name, default, _ in described} == RUBRIC
    assert [name for name, _, meaning in described if not meaning] == []
