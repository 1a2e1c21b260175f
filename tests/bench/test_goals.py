"""What is promised, and when it is not judged: scrapes, rules, the tap, the spread of
polls.
"""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from bench.bench_module import load

load_section = load("load")
rules = load("rules")
tap = load("tap_section")
targets = load("targets")


@pytest.mark.parametrize(
    ("answers", "p99", "failures", "met"),
    [
        (240, 0.049, 0, True),
        (240, 0.051, 0, False),
        (24, 0.001, 0, None),
        (24, 0.001, 1, False),
    ],
)
def test_a_percentile_of_few_probes_is_not_judged(
    answers: int, p99: float, failures: int, met: bool | None
) -> None:
    """Of two dozen the 99th percentile is the longest; one that fails is one too many
    in any case.
    """
    probes = {"answers": answers, "p99": p99, "failures": failures}
    assert load_section.in_time(probes) is met


@pytest.mark.parametrize(
    ("engines", "quiet", "collapse", "met", "core"),
    [
        (1_000, 0.029, 0.029, [True, True], 0.029),
        (1_000, 0.029, 0.031, [True, False], 0.029),
        (100, 0.001, 0.9, [None, None], None),
    ],
)
def test_rules_may_take_3_percent_of_a_core_for_the_fleet_that_is_promised(
    engines: int,
    quiet: float,
    collapse: float,
    met: list[bool | None],
    core: float | None,
) -> None:
    """Quiet and in a collapse; over fewer engines neither goals nor share say
    anything.
    """
    costs = (rules.Cost(share, 200.0, 300.0) for share in (quiet, collapse))
    section = rules.judged(engines, *costs)
    assert [goal.met for goal in section.goals] == met
    assert section.ratios == {"rules.series": 1.5, "rules.core": core}


#: What each way adds to an event and to the first bytes, at the median and the 99th
#: percentile, in ms.
ADDED = {
    tap.DIRECT: ((0.10, 0.20), (0.20, 0.30)),
    tap.TAP: ((0.06, 0.18), (0.34, 0.90)),
    tap.NGINX: ((0.05, 0.13), (0.10, 0.20)),
}


def passing(**changes: Any) -> list[Any]:
    """How streams pass every way, in step and not; in step the tap differs by these
    changes.
    """
    samples = []
    for step, (way, (event, first)) in itertools.product((False, True), ADDED.items()):
        sample = tap.Passing(
            way,
            step,
            event_ms=event,
            first_ms=first,
            cpu_seconds=5e-5,
            events=8000,
            firsts=320,
        )
        if step and way == tap.TAP:
            sample = replace(sample, **changes)
        samples.append(sample)
    return samples


@pytest.mark.parametrize(
    ("changes", "event", "first"),
    [
        ({}, True, True),
        ({"event_ms": (1.0, 1.2)}, False, True),
        ({"event_ms": (0.1, 5.0)}, False, True),
        ({"first_ms": (1.1, 1.2)}, True, False),
        ({"first_ms": (0.1, 5.1)}, True, False),
        ({"firsts": 99}, True, None),
        ({"events": 99, "firsts": 0}, None, None),
    ],
)
def test_what_the_tap_may_add(
    changes: dict[str, Any], event: bool | None, first: bool | None
) -> None:
    """Below 1 ms and 5 ms, for events and for first bytes; few values or a busy machine
    say nothing.
    """
    samples = passing(**changes)
    quiet = [goal.met for goal in tap.goals(samples, quiet=True)]
    busy = [goal.met for goal in tap.goals(samples, quiet=False)]
    assert quiet == [event, first]
    assert busy == [None, None]


def test_the_tap_is_compared_with_nginx_of_the_same_run() -> None:
    """Times of a busy machine make no ratio, and neither does a difference that is
    noise; memory does.
    """
    memory = {
        tap.TAP: tap.Memory(100.0, 50.0, 51.0),
        tap.NGINX: tap.Memory(200.0, 1.0, 1.0),
    }
    always = {"tap.memory_stream": 0.5, "tap.memory_growth": 1.02}
    ratios = tap.ratios(passing(event_ms=(0.1, 0.2)), memory, quiet=True)
    assert ratios == pytest.approx(
        {"tap.event": 1.2, "tap.event_in_step": 2.0, "tap.cpu_event": 1.0, **always}
    )
    times = dict.fromkeys(("tap.event", "tap.event_in_step", "tap.cpu_event"))
    assert tap.ratios(passing(), memory, quiet=False) == {**times, **always}
    noise = [sample for sample in passing() if sample.way != tap.NGINX]
    noise += [
        replace(sample, event_ms=(0.004, 0.1))
        for sample in passing()
        if sample.way == tap.NGINX
    ]
    assert tap.ratios(noise, memory, quiet=True)["tap.event"] is None


def test_what_a_way_adds_is_compared_within_each_round() -> None:
    """A round in which the whole machine was slow says nothing of the way."""
    direct = [[100_000 * slow] * 100 for slow in (1, 1, 9)]
    ours = [[times[0] + 50_000] * 100 for times in direct]
    assert tap.added(ours, direct) == pytest.approx((0.05, 0.05))
    assert tap.added(direct, None) == pytest.approx((0.1, 0.1))


def arrivals(shift: float, together: int = 1) -> list[list[float]]:
    """Polls of 100 servers, four each, whose first ones lie so far apart, or those of
    so many together.
    """
    servers = []
    for number in range(100):
        first = (number - number % together) * shift
        servers.append([first + turn * targets.INTERVAL for turn in range(4)])
    return servers


def test_even_polls_are_even_clumps_and_missed_polls_are_not() -> None:
    """Of even polls eight lie in 0.4 s; all at one moment are twelve times as many, and
    eight together still even enough.

    A server that was polled twice less than the time allows, but for one at the ends,
    has missed one.
    """
    even = arrivals(0.05)
    assert targets.clump(even) <= 1.5
    assert targets.clump(arrivals(0.05, together=8)) <= 2.0
    assert targets.clump(arrivals(0.0)) == pytest.approx(12.5)
    assert targets.missed_polls(even, 20.0) == 0
    # The first and the last of four polls are left.
    even[7] = even[7][::3]
    assert targets.missed_polls(even, 20.0) == 1
