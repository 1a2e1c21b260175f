"""One observed request and its response, and the server-sent events of a streamed
response.

An event ends with an empty line; lines end with LF, CR LF or CR (WHATWG HTML, 9.2.5).
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from .grouping import Classification
from .observation import Observation
from .openai_api import (
    RequestFields,
    ResponseFields,
    UnreadableError,
    brings_only_tokens,
    read_request,
    read_response,
)
from .routes import lacks_record, route_of

#: Limit of the buffered bytes of a request or a response: a context of a million tokens
#: has about 4 MB of text. Larger ones are not observed.
MAX_BODY = 8 * 1024 * 1024
#: The same for one event of a stream. With `detailed`, the last event lists every step
#: of the response.
MAX_EVENT = 4 * 1024 * 1024
SMALL = 128  # bytes of an event, or of a chunk; a smaller one lacks the rest of them
#: Bytes that small ones may lack: 10,000 tiny ones in a row take 0.1 s.
MAX_LACKING = 10_000 * SMALL

#: Two line ends in a row. Atomic groups, so that one CR LF is never matched as two line
#: ends.
_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")

#: Bytes of the end of an event that may have been searched already.
_OVERLAP = 3

#: The end of a complete stream, and the bytes that are searched for it. Clients stop
#: reading there.
_DONE = re.compile(rb"[\r\n]data: ?\[DONE\]\s*\Z")
_TAIL = 64


class TinyPieces:
    """Counts the small events of a stream, or chunks of a body.

    Each costs some microseconds, however small it is. What larger ones have beyond
    `SMALL` makes up for what the small ones lack.
    """

    def __init__(self) -> None:
        self._lacking = 0

    def are_few(self, pieces: int, size: int) -> bool:
        """Count more pieces, of `size` bytes together; return whether the limit
        holds.
        """
        self._lacking = max(0, self._lacking + pieces * SMALL - size)
        return self._lacking <= MAX_LACKING


class EventSizeError(ValueError):
    """An event is too large, or too many are tiny."""


class EventSplitter:
    """Splits a stream into events, however it is chunked. The joined events are the
    bytes of the stream.

    An event has at most `limit` bytes, including the empty line at its end.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._plain = True
        self._tiny = TinyPieces()

    @property
    def held(self) -> int:
        """The number of bytes after the last complete event."""
        return len(self._rest)

    @property
    def rest(self) -> bytes:
        """The bytes after the last complete event."""
        return bytes(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that `data` completes, including the empty lines at their
        ends.

        EventSizeError if an event, complete or not, is larger than the limit, or too
        many are tiny.
        """
        self._plain = self._plain and b"\r" not in data
        if (
            self._plain
            and not self._rest
            and 1 < len(data) <= self._limit
            and data.find(b"\n\n") == len(data) - 2
        ):
            self._count(events=1, size=len(data))
            return [data]  # one event, as nearly always
        events: list[bytes] = []
        # Joined in place, and only what is new is searched: an event may come in many
        # small pieces.
        start = 0
        position = max(0, len(self._rest) - _OVERLAP)
        self._rest += data
        while (end := _end_of_event(self._rest, position, plain=self._plain)) > 0:
            if end - start > self._limit:
                raise EventSizeError("an event is too large")
            events.append(bytes(self._rest[start:end]))
            start = position = end
        del self._rest[:start]
        if len(self._rest) > self._limit:
            raise EventSizeError("an event is too large")
        self._count(events=len(events), size=start)
        return events

    def _count(self, events: int, size: int) -> None:
        """Count complete events, of `size` bytes together; EventSizeError if too many
        are tiny.
        """
        if not self._tiny.are_few(events, size):
            raise EventSizeError("too many events are tiny")


def _end_of_event(data: bytearray, position: int, *, plain: bool) -> int:
    """Return the end of the event at `position`, 0 if it is incomplete."""
    if plain:  # what servers write; several times faster than the expression
        end = data.find(b"\n\n", position)
        if end >= 0:
            return end + 2
        return 0
    match = _END.search(data, position)
    if match is None or (match.end() == len(data) and data.endswith(b"\r")):
        return 0  # the LF of this CR may follow
    return match.end()


def data_of(event: bytes) -> bytes:
    """Return the value of an event's ``data`` lines, empty if there are none."""
    # Nearly every event has one line; this is several times faster.
    if (
        event.startswith(b"data: ")
        and event.endswith(b"\n\n")
        and event.find(b"\n") == len(event) - 2
        and b"\r" not in event
    ):
        return event[6:-2]
    return b"\n".join(
        line.removeprefix(b"data:").removeprefix(b" ")
        for line in _LINE.split(event)
        if line.startswith(b"data:")
    )


class _Times(Struct):
    """When the request was sent and its tokens came, in seconds of a monotonic
    clock.
    """

    sent: float | None = None
    first_token: float | None = None
    last_token: float | None = None

    def add_tokens(self, time: float, *, only_role: bool) -> None:
        """Count an event with tokens; one that only names the role comes before any."""
        if self.first_token is None:
            if only_role:
                return
            self.first_token = time
        self.last_token = time

    @property
    def ttft_seconds(self) -> float | None:
        """The time to first token, ``None`` without one."""
        if self.first_token is None or self.sent is None:
            return None
        return max(0.0, self.first_token - self.sent)

    def tpot_seconds(self, tokens: int | None) -> float | None:
        """Return the time per output token, without the first; ``None`` with fewer than
        two.
        """
        if self.first_token is None or self.last_token is None:
            return None
        if tokens is None or tokens < 2:
            return None
        return (self.last_token - self.first_token) / (tokens - 1)


class Exchange:
    """One request that may be observed, and its response; names of headers are in lower
    case.
    """

    def __init__(
        self, path: str, headers: Mapping[str, str], classification: Classification
    ) -> None:
        self._path = path
        #: Whether it is of an API whose responses have a record in few streams only.
        self._seldom_has_record = lacks_record("POST", path)
        self._headers = headers
        self._classification = classification
        self._request_body = bytearray()
        self._response_body = bytearray()
        self._events: EventSplitter | None = None
        self._request: RequestFields | None = None
        self._response = ResponseFields()
        self._type = ""
        self._tenant = ""
        self._has_client_id = False
        self._times = _Times()
        self._last_event = b""
        #: Whether the response is a stream of events.
        self.streams = False
        #: Why it cannot be observed; empty while it can.
        self.unobserved = ""

    @staticmethod
    def is_observable(method: str, path: str, headers: Mapping[str, str]) -> bool:
        """Return whether the response to a request may have a record."""
        return (
            method == "POST"
            and route_of(path) != ""
            and _media_type(headers, "application/json").endswith("json")
            and _is_plain(headers)
        )

    @property
    def held(self) -> int:
        """Bytes that are buffered now."""
        events = self._events.held if self._events else 0
        return len(self._request_body) + len(self._response_body) + events

    @property
    def is_done(self) -> bool:
        """Whether a stream ends with its last event, complete or not."""
        if self._events is None:
            return False
        end = b"\n" + self._last_event + self._events.rest[-_TAIL:]
        return _DONE.search(end[-_TAIL:]) is not None

    def request_data(self, data: bytes) -> None:
        """Process bytes of the request's body."""
        if self.unobserved:
            return
        self._request_body += data
        if len(self._request_body) > MAX_BODY:
            self.give_up("too_large")

    def request_end(self, time: float) -> None:
        """Process the end of the request at `time`, in seconds of a monotonic clock."""
        self._times.sent = time
        if self.unobserved:
            return
        try:
            self._request = read_request(self._request_body)
        except UnreadableError:
            self.give_up("malformed")
            return
        self._type = self._classification.type_of(
            self._path, self._headers, self._request
        )
        self._tenant = self._classification.tenant_of(self._headers)
        # vLLM derives its identifier from the client's, which may name a user.
        self._has_client_id = (
            "x-request-id" in self._headers or "request_id" in self._request.fields
        )
        self._request_body = bytearray()
        self._headers = {}

    def response_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Process the status and the headers (names in lower case) of the response."""
        media_type = _media_type(headers, "")
        if not 200 <= status < 300:
            self.give_up("refused")
        elif not _is_plain(headers):
            self.give_up("encoded")
        elif media_type == "text/event-stream":
            self._events = EventSplitter(MAX_EVENT)
            self.streams = True
        elif self._seldom_has_record:
            self.give_up("route")
        elif not media_type.endswith("json"):
            self.give_up("malformed")

    def response_data(self, data: bytes, time: float) -> None:
        """Process bytes of the response's body that were received at `time`."""
        if self.unobserved:
            return
        if self._events is None:
            self._response_body += data
            if len(self._response_body) > MAX_BODY:
                self.give_up("too_large")
            return
        try:
            for event in self._events.feed(data):
                if not event.isspace():
                    self._last_event = event[-_TAIL:]
                self._event(data_of(event), time)
        except EventSizeError:
            self.give_up("too_large")

    def _event(self, data: bytes, time: float) -> None:
        if not data:
            return
        if (
            self._times.first_token is not None
            and self._response.model_name
            and brings_only_tokens(data)
        ):
            self._times.last_token = time
            return
        try:
            response = read_response(data)
        except UnreadableError:
            return  # an event of another kind
        if response.failed:
            self.give_up("refused")
            return
        if response.tokens:
            self._times.add_tokens(time, only_role=response.only_role)
        self._response = _merged(self._response, response)

    def finish(self, wall: float) -> Observation | None:
        """Return the observation after the complete response, if any; `wall` is Unix
        time in seconds.
        """
        if not self.unobserved and self._request is None:
            self.give_up("malformed")  # a response before the end of its request
        if not self.unobserved and self._events is None:
            try:
                self._response = read_response(self._response_body)
            except UnreadableError:
                self.give_up("malformed")
            if self._response.failed:
                self.give_up("refused")
        has_record = self._response.record is not None or self._response.malformed
        if self._seldom_has_record and not has_record:
            self.give_up("route")
        if self.unobserved or self._request is None:
            return None
        response = self._response
        request = self._request
        tpot_seconds = None
        # Tokens of several choices come interleaved, and are counted together.
        if request.choices == 1:
            tpot_seconds = self._times.tpot_seconds(response.completion_tokens)
        observation = Observation(
            time=wall,
            model_name=response.model_name or request.model_name,
            temperature=request.temperature,
            request_type=self._type,
            tenant=self._tenant,
            stream=self.streams,
            request_id="" if self._has_client_id else response.request_id,
            completion_tokens=response.completion_tokens,
            record=response.record,
            malformed=response.malformed,
            ttft_seconds=self._times.ttft_seconds,
            tpot_seconds=tpot_seconds,
        )
        self._drop()
        return observation

    def give_up(self, reason: str) -> None:
        """Stop observing the request for `reason`, and drop its buffers."""
        self.unobserved = self.unobserved or reason
        self._drop()

    def _drop(self) -> None:
        self._request_body = bytearray()
        self._response_body = bytearray()
        self._events = None
        self._headers = {}


def _media_type(headers: Mapping[str, str], default: str) -> str:
    return headers.get("content-type", default).partition(";")[0].strip().lower()


def _is_plain(headers: Mapping[str, str]) -> bool:
    return headers.get("content-encoding", "identity").lower() == "identity"


def _merged(merged: ResponseFields, event: ResponseFields) -> ResponseFields:
    """Return the fields of a stream with those of a further event, whose counts and
    record take precedence.
    """
    completion_tokens = event.completion_tokens
    if completion_tokens is None:
        completion_tokens = merged.completion_tokens
    return ResponseFields(
        request_id=merged.request_id or event.request_id,
        model_name=merged.model_name or event.model_name,
        completion_tokens=completion_tokens,
        record=event.record or merged.record,
        malformed=merged.malformed or event.malformed,
    )
