"""Attacks that keep every single limit, and together ask for more than there is: sums
are limited too.

Where the machine allows it, the process runs in a memory cgroup of the chart's limit,
and would be killed beyond it.
"""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attacks.test_listeners import LIMIT, LIMIT_WITH_TAP, peak, post, probed
from faults.rig import connect, get, vllm
from support.exporter import RunningExporter, request, running_exporter
from support.faulty_server import FaultyServer, answer, replay
from support.ports import free_port

pytestmark = pytest.mark.full

MIB = 1024 * 1024
#: Where version 1 of cgroups has the controller of memory.
CGROUPS = Path("/sys/fs/cgroup/memory")
SLOW = ("--poll.interval", "3s", "--poll.timeout", "2900ms")


@contextlib.contextmanager
def confined(exporter: RunningExporter, limit: int) -> Iterator[None]:
    """Give the process so much memory, and see that it lives and took no more."""
    group = CGROUPS / f"attacked-{exporter.pid}"
    try:
        group.mkdir()
    except OSError:
        group = None  # the size of the process alone tells
    else:
        # What it has already stays charged to the group that it comes from.
        left = limit - peak(exporter)
        (group / "memory.limit_in_bytes").write_text(str(left))
        (group / "cgroup.procs").write_text(str(exporter.pid))
    try:
        yield
        assert exporter.process.poll() is None, "killed"
        assert peak(exporter) < limit, "memory"
        assert "Traceback" not in exporter.log()
    finally:
        exporter.process.kill()
        exporter.process.wait()
        if group is not None:
            group.rmdir()


class _Silent:
    """A server that accepts, does something with each connection, and never reads."""

    def __init__(self, begin: Callable[[socket.socket], None]) -> None:
        self._begin = begin
        self._accepted: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._accepted.append(connection)
                self._begin(connection)

    def __enter__(self) -> "_Silent":
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        for each in (self._listening, *self._accepted):
            each.close()


@contextlib.contextmanager
def tapped(
    begin: Callable[[socket.socket], None] = lambda _: None,
) -> Iterator[tuple[RunningExporter, str]]:
    """Run an exporter with a tap before a server that never reads."""
    tap = f"127.0.0.1:{free_port()}"
    with _Silent(begin) as server, FaultyServer(replay()) as polled:
        flags = (
            f"--vllm.url={polled.url}",
            f"--tap.listen-address={tap}",
            f"--tap.upstream={server.url}",
        )
        with running_exporter(*flags) as exporter:
            exporter.wait_until_up()
            with confined(exporter, LIMIT_WITH_TAP):
                yield exporter, f"http://{tap}"


def crowd(
    stack: contextlib.ExitStack, url: str, sent: bytes, count: int
) -> list[socket.socket]:
    """Open connections that send this as far as it is taken, and read nothing."""
    clients = []
    for _ in range(count):
        client = stack.enter_context(connect(url, receive_buffer=4096))
        client.setblocking(False)
        with contextlib.suppress(OSError):
            client.sendall(sent)
        clients.append(client)
    return clients


# --- the tap


def test_unfinished_heads() -> None:
    """Heads that do not end are held as far as all bodies together may be."""
    head = b"GET / HTTP/1.1\r\nX-Request-Id: " + b"a" * 60_000
    with tapped() as (exporter, tap), contextlib.ExitStack() as stack:
        with probed(exporter):
            crowd(stack, tap, head, 4500)
            time.sleep(2)
        assert exporter.metrics().total("tap_open_connections") > 1000


def test_connections_without_a_request() -> None:
    """They count from the moment when they are accepted; beyond their limit they
    wait.
    """
    with tapped() as (exporter, tap), contextlib.ExitStack() as stack:
        with probed(exporter):
            crowd(stack, tap, b"", 6000)
            time.sleep(1)
        assert 1000 < exporter.metrics().total("tap_open_connections") <= 4096


def _pour(connection: socket.socket) -> None:
    """Send an answer for as long as it is taken without waiting."""
    connection.setblocking(False)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"
    with contextlib.suppress(OSError):
        connection.send(head)
        while connection.send(bytes(MIB)):
            pass


def test_answers_that_nobody_reads() -> None:
    """What the tap keeps of each is less, the more there are."""
    with (
        tapped(_pour) as (exporter, tap),
        contextlib.ExitStack() as stack,
        probed(exporter),
    ):
        crowd(stack, tap, post(b"{}"), 3000)
        time.sleep(2)


def _pump(sockets: list[socket.socket], block: bytes, end: threading.Event) -> None:
    """Send and read as fast as it goes, in one thread: many would starve the probes of
    this process.
    """
    with selectors.DefaultSelector() as selector:
        while not end.is_set():
            for each in sockets[len(selector.get_map()) :]:
                each.setblocking(False)
                wanted = selectors.EVENT_WRITE if block else selectors.EVENT_READ
                selector.register(each, wanted)
            for key, _ in selector.select(0.1):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                with contextlib.suppress(OSError):
                    if block:
                        connection.send(block)
                    else:
                        connection.recv(MIB)


def test_streams_at_full_speed() -> None:
    """Probes are answered between the chunks of many streams."""
    event = b'data: {"model":"m","choices":[{"text":"' + b"a" * 200 + b'"}]}\n\n'
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        b"Content-Length: 1000000000000\r\n\r\n"
    )
    served: list[socket.socket] = []
    clients: list[socket.socket] = []
    end = threading.Event()

    def begin(connection: socket.socket) -> None:
        connection.sendall(head)
        served.append(connection)

    pumps = [
        threading.Thread(target=_pump, args=(served, event * 200, end), daemon=True),
        threading.Thread(target=_pump, args=(clients, b"", end), daemon=True),
    ]
    with tapped(begin) as (exporter, tap), contextlib.ExitStack() as stack:
        for _ in range(300):
            client = stack.enter_context(connect(tap))
            client.sendall(post(b'{"model":"m","stream":true}'))
            clients.append(client)
        for pump in pumps:
            pump.start()
        with probed(exporter):
            time.sleep(8)
        end.set()
        for pump in pumps:
            pump.join()


# --- port 9850


@contextlib.contextmanager
def long_names(engines: int, length: int) -> Iterator[RunningExporter]:
    """Run an exporter whose page is long, in the memory that the chart gives it."""
    body = vllm(model="m" * length, engines=engines)
    with (
        FaultyServer(answer(body)) as server,
        running_exporter("--vllm.url", server.url, *SLOW) as exporter,
    ):
        exporter.wait_until_up()
        with confined(exporter, LIMIT):
            yield exporter


@pytest.mark.parametrize("addresses", [1, 5])
def test_pages_that_are_not_read(addresses: int) -> None:
    """One text for all that wait; texts that are not read have a sum, beyond which the
    next are refused, and of another address answered.
    """
    with long_names(250, 320) as exporter, contextlib.ExitStack() as stack:
        asked = get("/metrics") + get("/") + get("/api/v1/snapshot")
        with probed(exporter):
            for number in range(10 * addresses):
                source = f"127.0.0.{number % addresses + 1}"
                client = stack.enter_context(
                    connect(exporter.url, receive_buffer=4096, source=source)
                )
                client.sendall(asked)
                time.sleep(1.0 / addresses)
        if addresses == 1:
            scrape = request(f"{exporter.url}/metrics", source="127.0.0.9", timeout=30)
            assert scrape.status == 200
            assert len(scrape.body) > 4 * MIB


def test_filtered_pages_in_turn() -> None:
    """A client that asks for other names each time delays a scrape by one of them."""
    end = threading.Event()
    with long_names(250, 100) as exporter:

        def ask(source: str, number: int) -> None:
            with contextlib.suppress(OSError):
                while not end.is_set():
                    number += 1000
                    name = f"name[]=vllm_specdec_drafts_total&name[]=x{number}"
                    request(f"{exporter.url}/metrics?{name}", source=source, timeout=60)

        def scrape() -> float:
            begin = time.monotonic()
            url = f"{exporter.url}/metrics"
            assert request(url, source="127.0.0.9", timeout=60).status == 200
            return time.monotonic() - begin

        quiet = sorted(scrape() for _ in range(5))
        threads = [
            threading.Thread(target=ask, args=("127.0.0.2", number), daemon=True)
            for number in range(12)
        ]
        for thread in threads:
            thread.start()
        busy = [scrape() for _ in range(6)]
        end.set()
        for thread in threads:
            thread.join()
        assert max(busy) < 4 * quiet[-1] + 0.5, (quiet, busy)
