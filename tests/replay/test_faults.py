"""Injected faults: each is found by the right alert, and in the time that the documentation promises.

`UPDATE_GOLDEN=1 pytest tests/replay/test_faults.py` writes docs/reference/detection.md anew.
"""

import os
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
    # Only where ALERTS is young: promtool loads no more than 10,000 samples for a query.
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
                    round(minute) - (START[world] if fault.begins is None else fault.begins),
                )
                for labels, minute in found[queries[fault.name]]
            ),
            key=lambda one: one[2],
        )
        for fault in faults
    }


def detected(fault: Fault) -> int:
    """Minutes until the alert that must find a fault fired; more than any promise where it never did."""
    every = fired(fault.world)[fault.name]
    right = [
        minutes for alert, severity, minutes in every if (alert, severity) == (fault.alert, fault.severity)
    ]
    return min(right, default=9999)


def test_each_fault_is_found_by_the_right_alert_in_time() -> None:
    """It fires after the fault, not before, and within the promised minutes."""
    late = {
        fault.name: (f"{fault.alert} ({fault.severity})", fired(fault.world)[fault.name])
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
    *("collapse", "collapse-of-a-cheap-drafter", "slow-decay", "disable-by-the-rule"),
    "no-k-pays-in-large-batches",
    *("exporters-die", "exporters-vanish", "servers-time-out", "unknown-metrics", "polls-hang"),
}


def test_only_harm_and_lost_monitoring_page() -> None:
    """A page comes where users are hurt or nobody watches any more, by one alert; else tickets at most."""
    pages = {
        fault.name: {alert for alert, severity, _ in fired(fault.world)[fault.name] if severity == "critical"}
        for fault in FAULTS
    }
    wrong = {name: alerts for name, alerts in pages.items() if len(alerts) != (name in _PAGES)}
    assert wrong == {}


def document() -> Iterator[str]:
    """Yield the lines of the documentation's table."""
    yield "<!-- Written by `UPDATE_GOLDEN=1 pytest tests/replay/test_faults.py`; do not edit. -->"
    yield "# Time to detection"
    yield ""
    yield (
        f"{len(FAULTS)} faults, each injected into a healthy service of simulated pods, and judged by the "
        "real rules in Prometheus's own engine, evaluated once a minute, or every four minutes where it "
        "takes a day (`tests/replay`). The time runs from the fault until the alert fires. Alertmanager's "
        "`group_wait` comes on top, and up to 9 minutes for rules that production evaluates every 3 minutes. "
        "Other alerts of the same fault are inhibited, or grouped into the same notification."
    )
    yield ""
    yield "| fault | found by | severity | after | promised |"
    yield "|---|---|---|---|---|"
    for fault in FAULTS:
        found = f"[{fault.alert}](../../alerts/runbooks/VLLMSpecDecode{fault.alert}.md)"
        name, times = fault.name.replace("-", " "), f"{detected(fault)} min | {fault.within} min"
        yield f"| {name} | {found} | {fault.severity} | {times} |"


#: Notifications of all faults, on a quiet machine.
NOTIFIED = 27


def notified() -> Iterator[str]:
    """Yield what is documented of notifications."""
    yield ""
    yield (
        f"A real Alertmanager with the committed routes sends {NOTIFIED} notifications for these "
        f"{len(FAULTS)} faults to the receivers `page` and `ticket`, until 46 minutes after the last alert. "
        "Repeats after hours, the digest of hints and the webhook for programs are not counted."
    )


def histories() -> Iterator[str]:
    """Yield the histories of `test_readers.py` whose result is not what was demanded."""
    otherwise = [one for one in HISTORIES if one.told != one.demand]
    yield ""
    yield "## Where readers expected something else"
    yield ""
    yield (
        f"Three readers who had not seen the rules proposed {len(HISTORIES)} histories, and for each a page, "
        f"a ticket or silence. {len(HISTORIES) - len(otherwise)} come out as expected; the others are below, "
        f"with the reason. Together they make {HISTORIES_TOLD} notifications: a ticket that still holds when "
        "its page ends is sent then."
    )
    yield ""
    yield "| history | expected | sent | by | after | reason |"
    yield "|---|---|---|---|---|---|"
    for one in otherwise:
        name, after = one.name.replace("-", " "), f"{one.after} min" if one.by else ""
        yield f"| {name} | {one.demand} | {one.told} | {one.by} | {after} | {one.why} |"


def test_a_fault_is_one_notification() -> None:
    """End to end, whatever alerts follow from it; the first of each fault fires at the same time."""
    began = {fault.name: min(one[2] for one in fired(fault.world)[fault.name]) for fault in FAULTS}
    alerts = {
        (fault.name, alert, severity, minute - began[fault.name], None)
        for fault in FAULTS
        for alert, severity, minute in fired(fault.world)[fault.name]
    }
    found = notifications(alerts)
    assert {fault.name for fault in FAULTS} == found.keys()
    assert found.total() <= 1.2 * len(FAULTS), found


def test_the_documented_times_are_these() -> None:
    """docs/reference/detection.md holds what was measured: the simulation draws from fixed seeds."""
    text = "\n".join((*document(), *notified(), *histories())) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        _DOCUMENT.write_text(text, encoding="utf-8")
    assert _DOCUMENT.read_text("utf-8") == text
