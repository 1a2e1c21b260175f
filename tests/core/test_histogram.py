"""Histograms: quantiles as PromQL has them, and the laws of adding and subtracting."""

import math
from bisect import bisect_right
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from vllm_specdec_exporter.engines.reading import Latencies
from vllm_specdec_exporter.exposition.histogram import Histogram
from vllm_specdec_exporter.measures.history import latency_summaries

BOUNDS = (0.1, 0.5, 1.0, 5.0)


def of(*observations: float, bounds: tuple[float, ...] = BOUNDS) -> Histogram:
    """What a server counts of these observations."""
    ascending = sorted(observations)
    counts = tuple(float(bisect_right(ascending, bound)) for bound in bounds)
    return Histogram(bounds, counts, float(len(observations)), math.fsum(observations))


def prometheus_quantile(q: float, buckets: list[tuple[float, float]]) -> float:
    """PromQL's own algorithm by its source (`bucketQuantile`), from cumulative counts
    by upper bound.
    """
    observations = buckets[-1][1]
    rank = q * observations
    b = next(
        (i for i, (_, count) in enumerate(buckets[:-1]) if count >= rank),
        len(buckets) - 1,
    )
    if b == len(buckets) - 1:
        return buckets[-2][0]
    if b == 0 and buckets[0][0] <= 0:
        return buckets[0][0]
    start = 0.0
    end = buckets[b][0]
    count = buckets[b][1]
    if b > 0:
        start = buckets[b - 1][0]
        count -= buckets[b - 1][1]
        rank -= buckets[b - 1][1]
    return start + (end - start) * (rank / count)


values = st.lists(st.floats(0, 10), min_size=1, max_size=40)
histograms = st.lists(st.floats(0, 10), max_size=40).map(lambda observed: of(*observed))


class TestQuantile:
    @given(values, st.floats(0.001, 1))
    def test_it_is_that_of_promql(self, observations: list[float], q: float) -> None:
        """Whatever was observed.

        Within the first bucket there is none: only its upper bound is known.
        """
        histogram = of(*observations)
        buckets = [
            *zip(BOUNDS, histogram.counts, strict=True),
            (math.inf, histogram.count),
        ]

        expected = None
        if histogram.counts[0] <= q * histogram.count:
            expected = pytest.approx(prometheus_quantile(q, buckets), rel=1e-9)
        assert histogram.quantile(q) == expected

    def test_nothing_observed(self) -> None:
        """Of nothing there is no quantile, no mean and no deviation."""
        for empty in (Histogram(), of(), Histogram((), (), 3.0, 1.0)):
            assert empty.quantile(0.5) is None, empty
        assert of().mean is None
        assert of().deviation is None


class TestMoments:
    @pytest.mark.parametrize("spread", [0.05, 0.5, 2.0])
    def test_deviation_of_many_buckets(self, spread: float) -> None:
        """With fine buckets the deviation comes close to the true one."""
        bounds = tuple(accumulate([0.05] * 120))
        observations = [3 + spread * math.sin(i) for i in range(500)]
        mean = math.fsum(observations) / 500
        true = math.sqrt(math.fsum((x - mean) ** 2 for x in observations) / 500)

        assert of(*observations, bounds=bounds).deviation == pytest.approx(
            true, rel=0.15, abs=0.03
        )

    @given(values)
    def test_deviation_is_a_number(self, observations: list[float]) -> None:
        """Finite and not negative, none of a single observation, and within a wide
        bucket.
        """
        deviation = of(*observations).deviation
        if len(observations) == 1:
            assert deviation is None
        else:
            assert 0 <= deviation < math.inf
        assert of(*[0.001] * 50).deviation < 0.1

    def test_only_zeros(self) -> None:
        """Requests with one token have no time per further token; a bucket may end at
        0.
        """
        assert of(0.0, 0.0, bounds=(0.0, 1.0)).spread is None


class TestLaws:
    @given(histograms, histograms)
    def test_what_was_added_since(self, earlier: Histogram, more: Histogram) -> None:
        """What is added to an earlier histogram is what was observed since."""
        since = earlier.plus(more).since(earlier)

        assert since == replace(more, sum=pytest.approx(more.sum, abs=1e-9))

    @given(histograms, st.floats(0, 5))
    def test_weight(self, histogram: Histogram, weight: float) -> None:
        """A weight counts every observation so many times, which moves no mean and no
        quantile.
        """
        scaled = Histogram().plus(histogram, weight)

        assert scaled.count == pytest.approx(weight * histogram.count)
        if weight > 0.01 and histogram.count:
            assert scaled.mean == pytest.approx(histogram.mean)
            assert scaled.quantile(0.5) == pytest.approx(histogram.quantile(0.5))

    def test_other_bounds(self) -> None:
        """Histograms with other buckets are not added up, and nothing is told since one
        of them.
        """
        coarse = of(0.2, bounds=(0.1, 1.0))
        with pytest.raises(
            ValueError, match=r"^histograms with different bounds cannot be added$"
        ):
            of(0.2).plus(coarse)
        assert of(0.2).since(coarse) is None

    def test_what_fell(self) -> None:
        """A count in a bucket or beyond the last one, or a sum, that fell is a restart:
        nothing is known.
        """
        for earlier in (
            of(0.2, 0.3),
            of(9.0, 9.0),
            Histogram(BOUNDS, (0.0, 0.0, 0.0, 0.0), 0.0, 5.0),
        ):
            assert of(0.3).since(earlier) is None, earlier


class TestSummary:
    def test_what_finished_between(self) -> None:
        """Number, mean, deviation and quantiles of each kind that both samples have."""
        begin = Latencies(time_to_first_token=of(0.05), time_per_output_token=of(0.3))
        end = Latencies(
            time_to_first_token=of(0.05, 0.3, 0.3),
            time_per_output_token=of(0.3),
            end_to_end=of(0.2),
        )
        between = of(0.3, 0.3)
        # Of two requests, each with no other.
        error = between.deviation / 2**0.5

        (latency,) = latency_summaries(begin, end)
        name, *numbers = astuple(latency)
        assert name == "time_to_first_token"
        assert numbers == pytest.approx(
            [
                2.0,
                0.3,
                between.deviation,
                between.quantile(0.5),
                between.quantile(0.95),
                between.quantile(0.99),
                error,
                1.0,
            ]
        )

    def test_what_was_not_read(self) -> None:
        """Without histograms at both ends there is nothing."""
        assert latency_summaries(None, Latencies()) == ()
        assert latency_summaries(Latencies(), None) == ()
        assert latency_summaries(None, None) == ()

    def test_a_restart_between(self) -> None:
        """Counts that fell leave their kind out, and the others in."""
        begin = Latencies(time_to_first_token=of(0.2, 0.2), end_to_end=of(0.2))
        end = Latencies(time_to_first_token=of(0.2), end_to_end=of(0.2, 0.4))

        (latency,) = latency_summaries(begin, end)
        assert latency.name == "end_to_end"
