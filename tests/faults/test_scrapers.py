"""Clients of the exporter that misbehave: probes and other scrapers are answered all the while."""

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from faults.rig import PROMPT, Rig, assert_alive, connect, cpu_seconds, get, memory, read_answer, vllm
from support.exporter import RunningExporter, request
from support.faulty_server import answer
from support.programs import eventually
from vllm_specdec_exporter.serve.connection_limits import MAX_CONNECTIONS, REQUEST_SECONDS

pytestmark = pytest.mark.full

MIB = 1024 * 1024


@contextlib.contextmanager
def _crowd(exporter: RunningExporter, count: int, receive_buffer: int = 0) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(connect(exporter.url, receive_buffer)) for _ in range(count)]


def _ended(connection: socket.socket) -> bool:
    """Tell whether the other side has ended a connection that it had nothing to say on."""
    connection.setblocking(False)
    try:
        return connection.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        connection.settimeout(10)


def test_asks_and_never_reads(rig: Rig) -> None:
    rig.server.behaviour = answer(vllm(engines=50))
    rig.exporter.wait_for(lambda m: len(m.values("drafts_total")) == 50)
    with _crowd(rig.exporter, 8, receive_buffer=4096) as crowd:
        for scraper in crowd:
            scraper.sendall(get("/metrics") * 200)
        eventually(lambda: _stands_still(rig.exporter), 120)
        assert_alive(rig.exporter)
        assert memory(rig.exporter) < 150 * MIB
    assert_alive(rig.exporter)


def _stands_still(exporter: RunningExporter) -> bool:
    """Tell whether the process answers and has little to do: the answers that nobody takes are not made."""
    if exporter.get("/metrics").status != 200:
        return False
    begin = cpu_seconds(exporter)
    time.sleep(0.5)
    return cpu_seconds(exporter) - begin < 0.25


def test_dawdling(rig: Rig) -> None:
    exporter = rig.exporter
    with _crowd(exporter, 6) as silent, _crowd(exporter, 6) as slow:
        begin = time.monotonic()
        for client in slow:
            client.sendall(b"GET /metrics HTTP/1.1\r\nX-Padding: ")
        lasted: dict[socket.socket, float] = {}
        while len(lasted) < 12:
            now = time.monotonic() - begin
            assert now < REQUEST_SECONDS + 10, f"{12 - len(lasted)} are still there"
            lasted |= {c: now for c in (*silent, *slow) if c not in lasted and _ended(c)}
            for client in slow:
                if client not in lasted:
                    with contextlib.suppress(ConnectionError):
                        client.sendall(b"x")
            assert exporter.get("/metrics").seconds < PROMPT
            time.sleep(0.5)
    assert min(lasted.values()) > REQUEST_SECONDS - 1
    assert_alive(exporter)


def test_too_many_connections(rig: Rig) -> None:
    with _crowd(rig.exporter, MAX_CONNECTIONS + 20) as crowd:
        # At once, not only when they have been silent for too long.
        eventually(lambda: sum(map(_ended, crowd[:30])) >= 20, REQUEST_SECONDS / 2)
        # The newest are served; whoever waited for longest without a word had to go.
        crowd[-1].sendall(get("/-/ready"))
        assert read_answer(crowd[-1]).endswith(b"ready\n")
        assert_alive(rig.exporter)
    assert_alive(rig.exporter)


def _status_of(rig: Rig, words: bytes) -> int:
    """Send this; return the status of the answer, 0 for none."""
    with connect(rig.exporter.url) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(words)
        with contextlib.suppress(ConnectionError):
            return int(read_answer(client).split(b" ")[1])
    return 0


def test_refused(rig: Rig) -> None:
    for words, statuses in (
        (get("/metrics", "X-Padding: " + "x" * 200_000), (0, 400, 431)),
        (get("/metrics", *(f"X-{number}: a" for number in range(200))), (0, 400, 431)),
        (get("/metrics?name[]=" + "x" * 200_000), (0, 400, 414)),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300), (0, 400)),
        (b"nonsense\r\n\r\n", (0, 400)),
    ):
        assert _status_of(rig, words) in statuses
    assert_alive(rig.exporter)


def test_pipelined(rig: Rig) -> None:
    with connect(rig.exporter.url) as client:
        client.sendall((get("/-/ready") + get("/-/healthy")) * 19 + get("/-/ready", "Connection: close"))
        found = b"".join(iter(lambda: client.recv(1 << 16), b""))
    bodies = [line for line in found.split(b"\n") if line.endswith((b"ready", b"healthy"))]
    assert bodies == [b"ready", b"healthy"] * 19 + [b"ready"]
    assert_alive(rig.exporter)


def test_wrong_method(rig: Rig) -> None:
    reloaded = rig.exporter.metrics().value("config_last_reload_success_timestamp_seconds")
    for method, path in (("POST", "/metrics"), ("DELETE", "/config"), ("GET", "/-/reload"), ("PUT", "/")):
        assert request(f"{rig.exporter.url}{path}", method).status == 405
    assert _status_of(rig, b"BREW /metrics HTTP/1.1\r\nHost: x\r\n\r\n") in (400, 405)
    assert rig.exporter.metrics().value("config_last_reload_success_timestamp_seconds") == reloaded
    assert_alive(rig.exporter)
