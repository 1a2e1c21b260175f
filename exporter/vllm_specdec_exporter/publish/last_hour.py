"""The last hour of each engine, a point a minute, and its sparklines on the status
page.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..engines.reading import EngineKey
from ..observe.result import EngineResult
from .markup import Html, element

_SPAN = 3600.0
_INTERVAL = 60.0
#: A line does not cross a longer gap, in seconds.
_GAP = 2.5 * _INTERVAL
_WIDTH = 240
_HEIGHT = 32
_LEAST_RANGE = 0.1  # of the greatest value: smaller changes are not drawn larger


@dataclass(frozen=True, slots=True)
class Point:
    """The judged window at a Unix time in seconds."""

    time: float
    speedup: float | None
    mean_acceptance_length: float | None


# the points of each engine of a server, oldest first
LastHour = Mapping[EngineKey, tuple[Point, ...]]


def add_minute(
    hour: LastHour, engines: Sequence[EngineResult], time: float
) -> LastHour:
    """Return the last hour of these engines, 61 points each at most, with a poll at the
    Unix time `time`.

    Engines that are gone are dropped: labels that change at every poll would otherwise
    fill the memory.
    """
    if not any(_is_due(hour.get(engine.key, ()), time) for engine in engines):
        return hour
    return {
        engine.key: _with_point(hour.get(engine.key, ()), engine, time)
        for engine in engines
    }


def _with_point(
    points: tuple[Point, ...], engine: EngineResult, time: float
) -> tuple[Point, ...]:
    # A clock that was set back begins anew.
    kept = tuple(point for point in points if time - _SPAN <= point.time <= time)
    if not _is_due(points, time):
        return kept
    judged = engine.window(engine.judged_window)
    length = judged.mean_acceptance_length if judged else None
    return (*kept, Point(time, engine.payoff.speedup, length))


def _is_due(points: tuple[Point, ...], time: float) -> bool:
    return not points or not 0 <= time - points[-1].time < _INTERVAL


def sparkline(
    points: Iterable[Point],
    read: Callable[[Point], float | None],
    form: Callable[[float], str],
    mark: float | None,
    latest: float | None,
) -> Html:
    """Return a line over the last hour, its range in words, and a line at `mark`; or
    nothing.

    `latest` is the value that is shown beside it, at most a minute after the last
    point.
    """
    known = [
        (point.time, value) for point in points if (value := read(point)) is not None
    ]
    if known and latest is not None:
        known[-1] = (known[-1][0], latest)
    if len(known) < 2:
        return Html()
    values = [value for _, value in known]
    low = min(values)
    high = max(values)
    shown = values if mark is None else [*values, mark]
    bottom = min(shown)
    top = max(shown)
    # A tenth of the value at least: what hardly changes is drawn as a level line, in
    # the middle.
    short = max(0.0, _LEAST_RANGE * top - (top - bottom))
    bottom = bottom - short / 2
    top = top + short / 2
    scale = (_HEIGHT - 4) / (top - bottom) if top > bottom else 0.0
    newest = known[-1][0]

    def at(value: float) -> str:
        return f"{_HEIGHT - 2 - (value - bottom) * scale:.1f}"

    lines: list[list[str]] = []
    before = None
    for time, value in known:
        if before is None or time - before > _GAP:
            lines.append([])
        lines[-1].append(f"{_WIDTH * (1 - (newest - time) / _SPAN):.1f},{at(value)}")
        before = time
    parts = [
        element("polyline", points=" ".join(line), class_="line") for line in lines
    ]
    if mark is not None:
        parts.insert(
            0,
            element(
                "polyline", points=f"0,{at(mark)} {_WIDTH},{at(mark)}", class_="mark"
            ),
        )
    drawn = element(
        "svg",
        *parts,
        class_="spark",
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        aria_hidden="true",
        focusable="false",
    )
    return element(
        "div",
        drawn,
        element("p", f"last hour: {form(low)} to {form(high)}"),
        class_="hour",
    )
