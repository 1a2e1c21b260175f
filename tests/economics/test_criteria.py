"""Thresholds that fit a method: published for draft models, from break-even for cheap drafters."""

from __future__ import annotations

import pytest

from vllm_specdec_exporter.config import load
from vllm_specdec_exporter.economics import BUILTIN, CostProfile
from vllm_specdec_exporter.economics.cost import DraftCost, TargetCost
from vllm_specdec_exporter.economics.criteria import OPTIMAL_SPEEDUP, basis, thresholds_for
from vllm_specdec_exporter.thresholds import Thresholds

every_profile = pytest.mark.parametrize("name", BUILTIN)
CHEAP = [name for name, profile in BUILTIN.items() if profile.cheap]
every_cheap = pytest.mark.parametrize("name", CHEAP)
every_k = pytest.mark.parametrize("k", [None, 1, 2, 3, 5, 8, 16])


@every_profile
@every_k
def test_no_levels_contradict_each_other(name: str, k: int | None) -> None:
    """The defaults of every profile at every K are thresholds that an operator could have given."""
    thresholds = thresholds_for(BUILTIN[name], k)

    assert Thresholds().with_values(dict(thresholds.items())) == thresholds


@pytest.mark.parametrize("name", [name for name in BUILTIN if name not in CHEAP])
def test_the_published_rubric_holds_for_draft_models(name: str) -> None:
    """A draft model, and what is not known, is judged by the published numbers."""
    assert thresholds_for(BUILTIN[name], 5) == Thresholds()
    assert basis(BUILTIN[name], 5) == "published rubric"


@every_cheap
@pytest.mark.parametrize("k", [1, 3, 5])
def test_a_cheap_drafter_is_judged_by_its_break_even(name: str, k: int) -> None:
    """Poor is what loses at one request, healthy what gains a fifth, optimal what gains a half."""
    profile = BUILTIN[name]
    thresholds = thresholds_for(profile, k)
    cost = profile.step_cost(k, 1)

    assert thresholds.poor_mean_acceptance_length == pytest.approx(cost, abs=5e-5)
    assert thresholds.disable_mean_acceptance_length == pytest.approx(cost, abs=5e-5)
    assert thresholds.healthy_mean_acceptance_length == pytest.approx(1.2 * cost, abs=1e-4)
    assert thresholds.optimal_mean_acceptance_length == pytest.approx(OPTIMAL_SPEEDUP * cost, abs=1e-4)
    assert thresholds.poor_acceptance_ratio == pytest.approx(min(1, (cost - 1) / k), abs=5e-5)
    assert thresholds.healthy_acceptance_ratio == pytest.approx(min(1, (1.2 * cost - 1) / k), abs=5e-5)
    assert thresholds.optimal_acceptance_ratio == pytest.approx(min(1, (1.5 * cost - 1) / k), abs=5e-5)
    assert basis(profile, k) == f"break-even of {name} at K={k}, one request"


@every_cheap
def test_the_typical_k_where_none_is_known(name: str) -> None:
    """Without K the profile's typical one counts."""
    profile = BUILTIN[name]

    assert thresholds_for(profile) == thresholds_for(profile, profile.typical_k)
    assert f"K={profile.typical_k}," in basis(profile)


def test_what_is_not_of_acceptance_stays() -> None:
    """A profile moves the levels of acceptance, not sample sizes, nor what a speedup means."""
    changed = dict(thresholds_for(BUILTIN["ngram"], 5).items())
    same = (
        "minimum_drafts",
        "optimal_mean_acceptance_length_deviation",
        "raise_k_last_position_acceptance_ratio",
        "lower_k_last_position_acceptance_ratio",
        "harmful_speedup",
        "beneficial_speedup",
        "disagreement_ratio",
        "measurement_minimum_requests",
        "advice_minimum_drafts",
        "advice_minimum_gain",
    )

    assert {name: changed[name] for name in same} == {
        name: value for name, value in Thresholds().items() if name in same
    }


@pytest.mark.parametrize("name", ["eagle", "unknown"])
@pytest.mark.parametrize(
    ("method", "usual"),
    [
        ("eagle", 2),
        ("eagle3", 2),
        ("ngram", 1.5),
        ("mlp_speculator", 1.5),
        ("suffix", 2),
        ("mtp", 1),
        ("", 1),
    ],
)
def test_what_a_method_usually_reaches(name: str, method: str, usual: float) -> None:
    """The published lengths go by the method, whatever its costs; nothing is asked of other methods."""
    found = thresholds_for(BUILTIN[name], 3, method)
    expected = {"usual_mean_acceptance_length": usual}

    assert found == thresholds_for(BUILTIN[name], 3).with_values(expected)


def test_a_drafter_that_is_called_cheap_and_is_not() -> None:
    """Ratios end at 1, however dear a step: the thresholds stay values that can be."""
    dear = CostProfile("dear", TargetCost(1.0), DraftCost(per_position=5.0), cheap=True)
    thresholds = thresholds_for(dear, 3)

    assert thresholds.poor_acceptance_ratio == thresholds.optimal_acceptance_ratio == 1
    assert thresholds.poor_mean_acceptance_length == 16


@every_cheap
def test_the_operators_thresholds_win(name: str) -> None:
    """What --threshold says counts, and the rest keeps fitting the method."""
    config = load({"cost.profile": name, "threshold": ["poor_acceptance_ratio=0.001"]}, {})
    default = thresholds_for(BUILTIN[name])

    assert config.settings.thresholds.poor_acceptance_ratio == 0.001
    assert config.settings.thresholds.poor_mean_acceptance_length == default.poor_mean_acceptance_length
