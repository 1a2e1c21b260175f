"""In a Prometheus 3 that gives series a label with their type, the rules record the
same series, and the same alerts are pending and firing.

Functions drop that label with the name and others keep it, so two sides of one rule may
differ in nothing else: then it is silently empty.
"""

import time
from collections.abc import Mapping

import numpy as np
import pytest

from alerts.case import all_cases
from dashboards import worlds_write
from dashboards.worlds_pods import Storage
from dashboards.worlds_traffic import Key, Samples
from scaling.samples import of_worlds, typed
from scaling.servers import recorded
from support.newer import newer
from support.prometheus import PrometheusServer

pytestmark = pytest.mark.full

MINUTES = 240
START = time.time() // 86400 * 86400 - 86400
#: Cases of an alert: more than a few would take minutes.
EACH = 2


def _scraped() -> Storage:
    worlds = {}
    number: dict[str, int] = {}
    for case in all_cases():
        number[case.alert] = number.get(case.alert, 0) + 1
        if number[case.alert] <= EACH:
            worlds[case.name] = case.world()
    return of_worlds(worlds, START, MINUTES)


def _found(series: Mapping[Key, Samples], *features: str) -> dict[Key, Samples]:
    times = START + 60.0 * np.arange(MINUTES)
    with PrometheusServer(
        config=worlds_write.CONFIG,
        flags=(*worlds_write.FLAGS, *features),
        program=newer("prometheus"),
    ) as prometheus:
        return recorded(prometheus, times, Storage(times, dict(series))).series


def test_a_label_with_the_type_changes_nothing() -> None:
    scraped = _scraped().series
    plain = _found(scraped)
    with_types = _found(
        typed(scraped),
        "--enable-feature=type-and-unit-labels,promql-delayed-name-removal",
    )
    assert with_types.keys() == plain.keys()
    different = {
        name
        for name, rows in plain.items()
        if not np.allclose(rows, with_types[name], rtol=1e-9, equal_nan=True)
    }
    assert different == set()
