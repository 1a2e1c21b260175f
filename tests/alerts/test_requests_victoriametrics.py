"""The alerts on single requests in VictoriaMetrics: they fire when they do in Prometheus.

All cases are one history there, each in a cluster of its own.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from alerts.case import full_name
from alerts.cases_requests import CASES as OF_REQUESTS
from alerts.cases_tap import CASES as OF_TAP
from alerts.world import MISSING
from dashboards.worlds_pods import Storage
from scaling.test_victoriametrics import evaluate

if TYPE_CHECKING:
    from alerts.case import Case
    from dashboards.worlds_traffic import Key

CASES = (*OF_REQUESTS, *OF_TAP)
#: Long enough ago for all cases to have ended; VictoriaMetrics takes no samples of the future.
START = time.time() // 86400 * 86400 - 2 * 86400
#: The longest case, in minutes.
MINUTES = 451


def _key(series: str, cluster: str) -> Key:
    name, _, labels = series.partition("{")
    return name, tuple(sorted([("cluster", cluster), *re.findall(r'(\w+)="([^"]*)"', labels)]))


@pytest.fixture(scope="module")
def found() -> Storage:
    """All that the rules give in VictoriaMetrics."""
    scraped = Storage(START + 60.0 * np.arange(MINUTES))
    for case in CASES:
        for series, samples in case.world().samples().items():
            rows = np.full(MINUTES, np.nan)
            rows[: len(samples)] = [np.nan if sample == MISSING else float(sample) for sample in samples]
            scraped.series[_key(series, case.name)] = rows
    return evaluate(scraped, scraped.times)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}-{case.kind}-{case.name}")
def test_it_fires_when_it_does_in_prometheus(case: Case, found: Storage) -> None:
    wanted = {"alertname": full_name(case.alert), "alertstate": "firing", "cluster": case.name}
    firing = list(found.select("ALERTS", **wanted))
    for check in case.checks():
        now = [labels for labels, rows in firing if not np.isnan(rows[check.minute])]
        assert len(now) == len(check.expected), check.minute
        for one in check.expected:
            assert any(one.labels.items() <= labels.items() for labels in now), check.minute
