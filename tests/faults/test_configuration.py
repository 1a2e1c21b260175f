"""The configuration changes while the exporter is at work."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from faults.rig import assert_alive
from support.exporter import LISTEN, Metrics, RunningExporter, running_exporter
from support.faulty_server import FaultyServer, hang, replay
from support.programs import eventually

pytestmark = pytest.mark.full

POLL = {"interval": "500ms", "timeout": "490ms"}


def _settings(*servers: FaultyServer, **more: Any) -> dict[str, Any]:
    return {
        "vllm": {"url": [server.url for server in servers]},
        "poll": POLL,
        "window": ["30s"],
        **more,
    }


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(replay()) as server:
        yield server


second = server


def _configured(
    *servers: FaultyServer, **more: Any
) -> contextlib.AbstractContextManager[RunningExporter]:
    return running_exporter(*LISTEN, config=_settings(*servers, **more), fast=False)


def _reload(exporter: RunningExporter, settings: object) -> None:
    exporter.configure(settings)
    reloaded = exporter.post("/-/reload")
    assert reloaded.status == 200, reloaded.text
    assert reloaded.seconds < 3.0
    assert exporter.metrics().value("config_last_reload_successful") == 1
    assert_alive(exporter)


def _span(metrics: Metrics, **labels: str) -> float:
    return max(metrics.values("window_span_seconds", **labels).values(), default=0.0)


def test_reload_while_polls_hang(server: FaultyServer, second: FaultyServer) -> None:
    server.behaviour = second.behaviour = hang()
    slow = {"interval": "30s", "timeout": "20s"}
    with _configured(server, second, poll=slow) as exporter:
        eventually(lambda: server.connections)
        server.behaviour = second.behaviour = replay()
        _reload(exporter, _settings(server, second))
        exporter.wait_until_up()


def test_target_removed(server: FaultyServer, second: FaultyServer) -> None:
    with _configured(server, second) as exporter:
        exporter.wait_until_up()
        metrics = exporter.metrics_when(lambda m: _span(m, target=server.url) > 0.4)
        span = _span(metrics, target=server.url)
        _reload(exporter, _settings(server))
        metrics = exporter.metrics()
        assert metrics.labels("up") == [{}]
        assert second.url not in exporter.get("/metrics").text
        assert _span(metrics) >= span  # what stays goes on
        asked = len(second.polls())
        polled = len(server.polls())
        eventually(lambda: len(server.polls()) >= polled + 3)
        assert len(second.polls()) <= asked + 1


def test_threshold_changed(server: FaultyServer) -> None:
    with _configured(server, threshold={"minimum_drafts": 50}) as exporter:
        span = _span(exporter.metrics_when(lambda m: _span(m) > 0.4))
        assert exporter.metrics().value("threshold", threshold="minimum_drafts") == 50
        _reload(exporter, _settings(server, threshold={"minimum_drafts": 10_000_000}))
        assert _span(exporter.metrics()) >= span
        metrics = exporter.metrics_when(
            lambda m: m.one_hot("activity") == ["warming_up"]
        )
        assert metrics.value("threshold", threshold="minimum_drafts") == 10_000_000
        assert _span(metrics) >= span
