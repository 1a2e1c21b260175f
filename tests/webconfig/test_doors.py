"""Who comes in while the rules on clients change, and who stays too long without asking."""

import contextlib
import select
import shutil
import socket
import ssl
import time

import pytest

from support.exporter import RunningExporter
from support.programs import eventually
from webconfig.https import MUTUAL, address_of, client_context, guarded, write
from webconfig.pki import Pki
from webconfig.test_connections import REFUSED

pytestmark = pytest.mark.full

SOON = 90.0
RELOADED = "web configuration reloaded"
ASKED = b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n"
STAGES = ("connected", "has the server's hello", "finished its handshake")


def _client(exporter: RunningExporter, context: ssl.SSLContext, stage: str) -> ssl.SSLSocket:
    """Connect, and go as far as `stage`."""
    raw = socket.create_connection(address_of(exporter), timeout=60)
    client = context.wrap_socket(raw, server_hostname="127.0.0.1", do_handshake_on_connect=False)
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
    with guarded(pki, {"tls_server_config": MUTUAL}) as exporter, contextlib.ExitStack() as stack:
        clients = {}
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = client_context(pki, pki.clients.issue("prometheus.example"))
            context.maximum_version = version
            for stage in STAGES:
                clients[version, stage] = stack.enter_context(_client(exporter, context, stage))
        shutil.copy(pki.strangers.file, pki.folder / "clients.pem")
        eventually(lambda: exporter.log_lines(RELOADED), SOON)

        assert [name for name, client in clients.items() if _answer(client) != b""] == []
        assert {line["level"] for line in exporter.log_lines()} == {"info"}


def test_clients_that_still_may(pki: Pki) -> None:
    """Where only the server's certificate is new, nobody is turned away; the answer is the last."""
    context = client_context(pki, pki.clients.issue("prometheus.example"))
    with guarded(pki, {"tls_server_config": MUTUAL}) as exporter, contextlib.ExitStack() as stack:
        clients = {stage: stack.enter_context(_client(exporter, context, stage)) for stage in STAGES}
        pki.renew()
        eventually(lambda: exporter.log_lines(RELOADED), SOON)
        for stage, client in clients.items():
            answer = _answer(client)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), stage
            assert b"\r\nConnection: close\r\n" in answer, stage
            with contextlib.suppress(ConnectionError):
                assert client.recv(4096) == b"", stage


def test_plain_connections_end_where_tls_begins(pki: Pki) -> None:
    """Who is connected without TLS, and has asked nothing, has no way around it."""
    with guarded(pki, "") as exporter, socket.create_connection(address_of(exporter), timeout=30) as plain:
        time.sleep(0.2)
        write(pki.folder / "web.yml", {"tls_server_config": MUTUAL})
        eventually(lambda: exporter.log_lines(RELOADED), SOON)
        with contextlib.suppress(ConnectionError):
            plain.sendall(ASKED)
            assert plain.recv(100) == b""
