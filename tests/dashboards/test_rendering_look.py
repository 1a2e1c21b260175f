"""What a dashboard asks of a real Prometheus is what is drawn."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from dashboards.grafana import Viewing
from dashboards.render.samples import override, panel, sample, table_target, target
from dashboards.rendering import look, render
from support.ports import free_port
from support.prometheus import PrometheusServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dashboards.rendering import Document

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

ANNOTATION = {
    "name": "Starts",
    "enable": True,
    "iconColor": "#ff0000",
    "expr": "up{job=~'$job'} == 1",
    "step": "60s",
}
JOB = {
    "name": "job",
    "type": "query",
    "query": {"query": "label_values(up, job)", "refId": "job"},
    "definition": "label_values(up, job)",
    "multi": True,
    "includeAll": True,
    "allValue": ".+",
    "current": {"text": ["All"], "value": ["$__all"]},
}


@pytest.fixture(scope="module")
def given() -> Iterator[Document]:
    instant, over_time = {"instant": True, "range": False}, {"instant": False, "range": True}
    up = 'up{job=~"$job"}'
    dashboard = sample(
        panel("stat", at=(0, 0, 12, 4), targets=[target(legend="{{job}}", expr=up, **instant)]),
        panel("timeseries", at=(0, 4, 12, 8), targets=[target(legend="{{job}}", expr=up, **over_time)]),
        panel(
            "table",
            at=(12, 0, 12, 8),
            targets=[table_target() | {"expr": up, "range": False}],
            overrides=[override("byName", "Value", displayName="Up in $job")],
        ),
    )["dashboard"]
    dashboard |= {"templating": {"list": [JOB]}, "annotations": {"list": [ANNOTATION]}}
    port = free_port()
    with PrometheusServer(scrape={"here": f"127.0.0.1:{port}", "nowhere": "127.0.0.1:1"}) as prometheus:
        prometheus.wait_for("count(count_over_time(up[1m]) >= 4) == 2")
        now = time.time()
        viewing = Viewing(now - 300, now, {"job": ("nowhere",)}, scrape_interval=1.0)
        yield look(prometheus, dashboard, viewing, theme="light")


async def test_a_dashboard_is_drawn_with_what_prometheus_answers(given: Document, tmp_path: Path) -> None:
    """Variables choose what is asked, and are named in the heading; all panels have what they asked for."""
    report = await render(given, tmp_path)
    assert report.heading.split("\n")[-3:-1] == ["job", "nowhere"]
    assert report.heading.endswith("Starts")
    tile, line, table = report.panels
    assert (tile.shown.names, tile.text) == (("nowhere",), "0")
    assert line.shown.names == ("nowhere",)
    assert "Up in nowhere" in table.lines
    assert given["steps"]["2"]["A"] >= 1000
    assert report.picture.name == "sample-light.png"
