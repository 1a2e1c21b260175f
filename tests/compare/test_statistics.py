"""The statistics of a comparison: laws that always hold, and intervals against a known
truth.
"""

import math
import random
from collections.abc import Callable
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_specdec_exporter.economics.equal_load import speedup_of_means
from vllm_specdec_exporter.economics.statistics import (
    Acceptance,
    Interval,
    SampleMean,
    difference_of_means,
)


@st.composite
def acceptances(draw: st.DrawFn) -> Acceptance:
    keep = draw(st.lists(st.floats(0, 1), min_size=1, max_size=6))
    survival = tuple(accumulate(keep, lambda first, second: first * second))
    drafts = draw(st.integers(1, 100_000))
    drafted = float(len(survival))
    return Acceptance(
        survival,
        drafts,
        ratio=sum(survival) / drafted,
        length=1 + sum(survival),
        drafted=drafted,
    )


# --- laws


@pytest.mark.parametrize("measure", ["ratio", "length"])
@given(acceptances(), acceptances())
def test_differences_of_acceptance_mirror_each_other(
    measure: str, first: Acceptance, second: Acceptance
) -> None:
    samples = [getattr(side, f"{measure}_sample") for side in (first, second)]
    there = difference_of_means(*samples)
    back = difference_of_means(*reversed(samples))
    assert (there.low, there.value, there.high) == pytest.approx(
        (-back.high, -back.value, -back.low)
    )


@given(acceptances())
def test_acceptance_stays_within_its_bounds(first: Acceptance) -> None:
    ratio = first.ratio_interval
    length = first.length_interval
    assert 0 <= ratio.low <= ratio.value <= ratio.high <= 1
    assert 1 <= length.low <= length.value <= length.high


# --- by hand


def test_a_sample_of_unknown_error_has_no_interval() -> None:
    sample = SampleMean(1.0)
    enough = SampleMean(2.0, 0.02)
    assert sample.interval == Interval(1.0)
    assert speedup_of_means(sample, enough) == Interval(0.5)
    assert difference_of_means(enough, sample) == Interval(1.0)


def test_no_ratio_to_nothing() -> None:
    assert speedup_of_means(SampleMean(0.0, 0.0), SampleMean(1.0, 0.01)) is None
    assert speedup_of_means(SampleMean(1.0, 0.01), SampleMean(0.0, 0.0)) is None


# --- a known truth, many times over

_TRIES = 800


def _drawn(rng: random.Random, mean: float, count: int) -> SampleMean:
    """A sample of a skewed distribution, as latencies are, with a standard deviation of
    half its mean.
    """
    values = [rng.gammavariate(4.0, mean / 4.0) for _ in range(count)]
    estimate = sum(values) / count
    error = math.sqrt(sum((v - estimate) ** 2 for v in values) / (count - 1) / count)
    return SampleMean(estimate, error, count - 1)


@pytest.mark.parametrize(
    ("estimator", "truth"),
    [(speedup_of_means, 0.03 / 0.02), (difference_of_means, 0.03 - 0.02)],
)
@pytest.mark.parametrize(("here", "there"), [(60, 60), (40, 200), (300, 100), (8, 8)])
def test_intervals_hold_the_truth_in_about_95_percent(
    here: int,
    there: int,
    estimator: Callable[[SampleMean, SampleMean], Interval],
    truth: float,
) -> None:
    rng = random.Random(20)
    held = 0
    for _ in range(_TRIES):
        estimate = estimator(_drawn(rng, 0.03, here), _drawn(rng, 0.02, there))
        held += estimate.low <= truth <= estimate.high
    assert 0.93 <= held / _TRIES <= 0.97
