"""Outcomes, histograms, totals since the start, and quantiles of the window."""

import math
from bisect import bisect_left
from collections.abc import Iterable
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from per_request.exact import totals
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.exposition.histogram import Histogram
from vllm_specdec_exporter.per_request.aggregation import HistogramAccumulator
from vllm_specdec_exporter.per_request.grouping import BOUNDS
from vllm_specdec_exporter.per_request.observation import DraftRecord
from vllm_specdec_exporter.per_request.recent_window import RESOLUTION, GroupStats
from vllm_specdec_exporter.per_request.summary import Outcome, outcome_of

THRESHOLDS = Thresholds()
VALUES = st.floats(0, 1000) | st.sampled_from([0.0, 0.5, 0.65, 1.0])
RISING = st.lists(VALUES, min_size=1, max_size=10, unique=True).map(lambda bounds: tuple(sorted(bounds)))
#: A request's accepted and drafted tokens.
TOKENS = st.integers(1, 3000).flatmap(lambda drafted: st.tuples(st.integers(0, drafted), st.just(drafted)))


def counted(values: Iterable[float | None], bounds: tuple[float, ...]) -> Histogram | None:
    found = HistogramAccumulator(bounds)
    for value in values:
        found.add(value)
    return found.histogram()


def recent(requests: Iterable[tuple[int, int]]) -> GroupStats:
    """Counts of requests by their accepted and drafted tokens."""
    found = GroupStats()
    for accepted, drafted in requests:
        record = DraftRecord(drafted, drafted, accepted)
        outcome = outcome_of(record.acceptance_ratio, THRESHOLDS)
        assert outcome is not None
        found.add(record, outcome, accepted + drafted)
    return found


class TestHistograms:
    @given(st.lists(VALUES, min_size=1), RISING)
    def test_buckets(self, values: list[float], bounds: tuple[float, ...]) -> None:
        """They are cumulative and hold their bound."""
        found = counted(values, bounds)

        assert found is not None
        assert found.bounds == bounds
        assert found.counts == tuple(sum(v <= bound for v in values) for bound in bounds)
        assert found.count == len(values)
        assert found.sum == pytest.approx(math.fsum(values))


class TestQuantiles:
    @given(st.lists(TOKENS, min_size=1), st.sampled_from([Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)]))
    @example([(0, 1)] * 3 + [(1, 1)] * 27, Fraction(1, 10))
    @example([(1249, 2500)] * 100, Fraction(1, 10))
    def test_against_the_definition(self, requests: list[tuple[int, int]], q: Fraction) -> None:
        """The smallest of all ratios, exactly, of which it holds; as far as the resolution goes."""
        ratios = sorted(Fraction(accepted, drafted) for accepted, drafted in requests)
        exact = next(r for r in ratios if sum(other <= r for other in ratios) >= q * len(ratios))

        assert recent(requests).quantile(float(q)) == math.floor(exact * RESOLUTION) / RESOLUTION


class TestParts:
    @given(st.lists(TOKENS, min_size=1))
    def test_shares(self, requests: list[tuple[int, int]]) -> None:
        """By request and by generated token, each against its own total; all together are the whole."""
        found = recent(requests)
        loses = [(a, d) for a, d in requests if a / d < THRESHOLDS.disable_acceptance_ratio]
        tokens = sum(a + d for a, d in requests)

        assert found.count == len(requests)
        assert found.acceptance_ratio == sum(a for a, _ in requests) / sum(d for _, d in requests)
        assert found.share(Outcome.LOSES) == pytest.approx(len(loses) / len(requests))
        assert found.token_share(Outcome.LOSES) == pytest.approx(sum(a + d for a, d in loses) / tokens)
        assert sum(found.share(outcome) or 0.0 for outcome in Outcome) == pytest.approx(1)

    def test_unknown_tokens(self) -> None:
        """Without counts of tokens there is no share of them."""
        found = GroupStats()
        found.add(totals(82), Outcome.GAINS, 0)

        assert found.token_share(Outcome.GAINS) is None


def test_the_default_bounds_have_the_zones() -> None:
    """The published thresholds are among the bounds, so that quantile queries cut where the zones do."""
    bounds = BOUNDS["acceptance_ratio"]
    for value in (THRESHOLDS.disable_acceptance_ratio, THRESHOLDS.break_even_acceptance_ratio):
        assert bounds[bisect_left(bounds, value)] == value
    for found in BOUNDS.values():
        assert list(found) == sorted(set(found))


# --- outcomes: the zones of acceptance, as published and as the operator moves them

LOSES, BREAK_EVEN, GAINS = Outcome.LOSES, Outcome.BREAK_EVEN, Outcome.GAINS


def test_the_published_zones() -> None:
    """Below 0.50 a request loses, up to 0.65 it is near break-even, above it gains."""
    for outcome, ratios in {
        LOSES: (0.0, 0.38, 0.4999),
        BREAK_EVEN: (0.5, 0.65),
        GAINS: (0.6501, 0.82, 1.0),
        None: (None,),
    }.items():
        assert [outcome_of(ratio, Thresholds()) for ratio in ratios] == [outcome] * len(ratios)


def test_zones_that_the_operator_moved() -> None:
    """The edges belong to the zone between them, also where they are one."""
    for low, high in ((0.2, 0.3), (0.7, 0.7)):
        edges = {"disable_acceptance_ratio": low, "break_even_acceptance_ratio": high}
        thresholds = Thresholds().with_values(edges)
        found = [outcome_of(ratio, thresholds) for ratio in (low - 0.01, low, high, high + 0.01)]
        assert found == [LOSES, BREAK_EVEN, BREAK_EVEN, GAINS]
