"""The HTTP server of `act`: the webhook, protected by a bearer token, health and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler

from ...config.files import TokenError, is_authorized, read_token
from ...serve.daemon_threads import SharedThreads
from .decision import Decision, decide

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


#: Bytes of a payload: aiohttp's own limit, some kilobytes for each of its alerts.
MAX_PAYLOAD_BYTES = 1024 * 1024
#: Seconds that a client may take to send it: Alertmanager gives up after some seconds.
_READ_TIMEOUT = 30.0


class WebhookReceiver:
    """The endpoints. Alerts need the token; health and metrics do not.

    Args:
        offer: queues the decisions of one payload, all or none, and returns whether it did.
        token_file: read at each request; ``None`` to accept every client.
        on_warning: called with a line about a token file that cannot be used.
    """

    def __init__(
        self,
        offer: Callable[[tuple[Decision, ...]], bool],
        token_file: str | None,
        on_warning: Callable[[str], None],
    ) -> None:
        self._offer, self._token_file, self._on_warning = offer, token_file, on_warning
        self._threads = SharedThreads()
        self._last_warning = ""  # it is not repeated: clients could fill the log

    def create_app(self, registry: CollectorRegistry) -> web.Application:
        """Return the application, with the metrics of a registry."""
        app = web.Application(client_max_size=MAX_PAYLOAD_BYTES)
        app.router.add_post("/", self._receive)
        app.router.add_post("/alerts", self._receive)
        app.router.add_get("/-/healthy", _probe)
        app.router.add_get("/-/ready", _probe)
        app.router.add_get("/metrics", make_aiohttp_handler(registry))
        return app

    async def _receive(self, request: web.Request) -> web.Response:
        if (refusal := await self._refusal(request)) is not None:
            return refusal
        try:
            async with asyncio.timeout(_READ_TIMEOUT):
                body = await request.read()
            decisions = decide(body)
        except (TimeoutError, ConnectionError, web.RequestPayloadError):
            return _answer(400, "the payload did not come whole, or not in time")
        except ValueError as error:
            return _answer(400, str(error))
        if not self._offer(decisions):
            # Alertmanager retries after a 5xx response.
            return _answer(503, "too many alerts are waiting already, or act is stopping")
        return _answer(200, f"{len(decisions)} accepted")

    async def _refusal(self, request: web.Request) -> web.Response | None:
        """Return the response to a request whose body is not read; ``None`` if it is."""
        if "Origin" in request.headers:  # a web page must not reach a loopback listener
            return _answer(403, "browsers are not served")
        try:
            file = self._token_file
            token = None if file is None else await self._threads.read(read_token, file)
        except (TokenError, TimeoutError) as error:
            warning, self._last_warning = self._last_warning, f"--web.token-file {error}; no alerts are taken"
            if warning != self._last_warning:
                self._on_warning(self._last_warning)
            return _answer(503, "the token file cannot be used")
        if token is not None and not is_authorized(request.headers.get("Authorization", ""), token):
            response = _answer(401, "the bearer token of --web.token-file is needed")
            response.headers["WWW-Authenticate"] = 'Bearer realm="vllm-specdec-exporter act"'
            return response
        if request.content_type != "application/json" or "Content-Encoding" in request.headers:
            return _answer(415, "the payload is application/json, not compressed")
        return None


async def _probe(request: web.Request) -> web.Response:
    return _answer(200, request.path.removeprefix("/-/"))


def _answer(status: int, line: str) -> web.Response:
    return web.Response(status=status, text=f"{line}\n")
