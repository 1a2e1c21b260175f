"""Who may connect: TLS, client certificates, and clients that do not do as they should."""

import contextlib
import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.certificates import Authority
from support.exporter import RunningExporter
from webconfig.https import MUTUAL, TLS, address_of, ask, client_context, connect, guarded, write
from webconfig.pki import NAMES, Pki

pytestmark = pytest.mark.full

#: A client is not let in: what that looks like depends on when it is told.
REFUSED = (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)


class TestTls:
    def test_https(self, pki: Pki) -> None:
        """Everything is served over TLS, over one connection, and over nothing else."""
        with guarded(pki, {"tls_server_config": TLS}) as exporter:
            context = client_context(pki)
            connection = connect(exporter, context)
            connection.connect()
            first = connection.sock
            for path in ("/", "/metrics", "/-/ready"):
                connection.request("GET", path)
                answer = connection.getresponse()
                assert (answer.status, answer.read() != b"") == (200, True)
            assert connection.sock is first
            connection.close()
            with pytest.raises((ConnectionError, http.client.BadStatusLine)):
                ask(exporter, "/metrics")


def _tls(exporter: RunningExporter, context: ssl.SSLContext) -> ssl.SSLSocket:
    connection = socket.create_connection(address_of(exporter), timeout=30)
    return context.wrap_socket(connection, server_hostname="127.0.0.1")


# --- certificates of clients


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


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("NoClientCert", {"none", "good", "expired", "stranger's", "self-signed"}),
        ("RequestClientCert", {"none", "good", "expired", "stranger's", "self-signed"}),
        ("VerifyClientCertIfGiven", {"none", "good"}),
        ("RequireAndVerifyClientCert", {"good"}),
    ],
)
def test_whose_certificate(shared: Pki, tmp_path: Path, kind: str, expected: set[str]) -> None:
    """Each kind of authentication lets in whom it should; a CA is known by its key, not by its name."""
    impostor = Authority(tmp_path, "clients")
    shown = {
        "none": None,
        "good": shared.clients.issue("prometheus.example"),
        "expired": shared.clients.issue("prometheus.example", expired=True),
        "stranger's": shared.strangers.issue("prometheus.example"),
        "self-signed": shared.self_signed(NAMES["DNS"][1]),
    }
    verifies = "Verify" in kind
    settings = {**TLS, "client_auth_type": kind, **({"client_ca_file": "clients.pem"} if verifies else {})}
    with guarded(shared, {"tls_server_config": settings}) as exporter:
        for top in ("TLSv1_2", "TLSv1_3"):
            found = {name for name, files in shown.items() if _lets_in(exporter, shared, files, top)}
            assert found == expected, top
        assert _lets_in(exporter, shared, impostor.issue("prometheus.example")) is not verifies
        lines = [line["msg"] for line in exporter.log_lines()]

    assert set(lines) == {"web configuration", "listening", "waiting for the server"}


def test_allowed_names(shared: Pki) -> None:
    """A certificate of the CA is not enough: it must have one of the names, and wholly."""
    text, name = NAMES["URI"]
    own = Path(shared.self_signed(name)[0])
    (shared.folder / "own.pem").write_bytes(own.read_bytes() + shared.clients.file.read_bytes())
    settings = {**MUTUAL, "client_ca_file": "own.pem", "client_allowed_sans": ["other.example", text]}
    with guarded(shared, {"tls_server_config": settings}) as exporter:
        for top in ("TLSv1_2", "TLSv1_3"):
            found = [
                _lets_in(exporter, shared, files, top)
                for files in (
                    (str(own), str(own.with_suffix(".key"))),
                    shared.clients.issue("x.example", "other.example"),
                    shared.clients.issue("grafana.example"),
                    shared.clients.issue("sub.other.example", "192.0.2.70"),
                    None,
                )
            ]
            assert found == [True, True, False, False, False], top


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


def test_an_intermediate_may_be_trusted_alone(shared: Pki) -> None:
    """As in Go, whoever is in the CA file is trusted, with no need for a root above it."""
    folder = shared.folder
    certificate, _ = shared.strangers.issue("prometheus.example")
    settings = {**MUTUAL, "client_ca_file": Path(certificate).name}
    write(folder / "web.yml", {"tls_server_config": settings})
    with guarded(shared, {"tls_server_config": settings}) as exporter:
        assert _lets_in(exporter, shared, (certificate, certificate.replace(".pem", ".key")))
        assert not _lets_in(exporter, shared, shared.clients.issue("prometheus.example"))


# --- the end


def _open(exporter: RunningExporter, pki: Pki) -> Iterator[socket.socket]:
    """Yield connections in every state that a client can leave them in."""
    context = client_context(pki)
    yield socket.create_connection(address_of(exporter))
    half = socket.create_connection(address_of(exporter))
    half.sendall(b"\x16\x03\x01\x02\x00\x01")
    yield half
    idle = _tls(exporter, context)
    idle.sendall(b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n")
    assert idle.recv(1000).startswith(b"HTTP/1.1 200")
    yield idle
    asking = _tls(exporter, context)
    asking.sendall(b"GET /metrics HTTP/1.1\r\nHo")
    yield asking
    yield _tls(exporter, context)


def test_sigterm_with_open_connections(pki: Pki) -> None:
    """Connections that are open, half open or within their handshake do not hold up the end."""
    with guarded(pki, {"tls_server_config": TLS}) as exporter, contextlib.ExitStack() as stack:
        for connection in _open(exporter, pki):
            stack.enter_context(connection)
        time.sleep(0.2)
        code, seconds = exporter.terminate()

        assert code == 0
        assert seconds < 15
        assert exporter.log_lines()[-1]["msg"] == "stopping"
        assert "Traceback" not in exporter.log()
