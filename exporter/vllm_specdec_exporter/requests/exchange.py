"""Server-sent events: a stream of bytes split into events, wherever its chunks are cut.

An event ends with an empty line; lines end with LF, CR LF or CR (WHATWG HTML, 9.2.5). The bytes of all events
together are the bytes of the stream: nothing is changed on the way.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .observation import Observation
from .openai_api import (
    AnswerFields,
    Asked,
    UnreadableError,
    brings_only_tokens,
    read_answer,
    read_request,
    route_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .grouping import Classification


#: Two line ends in a row. Atomic, so that one CR LF is never taken for two line ends.
_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_ONE_LINE = re.compile(rb"data: ([^\r\n]*)\n\n")

#: Bytes that the end of an event may reach back into what was searched already.
_OVERLAP = 3


class EventTooLargeError(ValueError):
    """An event is larger than what is kept of one.

    Attributes:
        before: the events before it that came with it.
    """

    def __init__(self, limit: int, before: list[bytes]) -> None:
        super().__init__(f"an event is larger than {limit} bytes")
        self.before = before


class EventSplitter:
    """Splits a stream into events.

    Args:
        limit: bytes that an event may have, the empty line that ends it included.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""
        self._searched = 0

    @property
    def rest(self) -> bytes:
        """What was fed and is not yet a whole event."""
        return self._rest

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that `data` completes, with the empty lines that end them.

        Raises:
            EventTooLargeError: an event is larger than the limit, whole or not. It has the events before it;
                the large one and all that follows are in `rest`.
        """
        data = self._rest + data if self._rest else data
        events: list[bytes] = []
        start, position = 0, max(0, self._searched - _OVERLAP)
        plain = b"\r" not in data
        while (end := _end_of_event(data, position, plain=plain)) > 0:
            if end - start > self._limit:
                break
            events.append(data[start:end])
            start = position = end
        self._rest = data[start:]
        self._searched = len(self._rest)
        if len(self._rest) > self._limit:
            raise EventTooLargeError(self._limit, events)
        return events


def _end_of_event(data: bytes, position: int, *, plain: bool) -> int:
    """Return where the event around `position` ends, 0 where it does not yet."""
    if plain:  # as servers write: several times faster than the expression
        found = data.find(b"\n\n", position)
        return found + 2 if found >= 0 else 0
    match = _END.search(data, position)
    if match is None or (match.end() == len(data) and data.endswith(b"\r")):
        return 0  # the LF of this CR may be on its way
    return match.end()


def data_of(event: bytes) -> bytes:
    """Return the value of an event's ``data`` lines, empty where it has none."""
    if (only := _ONE_LINE.fullmatch(event)) is not None:  # nearly every event: several times faster
        return only[1]
    values = (line.removeprefix(b"data:") for line in _LINE.split(event) if line.startswith(b"data:"))
    return b"\n".join(value.removeprefix(b" ") for value in values)


#: Bytes of a request or of an answer that are kept until they are read; larger ones are not observed.
MAX_BODY = 8 * 1024 * 1024
#: The same for one event of a stream. The last one lists every step of a long answer, with `detailed`.
MAX_EVENT = 4 * 1024 * 1024


class Exchange:
    """One request that may be observed.

    Args:
        path: of the request, with or without its query.
        headers: of the request, names in lower case.
        classification: how it is classified.
    """

    def __init__(self, path: str, headers: Mapping[str, str], classification: Classification) -> None:
        self._path = path
        self._headers = headers
        self._classification = classification
        self._request = bytearray()
        self._answer = bytearray()
        self._events: EventSplitter | None = None
        self._asked: Asked | None = None
        self._type = ""
        self._tenant = ""
        self._named = False
        self._sent: float | None = None
        self._first: float | None = None
        self._last: float | None = None
        self._told = AnswerFields()
        #: Why it cannot be observed; empty while it can.
        self.unobserved = ""

    @staticmethod
    def concerns(method: str, path: str, headers: Mapping[str, str]) -> bool:
        """Tell whether a request is one whose answer may have a record."""
        kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        plain = headers.get("content-encoding", "identity").lower() == "identity"
        return method == "POST" and bool(route_of(path)) and kind.endswith("json") and plain

    @property
    def held(self) -> int:
        """Bytes that it holds now."""
        return len(self._request) + len(self._answer) + (len(self._events.rest) if self._events else 0)

    def request_data(self, data: bytes) -> None:
        """Take bytes of the request's body."""
        if self.unobserved:
            return
        self._request += data
        if len(self._request) > MAX_BODY:
            self.give_up("too_large")

    def request_end(self, time: float) -> None:
        """Take note that the request was sent at `time`, in seconds of any clock that never goes back."""
        self._sent = time
        if self.unobserved:
            return
        try:
            self._asked = read_request(self._request)
        except UnreadableError:
            self.give_up("malformed")
            return
        self._type = self._classification.type_of(self._path, self._headers, self._asked)
        self._tenant = self._classification.tenant_of(self._headers)
        # vLLM makes its identifier of the client's, who may have put a user's into it.
        self._named = "x-request-id" in self._headers or "request_id" in self._asked.fields
        self._request = bytearray()
        self._headers = {}

    def answer_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the status and the headers (names in lower case) of the answer."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if not 200 <= status < 300:
            self.give_up("refused")
        elif headers.get("content-encoding", "identity").lower() != "identity":
            self.give_up("encoded")
        elif kind == "text/event-stream":
            self._events = EventSplitter(MAX_EVENT)
        elif not kind.endswith("json"):
            self.give_up("malformed")

    def answer_data(self, data: bytes, time: float) -> None:
        """Take bytes of the answer's body, that came at `time`."""
        if self.unobserved:
            return
        if self._events is None:
            self._answer += data
            if len(self._answer) > MAX_BODY:
                self.give_up("too_large")
            return
        try:
            for event in self._events.feed(data):
                self._event(data_of(event), time)
        except EventTooLargeError:
            self.give_up("too_large")

    def _event(self, data: bytes, time: float) -> None:
        if not data:
            return
        if self._first is not None and self._told.model_name and brings_only_tokens(data):
            self._last = time
            return
        try:
            told = read_answer(data)
        except UnreadableError:
            return  # an event of another kind; what matters is in others
        if told.failed:
            self.give_up("refused")
            return
        if told.tokens and not (self._first is None and told.opens):
            self._first = time if self._first is None else self._first
            self._last = time
        self._told = _together(self._told, told)

    def finish(self, wall: float) -> Observation | None:
        """Return what is to be observed after the whole answer came, ``None`` where nothing can be.

        Args:
            wall: Unix time in seconds.
        """
        if not self.unobserved and self._asked is None:
            self.give_up("malformed")  # an answer before the end of its request
        if not self.unobserved and self._events is None:
            try:
                self._told = read_answer(self._answer)
            except UnreadableError:
                self.give_up("malformed")
            if self._told.failed:
                self.give_up("refused")
        if self.unobserved or self._asked is None:
            return None
        told, asked = self._told, self._asked
        tpot = told.tpot_seconds
        if self._events is not None:
            tpot = self._tpot()
        observation = Observation(
            time=wall,
            model_name=told.model_name or asked.model_name,
            temperature=asked.temperature,
            request_type=self._type,
            tenant=self._tenant,
            stream=self._events is not None,
            request_id="" if self._named else told.request_id,
            completion_tokens=told.completion_tokens,
            record=told.record,
            malformed=told.malformed,
            ttft_seconds=told.ttft_seconds if self._events is None else self._ttft(),
            tpot_seconds=tpot,
        )
        self._drop()
        return observation

    def give_up(self, reason: str) -> None:
        """Observe no more of it, for `reason`, and drop what is held."""
        self.unobserved = self.unobserved or reason
        self._drop()

    def _drop(self) -> None:
        self._request, self._answer, self._events, self._headers = bytearray(), bytearray(), None, {}

    def _ttft(self) -> float | None:
        if self._first is None or self._sent is None:
            return None
        return max(0.0, self._first - self._sent)

    def _tpot(self) -> float | None:
        """Return the time per output token, where there is one answer and its tokens are counted."""
        tokens, asked = self._told.completion_tokens, self._asked
        if self._first is None or self._last is None or not tokens or tokens < 2:
            return None
        if asked is None or asked.choices != 1:
            return None
        return (self._last - self._first) / (tokens - 1)


def _together(before: AnswerFields, now: AnswerFields) -> AnswerFields:
    """Return what two events of a stream tell together; the later one knows better."""
    return AnswerFields(
        request_id=before.request_id or now.request_id,
        model_name=before.model_name or now.model_name,
        completion_tokens=before.completion_tokens
        if now.completion_tokens is None
        else now.completion_tokens,
        record=now.record or before.record,
        malformed=before.malformed or now.malformed,
    )
