"""Signals, at inconvenient moments and in numbers."""

import signal
import time
from collections.abc import Iterator

import pytest

from faults.rig import STEADY, Rig, assert_alive, connect, counted, get, rigged, vllm
from support.commands import started
from support.exporter import running_exporter
from support.faulty_server import FaultyServer, answer, hang, replay
from support.ports import free_port

pytestmark = pytest.mark.full

#: Seconds within which the process ends: fewer than the 20 of a poll that hangs, also
#: on a busy machine.
AT_ONCE = 10.0


@pytest.fixture
def rig() -> Iterator[Rig]:
    """An exporter that may be ended."""
    with rigged() as rig:
        yield rig


def test_sigterm_during_scrape(rig: Rig) -> None:
    with connect(rig.exporter.url, receive_buffer=4096) as scraper:
        scraper.sendall(get("/metrics") * 200)  # and reads nothing
        rig.exporter.wait_until_up()
        rig.exporter.assert_ends(AT_ONCE)


def test_sigterm_twice(rig: Rig) -> None:
    process = rig.exporter.process
    begin = time.monotonic()
    rig.exporter.send(signal.SIGTERM)
    # Until its last moment, when the loop has given its handlers back.
    while process.poll() is None and time.monotonic() - begin < 20:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        time.sleep(0.0005)
    assert process.wait(1) == 0
    assert rig.exporter.log_lines()[-1]["msg"] == "stopping"
    assert time.monotonic() - begin < AT_ONCE
    assert "Traceback" not in rig.exporter.log()


def test_sigint(rig: Rig) -> None:
    rig.server.behaviour = hang()
    rig.exporter.assert_ends(AT_ONCE, signal.SIGINT)


def test_sigpipe(rig: Rig) -> None:
    exporter = rig.exporter
    for _ in range(5):
        exporter.send(signal.SIGPIPE)
    for _ in range(20):
        with connect(exporter.url, receive_buffer=4096) as scraper:
            scraper.sendall(get("/metrics") * 20)  # and goes away
    exporter.wait_until_up()
    assert_alive(exporter)
    assert {line["level"] for line in exporter.log_lines()} == {"info"}


def test_sigkill() -> None:
    with FaultyServer(answer(vllm())) as server:
        address = f"127.0.0.1:{free_port()}"
        flags = ("--vllm.url", server.url, *STEADY, "--web.listen-address", address)
        with running_exporter(*flags) as exporter:
            exporter.wait_until_up()
            exporter.send(signal.SIGKILL)
            assert exporter.process.wait(10) == -signal.SIGKILL
        server.behaviour = answer(vllm(counted(2)))
        with running_exporter(*flags) as again:
            again.wait_until_up()
            metrics = again.metrics()
            # Counters are the server's own, so that nothing is lost and nothing is
            # counted twice.
            assert metrics.value("drafts_total") == 2000
            # Windows, advice and the counts of this process's own begin anew.
            assert metrics.total("window_drafts", window="5m") == 0
            assert metrics.one_hot("recommendation") == ["insufficient_data"]
            assert metrics.one_hot("activity") in (["warming_up"], ["idle"])
            assert metrics.value("engine_resets_total") == 0
            assert_alive(again)


@pytest.mark.parametrize("pause", [0.0, 0.1, 0.2, 0.3, 0.4])
def test_sigterm_before_it_serves(pause: float) -> None:
    with FaultyServer(replay()) as server:
        flags = ("--vllm.url", server.url, "--web.listen-address", "127.0.0.1:0")
        with started(*flags) as process:
            time.sleep(pause)
            process.send_signal(signal.SIGTERM)
            _, stderr = process.communicate(timeout=10)
    # Before Python has come to the program, the signal ends it as any other.
    assert process.returncode in (0, -signal.SIGTERM), stderr
    assert "Traceback" not in stderr
