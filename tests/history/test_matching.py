"""Speedups of the past against a known truth: found, not invented, and refused where they cannot be known."""

import math
from collections import Counter

import pytest

from history.world import BEGIN, DAY, STEP, Life, World, four, truth
from vllm_specdec_exporter.commands.history.matching import REQUESTS, SECONDS
from vllm_specdec_exporter.commands.history.past import Configuration, ModelHistory, Timeline
from vllm_specdec_exporter.commands.history.report import render

#: Comparisons by place: each K against none, and each against the one before it.
AGAINST = [(1, 0), (3, 0), (3, 1), (5, 0), (5, 3)]
SEEDS = 100
#: Least share of intervals that hold the truth, which is what they promise.
PROMISED = 0.95


def history(world: World, **more: object) -> ModelHistory:
    (found,) = world.past(**more).histories()  # type: ignore[arg-type]
    return found


def found(world: World, history: ModelHistory) -> list[tuple[bool, bool]]:
    """Return for each comparison whether its interval holds the truth, and those of all its bins."""
    held = []
    for comparison in history.comparisons:
        k, before = (
            history.configurations[place].configuration.num_speculative_tokens if world.effect else 0
            for place in (comparison.new, comparison.old)
        )
        speedup = comparison.speedup.speedup
        assert speedup is not None, comparison.speedup.problem
        bins = [one for one in comparison.speedup.bins if one.speedup.low is not None]
        within = [one.speedup.low <= truth([one], k, before) <= one.speedup.high for one in bins]
        held.append((speedup.low <= truth(comparison.speedup.bins, k, before) <= speedup.high, within))
    return held


@pytest.mark.full
@pytest.mark.parametrize(
    ("effect", "busier"), [(True, {}), (False, {}), (True, {3.5: 2.0})], ids=["effect", "none", "doubled"]
)
def test_intervals_hold_the_truth_as_often_as_promised(effect: bool, busier: dict[float, float]) -> None:
    """Of a hundred pasts with four configurations, whole and in bins, also if the load doubles meanwhile."""
    whole: Counter[int] = Counter()
    in_bins, bins = 0, 0
    for seed in range(SEEDS):
        world = four(seed, effect=effect, busier=busier)
        for place, (held, within) in enumerate(found(world, history(world))):
            whole[place] += held
            in_bins += sum(within)
            bins += len(within)
    assert sum(whole.values()) >= PROMISED * SEEDS * len(AGAINST), whole
    assert min(whole.values()) >= (PROMISED - 0.02) * SEEDS, whole
    assert in_bins >= (PROMISED - 0.02) * bins
