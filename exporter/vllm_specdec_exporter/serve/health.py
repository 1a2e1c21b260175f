"""`health`: is the exporter on this machine alive? For the health checks of containers, and nothing else.

It finds the exporter as `serve` would be told where to listen, so in the same environment it needs no flags.
It starts in a few hundredths of a second: it imports the standard library alone, and of that little.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..config.options import ConfigError, add_flags
from ..config.values import format_address, loopback_hosts
from .web_options import WEB_OPTIONS, add_config_file
from .web_values import web_values

if TYPE_CHECKING:
    import argparse


#: Seconds that all of it may take.
TIMEOUT_SECONDS = 3.0

_REQUEST = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_MAX_BYTES = 4096
_CERTIFICATE_REQUEST = 13  # RFC 8446, section 4


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What was found.

    Attributes:
        alive: whether it is alive.
        text: a line on that.
        answered: whether that is the exporter's own word, so that it need not be asked in another way.
    """

    alive: bool
    text: str
    answered: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the flags of `health`: those of `serve` that say where it listens."""
    parser.epilog = "Exit codes: 0 it answers; 1 it does not, or a poll loop has ended; 2 bad usage."
    add_config_file(parser)
    add_flags(parser, WEB_OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Say whether the exporter is alive; return the exit code."""
    end = time.monotonic() + TIMEOUT_SECONDS
    try:
        address, web_config = web_values(vars(args), os.environ)
    except ConfigError as error:
        finding = ProbeResult(alive=False, text=str(error))
    else:
        finding = probe(address, may_be_tls=bool(web_config), end=end)
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in finding.text)
    (sys.stdout if finding.alive else sys.stderr).write(f"{text}\n")
    return 0 if finding.alive else 1


def probe(address: tuple[str, int], *, may_be_tls: bool, end: float) -> ProbeResult:
    """Ask the exporter that listens on `address`.

    Args:
        address: host and port as they are listened on; a wildcard means this machine.
        may_be_tls: whether it has a web configuration, with which TLS may come and go while it runs.
        end: when to give up, on the monotonic clock.
    """
    host, port = address
    findings = []
    for name in loopback_hosts(host):
        for tls in (True, False) if may_be_tls else (False,):
            finding = _ask(name, port, tls=tls, end=end)
            if finding.answered:
                return finding
            findings.append(finding)
    return findings[0]


def _ask(host: str, port: int, *, tls: bool, end: float) -> ProbeResult:
    scheme = "https" if tls else "http"
    url = f"{scheme}://{format_address(host, port)}/-/healthy"
    try:
        with socket.create_connection((host, port), _left(end)) as connection:
            answer = _exchange_tls(connection, end) if tls else _exchange(connection, end)
    except TimeoutError:
        return ProbeResult(alive=False, text=f"{url}: no answer within {TIMEOUT_SECONDS:g} s")
    except (OSError, UnicodeError) as error:  # the latter of a name that cannot be one
        return ProbeResult(alive=False, text=f"{url}: {getattr(error, 'strerror', None) or error}")
    if answer is None:
        return ProbeResult(alive=True, text=f"{url}: alive; it wants a client certificate", answered=True)
    return _judge(url, answer)


def _judge(url: str, answer: bytes) -> ProbeResult:
    head, _, body = answer.decode("utf-8", "replace").partition("\r\n\r\n")
    words = head.split("\r\n", 1)[0].split(" ", 2)
    if not words[0].startswith("HTTP/1.") or len(words) < 2:
        return ProbeResult(alive=False, text=f"{url}: no answer in HTTP")
    said = body.strip().partition("\n")[0]
    if words[1] != "200":
        return ProbeResult(alive=False, text=f"{url}: status {words[1]}: {said}", answered=True)
    return ProbeResult(alive=True, text=f"{url}: {said or 'healthy'}", answered=True)


def _exchange(connection: socket.socket, end: float) -> bytes:
    connection.settimeout(_left(end))
    connection.sendall(_REQUEST)
    answer = b""
    while len(answer) < _MAX_BYTES:
        connection.settimeout(_left(end))
        block = connection.recv(_MAX_BYTES)
        if not block:
            break
        answer += block
    return answer


def _exchange_tls(connection: socket.socket, end: float) -> bytes | None:
    """Return the answer, or `None` where the server wants a certificate before it gives one."""
    import ssl  # here, for whoever has no TLS

    wanted = []

    def see(_connection: object, _way: str, _version: int, _kind: int, message: int, _data: bytes) -> None:
        if message == _CERTIFICATE_REQUEST:
            wanted.append(message)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # It is this machine, asked at its own address: there is nobody to be mistaken for it.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # Servers on asyncio hang up without the alert that would tell what they miss; so see what they ask for.
    context._msg_callback = see  # type: ignore[attr-defined]
    connection.settimeout(_left(end))
    try:
        with context.wrap_socket(connection) as wrapped:
            answer = _exchange(wrapped, end)
    except TimeoutError:
        raise
    except (ssl.SSLError, ConnectionError) as error:
        if wanted:
            return None
        reason = getattr(error, "reason", None) or error.strerror or error
        msg = f"no TLS with it ({reason})"
        raise OSError(msg) from error
    return answer if answer or not wanted else None


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
