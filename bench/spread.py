"""How evenly polls lie in time, and how many are missing. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Spread:
    """Polls of many servers over some time.

    Attributes:
        polls: of all servers.
        missed: how many fewer than one a server and interval, but for one at the ends of the time.
        largest_gap: between two polls, over the gap that even ones would have.
        clump: most polls within a tenth of a second, over those that even ones would have.
        longest: between two polls of the same server, over the interval.
    """

    polls: int
    missed: int
    largest_gap: float
    clump: float
    longest: float


#: Within which polls count as one clump, in seconds.
CLUMP_SECONDS = 0.1


def spread(arrivals: Sequence[Sequence[float]], interval: float, seconds: float) -> Spread:
    """Return how evenly the polls of some servers lie.

    Args:
        arrivals: when each server was polled, in order, in seconds.
        interval: between two polls of a server, in seconds.
        seconds: over which they were seen.
    """
    times = sorted(time for server in arrivals for time in server)
    even = interval / len(arrivals)
    due = int(seconds / interval)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    own = [later - earlier for server in arrivals for earlier, later in pairwise(server)]
    most, first = 0, 0
    for last, time in enumerate(times):
        while times[first] < time - CLUMP_SECONDS:
            first += 1
        most = max(most, last - first + 1)
    return Spread(
        polls=len(times),
        missed=sum(max(0, due - 1 - len(server)) for server in arrivals),
        largest_gap=max(gaps, default=seconds) / even,
        clump=most / (CLUMP_SECONDS / even),
        longest=max(own, default=seconds) / interval,
    )
