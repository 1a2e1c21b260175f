"""The client of the OpenAI endpoint: requests and their streamed responses.

Failures become an `EndpointError` if the endpoint does not work, and a `StreamedAnswer` with an error if one
request failed.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import aiohttp

from ...serve.upstream import AGENT, SessionClient, new_session
from ...serve.upstream_tls import tls_context
from .stream import Stream, StreamedAnswer, StreamError, error_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...serve.upstream_tls import UpstreamConfig
    from .grid import Request

#: Seconds to keep an idle connection: less than the five after which vLLM closes it.
_KEPT_SECONDS = 2.0
#: Bytes of an error document: a thousand times what vLLM sends.
_MAX_BODY = 1024 * 1024

_PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


class EndpointError(Exception):
    """The endpoint gave no usable response. `status` is its HTTP status, 0 without one."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Client(SessionClient):
    """Client of the endpoint at `base` (without ``/v1``) or a Unix `socket`: an async context manager."""

    def __init__(
        self, base: str, socket: str, config: UpstreamConfig, headers: Mapping[str, str], timeout: float
    ) -> None:
        self._base, self._socket, self._config, self._timeout = base, socket, config, timeout
        self._headers = config.request_headers({**AGENT, **headers})

    def open_session(self) -> aiohttp.ClientSession:
        """Return a new session."""
        connector: aiohttp.BaseConnector
        if self._socket:
            connector = aiohttp.UnixConnector(self._socket, limit=0, keepalive_timeout=_KEPT_SECONDS)
        else:
            tls = tls_context(self._config) if self._base.startswith("https:") else True
            connector = aiohttp.TCPConnector(ssl=tls, limit=0, keepalive_timeout=_KEPT_SECONDS)
        return new_session(connector, self._headers)

    async def ask(self, request: Request, number: int = 0) -> StreamedAnswer:
        """Send request `number` of a cell; return its response, with an error in it if it failed."""
        started = time.monotonic()
        try:
            return await self._ask(request, number)
        except (EndpointError, StreamError) as error:
            seconds = time.monotonic() - started
            return StreamedAnswer(number, request.prompt, error=str(error), seconds=seconds)

    async def probe(self, request: Request) -> None:
        """Send one request like `ask`; EndpointError if the endpoint does not accept it."""
        try:
            await self._ask(request, 0)
        except StreamError as error:
            raise EndpointError(str(error), 200) from error

    async def _ask(self, request: Request, number: int) -> StreamedAnswer:
        try:
            async with asyncio.timeout(self._timeout):
                stream = Stream(time.monotonic())
                async with self.session.post(
                    self._base + _PATHS[request.api],
                    json=request.body,
                    allow_redirects=False,
                    server_hostname=self._config.server_name or None,
                ) as response:
                    if response.status != 200:
                        raise await _refusal(response)
                    async for data in response.content.iter_any():
                        stream.feed(data, time.monotonic())
                return stream.answer(number, request.prompt, time.monotonic())
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise EndpointError(_describe(error, self._timeout)) from error


async def _refusal(response: aiohttp.ClientResponse) -> EndpointError:
    """Return the error of a response that is no stream, with the server's message."""
    body = bytearray()
    async for data in response.content.iter_any():
        body += data
        if len(body) > _MAX_BODY:
            break
    try:
        words = error_message(json.loads(body))
    except (ValueError, RecursionError):
        words = ""
    status = f"HTTP {response.status} {response.reason or ''}".rstrip()
    return EndpointError(f"{status}: {words}" if words else status, response.status)


def _describe(error: BaseException, seconds: float) -> str:
    """Return why an exchange of at most `seconds` failed."""
    if isinstance(error, TimeoutError):
        return f"no complete response within {seconds:g} s"
    if isinstance(error, aiohttp.ClientConnectorError):
        refused = isinstance(error.os_error, ConnectionRefusedError)
        return "nothing listens at the address" if refused else f"the address cannot be reached: {error}"
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError | ConnectionError):
        return "the connection was closed before the response was complete"
    return f"not an HTTP answer: {error}"
