"""The fields of OpenAI-compatible requests and responses that the exporter reads; never
prompts or texts.

`msgspec` skips other fields without creating objects for them.
"""

import math
import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from ..engines import UNREADABLE
from .records import DraftRecord, RecordError, VllmRecord, find_record, tokens_in

#: Identifiers that a server generates. Those of a client may name a user.
_MADE_BY_SERVER = re.compile(
    r"([a-z]+-)?([0-9a-f]{16,32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})"
)

_DONE = b"[DONE]"


class UnreadableError(ValueError):
    """The JSON of a request or a response is invalid."""


class RequestFields(Struct, frozen=True):
    """The fields of a request."""

    model_name: str = ""
    temperature: float | None = None  # the requested temperature, ``None`` if absent
    choices: int = 1  # the requested number of choices
    fields: frozenset[str] = frozenset()  # names of the fields that are not empty


#: `msgspec` has no union of `Raw` and ``None``; and the value of a field that is not
#: there.
_NULL = msgspec.Raw(b"null")
_ABSENT = msgspec.Raw(b"")

#: Limit of the names in a request, of which each becomes an object: a million of them
#: take a quarter of a gigabyte. With more colons, also in texts, only the fields of
#: `_KnownFields` are read.
MAX_NAMES = 20_000


class _KnownFields(msgspec.Struct):
    model: msgspec.Raw = _ABSENT
    temperature: msgspec.Raw = _ABSENT
    n: msgspec.Raw = _ABSENT
    sampling_params: msgspec.Raw = _ABSENT
    request_id: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT
    response_format: msgspec.Raw = _ABSENT


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KNOWN_FIELDS = msgspec.json.Decoder(_KnownFields)
_TEXT = msgspec.json.Decoder(str | None)
_NUMBER = msgspec.json.Decoder(float | None, strict=False)
_EMPTY = (b"null", b"[]", b"{}", b'""', b"false")
#: Longer values, with white space around them, are not copied to be compared: no empty
#: value is as long.
_MAX_WORD = 64
#: Limit of `n`, above what any server accepts.
_MAX_CHOICES = 2**31


def _decode_fields(body: bytes | bytearray | msgspec.Raw) -> Mapping[str, msgspec.Raw]:
    """Return the fields of an object: all, or of a request with very many names only
    those that are known.
    """
    # A bytearray counts without a copy, a msgspec.Raw cannot count.
    text = bytes(body) if isinstance(body, msgspec.Raw) else body
    if text.count(b":") <= MAX_NAMES:
        return _FIELDS.decode(body)
    known = msgspec.structs.asdict(_KNOWN_FIELDS.decode(body))
    return {name: value for name, value in known.items() if value is not _ABSENT}


def read_request(body: bytes | bytearray) -> RequestFields:
    """Return the fields of the JSON of a request; UnreadableError if it is invalid."""
    try:
        fields = _decode_fields(body)
        levels = [fields]
        # the generate route has the parameters one level down
        if "sampling_params" in fields:
            levels.append(_decode_fields(fields["sampling_params"]))
        for parameters in levels:
            temperature = _NUMBER.decode(parameters.get("temperature", b"null"))
            choices = _NUMBER.decode(parameters.get("n", b"1"))
        model = _TEXT.decode(fields.get("model", b"null"))
    except UNREADABLE as error:
        raise UnreadableError("not the JSON of a request") from error
    # A number in a string may be inf or nan, which no server accepts.
    if temperature is not None and not math.isfinite(temperature):
        temperature = None
    if choices is None or not 1 <= choices <= _MAX_CHOICES:
        choices = 1
    return RequestFields(
        model_name=model or "",
        temperature=temperature,
        choices=int(choices),
        fields=frozenset(
            name for name, value in fields.items() if not _is_empty(value)
        ),
    )


def _is_empty(value: msgspec.Raw | bytes) -> bool:
    return _short_value(value) in _EMPTY


def _short_value(value: msgspec.Raw | bytes) -> bytes:
    """Return the JSON of a short value without white space around it, dots for a longer
    one.
    """
    if memoryview(value).nbytes <= _MAX_WORD:
        return bytes(value).strip()
    return b"..."


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    completion_tokens_details: msgspec.Raw = _NULL


class _Tokens(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Inner(msgspec.Struct):
    """The response within an event of a streamed `/v1/responses`."""

    model: str | None = None
    usage: _Tokens | None = None
    error: msgspec.Raw = _NULL


class _Metrics(msgspec.Struct):
    speculative_decoding: msgspec.Raw = _NULL


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
    response: msgspec.Raw = _NULL


_DOCUMENT = msgspec.json.Decoder(_Document)
_PART = msgspec.json.Decoder(_Part)
_INNER = msgspec.json.Decoder(_Inner)
_VLLM_RECORD = msgspec.json.Decoder(VllmRecord)
_CHOICES = msgspec.json.Decoder(list[_Choice] | None)
_DELTA = msgspec.json.Decoder(dict[str, msgspec.Raw])
#: Limit of the choices of an event that only names the role, in bytes: with 128 choices
#: about 10 KiB.
_MAX_ROLES = 64 * 1024
#: Fields of a chat's first event that have tokens; without any of them, it only names
#: the role.
_TEXTS = ("content", "reasoning", "reasoning_content", "tool_calls")


class ResponseFields(Struct, frozen=True):
    """The fields of a response, or of one event of a streamed response."""

    #: The server's identifier, empty if a client may have chosen it.
    request_id: str = ""
    model_name: str = ""
    tokens: bool = False  # whether it has generated tokens, or their end
    only_role: bool = False  # whether it only names the role, before any token
    prompt_tokens: int | None = None  # tokens of the prompt, if present
    completion_tokens: int | None = None  # generated tokens, if present
    record: DraftRecord | None = None  # the record of speculation, if present
    malformed: bool = False  # whether it has a record that contradicts itself
    failed: bool = False  # whether it is an error


def read_response(body: bytes | bytearray) -> ResponseFields:
    """Return the fields of the JSON of a response, or of an event's data;
    UnreadableError if invalid.
    """
    if body == _DONE:
        return ResponseFields()
    try:
        document = _DOCUMENT.decode(body)
    except UNREADABLE as error:
        raise UnreadableError("not the JSON of a response") from error
    inner = _inner_response(document.response)
    usage = document.usage or _usage_of(inner)
    metrics = document.metrics or _Metrics()
    record, malformed = _vllm_record(metrics.speculative_decoding)
    if record is None and not malformed:
        record, malformed = find_record(
            document.sglext,
            document.meta_info,
            document.timings,
            usage.completion_tokens_details,
        )
    tokens = _has_choices(document.choices)
    request_id = document.id or document.request_id or ""
    if not _MADE_BY_SERVER.fullmatch(request_id):
        request_id = ""
    return ResponseFields(
        request_id=request_id,
        model_name=document.model or inner.model or "",
        tokens=tokens,
        only_role=tokens and _have_only_role(document.choices),
        prompt_tokens=_count(usage.prompt_tokens),
        completion_tokens=_count(_completion_tokens(document, usage)),
        record=record,
        malformed=malformed,
        failed=not (_is_null(document.error) and _is_null(inner.error)),
    )


def brings_only_tokens(body: bytes) -> bool:
    """Return whether an event has tokens and no other field that `read_response` reads.

    True for nearly all events of a stream, and several times faster than
    `read_response`.
    """
    try:
        part = _PART.decode(body)
    except UNREADABLE:
        return False
    return (
        _has_choices(part.choices)
        and part.usage is None
        and part.metrics is None
        and all(map(_is_null, (part.error, part.sglext, part.meta_info, part.timings)))
    )


def _is_null(raw: msgspec.Raw) -> bool:
    return raw is _NULL or bytes(raw).strip() == b"null"


def _vllm_record(raw: msgspec.Raw) -> tuple[DraftRecord | None, bool]:
    if _is_null(raw):
        return None, False
    try:
        return _VLLM_RECORD.decode(raw).record(), False
    except (RecordError, *UNREADABLE):
        return None, True


def _inner_response(raw: msgspec.Raw) -> _Inner:
    """Return the response in an event; an empty one where the field is another's."""
    try:
        return _INNER.decode(raw)
    except UNREADABLE:
        return _Inner()


def _usage_of(inner: _Inner) -> _Usage:
    tokens = inner.usage or _Tokens()
    return _Usage(tokens.input_tokens, tokens.output_tokens)


def _completion_tokens(document: _Document, usage: _Usage) -> int | None:
    if document.usage is not None or usage.completion_tokens is not None:
        return usage.completion_tokens
    if _is_null(document.meta_info):
        return document.tokens_predicted
    return tokens_in(document.meta_info)


def _has_choices(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"[" and _short_value(raw)[1:].strip() != b"]"


def _have_only_role(raw: msgspec.Raw) -> bool:
    """Return whether choices of an event only name the role; such events are small."""
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
    return "role" in delta and all(_is_empty(delta.get(key, _NULL)) for key in _TEXTS)


def _count(value: int | None) -> int | None:
    if value is not None and 0 <= value < 2**53:
        return value
    return None
