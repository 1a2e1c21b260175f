"""Injected faults: each is found by the right alert, and in the time that the
documentation promises.

`UPDATE_GOLDEN=1 pytest tests/replay/test_faults.py` writes the tables of
docs/reference/detection.md anew.
"""

import os
import re
from collections.abc import Iterator
from functools import cache
from operator import itemgetter
from pathlib import Path

import pytest

from replay import evaluate
from replay.faults import EVALUATED, FAULTS, LASTS, START, Fault, play
from replay.notifications import notifications
from replay.readers import HISTORIES, HISTORIES_TOLD

pytestmark = [pytest.mark.full, pytest.mark.timeout(3600)]

_DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "detection.md"

#: Alert, severity, and minutes from the fault until it fired.
Firing = tuple[str, str, int]


@cache
def fired(world: str) -> dict[str, list[Firing]]:
    """What fired in each service of a world, the first first."""
    faults = [fault for fault in FAULTS if fault.world == world]
    end = START[world] + LASTS[world] - 1
    # Only where ALERTS is young: promtool loads no more than 10,000 samples for a
    # query.
    back = LASTS[world]
    if world == "short":
        back = end
    queries = {
        fault.name: 'min_over_time((timestamp(ALERTS{alertstate="firing",'
        f'namespace="{fault.name}"}}))[{back}m:1m]) / 60'
        for fault in faults
    }
    samples = evaluate.run(play(world), end, list(queries.values()), EVALUATED[world])
    by_fault: dict[str, list[Firing]] = {}
    for fault in faults:
        begins = START[world]
        if fault.begins is not None:
            begins = fault.begins
        firings = []
        for labels, minute in samples[queries[fault.name]]:
            alert = labels["alertname"].removeprefix("VLLMSpecDecode")
            firings.append((alert, labels["severity"], round(minute) - begins))
        by_fault[fault.name] = sorted(firings, key=itemgetter(2))
    return by_fault


def detected(fault: Fault) -> int:
    """Minutes until the alert that must find a fault fired; more than any promise where
    it never did.
    """
    every = fired(fault.world)[fault.name]
    right = [
        minutes
        for alert, severity, minutes in every
        if (alert, severity) == (fault.alert, fault.severity)
    ]
    return min(right, default=9999)


def test_each_fault_is_found_by_the_right_alert_in_time() -> None:
    """It fires after the fault, not before, and within the promised minutes."""
    missed = {
        fault.name: (
            f"{fault.alert} ({fault.severity})",
            fired(fault.world)[fault.name],
        )
        for fault in FAULTS
        if not 0 <= detected(fault) <= fault.within
    }
    assert missed == {}


def test_nothing_fires_before_a_fault() -> None:
    """The same service was healthy, and nobody heard of it."""
    premature = {}
    for fault in FAULTS:
        for alert, severity, minute in fired(fault.world)[fault.name]:
            if minute < 0 and severity != "info":
                premature[fault.name, alert] = minute
    assert premature == {}


#: Faults that hurt users or leave nobody watching; the others must not page.
_PAGES = {
    "collapse",
    "collapse-by-a-modelled-step",
    "collapse-by-an-observed-step",
    "collapse-of-a-cheap-drafter",
    "slow-decay",
    "disable-by-the-rule",
    "no-k-pays-in-large-batches",
    "exporters-die",
    "exporters-vanish",
    "servers-time-out",
    "unknown-metrics",
    "polls-hang",
}


def test_only_harm_and_lost_monitoring_page() -> None:
    """A page comes where users are hurt or nobody watches any more, by one alert; else
    tickets at most.
    """
    wrong = {}
    for fault in FAULTS:
        pages = set()
        for alert, severity, _ in fired(fault.world)[fault.name]:
            if severity == "critical":
                pages.add(alert)
        if len(pages) != (fault.name in _PAGES):
            wrong[fault.name] = pages
    assert wrong == {}


#: Notifications of all faults, on a quiet machine.
NOTIFIED = 30


def test_a_fault_is_one_notification() -> None:
    """End to end, whatever alerts follow from it; the first of each fault fires at the
    same time.
    """
    alerts = set()
    for fault in FAULTS:
        firings = fired(fault.world)[fault.name]
        first = min(minute for _, _, minute in firings)
        for alert, severity, minute in firings:
            alerts.add((fault.name, alert, severity, minute - first, None))
    sent = notifications(alerts)
    assert {fault.name for fault in FAULTS} == sent.keys()
    assert sent.total() <= 1.2 * len(FAULTS), sent


def fault_rows() -> Iterator[str]:
    """Yield the rows of the documentation's table of faults."""
    for fault in FAULTS:
        link = f"[{fault.alert}](../../alerts/runbooks/VLLMSpecDecode{fault.alert}.md)"
        name = fault.name.replace("-", " ")
        times = f"{detected(fault)} min | {fault.within} min"
        yield f"| {name} | {link} | {fault.severity} | {times} |\n"


def history_rows() -> Iterator[str]:
    """Yield the rows of the histories of `test_readers.py` whose result is not what was
    demanded.
    """
    for history in HISTORIES:
        if history.outcome == history.demand:
            continue
        name = history.name.replace("-", " ")
        minutes = ""
        if history.by:
            minutes = f"{history.minutes} min"
        cells = (history.demand, history.outcome, history.by, minutes, history.why)
        yield f"| {name} | {' | '.join(cells)} |\n"


def test_the_documented_times_are_these() -> None:
    """docs/reference/detection.md holds what was measured: the simulation draws from
    fixed seeds.
    """
    text = documented = _DOCUMENT.read_text("utf-8")
    for head, rows in (("| fault |", fault_rows()), ("| history |", history_rows())):
        above, _, below = text.partition(head)
        titles, line, body = (head + below).split("\n", 2)
        text = (
            above
            + f"{titles}\n{line}\n"
            + "".join(rows)
            + re.sub(r"\A(\|.*\n)*", "", body)
        )
    if os.environ.get("UPDATE_GOLDEN"):
        _DOCUMENT.write_text(text, encoding="utf-8")
    assert text == documented


def test_the_documented_numbers_are_these() -> None:
    differ = sum(history.outcome != history.demand for history in HISTORIES)
    text = _DOCUMENT.read_text("utf-8")
    for sentence in (
        f"{len(FAULTS)} faults, each",
        f"sends {NOTIFIED} notifications for these {len(FAULTS)} faults",
        f"proposed {len(HISTORIES)} histories",
        f"{len(HISTORIES) - differ} come out as expected",
        f"Together they make {HISTORIES_TOLD} notifications",
    ):
        assert sentence in text, sentence
