"""Faults of time: the wall clock jumps, the process is stopped."""

import signal
import time

import pytest

from faults.rig import Rig, Surroundings, assert_alive, connect, get, new_errors, read_answer, rigged
from support.exporter import Metrics
from support.faulty_server import hang, replay
from support.programs import eventually

pytestmark = pytest.mark.full


def _span(metrics: Metrics) -> float:
    return metrics.value("window_span_seconds") or 0.0


def _jump(rig: Rig, surroundings: Surroundings, seconds: float) -> None:
    """Let the wall clock jump, and see that windows go on by the time that really passes."""
    exporter = rig.exporter
    before = exporter.wait_for(lambda m: m if _span(m) > 0.4 else None)
    begin = time.monotonic()
    surroundings.shift_clock(seconds)
    polled = len(rig.server.polls())
    eventually(lambda: len(rig.server.polls()) >= polled + 4)
    after = exporter.wait_for(lambda m: m if m.value("up") == 1 else None)
    passed = time.monotonic() - begin
    assert new_errors(before, after) == set()
    assert after.value("engine_resets_total") == before.value("engine_resets_total")
    assert _span(before) < _span(after) < _span(before) + passed + 2.0
    stamp = after.value("last_success_timestamp_seconds")
    assert abs(stamp - (time.time() + seconds)) < 30
    for rate in after.values("drafts_per_second").values():
        assert rate >= 0
    assert_alive(exporter)


def test_wall_clock_jumps(surroundings: Surroundings) -> None:
    with rigged("--window", "30s", env=surroundings.env) as rig:
        for hours in (6, -6, 0):
            _jump(rig, surroundings, hours * 3600.0)


def test_stopped_for_long(rig: Rig) -> None:
    exporter = rig.exporter
    before = exporter.wait_for(lambda m: m if _span(m) > 0.4 else None)
    with connect(exporter.url) as scraper:
        rig.server.behaviour = hang()
        exporter.send(signal.SIGSTOP)
        scraper.sendall(get("/metrics"))  # waits there when the process goes on, before anything else
        time.sleep(3.0)  # longer than interval, timeout and grace
        polled, begin = len(rig.server.polls()), time.monotonic()
        exporter.send(signal.SIGCONT)
        after = Metrics(read_answer(scraper).partition(b"\r\n\r\n")[2].decode())
    assert after.value("up") == 0
    assert after.of_engines() == set()
    rig.server.behaviour = replay(start=40)
    again = exporter.wait_for(lambda m: m if m.value("up") == 1 else None)
    assert again.errors()["stale"] >= before.errors().get("stale", 0)
    exporter.wait_for(lambda m: m.values("window_span_seconds"))
    # The polls that were missed are not made up for: one each 500 ms.
    assert len(rig.server.polls()) - polled <= 2 * (time.monotonic() - begin) + 2
    assert_alive(exporter)
