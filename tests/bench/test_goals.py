"""What is promised, and when it is not judged: soaks, scrapes, rules, the tap, the spread of polls."""

from dataclasses import replace
from typing import Any

import pytest

from bench.bench_module import load

section, soak, rules, scrapes = load("section"), load("soak"), load("rules"), load("load")
tap_times, ways = load("tap_times"), load("tap_ways")
MIB = load("processes").MIB
Usage = load("processes").Usage


# --- soak


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


# --- rules


def test_rules_may_take_4_percent_of_a_core_for_the_fleet_that_is_promised() -> None:
    """Quiet and in a collapse; over fewer engines neither goals nor share say anything."""
    for engines, quiet, collapse, met in (
        (1_000, 0.039, 0.039, [True, True]),
        (1_000, 0.039, 0.041, [True, False]),
        (100, 0.001, 0.9, [None, None]),
    ):
        groups = [rules.Group("a", 3, 60.0, quiet / 2, collapse), rules.Group("b", 2, 180.0, quiet / 2, 0.0)]
        found = rules.found(engines, groups, read=200.0, written=300.0)
        share = None if met[0] is None else pytest.approx(quiet)
        assert ([goal.met for goal in found.goals], found.ratios) == (
            met,
            {"rules.series": 1.5, "rules.core": share},
        )


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


# --- spread of polls

spread = load("spread")

SERVERS, INTERVAL, SECONDS = 100, 5.0, 20.0


def arrivals(shift: float = 0.05) -> list[list[float]]:
    """Polls of servers whose first ones lie so far apart."""
    return [[n * shift + turn * INTERVAL for turn in range(4)] for n in range(SERVERS)]


def test_even_polls_are_even_clumps_and_missed_polls_are_not() -> None:
    """Of even polls three lie in a tenth of a second; all at one moment are fifty times as many.

    A server that was polled twice less than the time allows, but for one at the ends, has missed one.
    """
    even, clump = (spread.spread(arrivals(shift), INTERVAL, SECONDS) for shift in (0.05, 0.0))
    assert (even.polls, even.missed, clump.missed) == (4 * SERVERS, 0, 0)
    assert (even.largest_gap, even.longest) == (pytest.approx(1.0), pytest.approx(1.0))
    assert even.clump <= 1.5
    assert (clump.clump, clump.largest_gap) == (pytest.approx(SERVERS / 2), pytest.approx(SERVERS))
    times = arrivals()
    times[7] = times[7][::3]
    found = spread.spread(times, INTERVAL, SECONDS)
    assert (found.missed, found.longest) == (1, pytest.approx(3.0))
