"""The fields of OpenAI-compatible requests and responses that the exporter reads; never prompts or texts.

`msgspec` skips other fields without creating objects for them. vLLM sends the record of a stream only with
its usage, so the option ``stream_options.include_usage`` can be added to a request.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import islice

import msgspec

from .observation import DraftRecord, RecordError, parse_record

#: Routes whose responses may have a record: the end of the path, and the type of request.
ROUTES = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/inference/v1/generate": "generate",
    "/invocations": "invocations",
}

#: Identifiers that a server generates. Those of a client may name a user.
_MADE_BY_SERVER = re.compile(r"([a-z]+-)?([0-9a-f]{16,32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})")

_DONE = b"[DONE]"

#: Limit of plausible times: a day, in seconds.
MAX_SECONDS = 86_400.0


class UnreadableError(ValueError):
    """The JSON of a request or a response is invalid."""


def route_of(path: str) -> str:
    """Return the type of request of a path, empty if its responses have no record."""
    path = path.partition("?")[0]
    return next((kind for end, kind in ROUTES.items() if path.endswith(end)), "")


@dataclass(frozen=True, slots=True)
class RequestFields:
    """The fields of a request.

    Attributes:
        model_name: the requested model.
        temperature: the requested temperature, ``None`` if absent.
        choices: the requested number of choices.
        fields: names of the fields that are not empty.
    """

    model_name: str = ""
    temperature: float | None = None
    choices: int = 1
    fields: frozenset[str] = frozenset()


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str | None)
_NUMBER = msgspec.json.Decoder(float | None, strict=False)
_EMPTY = (b"null", b"[]", b"{}", b'""', b"false")
#: Longer values, with white space around them, are not copied to be compared.
_MAX_WORD = 64
#: What msgspec raises for invalid JSON. It checks UTF-8 late, and not always itself.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
#: Limit of `n`, above what any server accepts.
_MOST_CHOICES = 2**31


def read_request(body: bytes | bytearray) -> RequestFields:
    """Return the fields of the JSON of a request.

    Raises:
        UnreadableError: invalid JSON.
    """
    try:
        fields = _FIELDS.decode(body)
        temperature = _NUMBER.decode(fields.get("temperature", b"null"))
        choices = _NUMBER.decode(fields.get("n", b"1"))
        if "sampling_params" in fields:  # the generate route has the parameters one level down
            inner = _FIELDS.decode(fields["sampling_params"])
            temperature = _NUMBER.decode(inner.get("temperature", b"null"))
            choices = _NUMBER.decode(inner.get("n", b"1"))
        model = _TEXT.decode(fields.get("model", b"null"))
    except UNREADABLE as error:
        raise UnreadableError("not the JSON of a request") from error
    if temperature is not None and not math.isfinite(temperature):
        temperature = None
    present = frozenset(name for name, value in fields.items() if not _is_empty(value))
    # A number in a string may be inf or nan, which no server accepts.
    count = int(choices) if choices is not None and 1 <= choices <= _MOST_CHOICES else 1
    return RequestFields(model or "", temperature, count, present)


def _is_empty(value: msgspec.Raw) -> bool:
    return _word(value) in _EMPTY


def _word(value: msgspec.Raw | bytes) -> bytes:
    return bytes(value).strip() if memoryview(value).nbytes <= _MAX_WORD else b"..."


_INCLUDE_USAGE = b'{"include_usage":true}'
_STREAM_OPTIONS = b'"stream_options":' + _INCLUDE_USAGE + b","
_NULL_OPTIONS = re.compile(rb'"stream_options"[ \t\r\n]*:[ \t\r\n]*(null)')


def with_include_usage(path: str, body: bytes) -> bytes | None:
    """Return a request's body with ``include_usage``; ``None`` if it stays unchanged.

    Args:
        path: of the request.
        body: the JSON of the request.
    """
    if route_of(path) not in ("chat", "completions"):
        return None
    changed = bytearray(body)
    return bytes(changed) if add_include_usage(changed) else None


def add_include_usage(body: bytearray) -> bool:
    """Add ``include_usage`` to a streamed request without stream options; return whether it did."""
    place = _place_of_options(body)
    if place is None:
        return False
    start, end = place
    body[start:end] = _STREAM_OPTIONS if start == end else _INCLUDE_USAGE
    return True


def _place_of_options(body: bytearray) -> tuple[int, int] | None:
    """Return start and end of the bytes to replace."""
    stream, options = _stream_fields(body)
    # Servers refuse stream options with `"stream": 0`, which some read as false.
    if stream != b"true":
        return None
    if not options:
        opening = body.index(b"{") + 1
        return opening, opening
    # Servers read duplicate fields differently, so the value itself has to be replaced.
    places = [found.span(1) for found in islice(_NULL_OPTIONS.finditer(body), 2)]
    if options != b"null" or len(places) != 1:
        return None
    start, end = places[0]
    body[start:end] = (
        b"true"  # of the same length: tests whether it belongs to the request or a nested object
    )
    try:
        return places[0] if _stream_fields(body)[1] == b"true" else None
    finally:
        body[start:end] = b"null"


def _stream_fields(body: bytearray) -> tuple[bytes, bytes]:
    """Return the JSON of `stream` and `stream_options`, empty if absent."""
    try:
        fields = _FIELDS.decode(body)
    except UNREADABLE:
        return b"", b""
    return _word(fields.get("stream", b"")), _word(fields.get("stream_options", b""))


#: `msgspec` has no union of `Raw` and ``None``.
_NULL = msgspec.Raw(b"null")


class _Usage(msgspec.Struct):
    completion_tokens: int | None = None


class _Metrics(msgspec.Struct):
    speculative_decoding: msgspec.Raw = _NULL
    time_to_first_token_ms: float | None = None
    queue_time_ms: float | None = None
    mean_itl_ms: float | None = None


class _Choice(msgspec.Struct):
    finish_reason: str | None = None
    delta: msgspec.Raw = _NULL


class _Part(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    metrics: _Metrics | None = None
    error: msgspec.Raw = _NULL


class _Document(_Part):
    id: str | None = None
    request_id: str | None = None
    model: str | None = None


_DOCUMENT = msgspec.json.Decoder(_Document)
_PART = msgspec.json.Decoder(_Part)
_ANY = msgspec.json.Decoder()
#: Fields of a chat's first event that have tokens; without any of them, it only names the role.
_DELTA = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXTS = ("content", "reasoning", "reasoning_content", "tool_calls")


@dataclass(frozen=True, slots=True)
class ResponseFields:
    """The fields of a response, or of one event of a streamed response.

    Attributes:
        request_id: the server's identifier, empty if a client may have chosen it.
        model_name: the model of the response.
        tokens: whether it has generated tokens, or their end.
        only_role: whether it only names the role, before any token.
        completion_tokens: generated tokens, if present.
        only_usage: whether it has usage, no choices and no error: the event of ``include_usage``.
        record: the record of speculation, if present.
        malformed: whether it has a record that contradicts itself.
        ttft_seconds: the server's own measurement including the queue, if present.
        tpot_seconds: the server's own measurement, if present.
        failed: whether it is an error.
    """

    request_id: str = ""
    model_name: str = ""
    tokens: bool = False
    only_role: bool = False
    completion_tokens: int | None = None
    only_usage: bool = False
    record: DraftRecord | None = None
    malformed: bool = False
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    failed: bool = False


def read_response(body: bytes | bytearray) -> ResponseFields:
    """Return the fields of the JSON of a response, or of the data of an event.

    Raises:
        UnreadableError: invalid JSON.
    """
    if body == _DONE:
        return ResponseFields()
    try:
        found = _DOCUMENT.decode(body)
    except UNREADABLE as error:
        raise UnreadableError("not the JSON of a response") from error
    metrics = found.metrics or _Metrics()
    record, malformed = _record(metrics.speculative_decoding)
    failed = not _is_null(found.error)
    choices = found.choices or []
    name = found.id or found.request_id or ""
    return ResponseFields(
        request_id=name if _MADE_BY_SERVER.fullmatch(name) else "",
        model_name=found.model or "",
        tokens=bool(choices),
        only_role=bool(choices) and all(_has_only_role(choice) for choice in choices),
        completion_tokens=_count(found.usage.completion_tokens if found.usage else None),
        only_usage=found.usage is not None and not choices and not failed,
        record=record,
        malformed=malformed,
        ttft_seconds=_ttft(metrics),
        tpot_seconds=_seconds(metrics.mean_itl_ms),
        failed=failed,
    )


def brings_only_tokens(body: bytes) -> bool:
    """Return whether an event has tokens and no other field that `read_response` reads.

    True for nearly all events of a stream, and several times faster than `read_response`.
    """
    try:
        found = _PART.decode(body)
    except UNREADABLE:
        return False
    return bool(found.choices) and found.usage is None and found.metrics is None and _is_null(found.error)


def _is_null(raw: msgspec.Raw) -> bool:
    return bytes(raw).strip() == b"null"


def _record(raw: msgspec.Raw) -> tuple[DraftRecord | None, bool]:
    if _is_null(raw):
        return None, False
    try:
        return parse_record(_ANY.decode(raw)), False
    except (RecordError, *UNREADABLE):
        return None, True


def _has_only_role(choice: _Choice) -> bool:
    if _is_null(choice.delta) or choice.finish_reason is not None:
        return False
    try:
        delta = _DELTA.decode(choice.delta)
    except UNREADABLE:
        return False
    return "role" in delta and not any(bytes(delta.get(key, b"null")).strip() not in _EMPTY for key in _TEXTS)


def _count(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < 2**53 else None


def _ttft(metrics: _Metrics) -> float | None:
    first, queue = _seconds(metrics.time_to_first_token_ms), _seconds(metrics.queue_time_ms)
    return None if first is None or queue is None else first + queue


def _seconds(milliseconds: float | None) -> float | None:
    if milliseconds is None or not 0 <= milliseconds <= 1000 * MAX_SECONDS:
        return None
    return milliseconds / 1000
