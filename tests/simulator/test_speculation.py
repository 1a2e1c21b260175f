"""Simulated drafts are counted as vLLM counts them, and draws follow their distributions."""

import math
from random import Random
from statistics import fmean, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_specdec_exporter.commands.simulate.speculation import (
    DraftModel,
    Totals,
    binomial,
    multinomial,
    sample_drafts,
)


def within(successes: int, trials: int, chance: float) -> bool:
    """Whether a number of successes is within five standard deviations of its mean."""
    return abs(successes - trials * chance) <= 5 * math.sqrt(trials * chance * (1 - chance)) + 1


@given(
    st.integers(0, 5000),
    st.lists(st.floats(0, 1), min_size=1, max_size=8),
    st.floats(0, 1),
    st.lists(st.floats(0, 10), max_size=10),
    st.integers(0, 12),
    st.integers(),
)
def test_counts_follow_vllm_semantics(
    request_steps: int,
    acceptance: list[float],
    draft_probability: float,
    weights: list[float],
    k: int,
    seed: int,
) -> None:
    model = DraftModel(tuple(acceptance), draft_probability, tuple(weights))
    totals = sample_drafts(Random(seed), request_steps, model, k)
    assert totals.drafts <= request_steps
    assert totals.drafts <= totals.draft_tokens <= k * totals.drafts or totals.drafts == 0
    assert sum(totals.accepted_per_position) == totals.accepted_tokens
    assert totals.accepted_tokens <= totals.draft_tokens
    reached = [totals.drafts, *totals.accepted_per_position]
    assert reached == sorted(reached, reverse=True)


def test_drafts_sampled_together_are_distributed_like_drafts_sampled_one_by_one() -> None:
    acceptance = (0.8, 0.7, 0.5)
    rng = Random(4)
    one_by_one = Totals.empty(3)
    for _ in range(20_000):
        one_by_one.add(sample_drafts(rng, 1, DraftModel(acceptance), 3))
    together = sample_drafts(rng, 20_000, DraftModel(acceptance), 3)
    shares = (0.8, 0.8 * 0.7, 0.8 * 0.7 * 0.5)
    for totals in (one_by_one, together):
        for count, share in zip(totals.accepted_per_position, shares, strict=True):
            assert within(count, 20_000, share)


def test_draft_lengths_follow_their_weights() -> None:
    model = DraftModel((1.0,), draft_probability=0.5, length_weights=(1, 1, 2))
    totals = sample_drafts(Random(2), 100_000, model, 4)
    assert within(totals.drafts, 100_000, 0.5)
    # With certain acceptance, drafts of a length have as many accepted tokens.
    for position, share in enumerate((1, 0.75, 0.5, 0)):
        assert within(totals.accepted_per_position[position], totals.drafts, share)
    assert model.mean_draft_tokens(4) == pytest.approx(0.5 * 2.25)


def test_lengths_beyond_k_are_not_drafted() -> None:
    model = DraftModel((1.0,), length_weights=(1, 1, 8))
    totals = sample_drafts(Random(2), 1000, model, 2)
    assert totals.draft_tokens <= 2 * totals.drafts
    # Weights that leave no length at all mean drafts of full length.
    assert DraftModel((1.0,), length_weights=(0, 0, 1)).lengths(2) == [0.0, 1.0]


# --- draws


def test_draws_have_mean_and_variance_of_the_binomial_distribution() -> None:
    draws = 20_000
    for trials, chance in ((1, 0.3), (4, 0.9), (30, 0.02), (64, 0.92), (100, 0.37), (500, 0.5), (5000, 0.01)):
        rng, mean, variance = Random(f"{trials}/{chance}"), trials * chance, trials * chance * (1 - chance)
        found = [binomial(rng, trials, chance) for _ in range(draws)]
        assert 0 <= min(found) <= max(found) <= trials
        # Within five standard deviations, of which the kurtosis adds 1 / variance to those of a variance.
        assert fmean(found) == pytest.approx(mean, abs=5 * math.sqrt(variance / draws)), (trials, chance)
        spread = 5 * variance * math.sqrt((2 + 1 / variance) / draws)
        assert pvariance(found, mean) == pytest.approx(variance, abs=spread), (trials, chance)


def test_certain_outcomes_and_impossible_distributions() -> None:
    certain = {(0, 0.5): 0, (100, 0.0): 0, (100, 1.0): 100, (100, 5e-324): 0}
    assert {of: binomial(Random(1), *of) for of in certain} == certain
    for trials, chance in ((-1, 0.5), (1, -0.1), (1, 1.1), (1, math.nan)):
        with pytest.raises(ValueError, match="no binomial distribution"):
            binomial(Random(1), trials, chance)
    with pytest.raises(ValueError, match="positive weight"):
        multinomial(Random(1), 1, [0.0, 0.0])
