"""Histories of readers who had not seen the rules: what people are told of each, and
how often.
"""

import math
from collections.abc import Iterator
from functools import cache

import pytest

from alerts.world import MISSING, Phase, World
from replay import evaluate
from replay.notifications import notifications
from replay.readers import HISTORIES, MINUTES, History
from replay.scrape import Storage

pytestmark = [pytest.mark.full, pytest.mark.timeout(3600)]

#: An alert without prefix, its severity, and the minutes after the fault at which it
#: fired.
Firing = tuple[str, str, list[int]]
#: Minutes that one number tells apart: each is a bit of it.
_BITS = 50


def stored(world: World) -> Storage:
    """What Prometheus has of a world."""
    storage = Storage()
    for series, samples in world.samples().items():
        name, _, rest = series.partition("{")
        pairs = (one.partition("=") for one in rest[:-1].split(","))
        labels = tuple((key, value.strip('"')) for key, _, value in pairs)
        storage.series[name, labels] = [
            math.nan if one == MISSING else float(one) for one in samples
        ]
    return storage


@cache
def fired() -> dict[str, list[Firing]]:
    """What fires in each history while it lasts, the first first; hints apart."""
    world = World()
    queries: dict[str, tuple[History, int]] = {}
    for one in HISTORIES:
        one.story(world, one.name)
        alerts = (
            f'ALERTS{{alertstate="firing",namespace="{one.name}",severity!="info"}}'
        )
        minute = f"timestamp(group by (alertname, severity) ({alerts})) / 60"
        for start in range(0, lasts(one) - 1, _BITS):
            end = min(start + _BITS, lasts(one) - 1)
            offset = f" offset {MINUTES - end}m" if end < MINUTES else ""
            bits = (
                f"sum_over_time((2 ^ ({minute} - "
                f"{start + 1}))[{end - start}m:1m]{offset})"
            )
            queries[bits] = one, start + 1
    found = evaluate.run(stored(world), MINUTES, list(queries), 1)
    minutes: dict[str, dict[tuple[str, str], list[int]]] = {
        one.name: {} for one in HISTORIES
    }
    for query, (one, start) in queries.items():
        for labels, value in found[query]:
            name = (
                labels["alertname"].removeprefix("VLLMSpecDecode"),
                labels["severity"],
            )
            bits = [bit for bit in range(_BITS) if int(value) >> bit & 1]
            minutes[one.name].setdefault(name, []).extend(
                start + bit - one.since for bit in bits
            )
    return {
        history: sorted(
            ((*name, at) for name, at in alerts.items()),
            key=lambda firing: firing[2][0],
        )
        for history, alerts in minutes.items()
    }


@cache
def lasts(history: History) -> int:
    """Return how many minutes a history has."""
    world = World()
    history.story(world, history.name)
    return max(map(len, world.samples().values()))


def spans(minutes: list[int], last: int) -> Iterator[tuple[int, int | None]]:
    """Yield when an alert begins to fire, and when it no longer does; None where it
    goes on at the end.
    """
    begins = [minute for minute in minutes if minute - 1 not in minutes]
    ends = [minute + 1 for minute in minutes if minute + 1 not in minutes]
    for begin, end in zip(begins, ends, strict=True):
        yield begin, end if end <= last else None


def test_what_is_told_is_what_was_demanded_or_has_a_reason() -> None:
    """By the right alert, at the same time as ever."""
    found = {}
    for one in HISTORIES:
        alerts = [alert for alert in fired()[one.name] if alert[1] != "none"]
        if any(a[1] == "critical" for a in alerts):
            told = "page"
        elif alerts:
            told = "ticket"
        else:
            told = "silent"
        severity = {"page": "critical", "ticket": "warning"}.get(told)
        first = next(
            ((name, at[0]) for name, of, at in alerts if of == severity), ("", 0)
        )
        found[one.name] = (told, *first)
    assert found == {one.name: (one.told, one.by, one.after) for one in HISTORIES}
    assert [
        one.name for one in HISTORIES if (one.told != one.demand) != bool(one.why)
    ] == []


def test_what_pages_does_so_once() -> None:
    """Over gaps, restarts and dips of minutes."""
    again = {
        one.name: alert
        for one in HISTORIES
        for alert in fired()[one.name]
        if alert[1] == "critical" and len(list(spans(alert[2], 0))) != one.pages
    }
    assert again == {}


def test_a_fault_is_about_one_notification() -> None:
    """End to end, until each history ends: what is told when a page ends counts as
    well.
    """
    alerts = set()
    for one in HISTORIES:
        every = fired()[one.name]
        first = min((at[0] for *_, at in every), default=0)
        last = lasts(one) - 1 - one.since
        for name, severity, at in every:
            for begin, end in spans(at, last):
                alerts.add(
                    (one.name, name, severity, begin - first, end and end - first)
                )
    found = notifications(alerts)
    assert found.total() <= 1.25 * len(HISTORIES), found


def test_a_collapse_of_forty_engines_fires_at_most_thirty_series() -> None:
    """Of four models, for 80 minutes; the watchdog, hints and what is for programs
    included.
    """
    world = World()
    gone = Phase(
        80, acceptance=(0.02, 0.01, 0.0), speedup=0.6, action="disable", recommended_k=0
    )
    for index in range(40):
        world.engine(
            Phase(30), gone, model=f"model-{index % 4}", instance=f"10.0.0.{index}:9850"
        )
    most = 'max_over_time(count(ALERTS{alertstate="firing"})[80m:1m])'
    pages = (
        'count(count_over_time(ALERTS{alertstate="firing",severity="critical"}[80m]))'
    )
    found = evaluate.run(stored(world), 109, [most, pages], 2)
    assert found[pages] == [({}, 4.0)]
    assert found[most][0][1] <= 30
