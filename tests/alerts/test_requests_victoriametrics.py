"""The alerts on single requests in VictoriaMetrics: they fire when they do in
Prometheus.

All cases are one history there, each in a cluster of its own.
"""

import re
import time

import numpy as np
import pytest

from alerts.case import brief, full_name
from alerts.cases_requests import CASES as OF_REQUESTS
from alerts.cases_tap import CASES as OF_TAP
from alerts.world import MISSING
from dashboards.worlds_pods import Storage
from dashboards.worlds_traffic import Key
from scaling.victoria import evaluate

#: Of every case; nearly all of them have fired by then.
MINUTES = 235
CASES = (*OF_REQUESTS, *OF_TAP)
pytestmark = pytest.mark.full

#: Long enough ago for all cases to have ended; VictoriaMetrics takes no samples of the
#: future.
START = time.time() // 86400 * 86400 - 2 * 86400


def _key(series: str, cluster: str) -> Key:
    name, _, labels = series.partition("{")
    return name, tuple(
        sorted([("cluster", cluster), *re.findall(r'(\w+)="([^"]*)"', labels)])
    )


@pytest.fixture(scope="module")
def found() -> Storage:
    """All that the rules give in VictoriaMetrics."""
    scraped = Storage(START + 60.0 * np.arange(MINUTES))
    for case in CASES:
        for series, samples in case.world().samples().items():
            rows = np.full(MINUTES, np.nan)
            values = [
                np.nan if sample == MISSING else float(sample)
                for sample in samples[:MINUTES]
            ]
            rows[: len(values)] = values
            scraped.series[_key(series, case.name)] = rows
    return evaluate(scraped, scraped.times)


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
