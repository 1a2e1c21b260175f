"""Who may send alerts: a bearer token (RFC 6750) from a file, compared in constant time."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from . import decision, payload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from prometheus_client.registry import Collector

    from .decision import Request


_LONGEST = 64 * 1024


class TokenError(Exception):
    """A token file that holds no usable token. The message is one line that says why."""


class TokenFile:
    """The token in a file, read anew when the file changes.

    Args:
        path: the file; its content without the white space around it is the token.

    Raises:
        TokenError: it cannot be read, or holds no token.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = b""
        self._refresh()

    def accepts(self, header: str) -> bool:
        """Tell whether the value of an Authorization header carries the token.

        Raises:
            TokenError: the file changed to something that holds no usable token; then nobody is accepted.
        """
        self._refresh()
        scheme, _, credentials = header.partition(" ")
        given = credentials.strip().encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, self._token) and scheme.lower() == "bearer"

    def _refresh(self) -> None:
        try:
            found = self._path.stat()
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
            if stamp == self._seen:
                return
            with self._path.open("rb") as stream:
                body = stream.read(_LONGEST + 1)
        except OSError as error:
            self._seen = None
            raise TokenError(f"cannot be read: {error.strerror}") from error
        token = body.strip()
        if not token or len(body) > _LONGEST or not all(0x21 <= byte <= 0x7E for byte in token):
            self._seen = None
            raise TokenError("holds no token: one word of printable ASCII is expected")
        self._token, self._seen = token, stamp


def is_loopback(host: str) -> bool:
    """Tell whether an address to listen on is for this machine alone; an empty one is for all."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


#: The largest payload that is taken, in bytes.
MOST_BYTES = 1024 * 1024
#: Seconds that a client may take to send it.
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Receiver:
    """What stands behind the server.

    Attributes:
        offer: takes the requests of one payload, all or none, and tells whether it did.
        token: who may send alerts; ``None`` for everybody who can reach the server.
        metrics: what `/metrics` shows.
        complain: gets a line about a token file that cannot be used.
    """

    offer: Callable[[tuple[Request, ...]], bool]
    token: TokenFile | None
    metrics: Collector
    complain: Callable[[str], None]


RECEIVER: web.AppKey[Receiver] = web.AppKey("receiver")


def create_app(receiver: Receiver) -> web.Application:
    """Return the application: alerts need the token, health and metrics do not."""
    app = web.Application(client_max_size=MOST_BYTES)
    app[RECEIVER] = receiver
    registry = CollectorRegistry()
    registry.register(receiver.metrics)
    app.router.add_post("/", _take)
    app.router.add_post("/alerts", _take)
    app.router.add_get("/-/healthy", _healthy)
    app.router.add_get("/-/ready", _ready)
    app.router.add_get("/metrics", make_aiohttp_handler(registry))
    return app


async def _take(request: web.Request) -> web.Response:
    receiver = request.app[RECEIVER]
    refusal = _refusal(request, receiver)
    if refusal is not None:
        return refusal
    try:
        async with asyncio.timeout(_PATIENCE):
            body = await request.read()
        alerts = payload.decode(body)
    except TimeoutError:
        return _answer(408, "the payload did not come in time")
    except web.HTTPRequestEntityTooLarge:
        return _answer(413, f"a payload has at most {MOST_BYTES} bytes")
    except (ConnectionError, web.RequestPayloadError):
        return _answer(400, "the payload did not come whole")
    except payload.PayloadError as error:
        return _answer(400, str(error))
    if not receiver.offer(decision.read(alerts)):
        # Alertmanager sends again what was answered with 5xx.
        return _answer(503, "too many alerts are waiting already, or act is stopping")
    return _answer(200, f"{len(alerts)} taken")


def _refusal(request: web.Request, receiver: Receiver) -> web.Response | None:
    """Return the answer to a request that is not even read, ``None`` for one that is."""
    if "Origin" in request.headers:  # a web page somewhere must not reach what listens on loopback
        return _answer(403, "browsers are not served")
    if receiver.token is not None:
        try:
            accepted = receiver.token.accepts(request.headers.get("Authorization", ""))
        except TokenError as error:
            receiver.complain(f"--web.token-file {error}; no alerts are taken")
            return _answer(503, "the token file cannot be used")
        if not accepted:
            challenge = {"WWW-Authenticate": 'Bearer realm="vllm-specdec-exporter act"'}
            return _answer(401, "the bearer token of --web.token-file is needed", challenge)
    if request.content_type != "application/json" or "Content-Encoding" in request.headers:
        return _answer(415, "the payload is application/json, not compressed")
    return None


async def _healthy(_request: web.Request) -> web.Response:
    return web.Response(text="healthy\n")


async def _ready(_request: web.Request) -> web.Response:
    return web.Response(text="ready\n")


def _answer(status: int, line: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=f"{line}\n", headers=headers)
