"""Every query of every panel on Prometheus 2, Prometheus 3 and VictoriaMetrics, over
one recorded hour: each answers all, and the same.

They cut and extend ranges in three ways, so single points beside a start or an end
differ; the series, their words, and their sums over the hour do not.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboards import worlds_write
from dashboards.grafana import Viewing
from dashboards.live import look
from dashboards.worlds import World, open_world, shared_folder
from scaling.victoria import VictoriaMetrics
from support.newer import newer
from support.prometheus import PrometheusServer

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]
#: A change of K, models of every state, and requests that are observed.
NAMES = ("changes", "states", "requests")
#: Of the sum of a series over the hour: how a rate of rare events is extended to the
#: ends of two minutes.
TOLERANCE = 0.15
#: Of a share of requests: one more or less.
ONE_REQUEST = 0.01
#: What two roundings of a number in a label differ by.
ROUNDING = 0.011
#: None of an address or a version.
_NUMBER = re.compile(r"(?<![\d.])-?\d+\.\d+(?![\d.])")

#: Panel and query, and the labels with numbers left out.
Key = tuple[str, ...]


class Series:
    """A series of a panel: the sum of its points, and the numbers within its labels."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        points = item.get("values", [item.get("value")])
        self.sum = sum(float(value) for _, value in points)
        labels = [text for _, text in sorted(item["metric"].items())]
        self.numbers = [float(one) for one in _NUMBER.findall(" ".join(labels))]

    def beside(self, reference: "Series", least: float) -> str:
        """Return in what it differs from the same series elsewhere, by more than the
        least.
        """
        if not np.allclose(self.numbers, reference.numbers, rtol=0, atol=ROUNDING):
            return f"labels {self.numbers}, not {reference.numbers}"
        if np.isclose(self.sum, reference.sum, rtol=TOLERANCE, atol=least):
            return ""
        return f"sum {self.sum:.4g}, not {reference.sum:.4g}"


def told(server: PrometheusServer, world: World) -> dict[Key, Series]:
    """Return every series of every panel, of which nothing is wrong by itself."""
    hour = Viewing(world.end - 3600, world.end, scrape_interval=world.interval)
    shown = look(server, hour)
    assert [wrong for one in shown for wrong in one.wrong()] == []
    series = {}
    for panel in shown:
        for ref, answer in panel.results.items():
            for item in answer["result"]:
                labels = sorted(f"{k}={v}" for k, v in item["metric"].items() if v)
                named = (_NUMBER.sub("#", label) for label in labels)
                series[panel.name, ref, *named] = Series(item)
    return series


@pytest.fixture(params=NAMES)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """One of the worlds, in Debian's Prometheus 2."""
    folder: Path = shared_folder(tmp_path_factory)
    with open_world(request.param, folder) as opened:
        yield opened


def test_every_store_answers_every_query_alike(world: World) -> None:
    """No error, the same series, and of each the same sum over the hour."""
    reference = told(world.prometheus, world)
    assert len(reference) > 300
    with ExitStack() as stack:
        newest = PrometheusServer(
            {},
            config=worlds_write.CONFIG,
            flags=worlds_write.FLAGS,
            program=newer("prometheus"),
        )
        found: dict[Key, str] = {}
        for store in (newest, VictoriaMetrics(program=newer("victoria-metrics"))):
            server = stack.enter_context(store)
            for stored in (world.scraped, world.recorded):
                worlds_write.push(server.url, stored.times, stored.series)
            series = told(server, world)
            assert series.keys() == reference.keys()
            differences = {}
            for key, one in series.items():
                least = ONE_REQUEST if key[0].startswith("requests") else 1e-9
                differences[key] = one.beside(reference[key], least)
            name = type(store).__name__
            found |= {(name, *key): what for key, what in differences.items() if what}
        assert [f"{': '.join(key)}: {what}" for key, what in found.items()] == []
