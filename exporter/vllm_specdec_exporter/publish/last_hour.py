"""The last hour of each engine, a point a minute, for the status page."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ..engines.reading import EngineKey
from ..observe.result import EngineResult

#: Seconds that are kept, and between two points.
SPAN = 3600.0
INTERVAL = 60.0


class Point(Struct, frozen=True):
    """The judged window at a Unix time in seconds."""

    time: float
    speedup: float | None
    mean_acceptance_length: float | None


# the points of each engine of a server, oldest first
LastHour = Mapping[EngineKey, tuple[Point, ...]]


def add_minute(
    hour: LastHour, engines: Sequence[EngineResult], time: float
) -> LastHour:
    """Return the last hour of these engines, with a poll at the Unix time `time`.

    It has at most 61 points of an engine. Engines that are gone are dropped: labels
    that change at every poll would otherwise fill the memory.
    """
    updated = {}
    due = False
    for engine in engines:
        points = hour.get(engine.key, ())
        if _is_due(points, time):
            due = True
            points = _with_point(points, engine, time)
        updated[engine.key] = points
    # Most polls add nothing, and need no mapping of their own.
    return updated if due else hour


def _with_point(
    points: tuple[Point, ...], engine: EngineResult, time: float
) -> tuple[Point, ...]:
    # A clock that was set back begins anew.
    recent = tuple(point for point in points if time - SPAN <= point.time <= time)
    judged = engine.window(engine.judged_window)
    length = judged.mean_acceptance_length if judged else None
    return (*recent, Point(time, engine.payoff.speedup, length))


def _is_due(points: tuple[Point, ...], time: float) -> bool:
    return not points or not 0 <= time - points[-1].time < INTERVAL
