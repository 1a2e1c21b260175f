"""The HTTP server of `act`: the webhook, protected by a bearer token, health and metrics."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from ...config.bearer_token import TokenError, is_authorized, read_token
from .decision import PayloadError, decode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from prometheus_client.registry import Collector

from .decision import Alert

#: Maximum size of a payload in bytes.
MAX_PAYLOAD_BYTES = 1024 * 1024
#: Seconds that a client may take to send it.
_READ_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class WebhookReceiver:
    """The endpoints. Alerts need the token; health and metrics do not."""

    #: Queues the alerts of one payload, all or none, and returns whether it did.
    offer: Callable[[tuple[Alert, ...]], bool]
    token_file: Path | None  # read at each request; ``None`` to accept every client
    metrics: Collector  # the metrics of `/metrics`
    on_warning: Callable[[str], None]  # called with a line about a token file that cannot be used

    def create_app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=MAX_PAYLOAD_BYTES)
        registry = CollectorRegistry()
        registry.register(self.metrics)
        app.router.add_post("/", self._receive)
        app.router.add_post("/alerts", self._receive)
        app.router.add_get("/-/healthy", _healthy)
        app.router.add_get("/-/ready", _ready)
        app.router.add_get("/metrics", make_aiohttp_handler(registry))
        return app

    async def _receive(self, request: web.Request) -> web.Response:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        try:
            async with asyncio.timeout(_READ_TIMEOUT):
                body = await request.read()
            alerts = decode(body)
        except TimeoutError:
            return _answer(408, "the payload did not come in time")
        except web.HTTPRequestEntityTooLarge:
            return _answer(413, f"a payload has at most {MAX_PAYLOAD_BYTES} bytes")
        except (ConnectionError, web.RequestPayloadError):
            return _answer(400, "the payload did not come whole")
        except PayloadError as error:
            return _answer(400, str(error))
        if not self.offer(alerts):
            # Alertmanager retries after a 5xx response.
            return _answer(503, "too many alerts are waiting already, or act is stopping")
        return _answer(200, f"{len(alerts)} taken")

    def _refusal(self, request: web.Request) -> web.Response | None:
        """Return the response to a request whose body is not read; ``None`` if it is."""
        if "Origin" in request.headers:  # a web page must not reach a loopback listener
            return _answer(403, "browsers are not served")
        if self.token_file is not None:
            try:
                token = read_token(self.token_file)
            except TokenError as error:
                self.on_warning(f"--web.token-file {error}; no alerts are taken")
                return _answer(503, "the token file cannot be used")
            if not is_authorized(request.headers.get("Authorization", ""), token):
                challenge = {"WWW-Authenticate": 'Bearer realm="vllm-specdec-exporter act"'}
                return _answer(401, "the bearer token of --web.token-file is needed", challenge)
        if request.content_type != "application/json" or "Content-Encoding" in request.headers:
            return _answer(415, "the payload is application/json, not compressed")
        return None


async def _healthy(_: web.Request) -> web.Response:
    return _answer(200, "healthy")


async def _ready(_: web.Request) -> web.Response:
    return _answer(200, "ready")


def _answer(status: int, line: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=f"{line}\n", headers=headers)
