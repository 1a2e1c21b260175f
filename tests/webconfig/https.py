"""An exporter with a web configuration, and a client for it."""

import base64
import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from support.exporter import (
    NO_SERVER,
    Answer,
    RunningExporter,
    request,
    running_exporter,
)
from support.programs import eventually
from webconfig.pki import Pki, serial_of

#: What a web configuration says for TLS with the files of `Pki`.
TLS = {"cert_file": "server.pem", "key_file": "server.key"}
HTTPS = {"tls_server_config": TLS}
MUTUAL = {
    **TLS,
    "client_auth_type": "RequireAndVerifyClientCert",
    "client_ca_file": "clients.pem",
}
MUTUAL_HTTPS = {"tls_server_config": MUTUAL}


def write(path: Path, document: Mapping[str, Any] | str) -> Path:
    """Write a web configuration in one step."""
    if isinstance(document, str):
        text = document
    else:
        text = yaml.safe_dump(dict(document))
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    return new.replace(path)


@contextlib.contextmanager
def guarded(
    pki: Pki, document: Mapping[str, Any] | str, *args: str, **more: Any
) -> Iterator[RunningExporter]:
    """Run the real command with a web configuration beside the files of `pki`.

    It is handed out once its first poll is over: what the log says from then on is said
    of the web.
    """
    path = write(pki.folder / "web.yml", document)
    with running_exporter(
        *NO_SERVER, "--web.config.file", str(path), *args, **more
    ) as exporter:
        eventually(lambda: "waiting for the server" in exporter.log())
        yield exporter


def client_context(
    pki: Pki, certificate: tuple[str, str] | None = None
) -> ssl.SSLContext:
    """Return what trusts the server, and shows a certificate."""
    context = ssl.create_default_context(cafile=str(pki.ca.file))
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


def connect(
    exporter: RunningExporter, context: ssl.SSLContext | None
) -> http.client.HTTPConnection:
    """Return a connection, over TLS with a context."""
    host, port = address_of(exporter)
    if context is None:
        return http.client.HTTPConnection(host, port, timeout=240)
    return http.client.HTTPSConnection(host, port, timeout=240, context=context)


def ask(
    exporter: RunningExporter,
    path: str,
    context: ssl.SSLContext | None = None,
    user: tuple[str, str] | None = None,
    method: str = "GET",
    **headers: str,
) -> Answer:
    """Ask over a connection of its own."""
    if user is not None:
        headers["Authorization"] = basic(*user)
    return request(exporter.url + path, method, 240, tls=context, **headers)


def basic(user: str, password: str) -> str:
    """The value of an ``Authorization`` header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def address_of(exporter: RunningExporter) -> tuple[str, int]:
    """Where the exporter listens."""
    host, port = exporter.url.removeprefix("http://").split(":")
    return host, int(port)


def tls_socket(
    exporter: RunningExporter, context: ssl.SSLContext, **more: Any
) -> ssl.SSLSocket:
    """Connect over TLS, with `more` as `SSLContext.wrap_socket` has it."""
    raw = socket.create_connection(address_of(exporter), timeout=60)
    return context.wrap_socket(raw, server_hostname="127.0.0.1", **more)


def shown(exporter: RunningExporter, context: ssl.SSLContext) -> int:
    """The serial number of the certificate that the exporter shows."""
    with tls_socket(exporter, context) as connection:
        return serial_of(connection.getpeercert(binary_form=True) or b"")
