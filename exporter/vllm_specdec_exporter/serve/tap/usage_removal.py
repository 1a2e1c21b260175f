"""The remover: takes the event that has only usage out of the answer to one request that was asked for it.

Chunks are cut anew where events end; the bytes of all other events stay as they are, and so does whatever
comes before and after them. A stream that goes on until the connection ends stays one; one whose length was
told would have another length, which nobody knows yet, and so goes on in chunks.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from ...requests.stream_usage import UsageEventFilter
from .http_framing import END_OF_HEAD, LONE_LF, MAX_HEAD, MAX_SIZE_LINE, parse_answer, read_length, read_size

_LENGTH = re.compile(rb"(?im)^content-length:[^\r\n]*")


class _Part(Enum):
    HEAD = auto()
    SIZE = auto()
    DATA = auto()
    AFTER = auto()  # the line end behind a chunk
    KNOWN = auto()  # a body of known length
    ENDLESS = auto()  # a body that ends with the connection
    PLAIN = auto()


class UsageEventRemover:
    """Takes the event that has only usage out of the answer to one request."""

    def __init__(self) -> None:
        self._part = _Part.HEAD
        self._buffer = b""
        self._at = 0  # what is before it in the buffer was taken
        self._left = 0
        self._hider = UsageEventFilter()
        self._kept = bytearray()

    @property
    def done(self) -> bool:
        """Whether everything passes from here on."""
        return self._part is _Part.PLAIN

    def feed(self, data: bytes) -> bytes:
        """Return what to send to the client for `data` from the server."""
        out = bytearray()
        self._buffer += data
        while self._at < len(self._buffer) and self._part is not _Part.PLAIN and self._step(out):
            pass
        self._flush(out)
        self._buffer, self._at = self._buffer[self._at :], 0
        if self._part is _Part.PLAIN:
            out += self._buffer
            self._buffer = b""
        return bytes(out)

    def end(self) -> bytes:
        """Return what is held back, for nothing more comes."""
        out = bytearray()
        self._give_up(out)
        out += self._buffer
        self._buffer = b""
        return bytes(out)

    def _step(self, out: bytearray) -> bool:
        """Take the next part from the buffer; tell whether there was enough for one."""
        if self._part is _Part.HEAD:
            return self._take_head(out)
        if self._part is _Part.SIZE:
            return self._take_size(out)
        if self._part is not _Part.AFTER:
            return self._take_data(out)
        if len(self._buffer) - self._at < 2:
            return False
        if not self._buffer.startswith(b"\r\n", self._at):
            self._give_up(out)
            return True
        self._at, self._part = self._at + 2, _Part.SIZE
        return True

    def _take_head(self, out: bytearray) -> bool:
        end = self._buffer.find(END_OF_HEAD, self._at)
        if end < 0:
            if len(self._buffer) - self._at > MAX_HEAD or LONE_LF.search(self._buffer, self._at):
                self._part = _Part.PLAIN
            return False
        end += len(END_OF_HEAD)
        head, self._at = self._buffer[self._at : end], end
        found = parse_answer(head)
        if found is None:
            out += head
            self._part = _Part.PLAIN
            return True
        status, headers = found
        if status.startswith("1") and status != "101":
            out += head
            return True  # an interim answer: the next head follows
        self._part = self._body(status, headers)
        if self._part is _Part.KNOWN:
            # What an older server says of its version would forbid chunks; to the client it is the tap's.
            head = _LENGTH.sub(b"Transfer-Encoding: chunked", head.replace(b"HTTP/1.0", b"HTTP/1.1", 1))
        out += head
        return True

    def _body(self, status: str, headers: dict[str, str]) -> _Part:
        """Return what follows the head of an answer."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        plain = headers.get("content-encoding", "identity").lower() == "identity"
        if status != "200" or kind != "text/event-stream" or not plain:
            return _Part.PLAIN
        if "transfer-encoding" in headers:
            return _Part.SIZE if headers["transfer-encoding"].lower() == "chunked" else _Part.PLAIN
        if "content-length" not in headers:
            return _Part.ENDLESS
        self._left = read_length(headers["content-length"]) or 0
        return _Part.KNOWN if self._left else _Part.PLAIN

    def _take_data(self, out: bytearray) -> bool:
        end = len(self._buffer) if self._part is _Part.ENDLESS else self._at + self._left
        part = self._buffer[self._at : end]
        self._at += len(part)
        if self._part is _Part.ENDLESS:
            out += self._hider.feed(part)
            return True
        self._left -= len(part)
        self._kept += self._hider.feed(part)
        if not self._left and self._part is _Part.KNOWN:
            self._give_up(out)
            out += b"0\r\n\r\n"
        elif not self._left:
            self._part = _Part.AFTER
        return True

    def _take_size(self, out: bytearray) -> bool:
        end = self._buffer.find(b"\r\n", self._at)
        if end < 0:
            if len(self._buffer) - self._at > MAX_SIZE_LINE:
                self._give_up(out)
            return False
        size = read_size(self._buffer[self._at : end])
        if not size:  # the last chunk and what follows it pass as they are, and so does what is none
            self._give_up(out)
            return True
        self._at, self._left, self._part = end + 2, size, _Part.DATA
        return True

    def _flush(self, out: bytearray) -> None:
        if self._kept:
            out += b"%x\r\n" % len(self._kept) + self._kept + b"\r\n"
            self._kept = bytearray()

    def _give_up(self, out: bytearray) -> None:
        """Send what is held back, but for usage without the empty line behind it; let what follows pass."""
        if self._part is _Part.ENDLESS:
            out += self._hider.rest()
        else:
            self._kept += self._hider.rest()
            self._flush(out)
        self._part = _Part.PLAIN
