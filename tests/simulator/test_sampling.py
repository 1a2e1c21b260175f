"""Draws follow their distributions."""

import math
from collections import Counter
from random import Random

import pytest

from vllm_specdec_exporter.commands.simulate.speculation import binomial, multinomial


def probability(trials: int, chance: float, successes: int) -> float:
    return math.exp(
        math.lgamma(trials + 1)
        - math.lgamma(successes + 1)
        - math.lgamma(trials - successes + 1)
        + successes * math.log(chance)
        + (trials - successes) * math.log1p(-chance)
    )


def chi_square(counts: Counter[int], trials: int, chance: float, draws: int) -> tuple[float, int]:
    """Return the statistic and its degrees of freedom; rare outcomes share one class."""
    statistic, classes, rest, rest_expected = 0.0, 0, 0, 0.0
    for successes in range(trials + 1):
        expected = draws * probability(trials, chance, successes)
        if expected < 10:
            rest += counts[successes]
            rest_expected += expected
            continue
        statistic += (counts[successes] - expected) ** 2 / expected
        classes += 1
    if rest_expected > 1:
        statistic += (rest - rest_expected) ** 2 / rest_expected
        classes += 1
    return statistic, classes - 1


def test_draws_follow_the_binomial_distribution() -> None:
    draws = 20_000
    for trials, chance in ((1, 0.3), (4, 0.9), (30, 0.02), (64, 0.92), (100, 0.37), (500, 0.5), (5000, 0.01)):
        rng = Random(f"{trials}/{chance}")
        counts = Counter(binomial(rng, trials, chance) for _ in range(draws))
        statistic, freedom = chi_square(counts, trials, chance, draws)
        # A chi-square value has mean f and variance 2f; five deviations are never seen by chance.
        assert statistic < freedom + 5 * math.sqrt(2 * freedom), (trials, chance)


def test_certain_outcomes_and_impossible_distributions() -> None:
    certain = {(0, 0.5): 0, (100, 0.0): 0, (100, 1.0): 100, (100, 5e-324): 0}
    assert {of: binomial(Random(1), *of) for of in certain} == certain
    for trials, chance in ((-1, 0.5), (1, -0.1), (1, 1.1), (1, math.nan)):
        with pytest.raises(ValueError, match="no binomial distribution"):
            binomial(Random(1), trials, chance)
    with pytest.raises(ValueError, match="positive weight"):
        multinomial(Random(1), 1, [0.0, 0.0])


def test_multinomial_follows_the_weights() -> None:
    rng = Random(5)
    totals = [0, 0, 0, 0]
    for _ in range(200):
        counts = multinomial(rng, 1000, [1, 0, 3, 4])
        assert sum(counts) == 1000
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
    assert totals[1] == 0
    for total, share in zip(totals, (1 / 8, 0, 3 / 8, 4 / 8), strict=True):
        assert abs(total - 200_000 * share) <= 5 * math.sqrt(200_000 * share * (1 - share))
