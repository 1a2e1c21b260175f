"""What is read of requests and answers of an OpenAI-compatible API: a few fields, and never a text.

`msgspec` skips what is not named here without making objects of it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import msgspec

from .observation import DraftRecord, RecordError, parse_record

#: Routes whose answers may have a record, by how their path ends, and the type of request that each is.
ROUTES = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/inference/v1/generate": "generate",
    "/invocations": "invocations",
}

#: Identifiers that a server makes by itself: a client's own may say who it is.
_MADE_BY_SERVER = re.compile(r"([a-z]+-)?([0-9a-f]{16,32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})")

_DONE = b"[DONE]"

#: Times above a day are a mistake, in seconds.
LONGEST = 86_400.0


class UnreadableError(ValueError):
    """Not the JSON of such a request or answer."""


def route_of(path: str) -> str:
    """Return the type of request that a path is of, empty where its answers have no record."""
    path = path.partition("?")[0]
    return next((kind for end, kind in ROUTES.items() if path.endswith(end)), "")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is read of a request.

    Attributes:
        model_name: the model asked for.
        temperature: as asked for, ``None`` without one.
        choices: how many answers.
        fields: the names of the fields that it has.
    """

    model_name: str = ""
    temperature: float | None = None
    choices: int = 1
    fields: frozenset[str] = frozenset()


FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str | None)
_NUMBER = msgspec.json.Decoder(float | None, strict=False)
_EMPTY = (b"null", b"[]", b"{}", b'""', b"false")
#: With the white space around it.
_LONGEST_EMPTY = 64
#: What msgspec raises where bytes are not what they should be. It checks UTF-8 late, and not always itself.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
#: More answers than any server gives to one request.
_MOST_CHOICES = 2**31


def read_request(body: bytes | bytearray) -> Asked:
    """Return what is read of the JSON of a request.

    Raises:
        UnreadableError: not the JSON of a request.
    """
    try:
        fields = FIELDS.decode(body)
        temperature = _NUMBER.decode(fields.get("temperature", b"null"))
        choices = _NUMBER.decode(fields.get("n", b"1"))
        if "sampling_params" in fields:  # tokens in, tokens out: the parameters are one level down
            inner = FIELDS.decode(fields["sampling_params"])
            temperature = _NUMBER.decode(inner.get("temperature", b"null"))
            choices = _NUMBER.decode(inner.get("n", b"1"))
        model = _TEXT.decode(fields.get("model", b"null"))
    except UNREADABLE as error:
        msg = "not the JSON of a request"
        raise UnreadableError(msg) from error
    if temperature is not None and not math.isfinite(temperature):
        temperature = None
    present = frozenset(name for name, value in fields.items() if not _is_empty(value))
    # A number as text may be inf or nan, which no server takes.
    count = int(choices) if choices is not None and 1 <= choices <= _MOST_CHOICES else 1
    return Asked(model or "", temperature, count, present)


def _is_empty(value: msgspec.Raw) -> bool:
    # Not all of what may be megabytes is copied for that.
    return memoryview(value).nbytes <= _LONGEST_EMPTY and bytes(value).strip() in _EMPTY


#: `msgspec` has no union with what is left as it is.
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


class _Document(msgspec.Struct):
    id: str | None = None
    request_id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    metrics: _Metrics | None = None
    error: msgspec.Raw = _NULL


class _Part(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    metrics: _Metrics | None = None
    error: msgspec.Raw = _NULL


_DOCUMENT = msgspec.json.Decoder(_Document)
_PART = msgspec.json.Decoder(_Part)
_ANY = msgspec.json.Decoder()
#: Fields of a chat's first event that bring a token; without any, it only names the role.
_DELTA = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXTS = ("content", "reasoning", "reasoning_content", "tool_calls")


@dataclass(frozen=True, slots=True)
class AnswerFields:
    """What is read of an answer, or of one event of a streamed one.

    Attributes:
        request_id: the server's identifier, empty where a client may have made it.
        model_name: the model that answered.
        tokens: whether it brings generated tokens, or the end of them.
        opens: whether it only names the role, before any token.
        completion_tokens: generated tokens, where it tells.
        only_usage: whether it has usage, no choices and no error: the event that ``include_usage`` asks for.
        record: what speculation did, where it tells.
        malformed: whether it has a record that contradicts itself.
        ttft_seconds: the server's own measurement, queue included, where it tells.
        tpot_seconds: likewise.
        failed: whether it says that the request failed.
    """

    request_id: str = ""
    model_name: str = ""
    tokens: bool = False
    opens: bool = False
    completion_tokens: int | None = None
    only_usage: bool = False
    record: DraftRecord | None = None
    malformed: bool = False
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    failed: bool = False


def read_answer(body: bytes | bytearray) -> AnswerFields:
    """Return what is read of the JSON of an answer or of the data of an event.

    Raises:
        UnreadableError: not the JSON of an answer.
    """
    if body == _DONE:
        return AnswerFields()
    try:
        found = _DOCUMENT.decode(body)
    except UNREADABLE as error:
        msg = "not the JSON of an answer"
        raise UnreadableError(msg) from error
    metrics = found.metrics or _Metrics()
    record, malformed = _record(metrics.speculative_decoding)
    failed = not _is_null(found.error)
    choices = found.choices or []
    name = found.id or found.request_id or ""
    return AnswerFields(
        request_id=name if _MADE_BY_SERVER.fullmatch(name) else "",
        model_name=found.model or "",
        tokens=bool(choices),
        opens=bool(choices) and all(_opens(choice) for choice in choices),
        completion_tokens=_count(found.usage.completion_tokens if found.usage else None),
        only_usage=found.usage is not None and not choices and not failed,
        record=record,
        malformed=malformed,
        ttft_seconds=_ttft(metrics),
        tpot_seconds=_seconds(metrics.mean_itl_ms),
        failed=failed,
    )


def brings_only_tokens(body: bytes) -> bool:
    """Tell whether an event brings tokens, and nothing else that `read_answer` would tell of it anew.

    Nearly all events of a stream do, and this is several times faster.
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


def _opens(choice: _Choice) -> bool:
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
    if milliseconds is None or not 0 <= milliseconds <= 1000 * LONGEST:
        return None
    return milliseconds / 1000
