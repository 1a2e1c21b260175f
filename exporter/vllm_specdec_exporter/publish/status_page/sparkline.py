"""Lines over the last hour, as the points of SVG polylines."""

import math
from collections.abc import Callable, Iterable

from msgspec import Struct

from ..last_hour import INTERVAL, SPAN, Point

_WIDTH = 240
_HEIGHT = 32
#: Above and below the line, so that half of its width is not cut off.
_MARGIN = 2
#: Seconds. A line does not cross a longer gap: a poll or two may be late.
_GAP = 2.5 * INTERVAL
#: Of the greatest value. What changes less is drawn as a nearly level line, so that
#: noise does not look like a change.
_LEAST_RANGE = 0.1


class Sparkline(Struct, frozen=True):
    """A line over the last hour."""

    low: float  # the least value
    high: float  # the greatest value
    pieces: tuple[str, ...]  # points of the line, in pieces between gaps
    mark: str = ""  # points of a level line to compare with, if there is one
    width: int = _WIDTH  # of the drawing, in the unit of the points
    height: int = _HEIGHT


def sparkline(
    points: Iterable[Point],
    read: Callable[[Point], float | None],
    latest: float | None,
    mark: float | None = None,
) -> Sparkline | None:
    """Return the line of a value, ``None`` with fewer than two points.

    Args:
        points: the last hour, oldest first.
        read: returns the value of a point.
        latest: the value that is shown beside the line, at most a minute after the
            last point. The line ends at it.
        mark: the value of a level line.
    """
    times: list[float] = []
    values: list[float] = []
    for point in points:
        value = read(point)
        if value is not None:
            times.append(point.time)
            values.append(value)
    if len(values) < 2:
        return None
    if latest is not None:
        values[-1] = latest
    marks = () if mark is None else (mark,)
    height_of = _scale(min(*values, *marks), max(*values, *marks))
    pieces: list[list[str]] = []
    previous = -math.inf
    for time, value in zip(times, values, strict=True):
        if time - previous > _GAP:
            pieces.append([])
        x = _WIDTH * (1 - (times[-1] - time) / SPAN)
        pieces[-1].append(f"{x:.1f},{height_of(value)}")
        previous = time
    return Sparkline(
        low=min(values),
        high=max(values),
        pieces=tuple(map(" ".join, pieces)),
        mark="" if mark is None else f"0,{height_of(mark)} {_WIDTH},{height_of(mark)}",
    )


def _scale(bottom: float, top: float) -> Callable[[float], str]:
    """Return a function from a value to its distance from the top of the drawing."""
    missing = max(0.0, _LEAST_RANGE * top - (top - bottom))
    # Half of it on each side, so that a level line is in the middle.
    bottom -= missing / 2
    span = top + missing / 2 - bottom
    scale = (_HEIGHT - 2 * _MARGIN) / span if span > 0 else 0.0
    return lambda value: f"{_HEIGHT - _MARGIN - (value - bottom) * scale:.1f}"
