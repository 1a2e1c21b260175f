"""Reads files of recorded requests: a JSON object on each line.

A line is a response, a request with its response, a request of vLLM's run-batch and
later its response, or a request as it is pushed::

    {"id": ..., "choices": [...], "usage": {...}, "metrics": {...}}
    {"request": {...}, "response": {...}}
    {"custom_id": ..., "body": {...}}
    {"custom_id": ..., "response": {"status_code": 200, "body": ...}}
    {"model": ..., "speculative_decoding": {...}, ...}

A request or a response is the JSON itself, or an object with it as `body` (and `url`,
`headers`, `status_code`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ...per_request.exchange import Exchange
from ...per_request.grouping import Classification
from ...per_request.observation import Observation
from ...per_request.push_schema import PushedRequest, read_pushed
from ...per_request.routes import lacks_record, route_of

_Fields = dict[str, msgspec.Raw]
_FIELDS = msgspec.json.Decoder(_Fields)
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

#: A response has one of these fields: the last two are those of SGLang's and
#: llama.cpp's own routes.
_CONTENTS = frozenset({"choices", "meta_info", "timings"})
#: A line with one of these fields is a request as it is pushed.
_PUSHED = frozenset(PushedRequest.__struct_fields__) - {
    "model",
    "temperature",
    "stream",
}
_UNKNOWN = "neither a response nor any other known form of a recorded request"
_UNOBSERVED = {
    "refused": "the request failed",
    "too_large": "the request or the response is too large",
    "malformed": "not the JSON of a request and its response",
}


class EntryError(ValueError):
    """A line cannot be used. Messages are equal for equal reasons."""


class _Message(msgspec.Struct, frozen=True):
    """A request or a response, with what is known about its HTTP message."""

    body: msgspec.Raw = msgspec.Raw(b"")
    url: str = ""
    headers: dict[str, str] = {}
    status_code: float = 200
    custom_id: str = ""  # of a request of a batch


_MESSAGE = msgspec.json.Decoder(_Message)


def _message(raw: bytes) -> _Message:
    message = _MESSAGE.decode(raw)
    if message.body:
        return message
    return _Message(msgspec.Raw(raw))


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
            return self._observation(_Message(msgspec.Raw(line)))
        if "custom_id" in fields and "body" in fields:
            request = _message(line)
            self._waiting[request.custom_id] = self._exchange(request)
            return None
        if not _PUSHED.isdisjoint(fields):
            try:
                return read_pushed(line, 0.0)[0]
            except (ValueError, RecursionError) as error:
                raise EntryError(str(error)) from error
        if not {"messages", "prompt", "request"}.isdisjoint(fields):
            raise EntryError("a request without its response")
        raise EntryError(_UNKNOWN)

    def _paired(self, fields: _Fields) -> Observation:
        if bytes(fields["response"]) == b"null":
            raise EntryError(_UNOBSERVED["refused"])
        response = _message(fields["response"])
        exchange = None
        if "request" in fields:
            exchange = self._exchange(_message(fields["request"]), response.body)
        elif "custom_id" in fields:
            custom_id = msgspec.json.decode(fields["custom_id"], type=str)
            # Used once: another file may have the same identifiers.
            exchange = self._waiting.pop(custom_id, None)
        return self._observation(response, exchange)

    def _exchange(self, request: _Message, response: bytes = b"{}") -> Exchange:
        """Return the exchange of a request, whose route follows from its response if it
        has no path.
        """
        path = urlsplit(request.url).path
        if path and (not route_of(path) or lacks_record("POST", path)):
            raise EntryError("the responses of this path have no record")
        path = path or _path_of(request.body) or _path_of(response)
        headers = {name.lower(): value for name, value in request.headers.items()}
        exchange = Exchange(path, headers, self._classification)
        exchange.request_data(bytes(request.body))
        exchange.request_end(0.0)
        return exchange

    def _observation(
        self, response: _Message, exchange: Exchange | None = None
    ) -> Observation:
        """Return the observation of a response; without an exchange, it has no data of
        its request.
        """
        body = bytes(response.body)
        fields = _fields_of(body)
        exchange = exchange or self._exchange(_Message(msgspec.Raw(b"{}")), body)
        status = 200
        has_error = bytes(fields.get("error", b"null")) != b"null"
        if has_error or not 200 <= response.status_code < 300:
            status = 500
        elif _CONTENTS.isdisjoint(fields):
            raise EntryError(_UNKNOWN)
        exchange.response_head(status, {"content-type": "application/json"})
        exchange.response_data(body, 0.0)
        created = msgspec.json.decode(fields.get("created", b"0"), type=float)
        observation = exchange.finish(created)
        if observation is None:
            malformed = _UNOBSERVED["malformed"]
            raise EntryError(_UNOBSERVED.get(exchange.unobserved, malformed))
        return observation


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
