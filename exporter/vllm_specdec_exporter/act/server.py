"""The HTTP server: takes webhook payloads, and answers before anything is done about them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from . import decision, payload
from .authorization import TokenError

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.registry import Collector

    from .authorization import TokenFile
    from .decision import Request

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
