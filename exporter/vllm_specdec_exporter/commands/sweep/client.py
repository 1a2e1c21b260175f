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
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import aiohttp

from ...serve.tls import tls_context
from ...serve.upstream import AGENT, SessionClient, new_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...serve.tls import UpstreamConfig
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


# A streamed response. An event is one ``data:`` line. The last one before ``[DONE]`` has the usage and, with
# vLLM's ``--per-request-spec-decode-metrics``, the record of the request's drafts. Times come in.


class StreamError(Exception):
    """The stream is not from an OpenAI endpoint, or reports a failed request."""


@dataclass(frozen=True, slots=True)
class StreamedDrafts:
    """vLLM's record of the drafts of one request."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    histogram: tuple[int, ...] = ()  # at index j, the drafts with j accepted tokens


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """The client's view of one request."""

    request: int  # its number in the cell, from 0
    prompt: int  # the index of its prompt in the set, from 0
    error: str = ""  # why the response is incomplete; empty if it is complete
    prompt_tokens: int = 0  # from the server's usage
    completion_tokens: int = 0  # from the server's usage
    ttft_seconds: float | None = None  # from sending the request to the first token
    #: (last token - first token) / (completion tokens - 1); ``None`` for a single token.
    tpot_seconds: float | None = None
    events: int = 0  # number of events with tokens; vLLM sends one for each step
    event_seconds: float | None = None  # median time between two of them; ``None`` for a single one
    seconds: float = 0.0  # from sending the request to the end of the response
    finish_reason: str = ""  # ``length``, ``stop``
    drafts: StreamedDrafts | None = None  # the server's record of the drafts, if given


class Stream:
    """Collects the lines of the response to a request that was sent at the time `started`, in seconds."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._times: list[float] = []
        self._finish_reason = ""
        self._summary: dict[str, Any] | None = None

    def feed(self, line: bytes, time: float) -> None:
        """Handle a line received at `time`; StreamError if it is no event, or reports a failed request."""
        if not line.startswith(b"data:"):
            return
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise StreamError("an event of the stream is not JSON") from error
        if not isinstance(event, dict):
            raise StreamError("an event of the stream is no object")
        if event.get("error"):
            raise StreamError(error_message(event) or "the stream says that the request failed")
        if isinstance(event.get("usage"), dict):
            self._summary = event
        for choice in event.get("choices") or ():
            self._choice(choice, time)

    def _choice(self, choice: Any, time: float) -> None:
        if not isinstance(choice, dict):
            return
        finish = choice.get("finish_reason")
        # An event without text may still have a token, whose text follows when its bytes are complete.
        if self._times or finish is not None or not _opens_chat(choice):
            self._times.append(time)
        if isinstance(finish, str):
            self._finish_reason = finish

    def answer(self, request: int, prompt: int, time: float) -> StreamedAnswer:
        """Return the response that ended at `time`; StreamError if it ended early."""
        if self._summary is None:
            raise StreamError("the stream ended without usage")
        usage = self._summary["usage"]
        tokens = _count(usage.get("completion_tokens"))
        times = self._times
        first = times[0] if times else None
        between = [later - earlier for earlier, later in pairwise(times)]
        return StreamedAnswer(
            request=request,
            prompt=prompt,
            prompt_tokens=_count(usage.get("prompt_tokens")),
            completion_tokens=tokens,
            ttft_seconds=None if first is None else first - self._started,
            tpot_seconds=None if first is None or tokens < 2 else (times[-1] - first) / (tokens - 1),
            events=len(times),
            event_seconds=median(between) if between else None,
            seconds=time - self._started,
            finish_reason=self._finish_reason,
            drafts=_drafts(self._summary),
        )


def error_message(document: object) -> str:
    """Return the message of an OpenAI error document in one line; empty if it is not one."""
    if not isinstance(document, dict):
        return ""
    error = document.get("error") or document
    words = error if isinstance(error, str) else None
    if isinstance(error, dict):
        words = error.get("message") or error.get("detail")
    if not isinstance(words, str):
        return ""
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())[:300]


def _opens_chat(choice: dict[str, Any]) -> bool:
    """Return whether this is the first event, which has only the role."""
    delta = choice.get("delta")
    texts = ("content", "reasoning", "reasoning_content", "tool_calls")
    return isinstance(delta, dict) and "role" in delta and not any(delta.get(key) for key in texts)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise StreamError("the usage of the answer holds no token counts")
    return value


def _drafts(summary: dict[str, Any]) -> StreamedDrafts | None:
    metrics = summary.get("metrics")
    record = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if not isinstance(record, dict):
        return None
    try:
        return StreamedDrafts(
            drafts=_count(record.get("num_spec_steps")),
            draft_tokens=_count(record.get("num_draft_tokens")),
            accepted_tokens=_count(record.get("num_accepted_draft_tokens")),
            histogram=tuple(_count(value) for value in record.get("acceptance_histogram") or ()),
        )
    except (StreamError, TypeError):
        return None  # vLLM's record is experimental; the counters do not depend on it
