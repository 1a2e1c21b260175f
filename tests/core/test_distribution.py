"""The distribution of accepted tokens per draft, recovered from counters."""

from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.builders import Draft, count, counters, drafts_of
from vllm_specdec_exporter.engines.reading import Counters
from vllm_specdec_exporter.measures.measures import Distribution, recover

many_drafts = st.integers(1, 6).flatmap(lambda k: st.tuples(st.just(k), drafts_of(k)))


@given(many_drafts)
def test_it_equals_a_count_of_the_drafts(case: tuple[int, list[Draft]]) -> None:
    """For any drafts, bucket(le=j) is those of which position j was not accepted; the
    last is all drafts.
    """
    k, drafts = case
    accepted = [accepted for _, accepted in drafts]
    counted = Counter(accepted)
    expected = Distribution(
        buckets=tuple(accumulate(counted[n] for n in range(k + 1))),
        count=len(drafts),
        sum=sum(accepted),
    )

    assert expected == recover(count(drafts, k))


def test_what_a_torn_answer_overstates_stays_until_the_truth_has_caught_up() -> None:
    """Drafts that run ahead of the positions raise a bucket too far; it stays, for none
    may fall.
    """
    torn = recover(counters(110, [80, 50]), recover(counters(100, [80, 50])))
    soon = recover(counters(120, [96, 60]), torn)
    later = recover(counters(160, [128, 80]), soon)

    assert [recovered.buckets for recovered in (torn, soon, later)] == [
        (30, 60, 110),
        (30, 60, 120),
        (32, 80, 160),
    ]


@pytest.mark.parametrize(
    ("values", "previous", "expected"),
    [
        # Without one of the counters there is no distribution.
        (counters(100, []), None, None),
        (Counters(drafts=100, accepted_tokens_per_position=(5,)), None, None),
        (Counters(accepted_tokens=5, accepted_tokens_per_position=(5,)), None, None),
        # A deep position that runs ahead of the one before it leaves no bucket below
        # its neighbour.
        (counters(100, [10, 50]), None, Distribution((90, 90, 100), 100, 60)),
        # No bucket is negative.
        (counters(10, [15, 10]), None, Distribution((0, 0, 10), 10, 25)),
        # Not even held back does a bucket hold more drafts than there are.
        (counters(5, [2]), Distribution((8, 12), 12, 4), Distribution((5, 5), 5, 2)),
        # Positions that a server shows only with its first draft start their buckets
        # then.
        (counters(4, [3, 2]), recover(counters(0, [])), Distribution((1, 2, 4), 4, 5)),
        # A further position splits the last bucket; those before go on.
        (
            counters(12, [5, 2]),
            recover(counters(10, [5])),
            Distribution((7, 10, 12), 12, 7),
        ),
    ],
)
def test_edges(
    values: Counters, previous: Distribution | None, expected: Distribution | None
) -> None:
    assert recover(values, previous) == expected
