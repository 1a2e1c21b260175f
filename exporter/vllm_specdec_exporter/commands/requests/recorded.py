"""Reads files of recorded requests: a JSON object on each line.

A line is a response, a request with its response, a request of vLLM's run-batch and
later its response, or a request as it is pushed::

    {"id": ..., "choices": [...], "usage": {...}, "metrics": {...}}
    {"request": {...}, "response": {...}}
    {"custom_id": ..., "body": {...}}
    {"custom_id": ..., "response": {"status_code": 200, "body": ...}}
    {"model": ..., "speculative_decoding": {...}, ...}

A request or a response is the JSON itself, an object with it as `body` (and `url`,
`headers`, `status_code`), or a string with it. A string may also have the events of a
streamed response.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...per_request.exchange import Exchange, data_of
from ...per_request.grouping import Classification
from ...per_request.observation import Observation, route_of
from ...per_request.push_schema import PushedRequest, read_pushed

_Fields = dict[str, msgspec.Raw]
_FIELDS = msgspec.json.Decoder(_Fields)
_HEADERS = msgspec.json.Decoder(dict[str, str])
_TEXT = msgspec.json.Decoder(str)
_NUMBER = msgspec.json.Decoder(float)
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

#: The beginning of a stream of events.
_EVENT = re.compile(rb"(data|event|id|retry)?:")
#: A response has one of these fields: the last two are those of SGLang's and
#: llama.cpp's own routes.
_CONTENTS = frozenset({"choices", "meta_info", "timings"})
#: A line with one of these fields is a request as it is pushed.
_PUSHED = frozenset(PushedRequest.__struct_fields__) - {
    "model",
    "temperature",
    "stream",
}
_OK = 200
_FAILED = 500
_JSON = "application/json"
_STREAM = "text/event-stream"
_UNKNOWN = "neither a response nor any other known form of a recorded request"
#: Fields of a result file of `vllm bench serve`.
_BENCHMARK = frozenset({"request_throughput", "total_output_tokens"})
_TOTALS = (
    "a result of vllm bench serve has totals of all requests "
    "(spec_decode_acceptance_rate and others) and no record of a single one: record "
    "the responses of a server with --per-request-spec-decode-metrics"
)
_UNOBSERVED = {
    "refused": "the request failed",
    "too_large": "the request or the response is too large",
    "malformed": "not the JSON of a request and its response",
}


class EntryError(ValueError):
    """A line cannot be used. Messages are equal for equal reasons."""


class _Message(Struct, frozen=True):
    """A request or a response, with what is known about its HTTP message."""

    body: bytes
    path: str = ""
    headers: Mapping[str, str] | None = None
    status: float = _OK


class EntryReader:
    """Reads lines of files, counts them, and keeps batch requests until their
    responses.

    Attributes:
        entries: the number of lines that were read.
        unused: the number of lines that could not be used, by reason.
        first: the place of the first line that could not be used, by reason.
    """

    def __init__(self, classification: Classification) -> None:
        self.entries = 0
        self.unused: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self._classification = classification
        self._waiting: dict[str, Exchange] = {}

    def read_file(self, name: str, lines: Iterable[bytes]) -> Iterator[Observation]:
        """Yield the observations of a file; those without an identifier get their place
        as `request_id`.

        `name` is the file's name in places, empty if it is the only one.
        """
        for number, line in enumerate(lines, 1):
            if line.isspace():
                continue
            self.entries += 1
            where = f"{name}, line {number}" if name else f"line {number}"
            try:
                observation = self.read(line.strip())
            except EntryError as error:
                self.unused[str(error)] += 1
                self.first.setdefault(str(error), where)
                continue
            if observation is not None:
                yield replace(observation, request_id=observation.request_id or where)

    def end(self) -> None:
        """Count the batch requests without a response as unused."""
        reason = "a request of a batch without its response"
        if self._waiting:
            self.unused[reason] = len(self._waiting)

    def read(self, line: bytes) -> Observation | None:
        """Return the observation of a line; none for a batch request, whose response
        follows.

        EntryError if the line cannot be used.
        """
        try:
            fields = _FIELDS.decode(line)
        except msgspec.ValidationError as error:
            raise EntryError("not a JSON object") from error
        except _ERRORS as error:
            raise EntryError("not JSON: each line has one object") from error
        try:
            return self._read(fields, line)
        except _ERRORS as error:
            raise EntryError("a field has a value of the wrong type") from error

    def _read(self, fields: _Fields, line: bytes) -> Observation | None:
        if "response" in fields:
            return self._paired(fields)
        if not (_CONTENTS | {"metrics", "error"}).isdisjoint(fields):
            return self._observation(_Message(b"{}"), _Message(line))
        if "custom_id" in fields and "body" in fields:
            custom_id = _TEXT.decode(fields["custom_id"])
            self._waiting[custom_id] = self._request(_message(line))
            return None
        if not _PUSHED.isdisjoint(fields):
            try:
                return read_pushed(line, 0.0)[0]
            except (ValueError, RecursionError) as error:
                raise EntryError(str(error)) from error
        if not {"messages", "prompt", "request"}.isdisjoint(fields):
            raise EntryError("a request without its response")
        if not _BENCHMARK.isdisjoint(fields):
            raise EntryError(_TOTALS)
        raise EntryError(_UNKNOWN)

    def _paired(self, fields: _Fields) -> Observation:
        if bytes(fields["response"]) == b"null":
            raise EntryError(_UNOBSERVED["refused"])
        response = _message(fields["response"])
        if "request" in fields:
            return self._observation(_message(fields["request"]), response)
        custom_id = _TEXT.decode(fields.get("custom_id", b'""'))
        # Used once: another file may have the same identifiers.
        waiting = self._waiting.pop(custom_id, None)
        return self._observation(_Message(b"{}"), response, waiting)

    def _request(self, request: _Message, response: bytes = b"{}") -> Exchange:
        """Return the exchange of a request, whose route follows from its response if it
        has no path.
        """
        if request.path and not route_of(request.path):
            raise EntryError("the responses of this path have no record")
        path = request.path or _path_of(request.body) or _path_of(response)
        exchange = Exchange(path, request.headers or {}, self._classification)
        exchange.request_data(request.body)
        exchange.request_end(0.0)
        return exchange

    def _observation(
        self, request: _Message, response: _Message, waiting: Exchange | None = None
    ) -> Observation:
        """Return the observation of a response to `request`, or to the batch request
        `waiting`.
        """
        first = body = response.body
        kind = _JSON
        is_stream = bool(_EVENT.match(body))
        if is_stream:
            first = data_of(re.split(rb"\r?\n\r?\n", body, maxsplit=1)[0])
            body += b"\n\n"
            kind = _STREAM
        fields = _fields_of(first)
        exchange = waiting or self._request(request, first)
        status = _OK
        if bytes(fields.get("error", b"null")) != b"null":
            status = _FAILED
        if not _OK <= response.status < 300:
            status = _FAILED
        if status == _OK and _CONTENTS.isdisjoint(fields):
            raise EntryError(_UNKNOWN)
        exchange.response_head(status, {"content-type": kind})
        exchange.response_data(body, 0.0)
        observation = exchange.finish(_NUMBER.decode(fields.get("created", b"0")))
        if observation is None:
            malformed = _UNOBSERVED["malformed"]
            raise EntryError(_UNOBSERVED.get(exchange.unobserved, malformed))
        # The times of the events are not recorded.
        if is_stream:
            return replace(observation, ttft_seconds=None, tpot_seconds=None)
        return observation


def _message(raw: msgspec.Raw | bytes) -> _Message:
    body = bytes(raw).strip()
    if body.startswith(b'"'):
        return _Message(_TEXT.decode(body).strip().encode())
    fields = _FIELDS.decode(body)
    if "body" not in fields:
        return _Message(body)
    headers = _HEADERS.decode(fields.get("headers", b"{}"))
    return _Message(
        body=_message(fields["body"]).body,
        path=urlsplit(_TEXT.decode(fields.get("url", b'""'))).path,
        headers={name.lower(): value for name, value in headers.items()},
        status=_NUMBER.decode(fields.get("status_code", b"200")),
    )


def _path_of(body: bytes) -> str:
    fields = _fields_of(body)
    kind = bytes(fields.get("object", b""))
    if "messages" in fields or kind.startswith(b'"chat.'):
        return "/v1/chat/completions"
    if "meta_info" in fields:
        return "/generate"
    if "timings" in fields and "choices" not in fields:
        return "/completion"
    if "prompt" in fields or kind == b'"text_completion"':
        return "/v1/completions"
    return ""


def _fields_of(body: bytes) -> _Fields:
    try:
        return _FIELDS.decode(body)
    except _ERRORS:
        return {}
