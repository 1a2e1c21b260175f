"""Faults of time: the wall clock jumps, the process is stopped."""

import signal
import time

import pytest

from faults.rig import (
    Rig,
    Surroundings,
    assert_alive,
    connect,
    get,
    new_errors,
    read_answer,
    rigged,
)
from support.exporter import Metrics
from support.faulty_server import hang, replay
from support.programs import eventually

pytestmark = pytest.mark.full


def _span(metrics: Metrics) -> float:
    return metrics.total("window_span_seconds")


def test_wall_clock_jumps(surroundings: Surroundings) -> None:
    """Windows go on by the time that really passes."""
    with rigged("--window", "30s", env=surroundings.env) as rig:
        for seconds in (6 * 3600.0, -6 * 3600.0, 0.0):
            steady = rig.exporter.metrics_when(lambda m: _span(m) > 0.4)
            begin = time.monotonic()
            polled = len(rig.server.polls())
            surroundings.shift_clock(seconds)
            eventually(lambda polled=polled: len(rig.server.polls()) >= polled + 4)
            shifted = rig.exporter.metrics_when(lambda m: m.value("up") == 1)
            passed = time.monotonic() - begin
            assert new_errors(steady, shifted) == set(), seconds
            assert shifted.value("engine_resets_total") == steady.value(
                "engine_resets_total"
            ), seconds
            assert _span(steady) < _span(shifted) < _span(steady) + passed + 2.0, (
                seconds
            )
            stamp = shifted.value("last_success_timestamp_seconds")
            assert abs(stamp - (time.time() + seconds)) < 30, seconds
            assert (
                min(shifted.values("drafts_per_second").values(), default=0.0) >= 0
            ), seconds
            assert_alive(rig.exporter)


def test_stopped_for_long(rig: Rig) -> None:
    exporter = rig.exporter
    steady = exporter.metrics_when(lambda m: _span(m) > 0.4)
    with connect(exporter.url) as scraper:
        rig.server.behaviour = hang()
        exporter.send(signal.SIGSTOP)
        # waits there when the process goes on, before anything else
        scraper.sendall(get("/metrics"))
        time.sleep(3.0)  # longer than interval, timeout and grace
        polled = len(rig.server.polls())
        begin = time.monotonic()
        exporter.send(signal.SIGCONT)
        stopped = Metrics(read_answer(scraper).partition(b"\r\n\r\n")[2].decode())
    assert stopped.value("up") == 0
    assert stopped.of_engines() == set()
    rig.server.behaviour = replay(start=40)
    again = exporter.metrics_when(lambda m: m.value("up") == 1)
    assert again.errors()["stale"] >= steady.errors().get("stale", 0)
    exporter.wait_for(lambda m: m.values("window_span_seconds"))
    # The polls that were missed are not made up for: one each 500 ms.
    assert len(rig.server.polls()) - polled <= 2 * (time.monotonic() - begin) + 2
    assert_alive(exporter)
