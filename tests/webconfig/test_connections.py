"""Clients of a web configuration: whom it lets in, also while it changes, and the end
with them.
"""

import contextlib
import http.client
import select
import shutil
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from faults.rig import Surroundings, get
from support.exporter import RunningExporter
from support.programs import eventually
from webconfig.https import (
    HTTPS,
    MUTUAL_HTTPS,
    address_of,
    ask,
    client_context,
    guarded,
    tls_socket,
    write,
)
from webconfig.pki import Pki, hashed

pytestmark = pytest.mark.full

#: A client is not let in: what that looks like depends on when it is told.
REFUSED = (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)
#: Seconds within which the process must end: fewer than a hash of cost 18, or the read
#: that hangs, takes.
PROMPT = 15.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("clients"))


def test_a_session_resumed(shared: Pki) -> None:
    """A client that resumes a session is still who it was, and only that."""
    with guarded(shared, MUTUAL_HTTPS) as exporter:
        context = client_context(shared, shared.clients.issue("prometheus.example"))
        # In TLS 1.3, the ticket to resume a session comes after the handshake.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        session = None
        connected = []
        for _ in range(2):
            with tls_socket(exporter, context, session=session) as connection:
                connection.sendall(get("/-/ready", "Connection: close"))
                connected.append((connection.recv(12), connection.session_reused))
                session = connection.session

    assert connected == [(b"HTTP/1.1 200", False), (b"HTTP/1.1 200", True)]


def test_sigterm_with_open_connections(pki: Pki) -> None:
    """Connections that are open, half open or within their handshake do not hold up the
    end.
    """
    with guarded(pki, HTTPS) as exporter, contextlib.ExitStack() as stack:
        raw = [
            stack.enter_context(socket.create_connection(address_of(exporter)))
            for _ in range(5)
        ]
        raw[1].sendall(b"\x16\x03\x01\x02\x00\x01")  # a handshake that does not go on
        idle, asking, _ = [
            stack.enter_context(
                client_context(pki).wrap_socket(connection, server_hostname="127.0.0.1")
            )
            for connection in raw[2:]
        ]
        idle.sendall(ASKED)
        assert idle.recv(1000).startswith(b"HTTP/1.1 200")
        asking.sendall(b"GET /metrics HTTP/1.1\r\nHo")
        # until the server has read what came
        time.sleep(0.2)
        exporter.assert_ends(within=PROMPT)


# --- clients while the rules on them change


RELOADED = "web configuration reloaded"
ASKED = get("/-/ready")
STAGES = ("connected", "has the server's hello", "finished its handshake")


def _client(
    exporter: RunningExporter, context: ssl.SSLContext, stage: str
) -> ssl.SSLSocket:
    """Connect, and go as far as `stage`."""
    client = tls_socket(exporter, context, do_handshake_on_connect=False)
    if stage == STAGES[1]:
        client.setblocking(False)
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        select.select([client], [], [], 60)
        client.settimeout(60)
    elif stage == STAGES[2]:
        client.do_handshake()
        time.sleep(0.3)  # until the server knows
    return client


def _answer(client: ssl.SSLSocket) -> bytes:
    """Return the answer's head, nothing from a connection that has ended."""
    try:
        client.do_handshake()
        client.sendall(ASKED)
        return client.recv(4096)
    except REFUSED:
        return b""


def test_clients_that_may_come_in_no_more(pki: Pki) -> None:
    """However far a client had come when its CA was withdrawn, it gets no answer."""
    with guarded(pki, MUTUAL_HTTPS) as exporter, contextlib.ExitStack() as stack:
        clients = {}
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = client_context(pki, pki.clients.issue("prometheus.example"))
            context.maximum_version = version
            for stage in STAGES:
                clients[version, stage] = stack.enter_context(
                    _client(exporter, context, stage)
                )
        shutil.copy(pki.strangers.file, pki.folder / "clients.pem")
        eventually(lambda: exporter.log_lines(RELOADED), 90)

        assert [
            name for name, client in clients.items() if _answer(client) != b""
        ] == []
        assert {line["level"] for line in exporter.log_lines()} == {"info"}


def test_clients_that_still_may(pki: Pki) -> None:
    """Where only the server's certificate is new, nobody is turned away; the answer is
    the last.
    """
    context = client_context(pki, pki.clients.issue("prometheus.example"))
    with guarded(pki, MUTUAL_HTTPS) as exporter, contextlib.ExitStack() as stack:
        clients = {
            stage: stack.enter_context(_client(exporter, context, stage))
            for stage in STAGES
        }
        pki.renew()
        eventually(lambda: exporter.log_lines(RELOADED), 90)
        for stage, client in clients.items():
            answer = _answer(client)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), stage
            assert b"\r\nConnection: close\r\n" in answer, stage
            with contextlib.suppress(ConnectionError):
                assert client.recv(4096) == b"", stage


def test_plain_connections_end_where_tls_begins(pki: Pki) -> None:
    """Who is connected without TLS, and has asked nothing, has no way around it."""
    with (
        guarded(pki, "") as exporter,
        socket.create_connection(address_of(exporter), timeout=30) as plain,
    ):
        # until the server has accepted it
        time.sleep(0.2)
        write(pki.folder / "web.yml", MUTUAL_HTTPS)
        eventually(lambda: exporter.log_lines(RELOADED), 90)
        with contextlib.suppress(ConnectionError):
            plain.sendall(ASKED)
            assert plain.recv(100) == b""


# --- the end of the process


@pytest.mark.parametrize("cost", [10, 18])
def test_sigterm_while_passwords_are_checked(pki: Pki, cost: int) -> None:
    """Neither many short nor one long computation holds up the end, or makes it a
    crash.
    """
    with guarded(
        pki, {"basic_auth_users": {"alice": hashed("x", 4).replace("$04", f"${cost}")}}
    ) as exporter:

        def guess(number: int) -> None:
            try:
                ask(exporter, "/", user=("alice", f"{number}"))
            except (OSError, http.client.HTTPException):
                return

        guesses = [
            threading.Thread(target=guess, args=(number,)) for number in range(12)
        ]
        for thread in guesses:
            thread.start()
        # until some are being checked and the others wait
        time.sleep(0.25)
        exporter.assert_ends(within=PROMPT)
        for thread in guesses:
            thread.join()


def test_sigterm_while_a_file_hangs(pki: Pki, tmp_path: Path) -> None:
    """A disk that does not answer holds up neither requests nor the end."""
    surroundings = Surroundings(tmp_path)
    with guarded(pki, HTTPS, env=surroundings.env) as exporter:
        surroundings.hang(pki.folder / "server.key")
        eventually(lambda: surroundings.hangs)
        assert ask(exporter, "/metrics", client_context(pki)).status == 200
        exporter.assert_ends(within=PROMPT)
