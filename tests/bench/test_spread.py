"""How evenly polls lie: a clump and a gap show, and missing polls are counted."""

from __future__ import annotations

import pytest

from bench.bench_module import load

spread = load("spread")

SERVERS, INTERVAL, SECONDS = 100, 5.0, 20.0


def arrivals(shift: float = 0.05) -> list[list[float]]:
    """Polls of servers whose first ones lie so far apart."""
    return [[n * shift + turn * INTERVAL for turn in range(4)] for n in range(SERVERS)]


def test_even_polls_are_even() -> None:
    """Gaps are as even ones, three polls lie in a tenth of a second with its ends, and none is missing."""
    found = spread.spread(arrivals(), INTERVAL, SECONDS)
    assert found.polls == 4 * SERVERS
    assert found.missed == 0
    assert found.largest_gap == pytest.approx(1.0)
    assert found.clump <= 1.5
    assert found.longest == pytest.approx(1.0)


def test_polls_all_at_once_are_a_clump() -> None:
    """All polls of an interval at one moment: fifty times as many in a tenth of a second, and a long gap."""
    found = spread.spread(arrivals(shift=0.0), INTERVAL, SECONDS)
    assert found.clump == pytest.approx(SERVERS / 2)
    assert found.largest_gap == pytest.approx(SERVERS)
    assert found.missed == 0


def test_missed_polls_are_counted() -> None:
    """A server that was polled twice less than the time allows, but for one at the ends, has missed one."""
    times = arrivals()
    times[7] = times[7][::3]
    found = spread.spread(times, INTERVAL, SECONDS)
    assert found.missed == 1
    assert found.longest == pytest.approx(3.0)


def test_a_server_that_was_never_polled_has_missed_all() -> None:
    """Nothing is divided by nothing."""
    found = spread.spread([[], []], INTERVAL, SECONDS)
    assert (found.polls, found.missed) == (0, 6)
