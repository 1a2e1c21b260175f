"""Percentiles, and intervals that cover what they say."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.builders import counters, increase
from vllm_specdec_exporter.commands.sweep.cell import (
    acceptance,
    acceptance_interval,
    draft_interval,
    pooled,
)
from vllm_specdec_exporter.commands.sweep.client import CounterSample, between
from vllm_specdec_exporter.commands.sweep.stream import StreamedAnswer
from vllm_specdec_exporter.economics.statistics import (
    TimeSummary,
    cluster_interval,
    distribution,
    t_quantile,
)
from vllm_specdec_exporter.engines.reading import EngineKey, EngineReading, Reading
from vllm_specdec_exporter.per_request.records import DraftRecord

CLUSTERS = st.lists(
    st.integers(1, 500).flatmap(lambda d: st.tuples(st.integers(0, d), st.just(d))),
    min_size=2,
    max_size=40,
)


def test_percentiles_are_interpolated() -> None:
    summary = distribution([4.0, None, 1.0, 3.0, 2.0])
    assert summary == TimeSummary(
        4, mean=2.5, p50=2.5, p95=pytest.approx(3.85), p99=pytest.approx(3.97)
    )
    assert distribution([None]) == TimeSummary()


@pytest.mark.parametrize(
    ("freedom", "value"),
    {1: 12.706, 5: 2.571, 30: 2.042, 40: 2.021, 60: 2.000, 120: 1.980}.items(),
)
def test_the_t_quantile_is_that_of_the_tables(freedom: int, value: float) -> None:
    assert t_quantile(freedom) == pytest.approx(value, abs=0.0006)


@given(CLUSTERS)
def test_an_interval_holds_the_ratio_and_stays_within_its_range(
    clusters: list[tuple[int, int]],
) -> None:
    interval = cluster_interval(clusters, "request")
    ratio = sum(a for a, _ in clusters) / sum(d for _, d in clusters)
    assert 0 <= interval.low <= ratio + 1e-12
    assert ratio <= interval.high + 1e-12
    assert interval.high <= 1


@given(CLUSTERS, st.integers(2, 50))
def test_longer_answers_alone_make_an_interval_no_narrower(
    clusters: list[tuple[int, int]], times: int
) -> None:
    """What an interval by drafts would get wrong: the same requests with more drafts
    each.
    """
    single = cluster_interval(clusters, "request")
    repeated = cluster_interval(
        [(a * times, d * times) for a, d in clusters], "request"
    )
    assert (repeated.low, repeated.high) == pytest.approx(
        (single.low, single.high), abs=1e-9
    )


def test_one_request_has_no_interval() -> None:
    assert cluster_interval([(3, 4)], "request") is None
    assert cluster_interval([(0, 0), (0, 0)], "request") is None


def answers_of(
    requests: int, spread: float, random_: random.Random
) -> list[StreamedAnswer]:
    """Return answers of 50 drafts each, whose requests have acceptances of their own
    around 0.6.
    """
    records = []
    for number in range(requests):
        chance = min(1.0, max(0.0, random_.gauss(0.6, spread)))
        accepted = [sum(random_.random() < chance for _ in range(4)) for _ in range(50)]
        histogram = tuple(accepted.count(j) for j in range(5))
        record = DraftRecord(50, 200, sum(accepted), histogram)
        records.append(
            StreamedAnswer(number, number, completion_tokens=250, drafts=record)
        )
    return records


def test_the_interval_by_request_covers_and_the_one_by_draft_covers_less() -> None:
    chance = random.Random(20261120)
    by_request = by_draft = 0
    for _ in range(400):
        answers = answers_of(16, 0.1, chance)
        request = acceptance_interval(answers)
        records = [answer.drafts for answer in answers if answer.drafts is not None]
        draft = draft_interval(acceptance(pooled(records, 1.0, 1.0)))
        by_request += request.low <= 0.6 <= request.high
        by_draft += draft.low <= 0.6 <= draft.high
    assert request.unit == "request"
    assert draft.unit == "draft"
    assert draft.units == 800
    assert 0.92 <= by_request / 400 <= 0.98
    # It is widened as usual traffic needs; taken for independent, drafts would cover
    # less than 0.75.
    assert 0.75 < by_draft / 400 < 0.9


def test_answers_to_one_prompt_belong_together_where_prompts_recur() -> None:
    records = [DraftRecord(10, 40, accepted) for accepted in (10, 20, 30, 10, 20, 30)]
    recur = [
        StreamedAnswer(i, i % 3, drafts=record) for i, record in enumerate(records)
    ]
    apart = [StreamedAnswer(i, i, drafts=record) for i, record in enumerate(records)]
    together = acceptance_interval(recur)
    single = acceptance_interval(apart)
    assert together.unit == "prompt"
    assert together.units == 3
    assert single.unit == "request"
    assert single.units == 6
    # Every answer was given twice, which tells nothing new.
    assert together.high - together.low > single.high - single.low


def test_a_single_prompt_leaves_the_requests_as_units() -> None:
    answers = [
        StreamedAnswer(i, 0, drafts=DraftRecord(10, 40, 10 + i)) for i in range(4)
    ]
    interval = acceptance_interval(answers)
    assert interval.unit == "request"
    assert interval.units == 4


@pytest.mark.parametrize(
    ("accepted", "ends", "by_draft_ends"),
    [(0, (0.0, 0.0371), (0.0, 0.1418)), (40, (0.9629, 1.0), (0.8582, 1.0))],
)
def test_nothing_or_everything_accepted_is_no_certainty(
    accepted: int, ends: tuple[float, float], by_draft_ends: tuple[float, float]
) -> None:
    histogram = (25, 0) if accepted == 0 else (0, 25)
    answers = [
        StreamedAnswer(i, i, drafts=DraftRecord(25, 40, accepted, histogram))
        for i in range(4)
    ]
    by_request = acceptance_interval(answers)
    by_draft = draft_interval(acceptance(increase(100, [accepted * 2.5])))
    # Wilson (1927): z^2 / (n + z^2) for 0 of n.
    assert (by_request.low, by_request.high) == pytest.approx(ends, abs=2e-4)
    # Drafts of a request resemble each other: 100 of them count as 100 / 4.3.
    assert (by_draft.low, by_draft.high) == pytest.approx(by_draft_ends, abs=2e-4)
    assert by_request.unit == "request"


def test_records_add_up_to_positions() -> None:
    records = [DraftRecord(3, 6, 3, (1, 1, 1)), DraftRecord(2, 8, 7, (0, 0, 0, 1, 1))]
    total = pooled(records, 15.0, 2.0)
    assert total.drafts == 5
    assert total.draft_tokens == 14
    assert total.accepted_tokens == 10
    assert total.accepted_tokens_per_position == (4, 3, 2, 1)
    assert sum(total.accepted_tokens_per_position) == total.accepted_tokens
    # Each answer had a token of its prefill.
    assert total.first_tokens == 2


def test_the_engines_of_a_server_are_added_up_position_by_position() -> None:
    """Also if they have different numbers of positions."""

    def sample(time: float, *engines: tuple[float, tuple[float, ...]]) -> CounterSample:
        readings = (
            EngineReading(EngineKey("m", str(i)), counters(drafts, positions))
            for i, (drafts, positions) in enumerate(engines)
        )
        return CounterSample(time, Reading("vllm-v1", tuple(readings)))

    increase = between(
        sample(0.0, (0.0, (0.0, 0.0)), (0.0, (0.0,))),
        sample(5.0, (10.0, (8.0, 4.0)), (6.0, (3.0,))),
    )
    assert increase.drafts == 16.0
    assert increase.accepted_tokens_per_position == (11.0, 4.0)
