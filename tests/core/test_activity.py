"""Activity: what an engine does, and why that is said of it."""

import pytest

from support.builders import increase
from support.messages import name_of, values_of
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.judgement.activity import (
    Activity,
    ActivityState,
    judge_activity,
    of_shortest_window,
)
from vllm_specdec_exporter.measures.history import Delta

OFF, IDLE, BYPASSED, WARMING_UP, ACTIVE = ActivityState
WINDOW = {"window": "5m"}


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
    ("delta", "state", "reason", "values"),
    [
        (None, WARMING_UP, "started", {}),
        (increase(0, [0]), IDLE, "idle", WINDOW),
        (increase(), IDLE, "idle", WINDOW),
        (
            increase(0, [0], generation=12345),
            BYPASSED,
            "bypassed",
            {"generated": 12345, **WINDOW},
        ),
        (increase(generation=7), BYPASSED, "bypassed", {"generated": 7, **WINDOW}),
        (
            increase(99, [50]),
            WARMING_UP,
            "few_drafts",
            {"drafts": 99, "needed": 100, **WINDOW},
        ),
        (increase(100, [50]), ACTIVE, "active", {"drafts": 100, **WINDOW}),
        (increase(5000, [0]), ACTIVE, "active", {"drafts": 5000, **WINDOW}),
        (
            increase(100, [50], generation=0),
            ACTIVE,
            "active",
            {"drafts": 100, **WINDOW},
        ),
    ],
)
def test_a_server_with_speculation(
    delta: Delta | None, state: ActivityState, reason: str, values: dict[str, object]
) -> None:
    """Each state with its reason; drafts count even if no generated tokens are seen."""
    activity = judge(delta)
    assert (activity.state, name_of(activity.reason)) == (state, f"activity.{reason}")
    assert values_of(activity.reason) == values


def test_off_is_off_whatever_is_generated() -> None:
    for delta in (None, increase(0, [0]), increase(generation=7), increase(500, [300])):
        activity = judge(delta, configured=False)
        assert (activity.state, name_of(activity.reason)) == (OFF, "activity.off"), (
            delta
        )


def test_the_operator_says_how_many_drafts_are_enough() -> None:
    """Nobody reads that 1,234 drafts are too few because 1,234 are needed."""
    states = {1: ACTIVE, 42: ACTIVE, 42.5: WARMING_UP, 43: WARMING_UP}
    assert {
        minimum: judge(increase(42, [20]), minimum=minimum).state for minimum in states
    } == states
    reason = judge(increase(1234, [500]), minimum=1234.5).reason
    assert values_of(reason)["needed"] == 1234.5
    assert "1,234.5" in reason


@pytest.mark.parametrize(
    ("judged", "newest", "running", "expected"),
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
    judged: ActivityState,
    newest: Delta | None,
    running: float | None,
    expected: ActivityState,
) -> None:
    """Minutes before the judged window is empty; where it says the same, the reason
    stays, too.
    """
    activity = of_shortest_window(
        Activity(judged, "as judged"),
        newest,
        "30s",
        running=running,
        minimum_drafts=100,
    )
    assert activity.state is expected
    if expected is judged:
        assert activity.reason == "as judged"
    else:
        assert values_of(activity.reason)["window"] == "30s"
