"""Thresholds: the published rubric, and what an operator may make of it."""

import math

from support.builders import refusal
from vllm_specdec_exporter.config.thresholds import Thresholds, describe

RUBRIC = dict(Thresholds().items())


def refused(**values: float) -> str:
    return refusal(ValueError, Thresholds().with_values, values)


def test_each_is_described_with_its_default() -> None:
    """The numbers themselves are in the golden files and in docs/reference."""
    described = list(describe())
    assert {name: default for name, default, _ in described} == RUBRIC
    assert [name for name, _, meaning in described if not meaning] == []


def test_what_is_not_changed_stays() -> None:
    """The original is left alone."""
    original = Thresholds()
    changed = original.with_values({"poor_acceptance_ratio": 0.5, "minimum_drafts": 20})

    assert dict(changed.items()) == {**RUBRIC, "poor_acceptance_ratio": 0.5, "minimum_drafts": 20}
    assert dict(original.items()) == RUBRIC
    assert original.with_values({}) == original


def test_a_misspelt_threshold_is_refused_with_the_likeliest_first() -> None:
    assert refused(poor_aceptance_ratio=0.5).startswith(
        "unknown threshold 'poor_aceptance_ratio'; most like it: poor_acceptance_ratio, "
    )


#: The least and the most of each threshold that is no share from 0 to 1.
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(
        [name for name in RUBRIC if name.endswith(("_length", "_drafts", "_requests"))], (1, math.inf)
    ),
    "widened_latency_ratio": (1, math.inf),
    "optimal_mean_acceptance_length_deviation": (0, math.inf),
    "beneficial_speedup": (0, math.inf),
    "severe_speedup": (0, math.inf),
    "disagreement_ratio": (0, math.inf),
    "advice_minimum_gain": (0, math.inf),
    "mixed_requests_ratio": (0.01, 0.5),
    "worth_it_objective_ratio": (0, 0.9999),
}


def test_a_value_out_of_its_range_is_refused_with_the_range() -> None:
    """A range includes its ends, and never what is no number."""
    said, expected = [], []
    for name in RUBRIC:
        least, most = RANGES.get(name, (0, 1))
        allowed = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
        for value in (least - 0.01, most + 0.01, math.nan):
            said.append(refused(**{name: value}))
            expected.append(f"threshold {name} is {value:g}; allowed: {allowed}")
        for end in (least, min(most, 1e9)):
            assert getattr(Thresholds().with_values({name: end}, ordered=False), name) == end
    assert said == expected


def test_a_level_cannot_ask_for_more_than_the_level_above_it() -> None:
    for name, value, message in (
        ("poor_acceptance_ratio", 0.61, "{} (0.61) exceeds healthy_acceptance_ratio (0.6)"),
        ("optimal_acceptance_ratio", 0.5, "healthy_acceptance_ratio (0.6) exceeds {} (0.5)"),
        ("healthy_mean_acceptance_length", 2.5, "{} (2.5) exceeds optimal_mean_acceptance_length (2)"),
        ("poor_mean_acceptance_length", 1.6, "{} (1.6) exceeds healthy_mean_acceptance_length (1.5)"),
        (
            "healthy_position_0_acceptance_ratio",
            0.6,
            "poor_position_0_acceptance_ratio (0.7) exceeds {} (0.6)",
        ),
        ("optimal_position_decay_ratio", 0.45, "poor_position_decay_ratio (0.5) exceeds {} (0.45)"),
        ("disable_acceptance_ratio", 0.7, "{} (0.7) exceeds break_even_acceptance_ratio (0.65)"),
        (
            "raise_k_last_position_acceptance_ratio",
            0.05,
            "lower_k_last_position_acceptance_ratio (0.1) exceeds {} (0.05)",
        ),
        ("beneficial_speedup", 0.9, "harmful_speedup (1) exceeds {} (0.9)"),
    ):
        assert refused(**{name: value}) == "threshold " + message.format(name)


def test_order_is_checked_over_all_the_values_given() -> None:
    """Levels may meet and move together; one is checked by itself where others are still to come."""
    assert refused(poor_acceptance_ratio=0.6) == ""
    assert refused(poor_acceptance_ratio=0.7, healthy_acceptance_ratio=0.7) == ""
    one = Thresholds().with_values({"poor_acceptance_ratio": 0.65}, ordered=False)
    assert one.poor_acceptance_ratio == 0.65
