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
        (counters(10, [11, 0]), {"more_than_drafts": {"accepted": 11, "drafts": 10}}),
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


@pytest.mark.parametrize("field", ["drafts", "draft_tokens"])
def test_what_is_not_known_contradicts_nothing(field: str) -> None:
    """Where the answer before was incomplete an increase is not known, which is not an
    increase of 0.
    """
    gap = replace(counters(1000, [800, 600]), **{field: None})
    assert found(Sample(0, gap), sample(5, 1100, [880, 660])) == {}


def test_only_the_step_counts() -> None:
    """What was inconsistent in the sample before is not told again; a sum that is off
    once was torn.
    """
    torn = sample(0, 10, [12, 5], draft_tokens=40)
    assert found(torn, sample(5, 20, [15, 8], draft_tokens=60)) == {}

    torn = sample(5, 10, [5, 3], accepted=9)
    assert found(START, torn) == {}
    assert found(torn, sample(10, 20, [10, 6])) == {}


def surplus_found(previous: Sample, current: Sample) -> object:
    """By how much the sum is off; None where nothing else is told either."""
    differs = found(previous, current)
    surplus = differs.pop("sum_differs", {}).get("surplus")
    assert differs == {}
    return surplus


@pytest.mark.parametrize(
    ("first", "second", "surplus"),
    [(9, 18, 2), (12, 21, 5), (7, 13, -3), (9, 15, None), (7, 18, None)],
)
def test_the_sum_is_off_for_good(
    first: float, second: float, surplus: float | None
) -> None:
    """A sum that is off twice in a row, the same way, is no torn answer; one way and
    the other is two.
    """
    previous = sample(0, 10, [5, 3], accepted=first)
    current = sample(5, 20, [10, 6], accepted=second)
    assert surplus_found(previous, current) == surplus


class TestRounded:
    """llama.cpp prints totals with six digits and positions in full."""

    @staticmethod
    def at(
        time: float,
        positions: tuple[float, float] = (2707756, 1987272),
        *,
        drafts: float = 3577310,
        accepted: float = 4695030,
    ) -> Sample:
        values = counters(drafts, positions, accepted=accepted)
        return Sample(time, replace(values, resolution=1e-5))

    def test_a_step(self) -> None:
        """Drafts that stand still for rounding while positions count on are none; what
        exceeds it is one.
        """
        assert found(self.at(0), self.at(5, (2707759, 1987274))) == {}
        assert found(self.at(0), self.at(5, (2717756, 1987274))) == {
            "more_than_drafts": {"accepted": 10000, "drafts": 0}
        }

    @pytest.mark.parametrize(
        ("first", "second", "surplus"),
        [
            (20, 20, None),
            (-70, -70, None),
            (80, 80, 80),
            (-80, -80, -80),
            (500, 20, None),
            (20, 500, None),
        ],
    )
    def test_the_sum_is_off(
        self, first: float, second: float, surplus: float | None
    ) -> None:
        """The total may be off by its rounding for good, here 71, and by no more, but
        for a torn answer.
        """
        previous = self.at(0, accepted=4695028 + first)
        later = self.at(5, drafts=3577810, accepted=4695028 + second)
        assert surplus_found(previous, later) == surplus
