"""Who may connect: TLS, client certificates, and clients that do not do as they should."""

import contextlib
import http.client
import socket
import ssl
import time

import pytest

from support.exporter import RunningExporter
from webconfig.https import MUTUAL, TLS, address_of, ask, client_context, guarded
from webconfig.pki import Pki

pytestmark = pytest.mark.full

#: A client is not let in: what that looks like depends on when it is told.
REFUSED = (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("clients"))


def _lets_in(
    exporter: RunningExporter, pki: Pki, certificate: tuple[str, str] | None, top: str = "TLSv1_3"
) -> bool:
    context = client_context(pki, certificate)
    context.maximum_version = ssl.TLSVersion[top]
    try:
        return ask(exporter, "/metrics", context).status == 200
    except REFUSED:
        return False


def test_allowed_names(shared: Pki) -> None:
    """A certificate of the CA is not enough: it must have one of the names, and wholly."""
    settings = {**MUTUAL, "client_allowed_sans": ["other.example", "192.0.2.7"]}
    with guarded(shared, {"tls_server_config": settings}) as exporter:
        for top in ("TLSv1_2", "TLSv1_3"):
            found = [
                _lets_in(exporter, shared, names and shared.clients.issue(*names), top)
                for names in (
                    ("192.0.2.7",),
                    ("x.example", "other.example"),
                    ("grafana.example",),
                    ("sub.other.example", "192.0.2.70"),
                    None,
                )
            ]
            assert found == [True, True, False, False, False], top
        lines = [line["msg"] for line in exporter.log_lines()]

    assert set(lines) == {"web configuration", "listening", "waiting for the server"}


def test_a_session_resumed(shared: Pki) -> None:
    """A client that resumes a session is still who it was, and only that."""
    settings = {**MUTUAL, "max_version": "TLS12", "client_allowed_sans": ["prometheus.example"]}
    with guarded(shared, {"tls_server_config": settings}) as exporter:
        context = client_context(shared, shared.clients.issue("prometheus.example"))
        session, reused = None, []
        for _ in range(2):
            raw = socket.create_connection(address_of(exporter), timeout=30)
            with context.wrap_socket(raw, server_hostname="127.0.0.1", session=session) as connection:
                connection.sendall(b"GET /-/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert connection.recv(100).startswith(b"HTTP/1.1 200")
                session = connection.session
                reused.append(connection.session_reused)

    assert reused == [False, True]


def test_sigterm_with_open_connections(pki: Pki) -> None:
    """Connections that are open, half open or within their handshake do not hold up the end."""
    with guarded(pki, {"tls_server_config": TLS}) as exporter, contextlib.ExitStack() as stack:
        raw = [stack.enter_context(socket.create_connection(address_of(exporter))) for _ in range(5)]
        raw[1].sendall(b"\x16\x03\x01\x02\x00\x01")  # a handshake that does not go on
        idle, asking, _ = [
            stack.enter_context(client_context(pki).wrap_socket(one, server_hostname="127.0.0.1"))
            for one in raw[2:]
        ]
        idle.sendall(b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(1000).startswith(b"HTTP/1.1 200")
        asking.sendall(b"GET /metrics HTTP/1.1\r\nHo")
        time.sleep(0.2)
        code, seconds = exporter.terminate()

        assert code == 0
        assert seconds < 15
        assert exporter.log_lines()[-1]["msg"] == "stopping"
        assert "Traceback" not in exporter.log()
