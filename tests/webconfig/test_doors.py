"""Who comes in while the rules on clients change, and who stays too long without asking."""

import contextlib
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from typing import Self

import pytest

from support.exporter import RunningExporter
from support.programs import eventually
from webconfig.https import MUTUAL, address_of, client_context, guarded, write
from webconfig.pki import Pki
from webconfig.test_connections import REFUSED

pytestmark = pytest.mark.full

SOON = 90.0
RELOADED = "web configuration reloaded"


class Client:
    """A client that does its part of a handshake in steps."""

    def __init__(self, exporter: RunningExporter, context: ssl.SSLContext) -> None:
        self._raw = socket.create_connection(address_of(exporter), timeout=60)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")

    def hello(self) -> None:
        """Say hello, and take the server's answer, without going on."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        self._raw.sendall(self._out.read())
        self._in.write(self._raw.recv(65536))

    def finish(self) -> None:
        """Do the rest of the handshake."""
        self._until(self._tls.do_handshake)
        self._raw.sendall(self._out.read())

    def ask(self) -> bytes:
        """Return the answer's head, nothing from a connection that has ended."""
        try:
            if self._tls.version() is None or not self._tls.cipher():
                self.finish()
            self._tls.write(b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n")
            self._raw.sendall(self._out.read())
            return self._until(lambda: self._tls.read(4096))
        except (*REFUSED, ssl.SSLError):
            return b""

    def ended(self) -> bool:
        """Wait until the server says that it ends the connection, and nothing else."""
        try:
            return self._until(lambda: self._tls.read(4096)) == b""
        except (ConnectionError, ssl.SSLZeroReturnError):
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def _until(self, step: Callable[[], bytes | None]) -> bytes:
        while True:
            try:
                return step() or b""
            except ssl.SSLWantReadError:
                self._raw.sendall(self._out.read())
                received = self._raw.recv(65536)
                if not received:
                    raise ConnectionError("the end") from None
                self._in.write(received)


def _connected(_client: Client) -> None:
    """It is connected, and says nothing."""


def _finished(client: Client) -> None:
    client.hello()
    client.finish()
    time.sleep(0.3)  # until the server knows


STAGES: tuple[Callable[[Client], None], ...] = (_connected, Client.hello, _finished)


def test_clients_that_may_come_in_no_more(pki: Pki) -> None:
    """However far a client had come when its CA was withdrawn, it gets no answer."""
    with guarded(pki, {"tls_server_config": MUTUAL}) as exporter, contextlib.ExitStack() as stack:
        clients = []
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = client_context(pki, pki.clients.issue("prometheus.example"))
            context.maximum_version = version
            for stage in STAGES:
                client = stack.enter_context(Client(exporter, context))
                stage(client)
                clients.append((f"{version} {stage}", client))
        shutil.copy(pki.strangers.file, pki.folder / "clients.pem")
        eventually(lambda: exporter.log_lines(RELOADED), SOON)

        assert [name for name, client in clients if client.ask() != b""] == []
        assert {line["level"] for line in exporter.log_lines()} == {"info"}


def test_clients_that_still_may(pki: Pki) -> None:
    """Where only the server's certificate is new, nobody is turned away; the answer is the last."""
    context = client_context(pki, pki.clients.issue("prometheus.example"))
    with guarded(pki, {"tls_server_config": MUTUAL}) as exporter, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(exporter, context)) for _ in STAGES]
        for stage, client in zip(STAGES, clients, strict=True):
            stage(client)
        pki.renew()
        eventually(lambda: exporter.log_lines(RELOADED), SOON)
        for stage, client in zip(STAGES, clients, strict=True):
            answer = client.ask()
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), stage
            assert b"\r\nConnection: close\r\n" in answer, stage
            assert client.ended(), stage


def test_plain_connections_end_where_tls_begins(pki: Pki) -> None:
    """Who is connected without TLS, and has asked nothing, has no way around it."""
    with guarded(pki, "") as exporter, socket.create_connection(address_of(exporter), timeout=30) as plain:
        time.sleep(0.2)
        write(pki.folder / "web.yml", {"tls_server_config": MUTUAL})
        eventually(lambda: exporter.log_lines(RELOADED), SOON)
        with contextlib.suppress(ConnectionError):
            plain.sendall(b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n")
            assert plain.recv(100) == b""
