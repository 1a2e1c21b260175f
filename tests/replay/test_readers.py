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
        name, _, label_text = series.partition("{")
        pairs = (pair.partition("=") for pair in label_text[:-1].split(","))
        labels = tuple((key, value.strip('"')) for key, _, value in pairs)
        storage.series[name, labels] = [
            math.nan if sample == MISSING else float(sample) for sample in samples
        ]
    return storage


@cache
def fired() -> dict[str, list[Firing]]:
    """What fires in each history while it lasts, the first first; hints apart."""
    world = World()
    queries: dict[str, tuple[History, int]] = {}
    for history in HISTORIES:
        history.story(world, history.name)
        labels_of_alerts = (
            f'alertstate="firing",namespace="{history.name}",severity!="info"'
        )
        alerts = f"group by (alertname, severity) (ALERTS{{{labels_of_alerts}}})"
        minute = f"timestamp({alerts}) / 60"
        last = lasts(history) - 1
        for start in range(0, last, _BITS):
            end = min(start + _BITS, last)
            offset = ""
            if end < MINUTES:
                offset = f" offset {MINUTES - end}m"
            bits = (
                f"sum_over_time((2 ^ ({minute} - "
                f"{start + 1}))[{end - start}m:1m]{offset})"
            )
            queries[bits] = history, start + 1
    yielded = evaluate.run(stored(world), MINUTES, list(queries), 1)
    minutes: dict[str, dict[tuple[str, str], list[int]]] = {
        history.name: {} for history in HISTORIES
    }
    for query, (history, start) in queries.items():
        for labels, value in yielded[query]:
            alert = labels["alertname"].removeprefix("VLLMSpecDecode")
            at = minutes[history.name].setdefault((alert, labels["severity"]), [])
            for bit in range(_BITS):
                if int(value) >> bit & 1:
                    at.append(start + bit - history.since)
    by_history = {}
    for name, at_of_alerts in minutes.items():
        firings = [(*alert, at) for alert, at in at_of_alerts.items()]
        by_history[name] = sorted(firings, key=lambda firing: firing[2][0])
    return by_history


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
        if end <= last:
            yield begin, end
        else:
            yield begin, None


def test_what_is_told_is_what_was_demanded_or_has_a_reason() -> None:
    """By the right alert, at the same time as ever."""
    outcomes = {}
    for history in HISTORIES:
        alerts = [alert for alert in fired()[history.name] if alert[1] != "none"]
        outcome = "silent"
        severity = ""
        if any(alert[1] == "critical" for alert in alerts):
            outcome = "page"
            severity = "critical"
        elif alerts:
            outcome = "ticket"
            severity = "warning"
        first = next(
            ((name, at[0]) for name, of, at in alerts if of == severity), ("", 0)
        )
        outcomes[history.name] = (outcome, *first)
    expected = {}
    for history in HISTORIES:
        expected[history.name] = (history.outcome, history.by, history.minutes)
        differs = history.outcome != history.demand
        assert differs == bool(history.why), history.name
    assert outcomes == expected


def test_what_pages_does_so_once() -> None:
    """Over gaps, restarts and dips of minutes."""
    again = {}
    for history in HISTORIES:
        for name, severity, at in fired()[history.name]:
            pages = len(list(spans(at, 0)))
            if severity == "critical" and pages != history.pages:
                again[history.name, name] = pages
    assert again == {}


def test_a_fault_is_about_one_notification() -> None:
    """End to end, until each history ends: what is told when a page ends counts as
    well.
    """
    alerts = set()
    for history in HISTORIES:
        every = fired()[history.name]
        first = min((at[0] for *_, at in every), default=0)
        last = lasts(history) - 1 - history.since
        for name, severity, at in every:
            for begin, end in spans(at, last):
                ended = None
                if end is not None:
                    ended = end - first
                alerts.add((history.name, name, severity, begin - first, ended))
    sent = notifications(alerts)
    assert sent.total() <= 1.25 * len(HISTORIES), sent


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
    peak = 'max_over_time(count(ALERTS{alertstate="firing"})[80m:1m])'
    pages = (
        'count(count_over_time(ALERTS{alertstate="firing",severity="critical"}[80m]))'
    )
    yielded = evaluate.run(stored(world), 109, [peak, pages], 2)
    assert yielded[pages] == [({}, 4.0)]
    assert yielded[peak][0][1] <= 30
