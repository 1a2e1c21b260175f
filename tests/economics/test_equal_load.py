"""The estimator of a speedup at equal load, which `compare`, `history` and the
measurement against a baseline share, against a known truth.
"""

import math
import random
from collections.abc import Sequence

import pytest

from baseline.recordings import baseline
from vllm_specdec_exporter.economics.baseline import RECORDED_BLOCKS, LoadBucket
from vllm_specdec_exporter.economics.baseline_match import (
    BaselineComparison,
    measured_speedup,
)
from vllm_specdec_exporter.economics.equal_load import (
    Block,
    Finished,
    FinishedRequests,
    Stratum,
    joined,
    speedup_interval,
    speedup_of_means,
    speedup_over_strata,
    uncertainty_of_mean,
)
from vllm_specdec_exporter.economics.statistics import (
    Interval,
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


def drawn(
    rng: random.Random, shares: Sequence[float]
) -> tuple[list[Block], FinishedRequests]:
    """Blocks of time with these shares of the requests, each with a pace of its own."""
    blocks = []
    times = []
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


def held(shares: Sequence[float], tries: int = 500) -> float:
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
            parts.append(uncertainty_of_mean(blocks, requests))
        count += abs(logarithm) <= reach_of(*parts)
    return count / tries


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
    in the estimate allows for that; one factor for all, m / (m - 1), would hold the
    truth in less than 88 %.
    """
    assert held(shares) >= 0.93


def test_with_even_traffic_the_interval_is_no_wider_than_it_promises() -> None:
    assert 0.93 <= held([1 / 8] * 8) <= 0.99


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
        speedup = speedup_interval(
            old / new, [Uncertainty(0.05**2, math.inf)] * 2, [math.log(factor)]
        )
        count += speedup.low <= truth <= speedup.high
    assert count >= 0.94 * tries


#: Requests of each block below, and their true speedup.
OF_BLOCK = 100.0
TRUTH = 1.5


def histogram(blocks: Sequence[Block]) -> Histogram:
    """Of requests that hardly differ from each other: blocks decide."""
    count = math.fsum(block.weight for block in blocks)
    seconds = math.fsum(block.seconds for block in blocks)
    return Histogram((0.0199, 0.0201), (0.0, count), count, seconds)


def by_history(old: Sequence[Block], new: Sequence[Block]) -> Interval | None:
    """As `history`, before it corrects for drift."""

    def finished(blocks: Sequence[Block]) -> dict[int, Finished]:
        return {
            number: Finished(
                seconds=block.seconds,
                weight=block.weight,
                log_load=0.0,
                generated=block.weight,
            )
            for number, block in enumerate(blocks)
        }

    stratum = Stratum.of(finished(old), finished(new))
    return speedup_over_strata((stratum,), concurrent=False)


def by_baseline(old: Sequence[Block], new: Sequence[Block]) -> Interval | None:
    """The speedup of a server, in eight blocks, against a recorded baseline."""
    recorded = LoadBucket(
        requests_running=4.0,
        seconds=1000.0,
        generation_tokens=1e6,
        requests=OF_BLOCK * len(old),
        latencies=Latencies(None, histogram(old)),
        blocks=tuple(joined(old, RECORDED_BLOCKS)),
    )
    recording = baseline(recorded)
    sums = [BaselineComparison(baseline=recording)]
    start = Latencies(None, histogram(()).plus(histogram(new), 0.0))
    for end in range(5, len(new) + 1, 5):
        finished = Latencies(None, histogram(new[:end]))
        sums.append(
            sums[-1].add(start, finished, load=4.0, seconds=10.0, baseline=recording)
        )
        start = finished
    return measured_speedup(sums, 20).interval


def by_means(old: Sequence[Block], new: Sequence[Block]) -> Interval | None:
    """The speedup of one server over another, by the means of both."""
    means = []
    for blocks in (old, new):
        latency = histogram(blocks)
        finished = FinishedRequests(latency.count, 4.0, latency.spread)
        uncertainty = uncertainty_of_mean(blocks, finished)
        error = latency.mean * math.sqrt(uncertainty.variance)
        means.append(SampleMean(latency.mean, error, uncertainty.freedom))
    return speedup_of_means(*means)


def test_the_same_data_have_the_same_interval_everywhere() -> None:
    """Two servers with the load of four requests, in forty blocks of time: as a past,
    as a baseline and the server now, and as two means. Each holds the truth as often as
    it promises, or a little more often, because the wider of two scatters counts. That
    of a baseline is narrower, because a recording keeps more blocks, and rightly so.
    """
    ways = (by_history, by_baseline, by_means)
    tries = 300
    held = dict.fromkeys(ways, 0)
    widths = dict.fromkeys(ways, 0.0)
    for seed in range(tries):
        rng = random.Random(seed)
        old, new = (
            [
                Block(OF_BLOCK, OF_BLOCK * pace * math.exp(rng.gauss(0, 0.1)))
                for _ in range(40)
            ]
            for pace in (0.03, 0.03 / TRUTH)
        )
        speedups = set()
        for way in ways:
            speedup = way(old, new)
            low, high = speedup.ends
            speedups.add(round(speedup.value, 9))
            held[way] += speedup.holds(TRUTH)
            widths[way] += math.log(high / low) / tries
        assert len(speedups) == 1
    assert max(widths.values()) < 1.15 * min(widths.values()), widths
    assert all(0.95 <= count / tries <= 0.99 for count in held.values()), held
