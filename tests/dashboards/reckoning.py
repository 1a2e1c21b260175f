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
    """Return what a panel, such as `overview: Models`, shows with these values of
    variables.
    """
    viewing = Viewing(
        world.end - 10_800, world.end, values, scrape_interval=world.interval
    )
    (only,) = (
        shown
        for shown in look(world.prometheus, viewing, [name.split(":")[0]])
        if shown.name == name
    )
    return only


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

    def increase(name: str, engine: dict[str, str], **more: str) -> float:
        ((_, rows),) = world.scraped.select(
            f"vllm_specdec_{name}_total", **engine, **more
        )
        return float(rows[-1] - rows[-1 - scrapes])

    engines = []
    for engine, rows in world.scraped.select("vllm_specdec_speedup", **labels):
        engine.pop("basis")
        positions = "accepted_tokens_per_position"
        of_positions = world.scraped.select(f"vllm_specdec_{positions}_total", **engine)
        k = len(
            {labels_of_position["position"] for labels_of_position, _ in of_positions}
        )
        counters = ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens")
        engines.append(
            Grown(
                *(increase(name, engine) for name in counters),
                tuple(
                    increase(positions, engine, position=str(index))
                    for index in range(k)
                ),
                float(rows[-1]),
            )
        )
    return engines


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
    drafts: Counter[int] = Counter()
    for engine in engines:
        for accepted, (reached, more) in enumerate(
            pairwise((engine.drafts, *engine.positions, 0.0))
        ):
            drafts[accepted] += round(reached - more)
    return drafts


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
    marked = []
    for series in annotations(world.prometheus, dashboards()["overview"], viewing)[
        name
    ]["result"]:
        times = [float(time) for time, number in series["values"] if float(number) > 0]
        starts = []
        for previous, time in pairwise([-math.inf, *times]):
            if time - previous > step:
                starts.append(time)
        for start, following in pairwise([*starts, math.inf]):
            end = max(time for time in times if time < following)
            marked.append(Event(start, end, series["metric"]))
    return sorted(marked, key=lambda event: event.start)
