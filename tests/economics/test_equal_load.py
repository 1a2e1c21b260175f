"""The estimator of a speedup at equal load, against a known truth and against what it
replaced.

`compare`, `history` and the measurement against a baseline had an arithmetic of
intervals each. Where they differed, the simulations here say which one holds the truth
as often as it promises.
"""

import math
import random
from collections.abc import Callable, Sequence

import pytest

from baseline.recordings import baseline
from vllm_specdec_exporter.commands.history.matching import Cells, judge_change
from vllm_specdec_exporter.economics.baseline import LoadBucket
from vllm_specdec_exporter.economics.baseline_match import (
    BaselineComparison,
    measured_speedup,
)
from vllm_specdec_exporter.economics.equal_load import (
    Block,
    FinishedRequests,
    speedup_interval,
    speedup_of_means,
    uncertainty_of_mean,
)
from vllm_specdec_exporter.economics.statistics import (
    SampleMean,
    Uncertainty,
    reach_of,
)
from vllm_specdec_exporter.engines.reading import Latencies
from vllm_specdec_exporter.exposition.histogram import Histogram

#: Of pace between blocks of time, and of requests within one.
PACE = 0.15
SPREAD = 0.3
REQUESTS = 240

Estimator = Callable[[Sequence[Block], FinishedRequests], Uncertainty]


def drawn(
    rng: random.Random, shares: Sequence[float]
) -> tuple[list[Block], FinishedRequests]:
    """Blocks of time with these shares of the requests, each with a pace of its own."""
    blocks: list[Block] = []
    times: list[float] = []
    for share in shares:
        pace = rng.gauss(-(PACE**2) / 2, PACE)
        of_block = [
            math.exp(pace + rng.gauss(-(SPREAD**2) / 2, SPREAD))
            for _ in range(round(share * REQUESTS))
        ]
        blocks.append(Block(len(of_block), math.fsum(of_block)))
        times += of_block
    mean = math.fsum(times) / len(times)
    variance = math.fsum((time - mean) ** 2 for time in times) / (len(times) - 1)
    return blocks, FinishedRequests(len(times), 4.0, math.sqrt(variance) / mean)


def held(shares: Sequence[float], estimator: Estimator, tries: int = 500) -> float:
    """Return how often the interval of two equally fast servers includes 1."""
    count = 0
    for seed in range(tries):
        rng = random.Random(seed)
        logarithm = 0.0
        parts = []
        for sign in (1, -1):
            blocks, requests = drawn(rng, shares)
            seconds = math.fsum(block.seconds for block in blocks)
            logarithm += sign * math.log(seconds / requests.count)
            parts.append(estimator(blocks, requests))
        count += abs(logarithm) <= reach_of(*parts)
    return count / tries


def with_one_factor_for_all(
    blocks: Sequence[Block], requests: FinishedRequests
) -> Uncertainty:
    """What the exporter and `compare` had: m / (m - 1), whatever a block's share."""
    seconds = math.fsum(block.seconds for block in blocks)
    weight = math.fsum(block.weight for block in blocks)
    number = len(blocks)
    squares = math.fsum(
        (block.seconds / seconds - block.weight / weight) ** 2 for block in blocks
    )
    variance = number / (number - 1) * squares
    assert requests.spread is not None
    independent = requests.spread**2 / requests.count
    return Uncertainty(max(variance, independent), number - 1.0)


EVEN = [1 / 8] * 8
UNEVEN = {
    "one burst": [0.02] * 3 + [0.86] + [0.02] * 4,
    "two bursts": [0.02, 0.4, 0.02, 0.02, 0.45, 0.03, 0.03, 0.03],
    "a burst at the end": [0.03] * 7 + [0.79],
}


@pytest.mark.parametrize("shares", UNEVEN.values(), ids=UNEVEN)
def test_blocks_with_most_of_the_traffic_hide_no_scatter(
    shares: Sequence[float],
) -> None:
    """A block that determines the mean deviates little from it. The share of each block
    in the estimate allows for that, as `history` did; one factor for all does not.
    """
    assert held(shares, uncertainty_of_mean) >= 0.93
    assert held(shares, with_one_factor_for_all) <= 0.88


def test_with_even_traffic_both_are_right() -> None:
    assert 0.93 <= held(EVEN, uncertainty_of_mean) <= 0.99
    assert 0.92 <= held(EVEN, with_one_factor_for_all) <= 0.99


@pytest.mark.parametrize("share_of_batch", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_a_load_apart_moves_the_end_that_it_explains(
    share_of_batch: float, factor: float
) -> None:
    """A step that takes more with its batch by nothing, in part or in proportion: the
    interval holds the speedup at the new side's load. The exporter moved both ends,
    which holds it as well, with an end that no step can reach.
    """
    rng = random.Random(1)
    tries = 1000
    truth = 1.3
    count = 0
    for _ in range(tries):
        old = math.exp(rng.gauss(0, 0.05))
        old_at_load_of_new = 1 + share_of_batch * (factor - 1)
        new = old_at_load_of_new / truth * math.exp(rng.gauss(0, 0.05))
        found = speedup_interval(
            old / new, [Uncertainty(0.05**2, math.inf)] * 2, [math.log(factor)]
        )
        count += (found.low or 0) <= truth <= (found.high or 0)
    assert count >= 0.94 * tries


def test_the_same_data_have_the_same_interval_everywhere() -> None:
    """Two servers with the load of four requests, in forty blocks of time: as a past,
    as a baseline and the server now, and as two means.
    """
    rng = random.Random(3)
    paces = {
        side: [pace * math.exp(rng.gauss(0, 0.1)) for _ in range(40)]
        for side, pace in (("old", 0.03), ("new", 0.02))
    }
    requests = 100.0
    sides = {
        side: [Block(requests, requests * pace) for pace in paces[side]]
        for side in paces
    }

    cells = []
    for number, blocks in enumerate(sides.values()):
        of_side = Cells()
        for index, block in enumerate(blocks, 40 * number):
            of_side.add(
                index,
                4.0,
                100.0,
                generated=1.0,
                seconds=block.seconds,
                requests=block.weight,
            )
        cells.append(of_side)
    of_history = judge_change(cells, 1, 0).speedup
    assert of_history is not None

    def histogram(blocks: Sequence[Block]) -> Histogram:
        count = math.fsum(block.weight for block in blocks)
        # Hardly any spread of single requests: blocks decide.
        counts = (0.0, count)
        seconds = math.fsum(block.seconds for block in blocks)
        return Histogram((0.0199, 0.0201), counts, count, seconds)

    recorded = LoadBucket(
        requests_running=4.0,
        seconds=1000.0,
        generation_tokens=1e6,
        requests=40 * requests,
        latencies=Latencies(None, histogram(sides["old"])),
        blocks=tuple(sides["old"]),
    )
    known = baseline(recorded)
    sums = [BaselineComparison(baseline=known)]
    before = Latencies(None, histogram(()).plus(histogram(sides["new"]), 0.0))
    for end in range(5, 41, 5):
        after = Latencies(None, histogram(sides["new"][:end]))
        sums.append(sums[-1].add(before, after, load=4.0, seconds=10.0, baseline=known))
        before = after
    of_baseline = measured_speedup(sums, 20)

    means = []
    for blocks in sides.values():
        of_latency = histogram(blocks)
        finished = FinishedRequests(of_latency.count, 4.0, of_latency.spread)
        uncertainty = uncertainty_of_mean(blocks, finished)
        mean = of_latency.mean or 0.0
        error = mean * math.sqrt(uncertainty.variance)
        means.append(SampleMean(mean, error, uncertainty.freedom))
    of_means = speedup_of_means(*means)
    assert of_means is not None

    for found in (of_history, of_means):
        assert found.value == pytest.approx(of_baseline.speedup)
    widths = [
        math.log(high / low)
        for low, high in (
            (of_history.low, of_history.high),
            (of_means.low, of_means.high),
            (of_baseline.speedup_low, of_baseline.speedup_high),
        )
        if low and high
    ]
    assert len(widths) == 3
    assert max(widths) < 1.25 * min(widths), widths
