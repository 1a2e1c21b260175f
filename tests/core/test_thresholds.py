"""Thresholds: the published rubric, and what an operator may make of it."""

import math
from pathlib import Path

import yaml

from support.builders import refusal
from vllm_specdec_exporter.config.thresholds import Thresholds

REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yml").read_text("utf-8"))[
    "thresholds"
]


def refused(**values: float) -> str:
    return refusal(ValueError, Thresholds().with_values, values)


def test_a_misspelt_threshold_is_refused_with_the_likeliest_first() -> None:
    assert refused(poor_aceptance_ratio=0.5).startswith(
        "unknown threshold 'poor_aceptance_ratio'; most like it: "
        "poor_acceptance_ratio, "
    )


def test_a_value_out_of_its_range_is_refused_with_the_range() -> None:
    """A range includes its ends, and never what is no number."""
    for name, lowest, highest, allowed in (
        ("poor_acceptance_ratio", 0, 1, "between 0 and 1"),
        ("minimum_drafts", 1, 1e9, "at least 1"),
        ("beneficial_speedup", 0, 1e9, "at least 0"),
        ("mixed_requests_ratio", 0.01, 0.5, "between 0.01 and 0.5"),
        ("worth_it_objective_ratio", 0, 0.9999, "between 0 and 0.9999"),
    ):
        beyond = (
            lowest - 0.01,
            math.nan,
            *([] if highest == 1e9 else [highest + 0.01]),
        )
        assert [refused(**{name: value}) for value in beyond] == [
            f"threshold {name} is {value:g}; allowed: {allowed}" for value in beyond
        ], name
        for end in (lowest, highest):
            assert (
                getattr(Thresholds().with_values({name: end}, ordered=False), name)
                == end
            ), (name, end)


def test_a_level_cannot_ask_for_more_than_the_level_above_it() -> None:
    for name, value, message in REFUSED:
        assert refused(**{name: value}) == "threshold " + message.format(name), name


def test_order_is_checked_over_all_the_values_given() -> None:
    """Levels may meet and move together; one is checked by itself where others are
    still to come.
    """
    assert refused(poor_acceptance_ratio=0.6) == ""
    assert refused(poor_acceptance_ratio=0.7, healthy_acceptance_ratio=0.7) == ""
    thresholds = Thresholds().with_values(
        {"poor_acceptance_ratio": 0.65}, ordered=False
    )
    assert thresholds.poor_acceptance_ratio == 0.65
