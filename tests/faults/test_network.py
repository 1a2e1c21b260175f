"""Faults between the exporter and the server: names, addresses, sockets.

TLS: service/test_upstream.py.
"""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.rig import STEADY, Surroundings, assert_alive, assert_fails, new_errors
from support.exporter import RunningExporter, running_exporter
from support.faulty_server import FaultyServer, replay
from support.ports import free_port
from support.programs import eventually

pytestmark = pytest.mark.full


@dataclass
class Named:
    """An exporter that knows its server by name, and the names it resolves."""

    exporter: RunningExporter
    surroundings: Surroundings
    port: int

    def server(self, host: str) -> FaultyServer:
        """A server at the port that is polled, once it is entered."""
        server = FaultyServer(replay(), host=host)
        server.port = self.port
        return server


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Named]:
    surroundings = Surroundings(tmp_path_factory.mktemp("surroundings"))
    port = free_port()
    flags = ("--vllm.url", f"http://vllm.test:{port}", *STEADY)
    with running_exporter(*flags, env=surroundings.env) as exporter:
        yield Named(exporter, surroundings, port)


def test_name_unknown(named: Named) -> None:
    named.surroundings.resolve()
    with named.server("127.0.0.1"):
        assert_fails(named.exporter, "unreachable")
        named.surroundings.resolve("127.0.0.1")
        named.exporter.wait_until_up()
        assert_alive(named.exporter)


def test_name_moves(named: Named) -> None:
    named.surroundings.resolve("127.0.0.1")
    with named.server("127.0.0.1"):
        named.exporter.wait_until_up()
    assert_fails(named.exporter, "refused")
    with named.server("127.0.0.2") as new:
        named.surroundings.resolve("127.0.0.2")
        named.exporter.wait_until_up()
        assert new.polls()


def test_ipv6_only(named: Named) -> None:
    with named.server("::1") as server:
        named.surroundings.resolve("127.0.0.1", "::1")
        named.exporter.wait_until_up()
        metrics = named.exporter.metrics()
        polled = len(server.polls())
        eventually(lambda: len(server.polls()) >= polled + 3)
        assert new_errors(metrics, named.exporter.metrics()) == set()
    assert_fails(named.exporter, "refused")


def test_name_service_silent(named: Named) -> None:
    exporter = named.exporter
    named.surroundings.resolve("127.0.0.1")
    with named.server("127.0.0.1"):
        exporter.wait_until_up()
        threads = _threads(exporter)
        with named.surroundings.silent():
            assert_fails(exporter, "timeout", more=4)
            assert _threads(exporter) <= threads + 1
        exporter.wait_until_up()
        with named.surroundings.silent():
            assert_fails(exporter, "timeout")
            exporter.assert_ends(within=5.0)


def _threads(exporter: RunningExporter) -> int:
    return len(list(Path(f"/proc/{exporter.pid}/task").iterdir()))


def test_connect_blackholed() -> None:
    with contextlib.ExitStack() as stack:
        # A listener that accepts nobody, with a full queue: whoever connects now hears
        # nothing.
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = full.getsockname()
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        exporter = stack.enter_context(
            running_exporter("--vllm.url", f"http://127.0.0.1:{address[1]}", *STEADY)
        )
        assert_fails(exporter, "timeout")
        full.close()
        server = FaultyServer(replay())
        server.port = address[1]
        stack.enter_context(server)
        exporter.wait_until_up()


def test_unix_socket_missing(tmp_path: Path) -> None:
    path = tmp_path / "vllm.sock"
    with running_exporter("--vllm.url", f"unix:{path}", *STEADY) as exporter:
        assert_fails(exporter, "refused")
        with FaultyServer(replay(), unix=path):
            exporter.wait_until_up()
        # What a killed server leaves behind: a file, and nobody behind it.
        assert path.exists()
        assert_fails(exporter, "refused")
