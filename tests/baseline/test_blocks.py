"""Intervals of measured speedups against a known truth, where requests share slow steps
and load changes.
"""

import math
import random
from collections.abc import Iterator

import pytest

from baseline.recordings import baseline, histogram, record
from compare.sides import engine, snapshot_of
from vllm_specdec_exporter.commands.compare.comparison import compare
from vllm_specdec_exporter.commands.compare.side import side_of
from vllm_specdec_exporter.commands.compare.verdict import SpeedComparison
from vllm_specdec_exporter.economics.baseline import LoadBucket, decode, encode
from vllm_specdec_exporter.economics.baseline_match import (
    BaselineComparison,
    Measured,
    measured_speedup,
)
from vllm_specdec_exporter.economics.equal_load import (
    Block,
    FinishedRequests,
    uncertainty_of_mean,
)
from vllm_specdec_exporter.economics.statistics import Uncertainty
from vllm_specdec_exporter.engines.reading import Counters, Latencies
from vllm_specdec_exporter.exposition.histogram import Histogram
from vllm_specdec_exporter.measures.history import (
    Sample,
    SampleHistory,
    Window,
    running_between,
    window_delta,
)
from vllm_specdec_exporter.measures.measures import Measures, derive

#: Of vLLM's own histograms.
BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
POLL, TICK = 5.0, 0.5  # seconds
#: Steps are slow or fast for so many seconds, and by such a factor.
MEMORY = 10.0
SWING = 0.25
WINDOW = 300.0


def served(
    rng: random.Random, seconds: float, factor: float, slots: int = 8
) -> Iterator[Sample]:
    """Samples of a server whose tokens take 20 ms times `factor`, and its slow and fast
    times.

    Half of the slots have no request at times, so that the load changes as well.
    """
    keep = math.exp(-TICK / MEMORY)
    pace = rng.gauss(0, SWING)
    time = 0.0
    generated = 0.0
    left, taken, size = ([0.0] * slots for _ in range(3))
    counts = [0.0] * len(BOUNDS)
    sums = 0.0
    requests = 0.0
    idle = 0
    while time <= seconds:
        if time % POLL == 0:
            per_token = Histogram(BOUNDS, tuple(counts), requests, sums)
            latencies = Latencies(None, per_token)
            counted = Counters(generation_tokens=generated)
            yield Sample(time, counted, float(slots - idle), latencies=latencies)
        if time % 20 == 0:
            idle = rng.randint(0, slots // 2)
        pace = keep * pace + math.sqrt(1 - keep**2) * rng.gauss(0, SWING)
        steps = TICK / (0.02 * factor * math.exp(pace))
        for slot in range(slots):
            if left[slot] <= 0:
                if taken[slot]:
                    mean = taken[slot] / size[slot]
                    counts = [
                        n + (mean <= bound)
                        for n, bound in zip(counts, BOUNDS, strict=True)
                    ]
                    sums = sums + mean
                    requests = requests + 1
                taken[slot] = 0.0
                if slot < idle:
                    continue
                left[slot] = size[slot] = rng.uniform(40, 120)
            left[slot] -= steps
            taken[slot] += TICK
            generated += steps
        time += TICK


def recorded(samples: Iterator[Sample]) -> tuple[LoadBucket, ...]:
    return record(list(samples)).buckets()


def measures(samples: Iterator[Sample], buckets: tuple[LoadBucket, ...]) -> Measures:
    """The measures of the last minutes, against a baseline of these buckets."""
    recording = baseline(*buckets)
    history = SampleHistory()
    previous = None
    for shown in samples:
        match = (previous and previous.match) or BaselineComparison(baseline=recording)
        load = running_between(previous, shown) if previous else None
        if previous is not None and load is not None:
            match = match.add(
                previous.latencies,
                shown.latencies,
                load=load,
                seconds=POLL,
                baseline=recording,
            )
        previous = Sample(
            shown.time,
            shown.counters,
            requests_running=shown.requests_running,
            draft_load=0.0,
            latencies=shown.latencies,
            match=match,
        )
        history = history.add(previous, WINDOW)
    delta = window_delta(history, Window(WINDOW), 0.0)
    return derive("5m", delta, minimum_requests=20)


def width(shown: Measured) -> float:
    """Half of the interval, as a logarithm."""
    assert shown.speedup_low
    assert shown.speedup_high
    return math.log(shown.speedup_high / shown.speedup_low) / 2


@pytest.mark.parametrize("minutes", [3, 30])
def test_a_measured_speedup_lies_in_its_interval_in_95_percent(minutes: int) -> None:
    """Both samples count: baselines of three and of thirty minutes, against a window
    of five.
    """
    held = 0
    for seed in range(100):
        rng = random.Random(seed)
        present = served(rng, WINDOW, 0.8)
        shown = measures(present, recorded(served(rng, 60.0 * minutes, 1.0))).measured
        held += shown.speedup_low <= 1.25 <= shown.speedup_high
        assert width(shown) < 1, seed
    assert 92 <= held <= 99


def test_one_wave_of_requests_decides_nothing() -> None:
    """32 requests that ran together went through the same steps, so a fourth less is
    one observation.
    """
    sides = []
    for name, tokens in (("plain", (0.22, 0.3)), ("drafting", (0.16, 0.23))):
        shown = histogram(*tokens * 16)
        history = SampleHistory()
        for time, weight in ((0.0, 0.0), (5.0, 0.0), (10.0, 1.0)):
            counters = Counters(generation_tokens=100 * time)
            latencies = Latencies(None, Histogram().plus(shown, weight))
            history = history.add(
                Sample(time, counters, 32.0, latencies=latencies), 60.0
            )
        delta = window_delta(history, Window(60.0), 0.0)
        sides.append(side_of(snapshot_of(engine(derive("1m", delta))), name))
    speed = compare(*sides).speed
    assert speed.speedup.value == pytest.approx(0.26 / 0.195)
    assert speed.outcome is SpeedComparison.NO_DIFFERENCE


@pytest.mark.parametrize("old", [False, True])
def test_the_sample_of_the_baseline_counts(old: bool) -> None:
    """Of 1, 10 and 1,000 requests, against 200 now that are twice as fast; one shows
    nothing at all.

    In older files without blocks too.
    """
    widths = []
    for requests in (1, 10, 1000):
        per_token = histogram(*[0.1, 0.3] * 500)
        few = Latencies(
            time_per_output_token=Histogram().plus(per_token, requests / 1000)
        )
        if old or requests < 10:
            blocks = ()
        else:
            blocks = (Block(requests / 10, requests * 0.02),) * 10
        recording = baseline(
            LoadBucket(
                2.0,
                seconds=10.0,
                generation_tokens=1000.0,
                requests=requests,
                latencies=few,
                blocks=blocks,
            )
        )
        present = Histogram(
            per_token.bounds, tuple(0.2 * n for n in per_token.counts), 200.0, 20.0
        )
        empty = Latencies(time_per_output_token=Histogram().plus(per_token, 0.0))
        match = BaselineComparison().add(
            empty,
            Latencies(time_per_output_token=present),
            load=2.0,
            seconds=60.0,
            baseline=recording,
        )
        shown = measured_speedup([BaselineComparison(), match], 20)
        assert shown.speedup == pytest.approx(2.0), requests
        widths.append(width(shown))
    assert widths[0] > 4 > 2.7 > widths[1] > 1.5 * widths[2] > 0.2, widths


def test_few_blocks_or_long_requests_leave_requests_that_ran_together_as_one() -> None:
    """40 requests, 10 at a time, are four blocks; 20 of them are two observations
    without blocks.
    """
    even = [Block(10.0, 10.0), Block(10.0, 12.0)] * 4
    forty = FinishedRequests(count=40.0, at_a_time=10.0, spread=0.2)
    assert uncertainty_of_mean(even, forty) == Uncertainty(
        pytest.approx(0.2**2 / 40), pytest.approx(3.0)
    )
    twenty = FinishedRequests(count=20.0, at_a_time=10.0, spread=0.2)
    assert uncertainty_of_mean(even, twenty) == Uncertainty(
        pytest.approx(0.2**2 / 2), 1.0
    )
    of_no_spread = FinishedRequests(count=5.0, at_a_time=10.0, spread=None)
    assert uncertainty_of_mean([], of_no_spread) == Uncertainty(2.0, 1.0)
    slow = [Block(10.0, 10.0)] * 4 + [Block(10.0, 14.0)] * 4
    pairs = 4 / 3 * 4 * 4.0**2 / 96**2
    many = FinishedRequests(count=800.0, at_a_time=10.0, spread=0.2)
    assert uncertainty_of_mean(slow, many) == Uncertainty(
        pytest.approx(pairs), pytest.approx(3.0)
    ), "pairs vary by more"


@pytest.mark.parametrize("minutes", [1, 7, 60])
def test_a_recording_of_any_length_has_some_blocks(minutes: int) -> None:
    """They become longer, hold every request, and are read again from the file."""
    shown = recorded(served(random.Random(minutes), 60.0 * minutes, 1.0))
    finished = [sum(block.weight for block in part.blocks) for part in shown]
    assert finished == pytest.approx([part.requests for part in shown])
    assert 8 <= len(shown[-1].blocks) <= 16
    assert decode(encode(baseline(*shown))).buckets == shown
