"""What is promised, and when it is not judged: figures beside limits, soaks, the tap, the rules, memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from bench.bench_module import load

section, soak, rules, scrapes = load("section"), load("soak"), load("rules"), load("load")
tap_times, ways = load("tap_times"), load("tap_ways")
MIB = load("processes").MIB
Usage = load("processes").Usage


def test_rounding_does_not_hide_on_which_side_of_its_limit_a_value_is() -> None:
    """It has one digit, or the few more that tell it from the limit; what is equal to it looks so."""
    shown = {
        (2.9609, 3.0): "2.96",
        (2.5, 3.0): "2.5",
        (3.04, 3.0): "3.04",
        (3.0, 3.0): "3.0",
        (24.996, 25.0): "24.996",
        (2.54, 2.5): "2.54",
        (math.nan, 3.0): "nan",
    }
    assert {pair: section.beside(*pair) for pair in shown} == shown


# --- soak


def test_the_course_of_memory_is_told_in_figures_that_fit_one_another() -> None:
    """A last tenth that lies above all others is told apart from the others and from the rest."""
    tenths = [58.8, 57.7, 57.7, 57.7, 58.0, 58.0, 58.0, 58.0, 58.0, 59.4]
    assert soak.course(tenths, 58.04).endswith(
        "58.8, 57.7, 57.7, 57.7, 58.0, 58.0, 58.0, 58.0, 58.0, 59.4 MiB. Beside the second tenth: +0.3 MiB "
        "in the ninth, +1.7 MiB in the last, +0.3 MiB at rest after the last client. Highest in tenth 10."
    )


def soaked(growth: float, *, judged: bool, failed: int = 0) -> dict[str, bool | None]:
    """Goals of a soak in whose last tenth memory and descriptors have grown by this factor."""
    early, late = (Usage(size * 50 * MIB, int(size * 20), 3, 1.0) for size in (1.0, growth))
    done = {"scrape 200": 5, "scrape 500": failed}
    played = {"polls": 1000, "failures": ["hangs"]}
    found = soak.found([early] * 90 + [late] * 10, late, 600.0, done, played, 0, judged=judged)
    return {goal.what.partition(" ")[0]: goal.met for goal in found.goals}


def test_growth_is_judged_in_a_long_soak_alone() -> None:
    """A short one shows how windows fill; failed scrapes are failures however short it was."""
    kept = {"memory": True, "open": True, "scrapes": True, "defects": True}
    assert soaked(1.02, judged=True) == kept
    assert soaked(1.31, judged=True) == {**kept, "memory": False, "open": False}
    for growth in (1.02, 1.31):
        assert soaked(growth, judged=False) == {**kept, "memory": None, "open": None}
    assert soaked(1.02, judged=False, failed=1)["scrapes"] is False


# --- scrapes and memory


def test_a_percentile_of_few_probes_is_not_judged() -> None:
    """Of two dozen the 99th percentile is the longest; one that fails is one too many in any case."""
    for answers, p99, failures, met in (
        (240, 0.049, 0, True),
        (240, 0.051, 0, False),
        (24, 0.001, 0, None),
        (24, 0.001, 1, False),
    ):
        assert scrapes.in_time({"answers": answers, "p99": p99, "failures": failures}) is met


def test_memory_over_few_polls_is_measured_and_not_judged() -> None:
    """The real process, for some polls: what is promised of a day is not promised of a minute."""
    found = load("memory").section(20, 2)
    assert [goal.met for goal in found.goals] == [None, None]
    assert all(ratio and 0.9 < ratio < 1.3 for ratio in found.ratios.values())


# --- rules


def test_rules_may_take_a_tenth_of_a_core_for_the_fleet_that_is_promised() -> None:
    """Two groups at different intervals; over fewer engines neither goal nor share says anything."""
    for engines, seconds, met in (
        (1_000, 2.9, True),
        (1_000, 3.1, False),
        (100, 0.1, None),
        (100, 9.0, None),
    ):
        groups = [rules.Group("a", 3, 60.0, seconds), rules.Group("b", 2, 180.0, 3 * seconds)]
        found = rules.found(engines, groups, read=200.0, written=300.0)
        (goal,) = found.goals
        share = None if met is None else pytest.approx(seconds / 30)
        assert (goal.met, found.ratios) == (met, {"rules.series": 1.5, "rules.core": share})


# --- tap

#: What each way adds to an event and to the first one, at the median and the 99th percentile, in ms.
ADDED = {
    ways.DIRECT: ((0.10, 0.20), (0.20, 0.30)),
    ways.TAP: ((0.06, 0.18), (0.34, 0.90)),
    ways.ASKING: ((0.09, 0.23), (0.39, 0.80)),
    ways.NGINX: ((0.05, 0.13), (0.10, 0.20)),
    ways.HAPROXY: ((0.06, 0.11), (0.08, 0.20)),
}


def passing(**changes: Any) -> list[Any]:
    """How 32 streams pass every way, in step and not; of asking for usage something else."""
    found = []
    for step in (False, True):
        for way, (event, first) in ADDED.items():
            one = tap_times.Passing(32, step, way, event, first, 5e-5, 0.01, True, 8000, 320)
            found.append(replace(one, **changes) if way == ways.ASKING else one)
    return found


def test_what_the_tap_may_add() -> None:
    """Below 1 ms and 5 ms, for events and for first ones; few or disturbed ones say nothing."""
    rows: list[tuple[dict[str, Any], bool | None, bool | None]] = [
        ({}, True, True),
        ({"event_ms": (1.0, 1.2)}, False, True),
        ({"event_ms": (0.1, 5.0)}, False, True),
        ({"first_ms": (1.1, 1.2)}, True, False),
        ({"first_ms": (0.1, 5.1)}, True, False),
        ({"firsts": 99}, True, None),
        ({"events": 99, "firsts": 0}, None, None),
        ({"undisturbed": False, "event_ms": (9.0, 9.0)}, None, None),
    ]
    for changes, event, first in rows:
        goals = list(tap_times.goals(passing(**changes)))
        assert [goal.met for goal in goals] == [event, first] * 2, changes
        assert [", in step" in goal.what for goal in goals] == [False, False, True, True]


def test_the_worse_of_asking_for_usage_and_not_is_told() -> None:
    """By event and by first event, in milliseconds; what was not timed is not told as 0."""
    event, first, *_ = tap_times.goals(passing())
    assert (event.found, first.found) == ("0.09 ms, 0.23 ms", "0.39 ms, 0.90 ms")
    _, first, *_ = tap_times.goals(passing(firsts=0, first_ms=(0.0, 0.0)))
    assert first.found == "nothing"


HELD = {ways.TAP: (10_400.0, 1.002), ways.NGINX: (20_800.0, 1.0)}


def test_the_tap_stands_beside_nginx_in_the_same_run() -> None:
    """Time and memory over that of nginx; what others disturbed is not told, and noise is no number."""
    requests: dict[str, float | None] = {ways.TAP: 1e-4, ways.NGINX: 2e-5}
    ratios = tap_times.ratios(passing(), requests, HELD)
    assert ratios == {
        "tap.event": pytest.approx(1.2),
        "tap.event_in_step": pytest.approx(1.2),
        "tap.cpu_event": 1.0,
        "tap.cpu_request": pytest.approx(5.0),
        "tap.memory_stream": 0.5,
        "tap.memory_growth": 1.002,
    }
    disturbed = tap_times.ratios(passing(undisturbed=False), {**requests, ways.TAP: None}, HELD)
    assert {name for name, ratio in disturbed.items() if ratio is not None} == {
        "tap.memory_stream",
        "tap.memory_growth",
    }
    noise = [replace(one, event_ms=(0.004, 0.01)) if one.way == ways.NGINX else one for one in passing()]
    assert math.isnan(tap_times.ratios(noise, requests, HELD)["tap.event"])


def test_one_disturbed_turn_does_not_spoil_a_median(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most turns must be quiet, unless the benchmark comes before all others."""
    few, most = [0.01, 0.90, 0.02], [0.50, 0.01, 0.60]
    for first, expected in ((False, [True, False]), (True, [True, True])):
        monkeypatch.setattr(tap_times, "comes_first", lambda first=first: first)
        assert [tap_times.undisturbed(others) for others in (few, most)] == expected
