"""The alerts on single requests in VictoriaMetrics: they fire when they do in
Prometheus.

All cases are one history there, each in a cluster of its own.
"""

import time

import numpy as np
import pytest

from alerts.case import brief, full_name
from alerts.cases_requests import CASES as OF_REQUESTS
from alerts.cases_tap import CASES as OF_TAP
from dashboards.worlds_pods import Storage
from scaling.samples import of_worlds
from scaling.servers import recorded
from scaling.victoria import VictoriaMetrics

#: Of every case; nearly all of them have fired by then.
MINUTES = 235
CASES = (*OF_REQUESTS, *OF_TAP)
pytestmark = pytest.mark.full

#: Long enough ago for all cases to have ended; VictoriaMetrics takes no samples of the
#: future.
START = time.time() // 86400 * 86400 - 2 * 86400


@pytest.fixture(scope="module")
def found() -> Storage:
    """All that the rules give in VictoriaMetrics."""
    worlds = {case.name: case.world() for case in CASES}
    scraped = of_worlds(worlds, START, MINUTES)
    with VictoriaMetrics() as server:
        return recorded(server, scraped.times, scraped)


def test_the_alerts_fire_when_they_do_in_prometheus(found: Storage) -> None:
    different = []
    for case in CASES:
        wanted = {
            "alertname": full_name(case.alert),
            "alertstate": "firing",
            "cluster": case.name,
        }
        firing = [
            ({**labels, "cluster": ""}, rows)
            for labels, rows in found.select("ALERTS", **wanted)
        ]
        for minute in (minute for minute in case.fires if minute < MINUTES):
            now = sorted(
                brief(labels) for labels, rows in firing if not np.isnan(rows[minute])
            )
            if now != sorted(case.firing(minute)):
                different.append((case.name, minute, now))
    assert different == []
