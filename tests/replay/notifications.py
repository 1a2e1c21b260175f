"""What people get of alerts: a real Alertmanager, its committed routes and inhibitions,
a faster clock.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alertmanager.bundle import Addresses, alert, faster_config, rule, write_secrets
from alertmanager.receivers import receivers
from support.alertmanager import AlertmanagerServer

#: What is a minute in production takes half a second: a busy machine is late by less.
FACTOR = 120.0
_MINUTE = 60 / FACTOR
#: Who is written to; decisions go to a program as well, which is no person, and hints
#: wait for hours.
_PEOPLE = ("page", "ticket")

#: The slowest route: tickets wait for a quarter of an hour, and for half an hour after
#: another.
_WAITS = 46

#: A namespace, an alert without prefix, its severity, the minute at which it begins to
#: fire, and that at which it no longer does; None if it goes on.
Fired = tuple[str, str, str, int, int | None]


def notifications(fired: Iterable[Fired]) -> Counter[str]:
    """Return by namespace how many pages and tickets people get, repeats apart."""
    with tempfile.TemporaryDirectory() as folder, receivers() as received:
        with AlertmanagerServer(_configuration(Path(folder), received.http)) as manager:
            _fire(manager, list(fired))
        written = [
            delivery
            for delivery in received.deliveries
            if delivery.path.removeprefix("/") in _PEOPLE
        ]
    return Counter(delivery.body["groupLabels"]["namespace"] for delivery in written)


def _configuration(folder: Path, http: str) -> dict[str, Any]:
    """Return the committed configuration on the faster clock, which writes to people by
    webhook.
    """
    write_secrets(folder, http)
    configuration = faster_config(Addresses(folder, http), FACTOR)
    _without_repeats(configuration["route"])
    configuration["receivers"] = [
        {
            "name": each["name"],
            "webhook_configs": [{"url": f"{http}/{each['name']}", **_as_shipped(each)}],
        }
        for each in configuration["receivers"]
    ]
    return configuration


def _without_repeats(route: dict[str, Any]) -> None:
    route["repeat_interval"] = "1h"
    for each in route.get("routes", ()):
        _without_repeats(each)


def _as_shipped(receiver: dict[str, Any]) -> dict[str, bool]:
    """Return whether a receiver posts what has ended, by its channel."""
    return {
        "send_resolved": any(
            channel["send_resolved"] for channel in receiver.get("slack_configs", ())
        )
    }


def _fire(manager: AlertmanagerServer, fired: list[Fired]) -> None:
    minutes = set()
    for *_, begins, ends in fired:
        minutes.add(begins)
        if ends is not None:
            minutes.add(ends)
    started = time.time()
    first = min(minutes)
    for minute in (*sorted(minutes), max(minutes) + _WAITS):
        due = started + (minute - first) * _MINUTE
        time.sleep(max(0.0, due - time.time()))
        alerts = []
        for firing in fired:
            *_, begins, ends = firing
            if begins == minute:
                alerts.append(_alert(firing, due, due + 3600))
            if ends == minute:
                began = started + (begins - first) * _MINUTE
                alerts.append(_alert(firing, began, due))
        if alerts:
            manager.post(*alerts)


def _alert(fired: Fired, begins: float, ends: float) -> dict[str, Any]:
    """Return an alert as Prometheus sends it, with the time until which it holds unless
    told anew.
    """
    namespace, name, severity, *_ = fired
    stamps = {
        key: datetime.fromtimestamp(at, UTC).isoformat()
        for key, at in (("startsAt", begins), ("endsAt", ends))
    }
    return {
        **alert(rule(name, severity=severity), cluster="", namespace=namespace),
        **stamps,
    }
