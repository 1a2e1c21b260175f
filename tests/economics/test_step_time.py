"""The time of a step, learned from what the engine shows while it serves."""

from __future__ import annotations

import random

import pytest

from vllm_specdec_exporter.economics.step_time import HALF_LIFE, StepFit, StepInterval, StepRegression

FIXED, PER_REQUEST, PER_KV_CACHE = 8e-3, 1.2e-4, 20e-3


def seconds(batch: float, kv_cache: float = 0.0) -> float:
    return FIXED + PER_REQUEST * batch + PER_KV_CACHE * kv_cache


def learned(
    intervals: list[StepInterval], k: float = 3.0, every: float = 5.0
) -> tuple[StepRegression, float]:
    times, now = StepRegression(), 0.0
    for interval in intervals:
        now += every
        times = times.add(interval, k, now)
    return times, now


def fitted(intervals: list[StepInterval]) -> StepFit:
    times, now = learned(intervals)
    found = times.fit(now)
    assert isinstance(found, StepFit), found
    return found


def test_the_line_of_the_engine_is_found_in_noise_and_outliers() -> None:
    """Noise of a tenth, and one interval in fifty ten times too long: within 3 % over the batches seen."""
    chance = random.Random(7)
    intervals = []
    for _ in range(3000):
        batch = chance.uniform(1, 64)
        true = seconds(batch) * chance.gauss(1, 0.1)
        intervals.append(StepInterval(true * (10 if chance.random() < 0.02 else 1), batch))

    found = fitted(intervals)

    for batch in (2, 8, 32, 60):
        assert found.seconds(batch) == pytest.approx(seconds(batch), rel=0.03)
    assert found.batches[0] < 2 < 50 < found.batches[1]


def test_the_kv_cache_is_told_apart_where_its_use_varies() -> None:
    chance = random.Random(8)
    intervals = []
    for _ in range(2000):
        batch = chance.uniform(1, 64)
        kv_cache = 0.05 + 0.8 * (round(batch) % 7) / 7
        intervals.append(StepInterval(seconds(batch, kv_cache), batch, kv_cache))

    found = fitted(intervals)

    assert found.per_kv_cache == pytest.approx(PER_KV_CACHE, rel=0.1)
    assert found.seconds(16, 0.9) == pytest.approx(seconds(16, 0.9), rel=0.05)


def test_an_engine_that_changed_is_learned_anew() -> None:
    """Steps take twice as long from some time on; after six half-lives the new line counts."""
    chance = random.Random(9)

    def at(factor: float, count: int) -> list[StepInterval]:
        batches = [chance.uniform(1, 32) for _ in range(count)]
        return [StepInterval(seconds(batch) * factor, batch) for batch in batches]

    found = fitted(at(1.0, 500) + at(2.0, round(6 * HALF_LIFE / 5)))

    assert found.seconds(10) == pytest.approx(2 * seconds(10), rel=0.03)


REFUSED = {
    "nothing observed": ([], "no steps observed"),
    "one batch size": ([StepInterval(seconds(8), 8.0)] * 50, "only batch sizes of 8.0 to 8.0 observed"),
    "prefill": ([StepInterval(seconds(8) * 5, 8.0, None, 0.7)] * 50, "70% of the tokens are prompts"),
    "no time": ([StepInterval(float("nan"), 8.0)] * 50, "no step time in the interval"),
    "steps that get shorter": (
        [StepInterval(seconds(40 - batch), float(batch)) for batch in (1, 2, 4, 8, 16, 32)] * 9,
        "step time does not rise with the batch",
    ),
    "throttling": (
        [StepInterval(seconds(b) * (2.5 if b in (2, 16) else 1), float(b)) for b in (1, 2, 4, 8, 16, 32)] * 9,
        "from a line over the batch size",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_shows_no_line_is_refused_with_the_reason(case: str) -> None:
    intervals, reason = REFUSED[case]
    times, now = learned(intervals)

    assert reason in str(times.fit(now))


def test_another_k_starts_anew() -> None:
    times, now = learned([StepInterval(seconds(batch), float(batch)) for batch in (1, 2, 4, 8)])
    assert isinstance(times.fit(now), StepFit)

    times = times.add(StepInterval(0.02, 4.0), 5.0, now + 5)

    assert (times.k, len(times.bins)) == (5, 1)


def test_memory_is_bounded_and_old_intervals_end() -> None:
    """Whatever batches come, there are as many bins as half-doublings; after a day none counts."""
    chance = random.Random(1)
    batches = [chance.uniform(1, 1024) for _ in range(5000)]
    times, now = learned([StepInterval(seconds(batch), batch) for batch in batches])

    assert len(times.bins) <= 21
    assert times.fit(now + 86400) == "no steps observed"
