"""The command `health`, for the health checks of containers: whether the exporter on
this machine is alive.

It reads the listen address from the settings of `serve`, so it needs no flags in the
same environment. It starts in a few hundredths of a second, because it imports only a
small part of the standard library.
"""

import argparse
import os
import socket
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from ..config.listen_address import format_address, loopback_hosts
from ..config.options import ConfigError, Option, add_flags
from ..settings.web_options import WEB_OPTIONS, add_config_file, web_values
from .exit_codes import FINE, PROBLEM, USAGE

#: Deadline of the whole check, in seconds.
TIMEOUT_SECONDS = 3.0
_REQUEST = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_MAX_BYTES = 4096


class ProbeResult(NamedTuple):
    """The result of a request."""

    alive: bool  # whether the exporter is alive
    text: str  # one line for the output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `health`: those of `serve` for the listen address."""
    parser.epilog = (
        f"Exit codes: {FINE} alive; {PROBLEM} no response, or a poll loop has ended; "
        f"{USAGE} bad usage."
    )
    add_config_file(parser)
    add_flags(parser, WEB_OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Write whether the exporter is alive; return the exit code."""
    end = time.monotonic() + TIMEOUT_SECONDS
    try:
        address, web_config = web_values(vars(args), os.environ, _option_table)
    except ConfigError as error:
        result = ProbeResult(alive=False, text=str(error))
    else:
        result = probe(address, may_be_tls=bool(web_config), end=end)
    text = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for letter in result.text
    )
    (sys.stdout if result.alive else sys.stderr).write(f"{text}\n")
    if result.alive:
        return FINE
    return PROBLEM


def _option_table() -> Sequence[Option]:
    from ..settings.option_table import OPTIONS  # here: it is slow

    return OPTIONS


def probe(address: tuple[str, int], *, may_be_tls: bool, end: float) -> ProbeResult:
    """Send a request to the exporter that listens on `address`, before `end` on the
    monotonic clock.

    A wildcard means this machine. With a web configuration file (`may_be_tls`), TLS is
    turned on and off at run time.
    """
    host, port = address
    problems = []
    for name in loopback_hosts(host):
        for tls in (True, False) if may_be_tls else (False,):
            scheme = "https" if tls else "http"
            url = f"{scheme}://{format_address(name, port)}/-/healthy"
            # Another address or scheme is tried only where no exporter has responded.
            try:
                alive, text = _request(name, port, tls=tls, end=end)
            except TimeoutError:
                problems.append(f"{url}: no response within {TIMEOUT_SECONDS:g} s")
            except (OSError, UnicodeError) as error:  # the latter: no valid host name
                why = getattr(error, "strerror", None) or error
                problems.append(f"{url}: {why}")
            else:
                return ProbeResult(alive=alive, text=f"{url}: {text}")
    return ProbeResult(alive=False, text=problems[0])


def _request(host: str, port: int, *, tls: bool, end: float) -> tuple[bool, str]:
    """Return whether the exporter is alive, and its words; OSError without any."""
    with socket.create_connection((host, port), _left(end)) as connection:
        if tls:
            response = _exchange_tls(connection, end)
        else:
            response = _exchange(connection, end)
    if response is None:
        return True, "alive; it requires a client certificate"
    head, _, body = response.decode("utf-8", "replace").partition("\r\n\r\n")
    words = head.split("\r\n", 1)[0].split(" ", 2)
    if not words[0].startswith("HTTP/1.") or len(words) < 2:
        raise OSError("not an HTTP response")
    text = body.strip().partition("\n")[0]
    if words[1] != "200":
        return False, f"status {words[1]}: {text}"
    return True, text or "healthy"


def _exchange(connection: socket.socket, end: float) -> bytes:
    connection.settimeout(_left(end))
    connection.sendall(_REQUEST)
    response = b""
    while len(response) < _MAX_BYTES:
        connection.settimeout(_left(end))
        block = connection.recv(_MAX_BYTES)
        if not block:
            break
        response += block
    return response


def _exchange_tls(connection: socket.socket, end: float) -> bytes | None:
    """Return the response, or `None` if the server ended the connection after it had
    chosen a cipher.

    That is what it does with a client that has no certificate where one is required.
    """
    import ssl  # imported only for TLS

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The connection stays on this machine. Not from `upstream.connection`, whose
    # imports are slow.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection.settimeout(_left(end))
    with context.wrap_socket(connection, do_handshake_on_connect=False) as wrapped:
        try:
            wrapped.do_handshake()
            return _exchange(wrapped, end) or None
        except TimeoutError:
            raise
        except (ssl.SSLError, ConnectionError) as error:
            if wrapped.cipher() is not None:
                return None
            reason = getattr(error, "reason", None) or error.strerror or error
            raise OSError(f"TLS failed ({reason})") from error


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
