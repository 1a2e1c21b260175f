"""Faults between the exporter and the server: names, addresses, sockets, TLS."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from faults.rig import STEADY, Surroundings, assert_alive, new_errors
from support.certificates import Authority, server_side
from support.exporter import Metrics, running_exporter
from support.faulty_server import FaultyServer, raw, replay
from support.programs import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.exporter import RunningExporter

pytestmark = pytest.mark.full


def _failed(exporter: RunningExporter, reason: str, more: int = 2) -> Metrics:
    """Wait until polls have failed under this reason again, and under no other meanwhile."""
    before = exporter.metrics()
    least = before.errors().get(reason, 0) + more
    after = exporter.wait_for(lambda m: m if m.errors().get(reason, 0) >= least else None)
    assert after.value("up") == 0
    assert after.of_engines() == set()
    assert new_errors(before, after) == {reason}
    assert_alive(exporter)
    return after


@contextlib.contextmanager
def _named(surroundings: Surroundings, port: int) -> Iterator[RunningExporter]:
    """An exporter that knows its server by name."""
    with running_exporter(
        "--vllm.url", f"http://vllm.test:{port}", *STEADY, env=surroundings.env
    ) as exporter:
        yield exporter


def test_name_unknown(surroundings: Surroundings) -> None:
    with FaultyServer(replay()) as server, _named(surroundings, server.port) as exporter:
        _failed(exporter, "unreachable")
        surroundings.resolve("127.0.0.1")
        exporter.wait_until_up()
        assert_alive(exporter)


def test_name_moves(surroundings: Surroundings) -> None:
    surroundings.resolve("127.0.0.1")
    with FaultyServer(replay()) as old, _named(surroundings, old.port) as exporter:
        exporter.wait_until_up()
        old.refuse()
        _failed(exporter, "refused")
        new = FaultyServer(replay(), host="127.0.0.2")
        new.port = old.port
        with new:
            surroundings.resolve("127.0.0.2")
            exporter.wait_until_up()
            assert new.polls()


def test_name_service_silent(surroundings: Surroundings) -> None:
    surroundings.resolve("127.0.0.1")
    with FaultyServer(replay()) as server, _named(surroundings, server.port) as exporter:
        exporter.wait_until_up()
        threads = _threads(exporter)
        with surroundings.silent():
            _failed(exporter, "timeout", more=5)
            assert _threads(exporter) <= threads + 1
        exporter.wait_until_up()
        with surroundings.silent():
            _failed(exporter, "timeout")
            code, seconds = exporter.terminate()
        assert code == 0
        assert seconds < 5.0


def _threads(exporter: RunningExporter) -> int:
    return len(list(Path(f"/proc/{exporter.pid}/task").iterdir()))


def test_connect_blackholed() -> None:
    with contextlib.ExitStack() as stack:
        # A listener that accepts nobody, with a full queue: whoever connects now hears nothing.
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = full.getsockname()
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        exporter = stack.enter_context(
            running_exporter("--vllm.url", f"http://127.0.0.1:{address[1]}", *STEADY)
        )
        _failed(exporter, "timeout")
        full.close()
        server = FaultyServer(replay())
        server.port = address[1]
        stack.enter_context(server)
        exporter.wait_until_up()


def test_ipv6_only(surroundings: Surroundings) -> None:
    surroundings.resolve("127.0.0.1", "::1")
    with FaultyServer(replay(), host="::1") as server, _named(surroundings, server.port) as exporter:
        exporter.wait_until_up()
        assert exporter.metrics().errors() == {}
        server.refuse()
        _failed(exporter, "refused")
        server.listen()
        exporter.wait_until_up()


def test_unix_socket_missing(tmp_path: Path) -> None:
    path = tmp_path / "vllm.sock"
    with running_exporter("--vllm.url", f"unix:{path}", *STEADY) as exporter:
        _failed(exporter, "refused")
        with FaultyServer(replay(), unix=path):
            exporter.wait_until_up()
        # What a killed server leaves behind: a file, and nobody behind it.
        assert path.exists()
        _failed(exporter, "refused")


# --- TLS


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


@contextlib.contextmanager
def _trusting(server: FaultyServer, file: Path) -> Iterator[RunningExporter]:
    with running_exporter("--vllm.url", server.url, "--vllm.ca-file", str(file), *STEADY) as exporter:
        yield exporter


@pytest.mark.parametrize(
    ("host", "expired"),
    [
        pytest.param("127.0.0.1", True, id="certificate_expired"),
        pytest.param("other.example", False, id="certificate_of_another"),
    ],
)
def test_certificate(authority: Authority, host: str, expired: bool) -> None:
    context = server_side(authority.issue(host, expired=expired))
    with FaultyServer(replay(), tls=context) as server, _trusting(server, authority.file) as exporter:
        _failed(exporter, "tls")
        assert server.polls() == []
        context.load_cert_chain(*authority.issue("127.0.0.1"))  # as a server takes its renewed certificate
        exporter.wait_until_up()


def test_authority_unknown(authority: Authority, tmp_path: Path) -> None:
    strangers = Authority(tmp_path, "strangers")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(strangers.file.read_bytes())
    files = authority.issue("127.0.0.1")
    with FaultyServer(replay(), tls=server_side(files)) as server, _trusting(server, trusted) as exporter:
        _failed(exporter, "tls")
        new = tmp_path / "new.pem"
        new.write_bytes(authority.file.read_bytes())
        new.replace(trusted)
        exporter.wait_until_up()
        assert_alive(exporter)


def test_trusted_file_half_written(authority: Authority, tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.pem"
    whole = authority.file.read_bytes()
    trusted.write_bytes(whole)
    files = authority.issue("127.0.0.1")
    with FaultyServer(replay(), tls=server_side(files)) as server, _trusting(server, trusted) as exporter:
        exporter.wait_until_up()
        trusted.write_bytes(whole[: len(whole) // 2])
        eventually(lambda: exporter.log_lines("certificates not reloaded"))
        polled = len(server.polls())
        eventually(lambda: len(server.polls()) > polled + 2)
        assert exporter.metrics().errors() == {}
        assert len(exporter.log_lines("certificates not reloaded")) == 1
        trusted.write_bytes(whole)
        eventually(lambda: len(server.polls()) > polled + 4)
        assert exporter.metrics().errors() == {}
        assert_alive(exporter)


def test_plain_http_behind_https() -> None:
    # What uvicorn says to a TLS handshake.
    plain = raw(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", reads_request=False)
    with FaultyServer(plain) as server:
        url = server.url.replace("http", "https")
        with running_exporter("--vllm.url", url, *STEADY) as exporter:
            _failed(exporter, "tls")
