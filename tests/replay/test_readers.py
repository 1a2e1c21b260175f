"""Histories of readers who had not seen the rules: what people are told of each, and how often."""

from __future__ import annotations

import math
from functools import cache

import pytest

from alerts.world import MISSING, Phase, World
from replay import evaluate
from replay.notifications import notifications
from replay.readers import HISTORIES, MINUTES
from replay.scrape import Storage

pytestmark = [pytest.mark.full, pytest.mark.timeout(3600)]

#: An alert without prefix, its severity, minutes from the fault until it fired, and how often it began.
Firing = tuple[str, str, int, int]
_BY = "by (alertname, severity)"


def stored(world: World) -> Storage:
    """What Prometheus has of a world."""
    storage = Storage()
    for series, samples in world.samples().items():
        name, _, rest = series.partition("{")
        pairs = (one.partition("=") for one in rest[:-1].split(","))
        labels = tuple((key, value.strip('"')) for key, _, value in pairs)
        storage.series[name, labels] = [math.nan if one == MISSING else float(one) for one in samples]
    return storage


@cache
def fired() -> dict[str, list[Firing]]:
    """What fires in each history while it lasts, the first first; neither hints nor what is for programs."""
    world, first, starts = World(), {}, {}
    for one in HISTORIES:
        own = World()
        one.story(own, one.name)
        one.story(world, one.name)
        lasts = max(map(len, own.samples().values()))
        back = f" offset {MINUTES - lasts}m" if lasts < MINUTES else ""
        span = f"[{lasts}m:1m]{back}"
        alerts = f'ALERTS{{alertstate="firing",namespace="{one.name}",severity=~"critical|warning"}}'
        first[one.name] = f"min {_BY} (min_over_time((timestamp({alerts})){span})) / 60"
        began = f"(group {_BY} ({alerts}) unless group {_BY} ({alerts} offset 1m))"
        starts[one.name] = f"count_over_time({began}{span})"
    found = evaluate.run(stored(world), MINUTES, [*first.values(), *starts.values()], 1)
    times = {
        (one.name, labels["alertname"], labels["severity"]): int(value)
        for one in HISTORIES
        for labels, value in found[starts[one.name]]
    }
    return {
        one.name: sorted(
            (
                (
                    labels["alertname"].removeprefix("VLLMSpecDecode"),
                    labels["severity"],
                    round(minute) - one.since,
                    times[one.name, labels["alertname"], labels["severity"]],
                )
                for labels, minute in found[first[one.name]]
            ),
            key=lambda firing: firing[2],
        )
        for one in HISTORIES
    }


def test_what_is_told_is_what_was_demanded_or_has_a_reason() -> None:
    """By the right alert, at the same time as ever."""
    found = {}
    for one in HISTORIES:
        alerts = fired()[one.name]
        told = "page" if any(a[1] == "critical" for a in alerts) else "ticket" if alerts else "silent"
        severity = {"page": "critical", "ticket": "warning"}.get(told)
        first = next(((name, after) for name, of, after, _ in alerts if of == severity), ("", 0))
        found[one.name] = (told, *first)
    assert found == {one.name: (one.told, one.by, one.after) for one in HISTORIES}
    assert [one.name for one in HISTORIES if (one.told != one.demand) != bool(one.why)] == []


def test_what_pages_does_so_once() -> None:
    """Over gaps, restarts and dips of minutes."""
    again = {
        one.name: alert
        for one in HISTORIES
        for alert in fired()[one.name]
        if alert[1] == "critical" and alert[3] != one.pages
    }
    assert again == {}


def test_a_fault_is_about_one_notification() -> None:
    """End to end; what comes more than two hours later is taken to come then."""
    alerts = set()
    for one in HISTORIES:
        every = fired()[one.name]
        began = min((alert[2] for alert in every), default=0)
        alerts |= {(one.name, name, severity, min(after - began, 120)) for name, severity, after, _ in every}
    found = notifications(alerts)
    assert found.total() / sum(one.told != "silent" for one in HISTORIES) <= 2, found


def test_a_collapse_of_sixty_engines_fires_at_most_thirty_series() -> None:
    """Of four models, for 80 minutes; the watchdog, hints and what is for programs included."""
    world = World()
    gone = Phase(80, acceptance=(0.02, 0.01, 0.0), speedup=0.6, action="disable", recommended_k=0)
    for index in range(60):
        world.engine(Phase(30), gone, model=f"model-{index % 4}", instance=f"10.0.0.{index}:9850")
    most = 'max_over_time(count(ALERTS{alertstate="firing"})[80m:1m])'
    pages = 'count(count_over_time(ALERTS{alertstate="firing",severity="critical"}[80m]))'
    found = evaluate.run(stored(world), 109, [most, pages], 1)
    assert found[pages] == [({}, 4.0)]
    assert found[most][0][1] <= 30
