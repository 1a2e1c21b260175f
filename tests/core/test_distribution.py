from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.builders import Draft, count, counters, drafts_of, torn_lives
from vllm_specdec_exporter.distribution import Distribution, recover
from vllm_specdec_exporter.reading import Counters

many_drafts = st.integers(1, 6).flatmap(lambda k: st.tuples(st.just(k), drafts_of(k)))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (counters(100, [80, 50, 20]), Distribution((20, 50, 80, 100), 100, 150)),
        (counters(100, [0, 0]), Distribution((100, 100, 100), 100, 0)),
        (counters(100, [100]), Distribution((0, 100), 100, 100)),
        (counters(0, [0, 0]), Distribution((0, 0, 0), 0, 0)),
        (counters(100, []), None),
        (Counters(drafts=100, accepted_tokens=0), None),
        (Counters(drafts=100, accepted_tokens_per_position=(5,)), None),
        (Counters(accepted_tokens=5, accepted_tokens_per_position=(5,)), None),
        (Counters(), None),
    ],
)
def test_recover(values: Counters, expected: Distribution | None) -> None:
    """bucket(le=j) is the drafts in which position j was not accepted; the last bucket is all drafts."""
    assert expected == recover(values)


@given(many_drafts)
def test_it_equals_a_count_of_the_drafts(case: tuple[int, list[Draft]]) -> None:
    """For any drafts at all, buckets, count and sum are what counting them one by one gives."""
    k, drafts = case
    accepted = Counter(accepted for _, accepted in drafts)
    expected = Distribution(
        buckets=tuple(sum(accepted[n] for n in range(j + 1)) for j in range(k + 1)),
        count=len(drafts),
        sum=sum(accepted.elements()),
    )

    assert expected == recover(count(drafts, k))


@given(torn_lives())
def test_buckets_rise_with_le(life: list[Counters]) -> None:
    """Cumulative buckets rise from bucket to bucket and end at the count, however torn the answer."""
    earlier = None
    for values in life:
        found = recover(values, earlier)
        if found is not None:
            assert sorted(found.buckets) == list(found.buckets)
            assert found.count == found.buckets[-1] == values.drafts
        earlier = found or earlier


@given(torn_lives())
def test_buckets_never_fall_within_a_life(life: list[Counters]) -> None:
    """Prometheus takes a bucket that falls for a restart, so none does, however torn the answers."""
    found: list[Distribution] = []
    for values in life:
        later = recover(values, found[-1] if found else None)
        if later is not None:
            found.append(later)

    assert [
        (before, after)
        for earlier, later in pairwise(found)
        for before, after in zip(earlier.buckets, later.buckets, strict=True)
        if after < before
    ] == []


def test_a_torn_answer_is_held_back() -> None:
    """Positions that run ahead of the drafts would make a bucket fall; it waits instead."""
    before = recover(counters(100, [80, 50]))

    assert Distribution((20, 50, 100), 100, 133) == recover(counters(100, [82, 51]), before)


def test_it_catches_up() -> None:
    """The bucket held back is exact again with the next whole answer."""
    torn = recover(counters(100, [82, 51]), recover(counters(100, [80, 50])))

    assert recover(counters(110, [84, 53])) == recover(counters(110, [84, 53]), torn)


def test_buckets_of_a_torn_answer_stay_in_order() -> None:
    """A deep position that runs ahead of the one before it leaves no bucket below its neighbour."""
    assert Distribution((90, 90, 100), 100, 60) == recover(counters(100, [10, 50]))


def test_more_accepted_than_drafts() -> None:
    """No bucket is negative."""
    assert Distribution((0, 0, 10), 10, 25) == recover(counters(10, [15, 10]))


def test_a_bucket_never_exceeds_the_count() -> None:
    """Not even held back at a value from before does a bucket hold more drafts than there are."""
    assert Distribution((5, 5), 5, 2) == recover(counters(5, [2]), Distribution((8, 12), 12, 4))


def test_positions_that_come_later() -> None:
    """Positions that a server shows only with its first draft start their buckets then."""
    before = recover(counters(0, []))

    assert Distribution((1, 2, 4), 4, 5) == recover(counters(4, [3, 2]), before)


def test_a_position_more() -> None:
    """A further position splits the last bucket; those before go on."""
    before = recover(counters(10, [5]))

    assert Distribution((7, 10, 12), 12, 7) == recover(counters(12, [5, 2]), before)


@given(drafts_of(3, least=1))
def test_it_follows_the_drafts_and_positions_alone(drafts: list[Draft]) -> None:
    """Draft tokens and generated tokens have no part in it."""
    values = count(drafts, 3)

    assert recover(values) == recover(replace(values, draft_tokens=None, generation_tokens=None))
