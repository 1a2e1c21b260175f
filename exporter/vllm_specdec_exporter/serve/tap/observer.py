"""The observer of one connection: parses the bytes that pass into requests, responses
and observations.

It never changes traffic. It stops observing what it cannot follow, such as WebSockets
or pipelined requests.

A stream is complete with ``data: [DONE]``. Clients often close the connection right
after it, before the last chunk; in a stream that ends with its connection, only
``[DONE]`` tells a complete response from a broken one.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httptools
from msgspec import Struct, field

from ...per_request.exchange import Exchange, TinyPieces
from ...per_request.grouping import Classification
from ...per_request.observation import Observation
from ...per_request.routes import lacks_record
from ...runtime import logs

#: Bytes of heads and bodies that all connections together may buffer.
MAX_HELD = 32 * 1024 * 1024
MAX_HEAD = 64 * 1024  # limit of a head, in bytes
_MAX_LOGGED = 100  # limit of different defects in the log
#: Headers that are read of any request or response; those of the classification are
#: read too.
_HEADERS = frozenset(
    {
        "content-type",
        "content-encoding",
        "content-length",
        "transfer-encoding",
        "x-request-id",
    }
)
_BODILESS = (204, 304)  # statuses whose responses have no body

#: Why a request for text may pass without an observation: values of the label `reason`.
UNOBSERVED = {
    "aborted": (
        "the client or the server closed the connection before the response was "
        "complete"
    ),
    "busy": "the limit of buffered heads and bodies was reached",
    "connection": (
        "the connection cannot be followed: pipelined requests, no HTTP/1.1, or many "
        "tiny chunks"
    ),
    "encoded": "the response is compressed",
    "internal": "a defect of the tap; see its log",
    "malformed": "the request or the response is not the expected JSON",
    "refused": "the server returned an error",
    "route": (
        "the responses of this API have no record of speculation: /v1/messages, and "
        "/v1/responses but for llama.cpp's streams"
    ),
    "too_large": (
        "the request or the response is too large to buffer, or has many tiny events"
    ),
}


class ObservationContext(Struct):
    """Shared state of all observers of a tap."""

    report: Callable[[Observation], None]  # receives observations
    classification: Classification  # how requests are classified
    clock: Callable[[], float]  # a monotonic clock, in seconds
    wall: Callable[[], float]  # Unix time in seconds
    requests: int = 0  # requests that passed
    #: Requests for text that passed without an observation, by reason.
    unobserved: Counter[str] = field(
        default_factory=lambda: Counter(dict.fromkeys(UNOBSERVED, 0))
    )
    held: int = 0  # buffered bytes
    #: Where the defects in the log occurred.
    logged: set[str] = set()


class Observer:
    """Observes one connection, unless it is `blind`: it has stopped observing."""

    def __init__(self, context: ObservationContext) -> None:
        self._context = context
        self._requests: _RequestParser | None = _RequestParser(self)
        self._responses: _ResponseParser | None = None
        self._exchange: Exchange | None = None
        self._held = 0
        self._head_only = False
        self._in_request = False  # a request has begun and is not complete
        self._awaits_response = False  # its response is not complete
        self._until_end = False  # the response ends with the connection
        self.blind = False

    @property
    def classification(self) -> Classification:
        """How requests are classified."""
        return self._context.classification

    @property
    def busy(self) -> bool:
        """Whether a request is known to be in progress."""
        return self._in_request or self._awaits_response

    def from_client(self, data: bytes) -> None:
        """Parse bytes that the client sent."""
        if not self.blind and self._requests is not None:
            self._feed(self._requests, data)

    def from_server(self, data: bytes) -> None:
        """Parse bytes that the server sent."""
        if not self.blind and self._responses is not None:
            self._feed(self._responses, data)

    def _feed(self, parser: _MessageParser, data: bytes) -> None:
        try:
            followed = parser.feed(data)
        except httptools.HttpParserCallbackError:
            raise  # a defect of the callbacks, not of the traffic
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            followed = False
        if not followed and not self.blind:
            self.stop()
        self._update_held()

    def stop(self, reason: str = "connection") -> None:
        """Stop observing this connection; the current request counts as unobserved for
        `reason`.
        """
        self.blind = True
        self._end(reason)

    def failed(self, error: BaseException) -> None:
        """Log a defect once, without the text of the exception, which may quote a
        request.
        """
        self.stop("internal")
        if isinstance(error, httptools.HttpParserCallbackError) and error.__context__:
            error = error.__context__
        frames = traceback.extract_tb(error.__traceback__)
        places = " < ".join(
            f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[::-1]
        )
        where = f"{type(error).__name__} at {places}"
        logged = self._context.logged
        if where not in logged and len(logged) < _MAX_LOGGED:
            logged.add(where)
            logs.log(logging.ERROR, "a request could not be observed", error=where)

    def closed(self) -> None:
        """End with the connection."""
        self._end("aborted")
        self.blind = True

    def server_ended(self) -> None:
        """Handle the end of the server's bytes, which may be the end of a response."""
        if not self._until_end or not self._awaits_response or self._in_request:
            return
        exchange = self._exchange
        if exchange is None or not exchange.streams or exchange.is_done:
            self._finish()
            self._update_held()

    # --- called by the parsers

    def begin_request(
        self, method: str, path: str, headers: dict[str, str], *, upgrades: bool
    ) -> None:
        """Process the head of a request; with `upgrades`, another protocol follows."""
        if self.blind:
            return  # stopped by earlier bytes of the same call
        self._context.requests += 1
        observable = Exchange.is_observable(method, path, headers)
        if not observable:
            self._context.unobserved["route"] += lacks_record(method, path)
        # Responses to pipelined requests could be taken for those of another.
        if self.busy or upgrades:
            self._context.unobserved["connection"] += observable
            self.stop()
            return
        self._in_request = True
        self._awaits_response = True
        self._head_only = method == "HEAD"
        self._until_end = False
        # A new parser: after HEAD, the last one still expects the announced body.
        self._responses = _ResponseParser(self)
        if observable:
            self._exchange = Exchange(path, headers, self._context.classification)

    def request_data(self, data: bytes) -> None:
        """Process bytes of a request's body."""
        if self._exchange is not None:
            self._exchange.request_data(data)

    def end_request(self) -> None:
        """Process the end of a request."""
        self._in_request = False
        if self._exchange is not None:
            self._exchange.request_end(self._context.clock())

    def begin_response(self, status: int, headers: dict[str, str]) -> None:
        """Process the head of a response."""
        if status < 200:
            return
        if self._exchange is not None:
            self._exchange.response_head(status, headers)
        is_framed = headers.keys() & {"content-length", "transfer-encoding"}
        self._until_end = not is_framed and status not in _BODILESS
        if self._head_only:
            self._awaits_response = False  # the announced body is not sent

    def response_data(self, data: bytes) -> None:
        """Process bytes of a response's body."""
        if self._exchange is not None:
            self._exchange.response_data(data, self._context.clock())

    def end_response(self, status: int) -> None:
        """Process the end of a response, unless it is an interim one."""
        if status >= 200:
            self._finish()

    def _finish(self) -> None:
        self._awaits_response = False
        exchange = self._exchange
        if exchange is None:
            return
        observation = exchange.finish(self._context.wall())
        if observation is None:
            self._context.unobserved[exchange.unobserved] += 1
        else:
            self._context.report(observation)
        self._exchange = None  # last: a defect above is still counted as unobserved

    def _end(self, reason: str) -> None:
        exchange = self._exchange
        is_complete = exchange is not None and exchange.is_done and not self._in_request
        # A defect may lie in what finishes it.
        if is_complete and reason != "internal":
            self._finish()
        exchange = self._exchange
        self._exchange = None
        self._requests = None  # it may hold a part of a head
        self._responses = None
        self._in_request = False
        self._awaits_response = False
        if exchange is not None:
            exchange.give_up(reason)
            self._context.unobserved[exchange.unobserved] += 1
        self._update_held()

    def _update_held(self) -> None:
        """Count what this connection buffers, and give it up beyond `MAX_HELD`."""
        held_before = self._held
        self._held = 0
        if self._exchange is not None:
            self._held += self._exchange.held
        for parser in (self._requests, self._responses):
            if parser is not None:
                self._held += parser.collected
        self._context.held += self._held - held_before
        if self._held <= held_before or self._context.held <= MAX_HELD:
            return
        if self._exchange is not None and self._exchange.held:
            self._exchange.give_up("busy")
            self._update_held()
        else:
            self.stop("busy")  # a part of a head


def call_safely(observer: Observer, method: Callable[..., None], *data: bytes) -> None:
    """Call a method of `observer`.

    An exception ends observation, never the connection.
    """
    try:
        method(*data)
    except Exception as error:  # noqa: BLE001 - traffic must not fail
        with contextlib.suppress(Exception):
            observer.failed(error)


class _MessageParser:
    """A parser of httptools that calls this object, with limits on tiny chunks, and on
    heads, trailers and lines between chunks.
    """

    def __init__(
        self,
        observer: Observer,
        parser: Callable[[object], Any],
        pass_on: Callable[[bytes], None],
    ) -> None:
        self._observer = observer
        self._parser = parser(self)
        self._pass_on = pass_on  # gets the pieces of a body
        self._headers: dict[str, str] = {}
        self._also_kept: frozenset[str] = frozenset()
        #: Bytes since the last end of a head, piece of a body or end of a message.
        self.collected = 0
        self._chunks = TinyPieces()
        self._has_tiny_chunks = False

    def feed(self, data: bytes) -> bool:
        """Parse bytes; return whether the limits hold."""
        # httptools joins the pieces of a name, a value or a path, which takes quadratic
        # time without a limit. It is checked as often as it could be exceeded.
        for start in range(0, len(data), MAX_HEAD):
            piece = data[start : start + MAX_HEAD]
            self.collected += len(piece)
            self._parser.feed_data(piece)
            if self.collected > MAX_HEAD or self._has_tiny_chunks:
                return False
        return True

    def on_message_begin(self) -> None:
        self._also_kept = self._observer.classification.headers
        self._headers = {}
        self._chunks = TinyPieces()

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode("latin-1").lower()
        if key in _HEADERS or key in self._also_kept:
            self._headers[key] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self.collected = 0
        self._has_tiny_chunks = not self._chunks.are_few(1, len(data))
        self._pass_on(data)


class _RequestParser(_MessageParser):
    def __init__(self, observer: Observer) -> None:
        super().__init__(
            observer, httptools.HttpRequestParser, pass_on=observer.request_data
        )
        self._path = b""

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_headers_complete(self) -> None:
        self.collected = 0
        method = self._parser.get_method().decode("latin-1")
        upgrades = self._parser.should_upgrade()
        self._observer.begin_request(
            method, self._path.decode("latin-1"), self._headers, upgrades=upgrades
        )
        self._headers = {}
        self._path = b""

    def on_message_complete(self) -> None:
        self.collected = 0
        self._observer.end_request()


class _ResponseParser(_MessageParser):
    def __init__(self, observer: Observer) -> None:
        super().__init__(
            observer, httptools.HttpResponseParser, pass_on=observer.response_data
        )
        self._status = 0

    def on_headers_complete(self) -> None:
        self.collected = 0
        self._status = self._parser.get_status_code()
        self._observer.begin_response(self._status, self._headers)

    def on_message_complete(self) -> None:
        self.collected = 0
        self._observer.end_response(self._status)
