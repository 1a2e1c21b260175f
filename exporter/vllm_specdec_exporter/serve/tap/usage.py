"""Adds ``include_usage`` to streamed requests, and removes the resulting event from the response.

Chunks of a response are rewritten along event boundaries; all other bytes stay the same. A stream that ends
with its connection stays one. A stream with a Content-Length becomes chunked, because its new length is not
known in advance.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from ...requests.exchange import MOST_LACKING, SMALL, Exchange, UsageEventFilter
from ...requests.openai_api import add_include_usage
from . import http_framing as http

#: Bytes of a request body that may be held back until it is complete; larger requests stay unchanged.
MAX_HELD_BODY = 8 * 1024 * 1024
_LENGTH = re.compile(rb"(?im)^(content-length:[ \t]*)(\d+)([ \t]*\r?)$")
_ANY_LENGTH = re.compile(rb"(?im)^content-length:[^\r\n]*")
_ACCEPT_ENCODING = re.compile(rb"(?im)^(accept-encoding:)[^\r\n]*")
_IDENTITY_REFUSED = re.compile(r"(identity|\*)\s*;\s*q=0(\.0*)?\s*(,|$)", re.IGNORECASE)


def _is_candidate(head: http.RequestHead) -> bool:
    """Return whether a request may be a stream to add ``include_usage`` to, judged by its head."""
    # With ``Expect: 100-continue`` the head is sent before the body, so its length cannot change any more.
    headers = head.headers
    if head.length is None or not 0 < head.length <= MAX_HELD_BODY or "expect" in headers:
        return False
    refused = _IDENTITY_REFUSED.search(headers.get("accept-encoding", ""))
    if refused or headers.get("te", "trailers").lower() != "trailers":
        return False
    return Exchange.is_observable(head.method, head.path, headers)


def _rewrite(head: bytes, body: bytearray) -> bytes | None:
    """Add ``include_usage`` to `body` and return the matching head; ``None`` if the request stays as it is.

    The new head refuses compression, because from a compressed response no event can be removed.
    """
    try:
        if len(_LENGTH.findall(head)) != 1 or not add_include_usage(body):
            return None
    except Exception:  # noqa: BLE001 - traffic must not fail; the observer runs into the same defect and logs it
        return None
    length = b"%d" % len(body)
    head = _LENGTH.sub(lambda found: found[1] + length + found[3], head)
    return _ACCEPT_ENCODING.sub(rb"\1 identity", head)


class _Phase(Enum):
    HEAD = auto()
    HELD = auto()  # a body that is held back
    BODY = auto()  # a body of known length that passes
    CHUNKS = auto()  # a chunked body that passes
    PLAIN = auto()  # everything passes until the connection ends


class UsageRewriter:
    """Requests the usage of the streams of one connection."""

    def __init__(self) -> None:
        self._phase = _Phase.HEAD
        self._buffer = bytearray()  # of a head, then of a body that is held back
        self._passed = 0  # bytes of that head that were passed on already
        self._head = b""
        self._left = 0
        self._chunks = http.ChunkedEnd()
        self._remover: UsageEventRemover | None = None

    @property
    def held(self) -> int:
        """Bytes of a request body that are held back now."""
        return len(self._buffer) if self.is_holding else 0

    @property
    def is_holding(self) -> bool:
        """Whether a request is held back."""
        return self._phase is _Phase.HELD

    def request(self, data: bytes, *, alone: bool = True) -> bytes:
        """Return what to send to the server for `data` from the client.

        `alone` is whether no other request is in progress. Pipelined requests stay unchanged, because it is
        not certain which response belongs to which request.
        """
        out: list[bytes] = []
        while data:  # each method returns what can be sent, and the rest
            if self._phase is _Phase.HEAD:
                passed, data = self._take_head(data, alone=alone and not any(out))
            elif self._phase is _Phase.CHUNKS:
                passed, data = self._take_chunks(data)
            elif self._phase is _Phase.PLAIN:
                passed, data = data, b""
            else:
                passed, data = self._take_body(data)
            out.append(passed)
        return b"".join(out)

    def release(self) -> bytes:
        """Return the bytes of a request that are held back; that request stays unchanged."""
        if self._phase is _Phase.HELD:
            self._phase = _Phase.BODY
            return self._take_held()
        if self._phase is _Phase.HEAD:
            return self._pass_through()
        return b""

    def response(self, data: bytes) -> bytes:
        """Return what to send to the client for `data` from the server."""
        return data if self._remover is None else self._remover.feed(data)

    def end_of_responses(self) -> bytes:
        """Return the bytes of a response that are held back, after the server has sent its last byte."""
        return b"" if self._remover is None else self._remover.end()

    def _take_head(self, data: bytes, *, alone: bool) -> tuple[bytes, bytes]:
        before = len(self._buffer)
        self._buffer += data
        end = self._buffer.find(http.END_OF_HEAD, max(0, before - len(http.END_OF_HEAD)))
        if end < 0:
            return self._part_of_head(before), b""
        end += len(http.END_OF_HEAD)
        head, rest = bytes(self._buffer[:end]), data[end - before :]
        if (found := http.parse_request(head)) is None:
            return self._pass_through(), b""
        passed, self._passed = self._passed, 0
        self._buffer.clear()
        if found.length is None:
            self._phase, self._chunks = _Phase.CHUNKS, http.ChunkedEnd()
            return head[passed:], rest
        self._left = found.length
        if alone and _is_candidate(found) and (self._remover is None or self._remover.done):
            self._phase, self._head = _Phase.HELD, head
            return b"", rest
        self._phase = _Phase.BODY if self._left else _Phase.HEAD
        return head[passed:], rest

    def _part_of_head(self, before: int) -> bytes:
        """Return the part of an incomplete head that can be sent: all, unless it may be rewritten."""
        # A client with other line ends would wait for its response while the tap waits for CR LF.
        if len(self._buffer) > http.MAX_HEAD or http.LONE_LF.search(self._buffer, max(0, before - 1)):
            return self._pass_through()
        if b"POST ".startswith(self._buffer[:5]):
            return b""
        passed, self._passed = self._passed, len(self._buffer)
        return bytes(self._buffer[passed:])

    def _take_body(self, data: bytes) -> tuple[bytes, bytes]:
        part, data = data[: self._left], data[self._left :]
        self._left -= len(part)
        held = self._phase is _Phase.HELD
        if held:
            self._buffer += part
            part = b""
        if not self._left:
            self._phase = _Phase.HEAD
            if held:
                part = self._rewritten()
        return part, data

    def _take_chunks(self, data: bytes) -> tuple[bytes, bytes]:
        try:
            end = self._chunks.feed(data)
        except http.AmbiguousFramingError:
            self._phase = _Phase.PLAIN
            return data, b""
        if self._chunks.done:
            self._phase = _Phase.HEAD
        return data[:end], data[end:]

    def _rewritten(self) -> bytes:
        # The body is changed in place: a copy would touch the pages of a large body again.
        head = _rewrite(self._head, self._buffer)
        if head is not None:
            self._head, self._remover = head, UsageEventRemover()
        return self._take_held()

    def _take_held(self) -> bytes:
        out = self._head + self._buffer
        self._head = b""
        self._buffer.clear()
        return out

    def _pass_through(self) -> bytes:
        self._phase = _Phase.PLAIN
        out = bytes(self._buffer[self._passed :])
        self._buffer.clear()
        return out


class _Part(Enum):
    HEAD = auto()
    SIZE = auto()
    DATA = auto()
    AFTER = auto()  # the line end after a chunk
    KNOWN = auto()  # a body of known length
    ENDLESS = auto()  # a body that ends with the connection
    PLAIN = auto()


class UsageEventRemover:
    """Removes the event that has only usage from the response to one request."""

    def __init__(self) -> None:
        self._part = _Part.HEAD
        self._buffer = b""
        self._at = 0  # everything in the buffer before it was processed
        self._left = 0
        self._filter = UsageEventFilter()
        self._kept = bytearray()
        self._open = False  # a chunk was sent, its line end was not
        self._lacking = 0

    @property
    def done(self) -> bool:
        """Whether everything passes from here on."""
        return self._part is _Part.PLAIN

    def feed(self, data: bytes) -> bytes:
        """Return what to send to the client for `data` from the server."""
        part = http.only_chunk(data) if self._part is _Part.SIZE and not self._buffer else b""
        if part and self._lacking <= MOST_LACKING:  # nearly always; several times faster
            self._lacking = max(0, self._lacking + SMALL - len(part))
            passes = self._filter.feed(part)
            return data if passes == part else http.chunk(passes)
        out = bytearray()
        self._buffer += data
        while self._at < len(self._buffer) and not self.done and self._step(out):
            pass
        self._flush(out)
        self._buffer, self._at = self._buffer[self._at :], 0
        if self.done:
            out += self._buffer
            self._buffer = b""
        return bytes(out)

    def end(self) -> bytes:
        """Return what is held back, after the last byte was fed."""
        out = bytearray()
        self._stop(out)
        rest, self._buffer = self._buffer, b""
        return bytes(out) + rest

    def _step(self, out: bytearray) -> bool:
        """Process the next part of the buffer; return whether it was complete."""
        if self._part is _Part.HEAD:
            return self._take_head(out)
        if self._part is _Part.SIZE:
            return self._take_size(out)
        if self._part is not _Part.AFTER:
            return self._take_data(out)
        if len(self._buffer) - self._at < 2:
            return False
        if not self._buffer.startswith(b"\r\n", self._at):
            self._stop(out)  # malformed, and so it stays: the line end of the chunk is not sent
            return True
        self._at, self._part = self._at + 2, _Part.SIZE
        out += b"\r\n" * self._open
        self._open = False
        return True

    def _take_head(self, out: bytearray) -> bool:
        end = self._buffer.find(http.END_OF_HEAD, self._at)
        if end < 0:
            if len(self._buffer) - self._at > http.MAX_HEAD or http.LONE_LF.search(self._buffer, self._at):
                self._part = _Part.PLAIN
            return False
        end += len(http.END_OF_HEAD)
        head, self._at = self._buffer[self._at : end], end
        found = http.parse_response(head)
        if found is None:
            out += head
            self._part = _Part.PLAIN
            return True
        status, headers = found
        if status.startswith("1") and status != "101":
            out += head
            return True  # an interim response: the next head follows
        self._part = self._body(status, headers)
        if self._part is _Part.KNOWN:
            # HTTP/1.0 forbids chunks, and towards the client the version is that of the tap.
            head = _ANY_LENGTH.sub(b"Transfer-Encoding: chunked", head.replace(b"HTTP/1.0", b"HTTP/1.1", 1))
        out += head
        return True

    def _body(self, status: str, headers: dict[str, str]) -> _Part:
        """Return what follows the head of a response."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        plain = headers.get("content-encoding", "identity").lower() == "identity"
        if status != "200" or kind != "text/event-stream" or not plain:
            return _Part.PLAIN
        if "transfer-encoding" in headers:
            return _Part.SIZE if headers["transfer-encoding"].lower() == "chunked" else _Part.PLAIN
        if "content-length" not in headers:
            return _Part.ENDLESS
        self._left = http.read_length(headers["content-length"]) or 0
        return _Part.KNOWN if self._left else _Part.PLAIN

    def _take_data(self, out: bytearray) -> bool:
        end = len(self._buffer) if self._part is _Part.ENDLESS else self._at + self._left
        part = self._buffer[self._at : end]
        self._at += len(part)
        if self._part is _Part.ENDLESS:
            out += self._filter.feed(part)
            return True
        self._left -= len(part)
        self._kept += self._filter.feed(part)
        if not self._left and self._part is _Part.KNOWN:
            self._stop(out)
            out += b"0\r\n\r\n"
        elif not self._left:
            self._part = _Part.AFTER
        return True

    def _take_size(self, out: bytearray) -> bool:
        end = self._buffer.find(b"\r\n", self._at)
        if end < 0:
            if len(self._buffer) - self._at > http.MAX_SIZE_LINE:
                self._stop(out)
            return False
        size = http.read_size(self._buffer[self._at : end])
        self._lacking = max(0, self._lacking + SMALL - (size or 0))
        if not size or self._lacking > MOST_LACKING:
            # The last chunk, no valid size, or many tiny chunks: all passes unchanged from here on.
            self._stop(out)
            return True
        self._at, self._left, self._part = end + 2, size, _Part.DATA
        return True

    def _flush(self, out: bytearray) -> None:
        """Send what is kept as a chunk, whose line end waits for that of the chunk that it came from."""
        if self._kept:
            out += b"\r\n" * self._open + b"%x\r\n" % len(self._kept) + self._kept
            self._open, self._kept = self._part in (_Part.DATA, _Part.AFTER), bytearray()
            out += b"\r\n" * (not self._open)

    def _stop(self, out: bytearray) -> None:
        """Send what is held back, except a usage event without its empty line; pass everything after it."""
        if self._part is _Part.ENDLESS:
            out += self._filter.end()
        else:
            self._kept += self._filter.end()
            self._flush(out)
        self._part = _Part.PLAIN
