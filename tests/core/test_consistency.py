"""Consistency: what one answer after another cannot be, and what is only torn or
rounded.
"""

import pytest

from support.builders import counters, sample
from support.copies import replace
from support.messages import name_of, values_of
from vllm_specdec_exporter.engines.reading import Counters
from vllm_specdec_exporter.measures.history import Sample
from vllm_specdec_exporter.observe.contradictions import contradictions

#: Nothing is counted yet, so a step has exactly what the next sample says.
START = sample(0, 0, [0, 0])


def found(previous: Sample, current: Sample) -> dict[str, dict[str, object]]:
    """The numbers of each contradiction, by its name."""
    messages = contradictions(previous, current)
    return {name_of(each).removeprefix("defect."): values_of(each) for each in messages}


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        (counters(10, [10, 10]), {}),
        (
            counters(10, [11, 0]),
            {"more_than_drafts": {"accepted": 11, "drafts": 10}},
        ),
        (
            counters(10, [5, 6]),
            {
                "more_than_before": {
                    "accepted": 6,
                    "position": 1,
                    "accepted_before": 5,
                    "position_before": 0,
                }
            },
        ),
        (
            counters(10, [12, 13], accepted=25, draft_tokens=25),
            {
                "more_than_drafts": {"accepted": 12, "drafts": 10},
                "more_than_before": {
                    "accepted": 13,
                    "position": 1,
                    "accepted_before": 12,
                    "position_before": 0,
                },
                "more_than_fit": {"drafted": 25, "most": 20, "drafts": 10},
            },
        ),
        (
            counters(10, [9, 3], accepted=12, draft_tokens=11),
            {"more_than_drafted": {"accepted": 12, "drafted": 11}},
        ),
        (counters(10, [9, 3], accepted=11), {}),
        (counters(10, [9, 3], accepted=13), {}),
        (
            counters(0, [1, 0], draft_tokens=4),
            {
                "more_than_drafts": {"accepted": 1, "drafts": 0},
                "more_than_fit": {"drafted": 4, "most": 0, "drafts": 0},
            },
        ),
        (
            counters(10, [9, 3], draft_tokens=21),
            {"more_than_fit": {"drafted": 21, "most": 20, "drafts": 10}},
        ),
        (Counters(), {}),
    ],
)
def test_one_step(current: Counters, expected: dict[str, dict[str, float]]) -> None:
    """Each thing that cannot be is named with its numbers; an answer torn in its sum
    alone is harmless.
    """
    assert found(START, Sample(5, current)) == expected


def test_what_is_not_known_contradicts_nothing() -> None:
    """Where the answer before was incomplete an increase is not known, which is not an
    increase of 0.
    """
    previous = sample(0, 1000, [800, 600])
    for field in ("drafts", "draft_tokens"):
        gap = replace(previous, counters=replace(previous.counters, **{field: None}))
        assert found(gap, sample(5, 1100, [880, 660])) == {}, field


def test_only_the_step_counts() -> None:
    """What was inconsistent in the sample before is not told again; a sum that is off
    once was torn.
    """
    torn = sample(0, 10, [12, 5], draft_tokens=40)
    assert found(torn, sample(5, 20, [15, 8], draft_tokens=60)) == {}

    torn = sample(5, 10, [5, 3], accepted=9)
    assert found(START, torn) == {}
    assert found(torn, sample(10, 20, [10, 6])) == {}


def test_the_sum_is_off_for_good() -> None:
    """A sum that is off twice in a row, the same way, is no torn answer; one way and
    the other is two.
    """
    for first, second, surplus in (
        (9, 18, 2),
        (12, 21, 5),
        (7, 13, -3),
        (9, 15, None),
        (7, 18, None),
    ):
        previous = sample(0, 10, [5, 3], accepted=first)
        current = sample(5, 20, [10, 6], accepted=second)
        expected = {"sum_differs": {"surplus": surplus}} if surplus else {}
        assert found(previous, current) == expected, (first, second)


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
        previous = self.at(0, 3577310, 2707756, 1987272, **totals)
        little, much = (
            self.at(5, 3577310, position, 1987274, **totals)
            for position in (2707759, 2717756)
        )

        assert found(previous, little) == {}
        assert found(previous, much) == {
            "more_than_drafts": {"accepted": 10000, "drafts": 0}
        }

    def test_the_sum_is_off(self) -> None:
        """The total may be off by its rounding for good, here 71, and by no more, but
        for a torn answer.
        """
        for first, second, surplus in (
            (20, 20, None),
            (-70, -70, None),
            (80, 80, 80),
            (-80, -80, -80),
            (500, 20, None),
            (20, 500, None),
        ):
            previous, current = (
                self.at(
                    5 * i,
                    3577310,
                    2707756,
                    1987272,
                    draft_tokens=7154620,
                    accepted=4695028 + beyond,
                )
                for i, beyond in enumerate((first, second))
            )
            later = replace(
                current,
                counters=replace(
                    current.counters, drafts=3577810, draft_tokens=7155620
                ),
            )
            expected = {"sum_differs": {"surplus": surplus}} if surplus else {}
            assert found(previous, later) == expected, (first, second)
