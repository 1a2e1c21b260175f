"""Consistency: what one answer after another cannot be, and what is only torn or
rounded.
"""

import pytest

from support.builders import counters, sample
from support.copies import replace
from vllm_specdec_exporter.engines.reading import Counters
from vllm_specdec_exporter.measures.history import Sample
from vllm_specdec_exporter.observe.state import defects

START = sample(0, 0, [0, 0])


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (counters(10, [10, 10]), ()),
        (counters(10, [11, 0]), ("11 accepted at position 0, but only 10 drafts",)),
        (
            counters(10, [5, 6]),
            ("6 accepted at position 1, but only 5 accepted at position 0",),
        ),
        (
            counters(10, [12, 13], accepted=25, draft_tokens=25),
            (
                "12 accepted at position 0, but only 10 drafts",
                "13 accepted at position 1, but only 12 accepted at position 0",
                "25 draft tokens, but at most 20 in 10 drafts",
            ),
        ),
        (
            counters(10, [9, 3], accepted=12, draft_tokens=11),
            ("12 accepted tokens, but only 11 draft tokens",),
        ),
        (counters(10, [9, 3], accepted=11), ()),
        (counters(10, [9, 3], accepted=13), ()),
        (
            counters(0, [1, 0], draft_tokens=4),
            (
                "1 accepted at position 0, but only 0 drafts",
                "4 draft tokens, but at most 0 in 0 drafts",
            ),
        ),
        (
            counters(10, [9, 3], draft_tokens=21),
            ("21 draft tokens, but at most 20 in 10 drafts",),
        ),
        (Counters(), ()),
    ],
)
def test_one_step(after: Counters, expected: tuple[str, ...]) -> None:
    """Each thing that cannot be is said in words; an answer torn in its sum alone is
    harmless.
    """
    assert expected == defects(START, Sample(5, after))


def test_what_is_not_known_contradicts_nothing() -> None:
    """Where the answer before was incomplete an increase is not known, which is not an
    increase of 0.
    """
    before = sample(0, 1000, [800, 600])
    for field in ("drafts", "draft_tokens"):
        gap = replace(before, counters=replace(before.counters, **{field: None}))
        assert defects(gap, sample(5, 1100, [880, 660])) == ()


def test_only_the_step_counts() -> None:
    """What was inconsistent in the sample before is not told again; a sum that is off
    once was torn.
    """
    torn = sample(0, 10, [12, 5], draft_tokens=40)
    assert defects(torn, sample(5, 20, [15, 8], draft_tokens=60)) == ()

    torn = sample(5, 10, [5, 3], accepted=9)
    assert (defects(START, torn), defects(torn, sample(10, 20, [10, 6]))) == ((), ())


def test_the_sum_is_off_for_good() -> None:
    """A sum that is off twice in a row, the same way, is no torn answer; one way and
    the other is two.
    """
    for first, second, shown in (
        (9, 18, "+2"),
        (12, 21, "+5"),
        (7, 13, "-3"),
        (9, 15, ""),
        (7, 18, ""),
    ):
        before = sample(0, 10, [5, 3], accepted=first)
        after = sample(5, 20, [10, 6], accepted=second)
        told = (
            f"accepted tokens differ from the sum over positions by {shown}, twice in "
            "a row"
        )
        assert defects(before, after) == ((told,) if shown else ()), (first, second)


class TestRounded:
    """llama.cpp prints totals with six digits and positions in full."""

    @staticmethod
    def at(
        time: float,
        drafts: float,
        *positions: float,
        draft_tokens: float,
        accepted: float,
    ) -> Sample:
        values = counters(
            drafts, positions, draft_tokens=draft_tokens, accepted=accepted
        )
        return Sample(time, replace(values, resolution=1e-5))

    def test_a_step(self) -> None:
        """Drafts that stand still for rounding while positions count on are none; what
        exceeds it is one.
        """
        totals = {"draft_tokens": 7154620, "accepted": 4695030}
        before = self.at(0, 3577310, 2707756, 1987272, **totals)
        little, much = (
            self.at(5, 3577310, position, 1987274, **totals)
            for position in (2707759, 2717756)
        )

        assert defects(before, little) == ()
        assert defects(before, much) == (
            "10000 accepted at position 0, but only 0 drafts",
        )

    def test_the_sum_is_off(self) -> None:
        """The total may be off by its rounding for good, here 71, and by no more, but
        for a torn answer.
        """
        for first, second, shown in (
            (20, 20, ""),
            (-70, -70, ""),
            (80, 80, "+80"),
            (-80, -80, "-80"),
            (500, 20, ""),
            (20, 500, ""),
        ):
            before, after = (
                self.at(
                    5 * i,
                    3577310,
                    2707756,
                    1987272,
                    draft_tokens=7154620,
                    accepted=4695028 + surplus,
                )
                for i, surplus in enumerate((first, second))
            )
            later = replace(
                after,
                counters=replace(after.counters, drafts=3577810, draft_tokens=7155620),
            )
            told = (
                f"accepted tokens differ from the sum over positions by {shown}, twice "
                "in a row"
            )
            assert defects(before, later) == ((told,) if shown else ()), (first, second)
