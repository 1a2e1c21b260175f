"""Reads an entry of a file into observations.

An entry is one of::

    {"id": ..., "choices": [...], "usage": {...}, "metrics": {...}}    an answer
    {"request": {...}, "response": {...}}                              a request and its answer
    {"custom_id": ..., "body": {...}}                                  a request of vLLM's run-batch,
    {"custom_id": ..., "response": {"status_code": 200, "body": ...}}  and later its answer
    {"requests": [...]}                                                a push, or one request of it
    {"temperature": ..., "ttft": ..., "usage": {...}, "spec": {...}}   a record of a client
    data: {...}                                                        the events of a streamed answer

A request or response is the JSON itself, an object with it as `body` (and `path` or `url`, `headers`,
`status_code`), or a string with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from ...requests.exchange import Exchange
from ...requests.push_schema import PushedRequest, PushError, read_push
from ...requests.routes import route_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...requests.grouping import Classification
    from ...requests.observation import Observation

#: A line of a stream of events.
EVENT_LINE = re.compile(rb"(data|event|id|retry)?:")

#: Maximum number of batch requests without an answer.
_MOST_WAITING = 1_000_000

_Fields = dict[str, msgspec.Raw]
_FIELDS = msgspec.json.Decoder(_Fields)
_HEADERS = msgspec.json.Decoder(dict[str, str])
_TEXT = msgspec.json.Decoder(str)
_NUMBER = msgspec.json.Decoder(float)
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

#: An answer has one of these fields: the last two are of SGLang's and llama.cpp's own routes.
_CONTENTS = frozenset({"choices", "meta_info", "timings"})
_ANSWERS = _CONTENTS | {"metrics", "error"}
#: An entry with one of these fields of a push is a pushed request.
_PUSHED = frozenset(PushedRequest.__struct_fields__) - {"model", "temperature", "stream"}
_OK, _FAILED = 200, 500
_JSON, _STREAM = "application/json", "text/event-stream"
_UNKNOWN = "neither an answer nor any other known form of a recorded request"
_UNOBSERVED = {
    "refused": "the request failed",
    "too_large": "the request or the answer is too large",
    "malformed": "not the JSON of a request and its answer",
}


class EntryError(ValueError):
    """An entry of which only the `observations` can be used. Messages are equal for equal reasons."""

    def __init__(self, reason: str, observations: tuple[Observation, ...] = ()) -> None:
        super().__init__(reason)
        self.observations = observations


class _ClientRecord(msgspec.Struct, kw_only=True):
    spec: dict[str, Any] | None
    model: str = ""
    temperature: float | None = None
    request_type: str = ""
    usage: dict[str, Any] | None = None
    end: float | None = None
    ttft: float | None = None
    decode_s: float | None = None


_CLIENT_RECORD = msgspec.json.Decoder(_ClientRecord)


@dataclass(frozen=True, slots=True)
class _Message:
    """A request or an answer, with what is known about its HTTP message."""

    body: bytes
    path: str = ""
    headers: Mapping[str, str] | None = None
    status: float = _OK


class EntryReader:
    """Reads entries, and keeps batch requests until their answers."""

    def __init__(self, classification: Classification) -> None:
        self._classification = classification
        self._waiting: dict[str, Exchange] = {}

    @property
    def unanswered(self) -> int:
        """Number of batch requests without an answer."""
        return len(self._waiting)

    def read(self, body: bytes) -> tuple[Observation, ...]:
        """Return the observations of an entry; none for a batch request, whose answer follows.

        Raises:
            EntryError: the entry cannot be used completely.
        """
        if EVENT_LINE.match(body):
            return (self._observation(None, _Message(body)),)
        try:
            fields = _FIELDS.decode(body)
        except msgspec.ValidationError as error:
            raise EntryError("not a JSON object") from error
        except _ERRORS as error:
            raise EntryError("not JSON") from error
        try:
            return self._read(fields, body)
        except _ERRORS as error:
            raise EntryError("a field has a value of the wrong type") from error

    def _read(self, fields: _Fields, body: bytes) -> tuple[Observation, ...]:
        if "response" in fields:
            return (self._paired(fields, body),)
        if not _ANSWERS.isdisjoint(fields):
            return (self._observation(None, _Message(body)),)
        if "requests" in fields:
            return _pushed(body)
        if "spec" in fields:
            return _client_record(body)
        if "custom_id" in fields and "body" in fields:
            if len(self._waiting) < _MOST_WAITING:
                request = _message(body)
                self._waiting[_TEXT.decode(fields["custom_id"])] = self._request(
                    request, _path_of(request.body)
                )
            return ()
        if _PUSHED & set(fields):
            return _pushed(b'{"requests":[%b]}' % body)
        if "messages" in fields or "prompt" in fields or "request" in fields:
            raise EntryError("a request without its answer")
        raise EntryError(_UNKNOWN)

    def _paired(self, fields: _Fields, body: bytes) -> Observation:
        if bytes(fields["response"]) == b"null":
            raise EntryError(_UNOBSERVED["refused"])
        answer = _message(fields["response"])
        if "request" in fields:
            return self._observation(_message(fields["request"]), answer)
        waiting = None
        if "custom_id" in fields:
            waiting = self._waiting.pop(_TEXT.decode(fields["custom_id"]), None)
        # Without a request, the entry may contain its temperature.
        return self._observation(_Message(body), answer, waiting)

    def _request(self, request: _Message, path: str) -> Exchange:
        exchange = Exchange(request.path or path, request.headers or {}, self._classification)
        if request.path and not route_of(request.path):
            raise EntryError("the answers of this path have no record")
        exchange.request_data(request.body)
        exchange.request_end(0.0)
        return exchange

    def _observation(
        self, request: _Message | None, answer: _Message, asked: Exchange | None = None
    ) -> Observation:
        """Return the observation of an answer and its request, if there is one."""
        streamed = bool(EVENT_LINE.match(answer.body))
        first = _first_event(answer.body) if streamed else answer.body
        if asked is None:
            path = _path_of(request.body if request else b"{}") or _path_of(first)
            asked = self._request(request or _Message(b"{}"), path)
        failed = not _OK <= answer.status < 300 or _has_failed(first)
        if not failed and _CONTENTS.isdisjoint(_fields_of(first)):
            raise EntryError(_UNKNOWN)
        asked.response_head(_FAILED if failed else _OK, {"content-type": _STREAM if streamed else _JSON})
        asked.response_data(answer.body + (b"\n\n" if streamed else b""), 0.0)
        observation = asked.finish(_created(first))
        if observation is None:
            raise EntryError(_UNOBSERVED.get(asked.unobserved, _UNOBSERVED["malformed"]))
        # The times of the events are not recorded.
        return replace(observation, ttft_seconds=None, tpot_seconds=None) if streamed else observation


def _message(raw: msgspec.Raw | bytes) -> _Message:
    body = bytes(raw).strip()
    if body.startswith(b'"'):
        return _Message(_TEXT.decode(body).strip().encode())
    fields = _FIELDS.decode(body)
    if "body" not in fields:
        return _Message(body)
    status = fields.get("status_code", fields.get("status"))
    location = fields.get("path", fields.get("url"))
    return _Message(
        _message(fields["body"]).body,
        urlsplit(_TEXT.decode(location)).path if location is not None else "",
        _headers(fields.get("headers")),
        _NUMBER.decode(status) if status is not None else _OK,
    )


def _headers(raw: msgspec.Raw | None) -> dict[str, str]:
    if raw is None:
        return {}
    try:
        return {name.lower(): value for name, value in _HEADERS.decode(raw).items()}
    except msgspec.ValidationError:
        return {}  # in an unknown format


def _path_of(body: bytes) -> str:
    """Return the path of a request or an answer, from its fields."""
    fields = _fields_of(body)
    kind = bytes(fields.get("object", b""))
    if "messages" in fields or kind.startswith(b'"chat.'):
        return "/v1/chat/completions"
    if "meta_info" in fields or ("timings" in fields and "choices" not in fields):
        return "/generate" if "meta_info" in fields else "/completion"
    return "/v1/completions" if "prompt" in fields or kind == b'"text_completion"' else ""


def _first_event(body: bytes) -> bytes:
    for line in body.splitlines():
        if line.startswith(b"data:"):
            return line.removeprefix(b"data:").strip()
    return b""


def _has_failed(body: bytes) -> bool:
    fields = _fields_of(body)
    return bytes(fields.get("error", b"null")) != b"null" or bytes(fields.get("object", b"")) == b'"error"'


def _created(body: bytes) -> float:
    """Return the field `created` of an answer, Unix seconds; 0 without one."""
    try:
        return _NUMBER.decode(_fields_of(body).get("created", b"0"))
    except _ERRORS:
        return 0.0


def _fields_of(body: bytes) -> _Fields:
    try:
        return _FIELDS.decode(body)
    except _ERRORS:
        return {}


def _pushed(body: bytes, wall: float = 0.0) -> tuple[Observation, ...]:
    try:
        pushed = read_push(body, wall)
    except PushError as error:
        raise EntryError(str(error)) from error
    if pushed.errors:
        raise EntryError(pushed.errors[0][1], pushed.observations)
    return pushed.observations


def _client_record(body: bytes) -> tuple[Observation, ...]:
    try:
        found = _CLIENT_RECORD.decode(body)
    except msgspec.ValidationError as error:
        raise EntryError(str(error)) from error
    tokens = (found.usage or {}).get("completion_tokens")
    tpot = None
    if found.decode_s is not None and isinstance(tokens, int) and tokens > 1:
        tpot = found.decode_s / (tokens - 1)
    pushed = {
        "model": found.model,
        "temperature": found.temperature,
        "request_type": found.request_type,
        "stream": found.ttft is not None,
        "completion_tokens": tokens,
        "time_to_first_token_seconds": found.ttft,
        "time_per_output_token_seconds": tpot,
        "speculative_decoding": found.spec,
    }
    return _pushed(msgspec.json.encode({"requests": [pushed]}), found.end or 0.0)
