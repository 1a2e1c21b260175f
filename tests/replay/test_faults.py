"""Injected faults: each is found by the right alert, and in the time that the
documentation promises.

`UPDATE_GOLDEN=1 pytest tests/replay/test_faults.py` writes the tables of
docs/reference/detection.md anew.
"""

import os
import re
from collections.abc import Iterator
from functools import cache
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
    back = end if world == "short" else LASTS[world]
    queries = {
        fault.name: 'min_over_time((timestamp(ALERTS{alertstate="firing",'
        f'namespace="{fault.name}"}}))[{back}m:1m]) / 60'
        for fault in faults
    }
    found = evaluate.run(play(world), end, list(queries.values()), EVALUATED[world])
    return {
        fault.name: sorted(
            (
                (
                    labels["alertname"].removeprefix("VLLMSpecDecode"),
                    labels["severity"],
                    round(minute)
                    - (START[world] if fault.begins is None else fault.begins),
                )
                for labels, minute in found[queries[fault.name]]
            ),
            key=lambda one: one[2],
        )
        for fault in faults
    }


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
    late = {
        fault.name: (
            f"{fault.alert} ({fault.severity})",
            fired(fault.world)[fault.name],
        )
        for fault in FAULTS
        if not 0 <= detected(fault) <= fault.within
    }
    assert late == {}


def test_nothing_fires_before_a_fault() -> None:
    """The same service was healthy, and nobody heard of it."""
    early = [
        (fault.name, one)
        for fault in FAULTS
        for one in fired(fault.world)[fault.name]
        if one[2] < 0 and one[1] != "info"
    ]
    assert early == []


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
    pages = {
        fault.name: {
            alert
            for alert, severity, _ in fired(fault.world)[fault.name]
            if severity == "critical"
        }
        for fault in FAULTS
    }
    wrong = {
        name: alerts
        for name, alerts in pages.items()
        if len(alerts) != (name in _PAGES)
    }
    assert wrong == {}


#: Notifications of all faults, on a quiet machine.
NOTIFIED = 30


def test_a_fault_is_one_notification() -> None:
    """End to end, whatever alerts follow from it; the first of each fault fires at the
    same time.
    """
    began = {
        fault.name: min(one[2] for one in fired(fault.world)[fault.name])
        for fault in FAULTS
    }
    alerts = {
        (fault.name, alert, severity, minute - began[fault.name], None)
        for fault in FAULTS
        for alert, severity, minute in fired(fault.world)[fault.name]
    }
    found = notifications(alerts)
    assert {fault.name for fault in FAULTS} == found.keys()
    assert found.total() <= 1.2 * len(FAULTS), found


def fault_rows() -> Iterator[str]:
    """Yield the rows of the documentation's table of faults."""
    for fault in FAULTS:
        found = f"[{fault.alert}](../../alerts/runbooks/VLLMSpecDecode{fault.alert}.md)"
        name = fault.name.replace("-", " ")
        times = f"{detected(fault)} min | {fault.within} min"
        yield f"| {name} | {found} | {fault.severity} | {times} |\n"


def history_rows() -> Iterator[str]:
    """Yield the rows of the histories of `test_readers.py` whose result is not what was
    demanded.
    """
    for one in (one for one in HISTORIES if one.told != one.demand):
        name = one.name.replace("-", " ")
        after = f"{one.after} min" if one.by else ""
        cells = (name, one.demand, one.told, one.by, after, one.why)
        yield f"| {' | '.join(map(str, cells))} |\n"


def test_the_documented_times_are_these() -> None:
    """docs/reference/detection.md holds what was measured: the simulation draws from
    fixed seeds.
    """
    text = documented = _DOCUMENT.read_text("utf-8")
    for head, rows in (("| fault |", fault_rows()), ("| history |", history_rows())):
        before, _, after = text.partition(head)
        titles, line, body = (head + after).split("\n", 2)
        text = (
            before
            + f"{titles}\n{line}\n"
            + "".join(rows)
            + re.sub(r"\A(\|.*\n)*", "", body)
        )
    if os.environ.get("UPDATE_GOLDEN"):
        _DOCUMENT.write_text(text, encoding="utf-8")
    assert text == documented


def test_the_documented_numbers_are_these() -> None:
    differ = sum(one.told != one.demand for one in HISTORIES)
    text = _DOCUMENT.read_text("utf-8")
    for words in (
        f"{len(FAULTS)} faults, each",
        f"sends {NOTIFIED} notifications for these {len(FAULTS)} faults",
        f"proposed {len(HISTORIES)} histories",
        f"{len(HISTORIES) - differ} come out as expected",
        f"Together they make {HISTORIES_TOLD} notifications",
    ):
        assert words in text
