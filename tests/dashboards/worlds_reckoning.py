"""What panels show, and the same reckoned again in Python from the counters as they were scraped.

Windows: the exporter polls in step with the scrapes, so five minutes of its window are ten scrapes of 30 s.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dashboards.documents import dashboards
from dashboards.grafana import execute, execute_annotations, panels
from dashboards.grafana_timing import Viewing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dashboards.documents import Json
    from dashboards.grafana_timing import Value
    from dashboards.worlds import World

#: Scrapes in the exporter's window of five minutes.
WINDOW = 10


# --- what a panel shows


def panel_of(uid: str, title: str) -> Json:
    """Return a panel by dashboard and title."""
    (found,) = [one for one in panels(dashboards()[uid]) if one["title"] == title]
    return found


def answers(world: World, uid: str, title: str, **values: Value) -> dict[str, Any]:
    """Return Prometheus's answers to a panel's queries, by legend, or by `refId` where that says more."""
    dashboard, panel = dashboards()[uid], panel_of(uid, title)
    viewing = Viewing(world.end - 10_800, world.end, values, scrape_interval=world.interval)
    found = execute(world.prometheus, dashboard, panel, viewing)
    return {
        target["refId"] if "{{" in target["legendFormat"] else target["legendFormat"]: found[target["refId"]]
        for target in panel["targets"]
    }


def value(data: Any) -> float:
    """Return the newest value of the only series."""
    (series,) = data["result"]
    return float(series["value"][1] if "value" in series else series["values"][-1][1])


def tile(world: World, uid: str, title: str, legend: str, **values: Value) -> float:
    """Return the newest value of a panel's series with a legend."""
    return value(answers(world, uid, title, **values)[legend])


def newest(data: Any, label: str) -> dict[str, float]:
    """Return the newest value of each series by a label; those that have ended are left out."""
    last = [
        (one["metric"][label], *one.get("value", one.get("values", [None])[-1])) for one in data["result"]
    ]
    end = max(time for _, time, _ in last)
    return {name: float(number) for name, time, number in last if time == end}


def word(number: float) -> str:
    """Return what the tile of the verdict says, without its symbol."""
    (mapping,) = panel_of("payoff", "Does speculation pay?")["fieldConfig"]["defaults"]["mappings"]
    text: str = mapping["options"][f"{number:g}"]["text"]
    return text.lstrip("▲▼● ")


# --- what was counted


@dataclass(frozen=True)
class Grown:
    """What the counters of one engine have grown by over some scrapes."""

    drafts: float
    draft_tokens: float
    accepted: float
    generated: float
    positions: tuple[float, ...]
    speedup: float

    @property
    def k(self) -> int:
        return len(self.positions)


def grown(world: World, scrapes: int = WINDOW, **labels: str) -> list[Grown]:
    """Return what each engine has counted over the last scrapes."""

    def increase(name: str, own: dict[str, str], **more: str) -> float:
        ((_, rows),) = world.scraped.select(f"vllm_specdec_{name}", **own, **more)
        return float(rows[-1] - rows[-1 - scrapes])

    found = []
    for own, rows in world.scraped.select("vllm_specdec_speedup", **labels):
        own.pop("basis")
        places = {
            one["position"]
            for one, _ in world.scraped.select("vllm_specdec_accepted_tokens_per_position_total", **own)
        }
        found.append(
            Grown(
                increase("drafts_total", own),
                increase("draft_tokens_total", own),
                increase("accepted_tokens_total", own),
                increase("generation_tokens_total", own),
                tuple(
                    increase("accepted_tokens_per_position_total", own, position=str(place))
                    for place in range(len(places))
                ),
                float(rows[-1]),
            )
        )
    return found


def total(engines: Iterable[Grown], name: str) -> float:
    """Return the sum of a counter's growth over engines."""
    return float(sum(getattr(engine, name) for engine in engines))


def rate_windows(world: World) -> tuple[list[Grown], ...]:
    """Return what engines counted in `$__rate_interval`, four scrape intervals long.

    The sample at its very beginning counts up to Prometheus 2, and does not from 3 on.
    """
    return grown(world, 4), grown(world, 3)


# --- what is reckoned from it


def distribution(engines: list[Grown]) -> Counter[int]:
    """Return how many drafts had how many accepted tokens."""
    found: Counter[int] = Counter()
    for engine in engines:
        for accepted, (least, more) in enumerate(pairwise((engine.drafts, *engine.positions, 0.0))):
            found[accepted] += round(least - more)
    return found


def quantile_of(engines: list[Grown], quantile: float) -> int:
    counts = distribution(engines)
    drafts, below = sum(counts.values()), 0
    for accepted in sorted(counts):
        below += counts[accepted]
        if below >= quantile * drafts:
            return accepted
    raise AssertionError


# --- tables and annotations


def answers_of_rows(world: World, title: str, column: str, uid: str = "payoff", **values: Value) -> list[Any]:
    """Return the rows of a table that have a value in a column."""
    panel = panel_of(uid, title)
    (names,) = [
        transformation["options"]["renameByName"]
        for transformation in panel["transformations"]
        if "renameByName" in transformation["options"]
    ]
    (ref,) = [name.removeprefix("Value #") for name, shown in names.items() if shown == column]
    viewing = Viewing(world.end - 10_800, world.end, values, scrape_interval=world.interval)
    result: list[Any] = execute(world.prometheus, dashboards()[uid], panel, viewing)[ref]["result"]
    return result


@dataclass(frozen=True)
class Event:
    """What Grafana marks: a moment, or a time from its first to its last point.

    Attributes:
        start: Unix time of the first point.
        end: Unix time of the last one.
        labels: of the series.
    """

    start: float
    end: float
    labels: dict[str, str]


def events(world: World, name: str, hours: float = 3, step: float = 60) -> list[Event]:
    """Return what an annotation marks in the order of time; points at most a step apart are one event.

    Args:
        world: where.
        name: of the annotation.
        hours: how far somebody looks back.
        step: between two points of the answer, in seconds, which Grafana chooses for that range.
    """
    viewing = Viewing(world.end - 3600 * hours, world.end, {}, scrape_interval=world.interval)
    data = execute_annotations(world.prometheus, dashboards()["payoff"], viewing)[name]
    found = []
    for series in data["result"]:
        times = [float(time) for time, number in series["values"] if float(number) > 0]
        starts = [time for before, time in pairwise([-math.inf, *times]) if time - before > step]
        for start, following in pairwise([*starts, math.inf]):
            end = max(time for time in times if time < following)
            found.append(Event(start, end, series["metric"]))
    return sorted(found, key=lambda event: event.start)
