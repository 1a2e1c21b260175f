"""What people get of alerts: a real Alertmanager, its committed routes and inhibitions, a faster clock."""

import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alertmanager.bundle import Addresses, alert, routes, rule, test_config
from alertmanager.receivers import receivers
from support.alertmanager import AlertmanagerServer
from vllm_specdec_exporter.commands.demo import faster

#: What is a minute in production takes half a second.
FACTOR = 120.0
_MINUTE = 60 / FACTOR
#: Who is written to; decisions go to a program as well, which is no person, and hints wait for hours.
_PEOPLE = ("page", "ticket")
_TIMES = ("group_wait", "group_interval", "repeat_interval")

#: A namespace, an alert without prefix, its severity, and the minute at which it begins to fire.
Fired = tuple[str, str, str, int]


def notifications(fired: Iterable[Fired]) -> Counter[str]:
    """Return by namespace how many notifications people get, pages and tickets, repeats apart.

    Alerts go on firing until the end.
    """
    begins = sorted(fired, key=lambda one: one[3])
    with tempfile.TemporaryDirectory() as folder, receivers() as received:
        with AlertmanagerServer(_configuration(Path(folder), received.http)) as manager:
            _fire(manager, begins)
        told = [one for one in received.deliveries if one.path.removeprefix("/") in _PEOPLE]
    return Counter(one.body["groupLabels"]["namespace"] for one in told)


def _configuration(folder: Path, http: str) -> dict[str, Any]:
    """Return the committed configuration on the faster clock, which writes to people by webhook."""
    for name in ("slack-url", "smtp-password"):
        (folder / name).write_text("secret")
    found = test_config(Addresses(folder, http))
    for route in routes(found["route"]):
        route.update({key: faster(route[key], FACTOR) for key in _TIMES if key in route})
    found["receivers"] = [
        {"name": each["name"], "webhook_configs": [{"url": f"{http}/{each['name']}", "send_resolved": False}]}
        for each in found["receivers"]
    ]
    return found


def _fire(manager: AlertmanagerServer, begins: list[Fired]) -> None:
    begun, first, last = time.time(), begins[0][3], begins[-1][3]
    # Long enough for the slowest route: tickets wait for two minutes, and for five after another.
    for minute in range(first, last + 15):
        now = begun + (minute - first) * _MINUTE
        time.sleep(max(0.0, now - time.time()))
        # Prometheus tells anew of what fires, and until when that holds, should it end.
        times = {"startsAt": now, "endsAt": now + 3600}
        stamps = {name: datetime.fromtimestamp(at, UTC).isoformat() for name, at in times.items()}
        new = [one for one in begins if one[3] == minute]
        if new:
            manager.post(
                *(
                    {**alert(rule(name, severity=severity), cluster="", namespace=place), **stamps}
                    for place, name, severity, _ in new
                )
            )
