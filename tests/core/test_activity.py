"""Activity: what an engine does, and why that is said of it."""

import pytest

from support.builders import increase
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.judgement.activity import (
    Activity,
    ActivityState,
    judge_activity,
    of_newest,
)
from vllm_specdec_exporter.measures.history import Delta

OFF, IDLE, BYPASSED, WARMING_UP, ACTIVE = ActivityState


def judge(
    delta: Delta | None, *, configured: bool = True, minimum: float = 100
) -> Activity:
    return judge_activity(
        configured=configured,
        delta=delta,
        window="5m",
        thresholds=Thresholds(minimum_drafts=minimum),
    )


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        (
            None,
            Activity(WARMING_UP, "fewer than two samples since the start or restart"),
        ),
        (increase(0, [0]), Activity(IDLE, "nothing was generated in the last 5m")),
        (increase(), Activity(IDLE, "nothing was generated in the last 5m")),
        (
            increase(0, [0], generation=12345),
            Activity(
                BYPASSED,
                "12,345 tokens were generated in the last 5m without a single draft",
            ),
        ),
        (
            increase(generation=7),
            Activity(
                BYPASSED,
                "7 tokens were generated in the last 5m without a single draft",
            ),
        ),
        (
            increase(99, [50]),
            Activity(WARMING_UP, "99 drafts in the last 5m, 100 are needed"),
        ),
        (increase(100, [50]), Activity(ACTIVE, "100 drafts in the last 5m")),
        (increase(5000, [0]), Activity(ACTIVE, "5,000 drafts in the last 5m")),
        (
            increase(100, [50], generation=0),
            Activity(ACTIVE, "100 drafts in the last 5m"),
        ),
    ],
)
def test_a_server_with_speculation(delta: Delta | None, expected: Activity) -> None:
    """Each state with its reason; drafts count even where no generated tokens are seen."""
    assert expected == judge(delta)


def test_off_is_off_whatever_is_generated() -> None:
    expected = Activity(OFF, "the server shows no sign of speculation being configured")
    for delta in (None, increase(0, [0]), increase(generation=7), increase(500, [300])):
        assert judge(delta, configured=False) == expected


def test_the_operator_says_how_many_drafts_are_enough() -> None:
    """Nobody reads that 1,234 drafts are too few because 1,234 are needed."""
    states = {1: ACTIVE, 42: ACTIVE, 42.5: WARMING_UP, 43: WARMING_UP}
    assert {
        minimum: judge(increase(42, [20]), minimum=minimum).state for minimum in states
    } == states
    assert [
        judge(increase(1234, [500]), minimum=minimum).reason
        for minimum in (2500, 1234.5)
    ] == [
        "1,234 drafts in the last 5m, 2,500 are needed",
        "1,234 drafts in the last 5m, 1,234.5 are needed",
    ]


@pytest.mark.parametrize(
    ("before", "newest", "running", "expected"),
    [
        (ACTIVE, increase(0, [0], generation=0), 0, IDLE),
        (ACTIVE, increase(0, [0], generation=0), None, IDLE),
        (BYPASSED, increase(0, [0], generation=0), 0, IDLE),
        (ACTIVE, increase(0, [0], generation=0), 2, ACTIVE),  # a long prompt
        (ACTIVE, increase(0, [0], generation=100), 2, BYPASSED),
        # a short answer may need no draft
        (ACTIVE, increase(0, [0], generation=99), 2, ACTIVE),
        (ACTIVE, increase(1, [1], generation=100), 2, ACTIVE),
        (ACTIVE, None, 0, ACTIVE),
        (OFF, increase(0, [0], generation=500), 2, OFF),
        (WARMING_UP, increase(0, [0], generation=0), 0, WARMING_UP),
    ],
)
def test_the_shortest_window_tells_that_drafting_has_ended(
    before: ActivityState,
    newest: Delta | None,
    running: float | None,
    expected: ActivityState,
) -> None:
    """Minutes before the judged window is empty; where it says the same, the reason
    stays, too.
    """
    found = of_newest(
        Activity(before, "as judged"),
        newest,
        "30s",
        running,
        Thresholds(minimum_drafts=100),
    )
    assert found.state is expected
    assert (
        found.reason == "as judged"
        if expected is before
        else "in the last 30s" in found.reason
    )
