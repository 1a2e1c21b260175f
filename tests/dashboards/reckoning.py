"""What panels show, and the same computed again in Python from the counters as they
were scraped.

The exporter polls in step with the scrapes, so five minutes of its window are ten
scrapes of 30 s.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from dashboards.documents import dashboards
from dashboards.grafana import Value, Viewing, annotations
from dashboards.live import Shown, look
from dashboards.worlds import World

#: Scrapes in the exporter's window of five minutes.
WINDOW = 10


def panel(world: World, name: str, **values: Value) -> Shown:
    """Return what a panel (`overview: Models`) shows, with values of variables."""
    viewing = Viewing(
        world.end - 10_800, world.end, values, scrape_interval=world.interval
    )
    (found,) = (
        one
        for one in look(world.prometheus, viewing, [name.split(":")[0]])
        if one.name == name
    )
    return found


@dataclass(frozen=True)
class Grown:
    """The increase of the counters of one engine over some scrapes."""

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
    """Return the increases of each engine over the last scrapes."""

    def increase(name: str, own: dict[str, str], **more: str) -> float:
        ((_, rows),) = world.scraped.select(f"vllm_specdec_{name}_total", **own, **more)
        return float(rows[-1] - rows[-1 - scrapes])

    found = []
    for own, rows in world.scraped.select("vllm_specdec_speedup", **labels):
        own.pop("basis")
        positions = "accepted_tokens_per_position"
        k = len(
            {
                one["position"]
                for one, _ in world.scraped.select(
                    f"vllm_specdec_{positions}_total", **own
                )
            }
        )
        counters = ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens")
        found.append(
            Grown(
                *(increase(name, own) for name in counters),
                tuple(
                    increase(positions, own, position=str(place)) for place in range(k)
                ),
                float(rows[-1]),
            )
        )
    return found


def total(engines: Iterable[Grown], name: str) -> float:
    """Return the sum of an increase over engines."""
    return float(sum(getattr(engine, name) for engine in engines))


def rate_windows(world: World, **labels: str) -> tuple[list[Grown], ...]:
    """Return the increases in `$__rate_interval`, four scrape intervals long.

    The sample at its very beginning counts up to Prometheus 2, and does not from 3 on.
    """
    return grown(world, 4, **labels), grown(world, 3, **labels)


def distribution(engines: list[Grown]) -> Counter[int]:
    """Return how many drafts had how many accepted tokens."""
    found: Counter[int] = Counter()
    for engine in engines:
        for accepted, (least, more) in enumerate(
            pairwise((engine.drafts, *engine.positions, 0.0))
        ):
            found[accepted] += round(least - more)
    return found


@dataclass(frozen=True)
class Event:
    """What Grafana marks: its first and last point, in Unix time, and the labels of the
    series.
    """

    start: float
    end: float
    labels: dict[str, str]


def events(
    world: World, name: str, hours: float, step: float, **values: Value
) -> list[Event]:
    """Return what an annotation of the Overview marks in the last hours, with a point
    every step.
    """
    viewing = Viewing(
        world.end - 3600 * hours, world.end, values, scrape_interval=world.interval
    )
    found = []
    for series in annotations(world.prometheus, dashboards()["overview"], viewing)[
        name
    ]["result"]:
        times = [float(time) for time, number in series["values"] if float(number) > 0]
        starts = [
            time
            for before, time in pairwise([-math.inf, *times])
            if time - before > step
        ]
        for start, following in pairwise([*starts, math.inf]):
            end = max(time for time in times if time < following)
            found.append(Event(start, end, series["metric"]))
    return sorted(found, key=lambda event: event.start)
