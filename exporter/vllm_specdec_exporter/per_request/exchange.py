"""An exchange: one request and its answer, fed as their bytes come, and what is to be observed of it.

Pure: whoever sees the bytes says what the time is. An exchange never holds more than `MAX_BODY` of a request
and of an answer that does not stream, and drops either as soon as it was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .answer import Asked, Told, UnreadableError, brings_only_tokens, read_answer, read_request, route_of
from .observation import Observation
from .sse import EventSplitter, EventTooLargeError, data_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .classification import Classification

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
        self._told = Told()
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


def _together(before: Told, now: Told) -> Told:
    """Return what two events of a stream tell together; the later one knows better."""
    return Told(
        request_id=before.request_id or now.request_id,
        model_name=before.model_name or now.model_name,
        completion_tokens=before.completion_tokens
        if now.completion_tokens is None
        else now.completion_tokens,
        record=now.record or before.record,
        malformed=before.malformed or now.malformed,
    )
