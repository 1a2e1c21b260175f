"""The fields of OpenAI-compatible requests and responses that the exporter reads; never prompts or texts.

`msgspec` skips other fields without creating objects for them. The one field that it writes is
``stream_options.include_usage``, because vLLM sends the record of a stream only with its usage.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from ..engines.server_info import UNREADABLE
from .engine_records import find_record, record_in_choice, tokens_in
from .observation import DraftRecord, RecordError, parse_record

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Identifiers that a server generates. Those of a client may name a user.
_MADE_BY_SERVER = re.compile(r"([a-z]+-)?([0-9a-f]{16,32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})")

_DONE = b"[DONE]"

#: Limit of plausible times: a day, in seconds.
MAX_SECONDS = 86_400.0


class UnreadableError(ValueError):
    """The JSON of a request or a response is invalid."""


@dataclass(frozen=True, slots=True)
class RequestFields:
    """The fields of a request."""

    model_name: str = ""
    temperature: float | None = None  # the requested temperature, ``None`` if absent
    choices: int = 1  # the requested number of choices
    fields: frozenset[str] = frozenset()  # names of the fields that are not empty


#: `msgspec` has no union of `Raw` and ``None``; and the value of a field that is not there.
_NULL, _ABSENT = msgspec.Raw(b"null"), msgspec.Raw(b"")

#: Limit of the names in a request; with more, only the fields of `_KnownFields` are read.
MOST_NAMES = 20_000
_AFTER_NAME = re.compile(rb'"\s*:')


class _KnownFields(msgspec.Struct):
    model: msgspec.Raw = _ABSENT
    temperature: msgspec.Raw = _ABSENT
    n: msgspec.Raw = _ABSENT
    sampling_params: msgspec.Raw = _ABSENT
    request_id: msgspec.Raw = _ABSENT
    stream: msgspec.Raw = _ABSENT
    stream_options: msgspec.Raw = _ABSENT


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KNOWN_FIELDS = msgspec.json.Decoder(_KnownFields)
_TEXT = msgspec.json.Decoder(str | None)
_NUMBER = msgspec.json.Decoder(float | None, strict=False)
_EMPTY = (b"null", b"[]", b"{}", b'""', b"false")
#: Longer values, with white space around them, are not copied to be compared.
_MAX_WORD = 64
#: Limit of `n`, above what any server accepts.
_MOST_CHOICES = 2**31


def decode_fields(body: bytes | bytearray | msgspec.Raw) -> Mapping[str, msgspec.Raw]:
    """Return the fields of an object: all, or of one with very many names only those that are known.

    Each name becomes an object: a million of them take a quarter of a gigabyte.

    Raises:
        UNREADABLE: invalid JSON, or no object.
    """
    text = body if isinstance(body, bytearray) else bytes(body)
    if (
        text.count(b":") <= MOST_NAMES
        or sum(1 for _ in islice(_AFTER_NAME.finditer(text), MOST_NAMES + 1)) <= MOST_NAMES
    ):
        return _FIELDS.decode(body)
    known = _KNOWN_FIELDS.decode(body)
    values = ((name, getattr(known, name)) for name in known.__struct_fields__)
    return {name: value for name, value in values if value is not _ABSENT}


def read_request(body: bytes | bytearray) -> RequestFields:
    """Return the fields of the JSON of a request; UnreadableError if it is invalid."""
    try:
        fields = decode_fields(body)
        temperature = _NUMBER.decode(fields.get("temperature", b"null"))
        choices = _NUMBER.decode(fields.get("n", b"1"))
        if "sampling_params" in fields:  # the generate route has the parameters one level down
            inner = decode_fields(fields["sampling_params"])
            temperature = _NUMBER.decode(inner.get("temperature", b"null"))
            choices = _NUMBER.decode(inner.get("n", b"1"))
        model = _TEXT.decode(fields.get("model", b"null"))
    except UNREADABLE as error:
        raise UnreadableError("not the JSON of a request") from error
    if temperature is not None and not math.isfinite(temperature):
        temperature = None
    present = frozenset(name for name, value in fields.items() if short_value(value) not in _EMPTY)
    # A number in a string may be inf or nan, which no server accepts.
    count = int(choices) if choices is not None and 1 <= choices <= _MOST_CHOICES else 1
    return RequestFields(model or "", temperature, count, present)


def short_value(value: msgspec.Raw | bytes) -> bytes:
    """Return the JSON of a short value without white space around it, dots for a longer one."""
    return bytes(value).strip() if memoryview(value).nbytes <= _MAX_WORD else b"..."


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    completion_tokens_details: msgspec.Raw = _NULL


class _Metrics(msgspec.Struct):
    speculative_decoding: msgspec.Raw = _NULL
    time_to_first_token_ms: float | None = None
    queue_time_ms: float | None = None
    mean_itl_ms: float | None = None


class _Record(msgspec.Struct):
    num_spec_steps: int | None = None
    num_draft_tokens: int | None = None
    num_accepted_draft_tokens: int | None = None
    acceptance_histogram: list[int] | None = None
    per_step_drafted: list[int] | None = None
    per_step_accepted: list[int] | None = None


class _Choice(msgspec.Struct):
    finish_reason: str | None = None
    delta: msgspec.Raw = _NULL


class _Part(msgspec.Struct):
    choices: msgspec.Raw = _NULL
    usage: _Usage | None = None
    metrics: _Metrics | None = None
    error: msgspec.Raw = _NULL
    sglext: msgspec.Raw = _NULL
    meta_info: msgspec.Raw = _NULL
    timings: msgspec.Raw = _NULL


class _Document(_Part):
    id: str | None = None
    request_id: str | None = None
    model: str | None = None
    tokens_predicted: int | None = None


_DOCUMENT = msgspec.json.Decoder(_Document)
_PART = msgspec.json.Decoder(_Part)
_RECORD = msgspec.json.Decoder(_Record)
_CHOICES = msgspec.json.Decoder(list[_Choice] | None)
#: Fields of a chat's first event that have tokens; without any of them, it only names the role.
_DELTA = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MAX_ROLES = 64 * 1024
_TEXTS = ("content", "reasoning", "reasoning_content", "tool_calls")


@dataclass(frozen=True, slots=True)
class ResponseFields:
    """The fields of a response, or of one event of a streamed response."""

    request_id: str = ""  # the server's identifier, empty if a client may have chosen it
    model_name: str = ""
    tokens: bool = False  # whether it has generated tokens, or their end
    only_role: bool = False  # whether it only names the role, before any token
    prompt_tokens: int | None = None  # tokens of the prompt, if present
    completion_tokens: int | None = None  # generated tokens, if present
    record: DraftRecord | None = None  # the record of speculation, if present
    malformed: bool = False  # whether it has a record that contradicts itself
    ttft_seconds: float | None = None  # the server's own measurement including the queue, if present
    tpot_seconds: float | None = None  # the server's own measurement, if present
    failed: bool = False  # whether it is an error


def read_response(body: bytes | bytearray) -> ResponseFields:
    """Return the fields of the JSON of a response, or of an event's data; UnreadableError if invalid."""
    if body == _DONE:
        return ResponseFields()
    try:
        found = _DOCUMENT.decode(body)
    except UNREADABLE as error:
        raise UnreadableError("not the JSON of a response") from error
    metrics = found.metrics or _Metrics()
    record, malformed = _record(metrics.speculative_decoding)
    if record is None and not malformed:
        details = found.usage.completion_tokens_details if found.usage else _NULL
        of_choice = record_in_choice(found.choices)
        record, malformed = find_record(found.sglext, found.meta_info, found.timings, details, of_choice)
    failed = not _is_null(found.error)
    tokens = _has_choices(found.choices)
    name = found.id or found.request_id or ""
    return ResponseFields(
        request_id=name if _MADE_BY_SERVER.fullmatch(name) else "",
        model_name=found.model or "",
        tokens=tokens,
        only_role=tokens and _have_only_role(found.choices),
        prompt_tokens=_count(found.usage.prompt_tokens) if found.usage else None,
        completion_tokens=_count(_completion_tokens(found)),
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
    return (
        _has_choices(found.choices)
        and found.usage is None
        and found.metrics is None
        and all(map(_is_null, (found.error, found.sglext, found.meta_info, found.timings)))
    )


def _is_null(raw: msgspec.Raw) -> bool:
    return raw is _NULL or bytes(raw).strip() == b"null"


def _record(raw: msgspec.Raw) -> tuple[DraftRecord | None, bool]:
    if _is_null(raw):
        return None, False
    try:
        return parse_record(msgspec.structs.asdict(_RECORD.decode(raw))), False
    except (RecordError, *UNREADABLE):
        return None, True


def _completion_tokens(found: _Document) -> int | None:
    if found.usage is not None:
        return found.usage.completion_tokens
    return found.tokens_predicted if _is_null(found.meta_info) else tokens_in(found.meta_info)


def _has_choices(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"[" and short_value(raw)[1:].strip() != b"]"


def _have_only_role(raw: msgspec.Raw) -> bool:
    """Return whether the choices of an event only name the role; such events are small."""
    if memoryview(raw).nbytes > _MAX_ROLES:
        return False
    try:
        return all(_has_only_role(choice) for choice in _CHOICES.decode(raw) or ())
    except UNREADABLE:
        return False


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
