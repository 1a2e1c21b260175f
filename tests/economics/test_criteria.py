"""Thresholds that fit a method: published for draft models, from break-even for cheap
drafters.
"""

from itertools import product

import pytest

from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.cost import (
    OPTIMAL_SPEEDUP,
    CostProfile,
    DraftCost,
    TargetCost,
    thresholds_for,
    thresholds_source,
)
from vllm_specdec_exporter.economics.profiles import BUILTIN

CHEAP = {name: profile for name, profile in BUILTIN.items() if profile.cheap}


def test_the_published_rubric_holds_for_draft_models() -> None:
    """A draft model, and what is not known, is judged by the published numbers."""
    others = [profile for name, profile in BUILTIN.items() if name not in CHEAP]

    assert {thresholds_for(profile, 5) for profile in others} == {Thresholds()}
    assert {thresholds_source(profile, 5) for profile in others} == {"published rubric"}


@pytest.mark.parametrize("name", CHEAP)
def test_a_cheap_drafter_is_judged_by_its_break_even(name: str) -> None:
    """Poor is what loses at one request, healthy what gains a fifth, optimal what gains
    a half.
    """
    profile = CHEAP[name]
    for k in (1, 3, 5):
        thresholds = thresholds_for(profile, k)
        cost = profile.step_cost(k, 1)
        gains = {"poor": 1.0, "healthy": 1.2, "optimal": OPTIMAL_SPEEDUP}
        lengths = {level: gain * cost for level, gain in gains.items()}
        ratios = {level: min(1, (length - 1) / k) for level, length in lengths.items()}
        assert {
            level: getattr(thresholds, f"{level}_mean_acceptance_length")
            for level in gains
        } == (pytest.approx(lengths, abs=1e-4)), k
        assert {
            level: getattr(thresholds, f"{level}_acceptance_ratio") for level in gains
        } == (pytest.approx(ratios, abs=5e-5)), k
        assert thresholds.poor_mean_acceptance_length == pytest.approx(
            cost, abs=5e-5
        ), k
        assert (
            thresholds.disable_mean_acceptance_length
            == thresholds.poor_mean_acceptance_length
        ), k
        assert (
            thresholds_source(profile, k)
            == f"break-even of {name} at K={k}, one request"
        ), k
    assert OPTIMAL_SPEEDUP == 1.5
    assert thresholds_for(profile) == thresholds_for(profile, profile.typical_k)
    assert f"K={profile.typical_k}," in thresholds_source(profile)


def test_the_length_that_is_usual_goes_by_the_method_whatever_its_costs() -> None:
    """As published; nothing is asked of other methods."""
    lengths = {
        "eagle": 2,
        "eagle3": 2,
        "ngram": 1.5,
        "mlp_speculator": 1.5,
        "suffix": 2,
        "mtp": 1,
        "": 1,
    }
    for profile, (method, usual) in product(
        (BUILTIN["eagle"], BUILTIN["unknown"]), lengths.items()
    ):
        expected = thresholds_for(profile, 3).with_values(
            {"usual_mean_acceptance_length": usual}
        )
        assert thresholds_for(profile, 3, method) == expected, (profile, method, usual)


def test_a_drafter_that_is_called_cheap_and_is_not() -> None:
    """Ratios end at 1, however dear a step: the thresholds stay values that can be."""
    dear = CostProfile("dear", TargetCost(1.0), DraftCost(per_position=5.0), cheap=True)
    thresholds = thresholds_for(dear, 3)

    assert thresholds.poor_acceptance_ratio == thresholds.optimal_acceptance_ratio == 1
    assert thresholds.poor_mean_acceptance_length == 16


@pytest.mark.parametrize(
    ("profile", "k"), list(product(BUILTIN.values(), (None, 1, 2, 3, 5, 8, 16)))
)
def test_no_levels_contradict_each_other(profile: CostProfile, k: int | None) -> None:
    """The defaults of every profile at every K are thresholds that an operator could
    have given.
    """
    thresholds = thresholds_for(profile, k)
    assert Thresholds().with_values(dict(thresholds.items())) == thresholds
