"""The observer of one connection: from the bytes that pass to requests, answers and observations.

It never touches traffic. What it cannot follow, such as a WebSocket or requests sent before the last answer
came, it stops to look at.

A stream is whole once it has said ``[DONE]``. Clients that have read it leave, often before the last chunk,
which brings nothing, has come; and of a stream that ends with its connection it is all that tells it from a
broken one.
"""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httptools

from ...publish.events import Event
from ...requests.exchange import Exchange
from .. import logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...requests.grouping import Classification
    from ...requests.observation import Observation


#: Bytes of bodies that all connections together keep to look at.
MAX_HELD = 32 * 1024 * 1024

#: The last word of a stream, and bytes that are enough for it and what may be around it.
_DONE = re.compile(rb"[\r\n]data: ?\[DONE\]\s*\Z")
_TAIL = 32

#: Defects that the log tells of, at most.
_MOST_SAID = 100

#: Statuses whose answers have no body, and need not say so.
_BODILESS = (204, 304)

#: Why a request for text may pass without an observation: values of the label `reason`.
UNOBSERVED = {
    "aborted": "the client or the server ended the connection before the answer was whole",
    "busy": "too many bodies were being looked at already",
    "connection": "the connection cannot be followed: pipelined requests, or no HTTP/1.1",
    "encoded": "the answer is compressed",
    "internal": "a defect of the tap; its log says where",
    "malformed": "the request or the answer is not the JSON that it should be",
    "refused": "the server answered with an error: it refused the request, or it failed",
    "too_large": "the request or the answer is too large to be kept",
}


@dataclass(slots=True)
class ObservationContext:
    """What all observers of a tap share.

    Attributes:
        tell: takes observations.
        classification: how requests are classified.
        clock: a clock that never goes back, in seconds.
        wall: Unix time in seconds.
        requests: requests that passed.
        unobserved: requests for text that passed without an observation, by reason.
        held: bytes that are kept to be looked at.
        said: where defects were met that the log has told of.
    """

    tell: Callable[[Observation], None]
    classification: Classification
    clock: Callable[[], float]
    wall: Callable[[], float]
    requests: int = 0
    unobserved: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(UNOBSERVED, 0)))
    held: int = 0
    said: set[str] = field(default_factory=set)


class Observer:
    """Looks at one connection.

    Attributes:
        blind: whether it has stopped to look.
    """

    def __init__(self, watch: ObservationContext) -> None:
        self._watch = watch
        self._requests = httptools.HttpRequestParser(RequestReader(self))
        self._answers: httptools.HttpResponseParser | None = None
        self._exchange: Exchange | None = None
        self._held = 0
        self._head_only = False
        self._asks = False  # a request has begun, and is not whole
        self._waits = False  # its answer is not whole
        self._until_end = False  # it is as soon as the connection ends
        self._streams = False
        self._tail = b""  # what it ended with up to now
        self.blind = False

    @property
    def busy(self) -> bool:
        """Whether a request is under way, as far as it can tell."""
        return self._asks or self._waits

    def from_client(self, data: bytes) -> None:
        """Look at bytes that the client sent."""
        if self.blind:
            return
        self._feed(self._requests, data)

    def from_server(self, data: bytes) -> None:
        """Look at bytes that the server sent."""
        if self.blind or self._answers is None:
            return
        self._feed(self._answers, data)

    def _feed(self, parser: httptools.HttpRequestParser | httptools.HttpResponseParser, data: bytes) -> None:
        try:
            parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            raise  # what was told of here went wrong, not what passed
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.stop()
        self._weigh()

    def stop(self, reason: str = "connection") -> None:
        """Look no more: at this request for `reason`, and at none that may follow."""
        self.blind = True
        self._end(reason)

    def failed(self, error: BaseException) -> None:
        """Take note of a defect. The log tells of each once, and never what an error says: it may quote."""
        self.stop("internal")
        cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
        frames = traceback.extract_tb((cause or error).__traceback__)
        places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[::-1])
        where = f"{type(cause or error).__name__} at {places}"
        if where not in self._watch.said and len(self._watch.said) < _MOST_SAID:
            self._watch.said.add(where)
            logs.write([Event(logging.ERROR, "a request could not be observed", {"error": where})])

    def closed(self) -> None:
        """Take note that the connection has ended."""
        self._end("aborted")
        self.blind = True

    def server_ended(self) -> None:
        """Take note that the server sends no more: the end of an answer that is told by nothing else."""
        if self._until_end and self._waits and not self._asks and (not self._streams or self._done):
            self._answer_is_whole()
            self._weigh()

    # --- what the parsers tell

    def request_begins(self, method: str, path: str, headers: dict[str, str], *, upgrades: bool) -> None:
        """Take the head of a request; with another protocol behind it where it `upgrades`."""
        if self.blind:
            return  # in the same bytes as what made it so
        self._watch.requests += 1
        concerned = Exchange.concerns(method, path, headers)
        if self.busy or upgrades:
            self._watch.unobserved["connection"] += concerned
            self.stop()
            return
        self._asks = self._waits = True
        self._head_only = method == "HEAD"
        self._until_end = self._streams = False
        self._tail = b"\n"
        self._answers = httptools.HttpResponseParser(ResponseReader(self))
        if concerned:
            self._exchange = Exchange(path, headers, self._watch.classification)

    def request_data(self, data: bytes) -> None:
        """Take bytes of its body."""
        if self._exchange is not None:
            self._exchange.request_data(data)

    def request_ends(self) -> None:
        """Take note of its end."""
        self._asks = False
        if self._exchange is not None:
            self._exchange.request_end(self._watch.clock())

    def answer_begins(self, status: int, headers: dict[str, str]) -> None:
        """Take the head of an answer."""
        if status < 200:
            return
        if self._exchange is not None:
            self._exchange.answer_head(status, headers)
            self._streams = headers.get("content-type", "").lower().startswith("text/event-stream")
        told = headers.keys() & {"content-length", "transfer-encoding"}
        self._until_end = not told and status not in _BODILESS
        if self._head_only:
            self._waits = False  # its body is announced, but does not come

    def answer_data(self, data: bytes) -> None:
        """Take bytes of its body."""
        if self._exchange is not None:
            self._exchange.answer_data(data, self._watch.clock())
            self._tail = (self._tail + data[-_TAIL:])[-_TAIL:]

    def answer_ends(self, status: int) -> None:
        """Take note of its end; an interim answer is none."""
        if status >= 200:
            self._answer_is_whole()

    @property
    def _done(self) -> bool:
        return self._streams and _DONE.search(self._tail) is not None

    def _answer_is_whole(self) -> None:
        self._waits = False
        exchange = self._exchange
        if exchange is None:
            return
        observation = exchange.finish(self._watch.wall())
        if observation is None:
            self._watch.unobserved[exchange.unobserved] += 1
        else:
            self._watch.tell(observation)
        self._exchange = None  # only now: what goes wrong before is counted

    # --- what is kept

    def _end(self, reason: str) -> None:
        if reason != "internal" and self._done and not self._asks:
            self._answer_is_whole()
        exchange, self._exchange = self._exchange, None
        self._answers, self._asks, self._waits = None, False, False
        if exchange is not None:
            exchange.give_up(reason)
            self._watch.unobserved[exchange.unobserved] += 1
        self._weigh()

    def _weigh(self) -> None:
        held = self._exchange.held if self._exchange is not None else 0
        if held != self._held:
            self._watch.held += held - self._held
            self._held = held
            if self._watch.held > MAX_HELD and self._exchange is not None:
                self._exchange.give_up("busy")
                self._watch.held -= held
                self._held = 0


def look(observer: Observer, how: Callable[..., None], *data: bytes) -> None:
    """Look at what passed. Whatever goes wrong ends the looking, never the connection."""
    try:
        how(*data)
    except Exception as error:  # noqa: BLE001 - traffic must go on
        with contextlib.suppress(Exception):
            observer.failed(error)


class _Head:
    """Collects a head."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._headers: dict[str, str] = {}

    def on_message_begin(self) -> None:
        """Begin anew."""
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")


class RequestReader(_Head):
    """Tells the observer of requests."""

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._path = b""

    def on_message_begin(self) -> None:
        """Begin anew."""
        super().on_message_begin()
        self._path = b""

    def on_url(self, url: bytes) -> None:
        """Take a part of the path."""
        self._path += url

    def on_headers_complete(self) -> None:
        """Take note of the end of the head."""
        parser = self._observer._requests
        method, upgrades = parser.get_method().decode("latin-1"), parser.should_upgrade()
        self._observer.request_begins(method, self._path.decode("latin-1"), self._headers, upgrades=upgrades)

    def on_body(self, data: bytes) -> None:
        """Take bytes of the body."""
        self._observer.request_data(data)

    def on_message_complete(self) -> None:
        """Take note of the end."""
        self._observer.request_ends()


class ResponseReader(_Head):
    """Tells the observer of answers."""

    def __init__(self, observer: Observer) -> None:
        super().__init__(observer)
        self._status = 0

    def on_status(self, _reason: bytes) -> None:
        """Pass over what the status is called."""

    def on_headers_complete(self) -> None:
        """Take note of the end of the head."""
        parser = self._observer._answers
        self._status = parser.get_status_code() if parser is not None else 0
        self._observer.answer_begins(self._status, self._headers)

    def on_body(self, data: bytes) -> None:
        """Take bytes of the body."""
        self._observer.answer_data(data)

    def on_message_complete(self) -> None:
        """Take note of the end."""
        self._observer.answer_ends(self._status)
