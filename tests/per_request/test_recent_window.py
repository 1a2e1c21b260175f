"""What is known of recent requests: the window and its worst, histograms, quantiles,
zones and positions.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable
from fractions import Fraction
from itertools import chain

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from per_request.exact import Step, record, request, steps, totals
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.exposition.histogram import HistogramAccumulator
from vllm_specdec_exporter.per_request.grouping import BOUNDS, GroupKey
from vllm_specdec_exporter.per_request.observation import Observation
from vllm_specdec_exporter.per_request.recent_window import (
    MAX_WORST,
    MIN_DRAFTS,
    RESOLUTION,
    SLICES,
    GroupStats,
    RecentWindow,
    Slice,
    StepCounts,
)
from vllm_specdec_exporter.per_request.records import DraftRecord
from vllm_specdec_exporter.per_request.summary import Outcome, outcome_of

KEY = GroupKey("m", "0", "chat")
LENGTH = 1800.0
SLICE = LENGTH / SLICES


def add(
    window: RecentWindow,
    observation: Observation,
    time: float = 0.0,
    key: GroupKey = KEY,
) -> None:
    outcome = outcome_of(observation.record.acceptance_ratio, Thresholds())
    window.add(key, observation, outcome, time)


def held(part: Slice) -> int:
    return sum(group.count for group in part.groups.values())


def window_of(*times: float) -> RecentWindow:
    """A window with a request at each of these times."""
    window = RecentWindow(LENGTH)
    for time in times:
        add(window, request(82, record=record([(4, 2)] * 5)), time)
    return window


class TestEdges:
    @given(
        st.lists(
            st.tuples(
                st.floats(0, 3 * LENGTH), st.integers(0, 100), st.sampled_from("ab")
            )
        )
    )
    def test_dropped_slices_are_subtracted(
        self, requests: list[tuple[float, int, str]]
    ) -> None:
        """A window with dropped slices equals one that never had them."""
        requests = sorted(requests)
        end = requests[-1][0] if requests else 0.0
        oldest = end // SLICE - SLICES + 1
        every = RecentWindow(LENGTH)
        left = RecentWindow(LENGTH)
        for time, accepted, kind in requests:
            for window in (every, left) if time // SLICE >= oldest else (every,):
                steps = [(4, accepted % 5)] * 5 + [(accepted % 7, 0)]
                draft_record = replace(totals(accepted), steps=record(steps).steps)
                add(
                    window,
                    request(0, record=draft_record),
                    time,
                    KEY._replace(request_type=kind),
                )

        assert every.whole(end).groups == left.whole(end).groups
        assert every.whole(end).positions == left.whole(end).positions
        assert every.shape(end) == left.shape(end)
        assert every.whole(end + LENGTH) == Slice()

    @pytest.mark.parametrize(
        ("temperatures", "sampled"),
        [
            ({"0": 20}, False),
            ({"0": 19, "0.5-0.7": 1}, False),  # a few change nothing
            ({"0": 8, "0.5-0.7": 2}, True),
            ({"unset": 2, "1+": 8}, True),
            ({"unset": 10}, None),
            ({"unset": 2, "0": 8}, None),
        ],
    )
    def test_whether_requests_are_sampled(
        self, temperatures: dict[str, int], sampled: bool | None
    ) -> None:
        window = window_of()
        for temperature, requests in temperatures.items():
            for _ in range(requests):
                add(
                    window,
                    request(82, record=record([(4, 2)] * 5)),
                    key=GroupKey("m", temperature, "chat"),
                )
        assert window.shape(0.0).sampled is sampled

    def test_requests_without_records(self) -> None:
        """They are counted, and dropped like others."""
        window = window_of()
        for time in (0.0, 0.0, SLICE):
            window.add_unrecorded(time)

        assert [
            window.whole(time).unrecorded for time in (SLICE, LENGTH, LENGTH + SLICE)
        ] == [3, 1, 0]
        assert held(window.whole(SLICE)) == 0

    @given(st.lists(st.floats(0, 2 * LENGTH), min_size=1))
    @example([0.0, SLICE] * 100)
    def test_a_clock_that_goes_back(self, times: list[float]) -> None:
        """The number of slices stays bounded, and recent requests are kept."""
        window = window_of(*times)
        latest = max(times)

        assert len(window._until(latest)) <= SLICES
        assert held(window.whole(latest)) >= sum(
            time // SLICE > latest // SLICE - SLICES for time in times
        )
        assert held(window.whole(latest + LENGTH)) == 0


class TestWorst:
    def test_fields(self) -> None:
        """Its numbers and the server's identifier; not its tenant."""
        fields = {"time": 1000.0, "request_id": "chatcmpl-1", "completion_tokens": 32}
        window = RecentWindow(LENGTH)
        add(window, request(12, **fields, tenant="acme", tpot_seconds=0.02))
        (worst,) = window.whole(0.0).worst

        assert {name: getattr(worst, name) for name in fields} == fields
        assert worst.temperature == "0"
        assert worst.request_type == "chat"
        assert worst.tpot_seconds == 0.02
        assert worst.acceptance_ratio == 0.12
        assert worst.drafts == 20
        assert worst.draft_tokens == 100
        assert "acme" not in repr(worst)

    @pytest.mark.parametrize(("drafts", "kept"), [(MIN_DRAFTS - 1, 0), (MIN_DRAFTS, 1)])
    def test_short_requests(self, drafts: int, kept: int) -> None:
        """Requests with few drafts are not listed."""
        window = RecentWindow(LENGTH)
        add(window, request(0, 15, drafts))

        assert len(window.whole(0.0).worst) == kept
        assert held(window.whole(0.0)) == 1

    @given(
        st.lists(
            st.tuples(st.integers(0, 20), st.integers(20, 40), st.integers(0, 200)),
            max_size=60,
        )
    )
    def test_against_sorting_all(self, requests: list[tuple[int, int, int]]) -> None:
        """Over any slices: losing requests with the lowest acceptance, then with most
        drafted tokens.
        """
        window = RecentWindow(LENGTH)
        for accepted, drafted, slice_ in sorted(requests, key=lambda each: each[2]):
            add(window, request(accepted, drafted), slice_ * SLICE)
        latest = max((slice_ for *_, slice_ in requests), default=0)
        alive = [
            (a / d, -d)
            for a, d, slice_ in requests
            if slice_ > latest - SLICES and a / d < 0.5
        ]

        worst = window.whole(latest * SLICE).worst
        assert [(row.acceptance_ratio, -row.draft_tokens) for row in worst] == sorted(
            alive
        )[:MAX_WORST]


# --- histograms, quantiles and zones


THRESHOLDS = Thresholds()
VALUES = st.floats(0, 1000) | st.sampled_from([0.0, 0.5, 0.65, 1.0])
RISING = st.lists(VALUES, min_size=1, max_size=10, unique=True).map(
    lambda bounds: tuple(sorted(bounds))
)
#: A request's accepted and drafted tokens.
TOKENS = st.integers(1, 3000).flatmap(
    lambda drafted: st.tuples(st.integers(0, drafted), st.just(drafted))
)


def recent(requests: Iterable[tuple[int, int]]) -> GroupStats:
    """Counts of requests by their accepted and drafted tokens."""
    stats = GroupStats()
    for accepted, drafted in requests:
        record = DraftRecord(drafted, drafted, accepted)
        outcome = outcome_of(record.acceptance_ratio, THRESHOLDS)
        stats.add(record, outcome, accepted + drafted)
    return stats


@given(st.lists(VALUES, min_size=1), RISING)
def test_buckets_of_a_histogram(values: list[float], bounds: tuple[float, ...]) -> None:
    """They are cumulative and hold their bound."""
    counted = HistogramAccumulator(bounds)
    for value in values:
        counted.add(value)

    histogram = counted.histogram()
    assert histogram.bounds == bounds
    assert histogram.counts == tuple(
        sum(v <= bound for v in values) for bound in bounds
    )
    assert histogram.count == len(values)
    assert histogram.sum == pytest.approx(math.fsum(values))


@given(
    st.lists(TOKENS, min_size=1),
    st.sampled_from([Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)]),
)
@example([(0, 1)] * 3 + [(1, 1)] * 27, Fraction(1, 10))
@example([(1249, 2500)] * 100, Fraction(1, 10))
def test_quantiles_against_their_definition(
    requests: list[tuple[int, int]], q: Fraction
) -> None:
    """The smallest of all ratios, exactly, of which it holds; as far as the resolution
    goes.
    """
    ratios = sorted(Fraction(accepted, drafted) for accepted, drafted in requests)
    exact = next(
        r for r in ratios if sum(ratio <= r for ratio in ratios) >= q * len(ratios)
    )

    assert (
        recent(requests).quantile(float(q))
        == math.floor(exact * RESOLUTION) / RESOLUTION
    )


class TestParts:
    @given(st.lists(TOKENS, min_size=1))
    def test_shares(self, requests: list[tuple[int, int]]) -> None:
        """By request and by generated token, each against its own total; all together
        are the whole.
        """
        stats = recent(requests)
        loses = [
            (a, d) for a, d in requests if a / d < THRESHOLDS.disable_acceptance_ratio
        ]
        tokens = sum(a + d for a, d in requests)

        assert stats.count == len(requests)
        assert stats.acceptance_ratio == sum(a for a, _ in requests) / sum(
            d for _, d in requests
        )
        assert stats.share(Outcome.LOSES) == pytest.approx(len(loses) / len(requests))
        assert stats.token_share(Outcome.LOSES) == pytest.approx(
            sum(a + d for a, d in loses) / tokens
        )
        assert sum(stats.share(outcome) or 0.0 for outcome in Outcome) == pytest.approx(
            1
        )

    def test_unknown_tokens(self) -> None:
        """Without counts of tokens there is no share of them."""
        stats = GroupStats()
        stats.add(totals(82), Outcome.GAINS, 0)

        assert stats.token_share(Outcome.GAINS) is None


def test_the_default_bounds_have_the_zones() -> None:
    """The published thresholds are among the bounds, so that quantile queries cut where
    the zones do.
    """
    bounds = BOUNDS["acceptance_ratio"]
    for value in (
        THRESHOLDS.disable_acceptance_ratio,
        THRESHOLDS.break_even_acceptance_ratio,
    ):
        assert bounds[bisect_left(bounds, value)] == value, value
    for of_histogram in BOUNDS.values():
        assert list(of_histogram) == sorted(set(of_histogram)), of_histogram


# --- outcomes: the zones of acceptance, as published and as the operator moves them

LOSES = Outcome.LOSES
BREAK_EVEN = Outcome.BREAK_EVEN
GAINS = Outcome.GAINS


def test_zones() -> None:
    """Published are 0.50 and 0.65.

    The edges belong to the zone between them, also where they are one.
    """
    for low, high in ((0.5, 0.65), (0.2, 0.3), (0.7, 0.7)):
        edges = {"disable_acceptance_ratio": low, "break_even_acceptance_ratio": high}
        if low == 0.5:
            thresholds = THRESHOLDS
        else:
            thresholds = THRESHOLDS.with_values(edges)
        outcomes = [
            outcome_of(ratio, thresholds)
            for ratio in (0, low - 1e-4, low, high, high + 1e-4, 1)
        ]
        assert outcomes == [LOSES, LOSES, BREAK_EVEN, BREAK_EVEN, GAINS, GAINS], (
            low,
            high,
        )
    assert outcome_of(None, THRESHOLDS) is None


# --- positions and the lengths of drafts


def positions(*records: DraftRecord) -> StepCounts:
    counts = StepCounts()
    for each in records:
        counts.change(each.steps)
    return counts


class TestCounting:
    @given(st.lists(steps(k=6), max_size=6))
    def test_against_every_step(self, requests: list[list[Step]]) -> None:
        """Counted over requests: the same as looking at each step by itself."""
        counts = positions(*map(record, requests))
        every = list(chain(*requests))
        deepest = max((drafted for drafted, _ in every), default=0)

        assert counts.drafts == len(every)
        assert counts.drafted == tuple(
            sum(d > i for d, _ in every) for i in range(deepest)
        )
        assert counts.accepted == tuple(
            sum(a > i for _, a in every) for i in range(deepest)
        )
        assert counts.ratios == tuple(
            sum(a > i for _, a in every) / sum(d > i for d, _ in every)
            for i in range(deepest)
        )


class TestShape:
    @given(steps(k=6, least=1), st.integers(0, 6))
    @example([(4, 0), (0, 0)], 2)
    def test_any_smaller_k(self, drawn: list[Step], k: int) -> None:
        """A draft that is cut off behind K holds min(drafted, K) tokens; all drafts
        count, as in vLLM.
        """
        shape = positions(record(drawn)).shape
        exact = sum(min(drafted, k) for drafted, _ in drawn) / len(drawn)

        assert shape.of(6).length(k) == pytest.approx(exact)
        assert shape.of(6).mean_length == pytest.approx(
            sum(d for d, _ in drawn) / len(drawn)
        )

    @given(
        st.integers(1, 4).flatmap(lambda k: st.tuples(st.just(k), steps(k=k, least=1))),
        st.integers(0, 5),
    )
    @example((1, [(1, 1), (0, 0)]), 2)
    def test_a_larger_k(self, drafted: tuple[int, list[Step]], more: int) -> None:
        """Drafts that K cut off go on, the others stay as they are."""
        present, drawn = drafted
        shape = positions(record(drawn)).shape.of(present)
        longer = sum(d + more if d == present else d for d, _ in drawn) / len(drawn)

        assert shape.length(present + more) == pytest.approx(longer)
