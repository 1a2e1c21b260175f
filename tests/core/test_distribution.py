"""The distribution of accepted tokens per draft, recovered from counters."""

from collections import Counter
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.builders import Draft, count, counters, drafts_of, torn_lives
from support.copies import replace
from vllm_specdec_exporter.engines.reading import Counters
from vllm_specdec_exporter.measures.measures import Distribution, recover

many_drafts = st.integers(1, 6).flatmap(lambda k: st.tuples(st.just(k), drafts_of(k)))


def test_recover() -> None:
    """bucket(le=j) is the drafts in which position j was not accepted; the last bucket is all drafts."""
    found = {
        counters(100, [80, 50, 20]): Distribution((20, 50, 80, 100), 100, 150),
        counters(0, [0, 0]): Distribution((0, 0, 0), 0, 0),
        counters(100, []): None,
        Counters(drafts=100, accepted_tokens_per_position=(5,)): None,
        Counters(accepted_tokens=5, accepted_tokens_per_position=(5,)): None,
        Counters(): None,
    }
    assert {values: recover(values) for values in found} == found


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
def test_buckets_rise_with_le_and_never_fall_within_a_life(life: list[Counters]) -> None:
    """However torn the answers: Prometheus takes a bucket that falls for a restart."""
    earlier = None
    for values in life:
        found = recover(values, earlier)
        if found is not None:
            assert sorted(found.buckets) == list(found.buckets)
            assert found.count == found.buckets[-1] == values.drafts
        if found is not None and earlier is not None:
            pairs = zip(earlier.buckets, found.buckets, strict=True)
            assert [(before, after) for before, after in pairs if after < before] == []
        earlier = found or earlier


def test_a_bucket_that_would_fall_is_held_back_until_the_next_whole_answer() -> None:
    """Positions that run ahead of the drafts would make one fall; it waits instead, and is exact again."""
    torn = recover(counters(100, [82, 51]), recover(counters(100, [80, 50])))

    assert torn == Distribution((20, 50, 100), 100, 133)
    assert recover(counters(110, [84, 53]), torn) == recover(counters(110, [84, 53]))


def test_what_a_torn_answer_overstates_stays_until_the_truth_has_caught_up() -> None:
    """Drafts that run ahead of the positions raise a bucket too far; it stays, for none may fall."""
    torn = recover(counters(110, [80, 50]), recover(counters(100, [80, 50])))
    soon = recover(counters(120, [96, 60]), torn)
    later = recover(counters(160, [128, 80]), soon)

    assert [found.buckets for found in (torn, soon, later)] == [
        (30, 60, 110),
        (30, 60, 120),
        (32, 80, 160),
    ]


@st.composite
def torn_and_whole(draw: st.DrawFn) -> list[tuple[Counters, Counters]]:
    """The answers of one life, and what each would be were it not torn.

    A torn answer holds each counter as it is, or as it was when the answer before was given.
    """
    k = draw(st.integers(1, 4))
    steps = draw(st.lists(drafts_of(k, most=8), min_size=2, max_size=8))
    truth = [count(so_far, k) for so_far in accumulate(steps)]
    answers = [(truth[0], truth[0])]
    for before, now in pairwise(truth):
        late = draw(st.lists(st.booleans(), min_size=k + 2, max_size=k + 2))
        positions = zip(
            before.accepted_tokens_per_position, now.accepted_tokens_per_position, late[2:], strict=True
        )
        torn = replace(
            now,
            drafts=before.drafts if late[0] else now.drafts,
            accepted_tokens=before.accepted_tokens if late[1] else now.accepted_tokens,
            accepted_tokens_per_position=tuple(old if is_late else new for old, new, is_late in positions),
        )
        answers.append((torn if draw(st.booleans()) else now, now))
    return answers


@given(torn_and_whole())
def test_how_far_a_bucket_may_be_off(answers: list[tuple[Counters, Counters]]) -> None:
    """A whole answer's bucket is never below the truth, and above it by what torn ones overstated at most."""
    found, overstated = None, 0.0
    for seen, true in answers:
        exact, naive = recover(true), recover(seen)
        assert exact is not None
        assert naive is not None
        overstated = max(overstated, *(n - e for n, e in zip(naive.buckets, exact.buckets, strict=True)))
        found = recover(seen, found)
        assert found is not None
        assert [f - e for f, e in zip(found.buckets, exact.buckets, strict=True) if f - e > overstated] == []
        if seen is true:
            assert [f - e for f, e in zip(found.buckets, exact.buckets, strict=True) if f < e] == []
            assert (found.count, found.sum) == (exact.count, exact.sum)


@pytest.mark.parametrize(
    ("values", "before", "expected"),
    [
        # A deep position that runs ahead of the one before it leaves no bucket below its neighbour.
        (counters(100, [10, 50]), None, Distribution((90, 90, 100), 100, 60)),
        # No bucket is negative.
        (counters(10, [15, 10]), None, Distribution((0, 0, 10), 10, 25)),
        # Not even held back does a bucket hold more drafts than there are.
        (counters(5, [2]), Distribution((8, 12), 12, 4), Distribution((5, 5), 5, 2)),
        # Positions that a server shows only with its first draft start their buckets then.
        (counters(4, [3, 2]), recover(counters(0, [])), Distribution((1, 2, 4), 4, 5)),
        # A further position splits the last bucket; those before go on.
        (counters(12, [5, 2]), recover(counters(10, [5])), Distribution((7, 10, 12), 12, 7)),
    ],
)
def test_edges(values: Counters, before: Distribution | None, expected: Distribution) -> None:
    assert recover(values, before) == expected
