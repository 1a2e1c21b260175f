"""Reloads: whoever asks for many changes nothing in when and how often servers are
polled.
"""

import asyncio
import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from support.exporter import LISTEN, RunningExporter, running_exporter
from support.faulty_server import Behaviour as Does
from support.faulty_server import FaultyServer, Peer, answer, capture
from support.programs import eventually

pytestmark = pytest.mark.full


class Timed:
    """A server that notes when it is polled, and takes `seconds` to answer."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.times: list[float] = []
        self._whole = answer(capture())
        self._seconds = seconds

    async def run(self, peer: Peer) -> None:
        self.times.append(time.monotonic())
        await asyncio.sleep(self._seconds)
        await self._whole.run(peer)


@contextlib.contextmanager
def serving(*servers: Timed) -> Iterator[list[str]]:
    """Run the servers; yield their addresses, each behind its flag."""
    with contextlib.ExitStack() as stack:
        flags = []
        for timed in servers:
            server = stack.enter_context(FaultyServer(Does(timed.run)))
            flags += ["--vllm.url", server.url]
        yield flags


@contextlib.contextmanager
def reloading(exporter: RunningExporter) -> Iterator[None]:
    """Ask for reloads all the while."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            exporter.post("/-/reload")

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _pauses(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_every_server_is_polled_on_its_beat() -> None:
    """From the start on, and not more often than without reloads."""
    servers = Timed(), Timed(), Timed()
    flags = ("--poll.interval", "2s", "--poll.timeout", "1s")
    with (
        serving(*servers) as urls,
        running_exporter(*urls, *flags) as exporter,
        reloading(exporter),
    ):
        eventually(lambda: all(len(server.times) >= 3 for server in servers))
        polls = [list(server.times) for server in servers]
    assert min(min(_pauses(times)) for times in polls) > 1.5, polls


def test_a_poll_under_way_goes_on() -> None:
    """A server that takes longer to answer than it is until the next reload is up all
    the same.
    """
    slow = ("--poll.interval", "3s", "--poll.timeout", "2900ms")
    with (
        serving(Timed(1.4)) as urls,
        running_exporter(*urls, *slow) as exporter,
        reloading(exporter),
    ):
        exporter.wait_until_up()
        assert exporter.metrics("poll_errors_total").errors() == {}


def test_lines_in_the_log_go_on() -> None:
    """Those that tell of every interval come also where reloads are closer together."""
    with (
        serving(Timed()) as urls,
        running_exporter(*urls, "--log.interval", "2500ms") as exporter,
    ):
        messages = {line["msg"] for line in exporter.log_lines()}
        with reloading(exporter):
            time.sleep(5)  # reloads come every second
        assert (
            {line["msg"] for line in exporter.log_lines()}
            - messages
            - {"configuration reloaded", "server is up"}
        )


def test_beats_do_not_run_together() -> None:
    """After another interval, and after the process stood still, servers are asked one
    after the other.
    """
    servers = Timed(), Timed(), Timed(), Timed()
    settings = {"poll": {"interval": "6s", "timeout": "900ms"}}
    with (
        serving(*servers) as urls,
        running_exporter(*urls, *LISTEN, config=settings, fast=False) as exporter,
    ):
        exporter.wait_until_up()
        # Whatever was due meanwhile is due at once when the process goes on.
        exporter.send(signal.SIGSTOP)
        time.sleep(1.5)
        exporter.send(signal.SIGCONT)
        exporter.configure({"poll": {"interval": "2s", "timeout": "900ms"}})
        assert exporter.post("/-/reload").status == 200
        begun = time.monotonic() + 2.2
        eventually(lambda: all(server.times[-1] > begun for server in servers))
        # The first poll of each since then.
        first = [next(filter(begun.__lt__, server.times)) for server in servers]
    assert min(_pauses(sorted(first))) > 0.2, first
