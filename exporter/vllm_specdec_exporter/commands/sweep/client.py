"""The client of the OpenAI endpoint: its models, and streamed responses.

Failures become an `EndpointError` if the endpoint does not work, and a `StreamedAnswer` with an error if one
request failed.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from ...serve.tls import tls_context
from ...serve.upstream import AGENT, SessionClient, new_session
from .stream import Stream, StreamedAnswer, StreamError, error_message

if TYPE_CHECKING:
    from .endpoint import Endpoint
    from .grid import Prompt

#: Seconds to keep an idle connection: less than the five after which vLLM closes it.
_KEPT_SECONDS = 2.0
_MODELS_SECONDS = 10.0
_MAX_LINE = 4 * 1024 * 1024
_MAX_BODY = 1024 * 1024

_PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


class EndpointError(Exception):
    """The endpoint gave no usable response. `status` is its HTTP status, 0 without one."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of the endpoint; `root` is the path of its weights, if given."""

    name: str
    root: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of every request of a cell, except its prompt; as in `grid.SweepPlan`."""

    model: str
    api: str
    temperature: float
    max_tokens: int
    seed: int | None = None
    top_p: float | None = None
    ignore_eos: bool = False

    def body(self, prompt: Prompt, request: int) -> dict[str, object]:
        """Return the body of the cell's request number `request`."""
        body: dict[str, object] = {"model": self.model, "temperature": self.temperature}
        body |= {"max_tokens": self.max_tokens, "stream": True, "stream_options": {"include_usage": True}}
        if self.seed is not None:
            body["seed"] = self.seed + request
        if self.top_p is not None:
            body["top_p"] = self.top_p
        if self.ignore_eos:
            body["ignore_eos"] = True
        if self.api == "chat":
            body["messages"] = [{"role": m.role, "content": m.content} for m in prompt.messages]
        else:
            body["prompt"] = prompt.text
        return body


class Client(SessionClient):
    """Client of an endpoint, an async context manager; a request may take `timeout` seconds."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        self._base, self._socket, self._config = endpoint.base, endpoint.target.socket, endpoint.upstream
        self._headers = self._config.request_headers({**AGENT, **endpoint.authorization()})
        self._timeout = timeout

    def open_session(self) -> aiohttp.ClientSession:
        """Return a new session."""
        connector: aiohttp.BaseConnector
        if self._socket:
            connector = aiohttp.UnixConnector(self._socket, limit=0, keepalive_timeout=_KEPT_SECONDS)
        else:
            tls = tls_context(self._config) if self._base.startswith("https:") else True
            connector = aiohttp.TCPConnector(ssl=tls, limit=0, keepalive_timeout=_KEPT_SECONDS)
        return new_session(connector, self._headers, read_bufsize=_MAX_LINE)

    async def models(self) -> tuple[ServedModel, ...]:
        """Return the models of ``GET /v1/models``, at least one, or raise EndpointError."""
        try:
            async with asyncio.timeout(_MODELS_SECONDS), self._request("GET", "/v1/models") as response:
                if response.status != 200:
                    raise await _refusal(response)
                document = json.loads(await _body(response))
        except (TimeoutError, aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise EndpointError(describe(error, _MODELS_SECONDS)) from error
        except (ValueError, RecursionError) as error:
            raise EndpointError("its answer is not JSON", 200) from error
        listed = document.get("data") if isinstance(document, dict) else None
        found = [
            ServedModel(entry["id"], str(entry.get("root") or ""))
            for entry in (listed if isinstance(listed, list) else [])
            if isinstance(entry, dict) and isinstance(entry.get("id"), str)
        ]
        if not found:
            raise EndpointError("it lists no model", 200)
        return tuple(found)

    async def ask(
        self, sampling: Sampling, prompt: Prompt, request: int = 0, place: int = 0
    ) -> StreamedAnswer:
        """Send request number `request` of a cell; return its response, with an error in it if it failed."""
        started = time.monotonic()
        try:
            return await self._ask(sampling, prompt, request, place)
        except (EndpointError, StreamError) as error:
            words = str(error)
        return StreamedAnswer(request, place, error=words, seconds=time.monotonic() - started)

    async def probe(self, sampling: Sampling, prompt: Prompt) -> StreamedAnswer:
        """Send one request like `ask`; EndpointError if the endpoint does not accept it."""
        try:
            return await self._ask(sampling, prompt, 0, 0)
        except StreamError as error:
            raise EndpointError(str(error), 200) from error

    async def _ask(self, sampling: Sampling, prompt: Prompt, request: int, place: int) -> StreamedAnswer:
        body = sampling.body(prompt, request)
        try:
            async with asyncio.timeout(self._timeout):
                stream = Stream(time.monotonic())
                async with self._request("POST", _PATHS[sampling.api], json=body) as response:
                    if response.status != 200:
                        raise await _refusal(response)
                    async for line in response.content:
                        stream.feed(line, time.monotonic())
                return stream.answer(request, place, time.monotonic())
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise EndpointError(describe(error, self._timeout)) from error

    def _request(self, method: str, path: str, **options: Any) -> Any:
        options |= {"allow_redirects": False, "server_hostname": self._config.server_name or None}
        return self.session.request(method, self._base + path, **options)


async def _body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > _MAX_BODY:
            raise EndpointError("its answer is too large", response.status)
    return bytes(body)


async def _refusal(response: aiohttp.ClientResponse) -> EndpointError:
    try:
        words = error_message(json.loads(await _body(response)))
    except (ValueError, RecursionError):
        words = ""
    status = f"HTTP {response.status} {response.reason or ''}".rstrip()
    return EndpointError(f"{status}: {words}" if words else status, response.status)


def describe(error: BaseException, seconds: float) -> str:
    """Return why an exchange of at most `seconds` failed."""
    if isinstance(error, TimeoutError):
        return f"no complete response within {seconds:g} s"
    if isinstance(error, aiohttp.ClientConnectorError):
        refused = isinstance(error.os_error, ConnectionRefusedError)
        return "nothing listens at the address" if refused else f"the address cannot be reached: {error}"
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError | ConnectionError):
        return "the connection was closed before the response was complete"
    return f"not an HTTP answer: {error}"
