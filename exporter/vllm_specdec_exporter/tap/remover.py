"""The remover: takes the event that has only usage out of the answer to one request that was asked for it.

Chunks are cut anew where events end; the bytes of all other events stay as they are, and so does whatever
comes before and after them.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from ..per_request.usage import Hider
from .heads import END_OF_HEAD, LONE_LF, MAX_HEAD, parse_answer

#: Bytes of the line that has the size of a chunk.
_MAX_SIZE_LINE = 4096
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")


class _Part(Enum):
    HEAD = auto()
    SIZE = auto()
    DATA = auto()
    AFTER = auto()  # the line end behind a chunk
    PLAIN = auto()


class Remover:
    """Takes the event that has only usage out of the answer to one request."""

    def __init__(self) -> None:
        self._part = _Part.HEAD
        self._buffer = b""
        self._at = 0  # what is before it in the buffer was taken
        self._left = 0
        self._hider = Hider()
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
        if self._part is _Part.DATA:
            part = self._buffer[self._at : self._at + self._left]
            self._at += len(part)
            self._left -= len(part)
            self._part = _Part.DATA if self._left else _Part.AFTER
            self._kept += self._hider.feed(part)
            return True
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
        out += head
        found = parse_answer(head)
        if found is None:
            self._part = _Part.PLAIN
            return True
        status, headers = found
        if status.startswith("1") and status != "101":
            return True  # an interim answer: the next head follows
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        streams = status == "200" and kind == "text/event-stream" and "content-encoding" not in headers
        chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._part = _Part.SIZE if streams and chunked else _Part.PLAIN
        return True

    def _take_size(self, out: bytearray) -> bool:
        end = self._buffer.find(b"\r\n", self._at)
        if end < 0:
            if len(self._buffer) - self._at > _MAX_SIZE_LINE:
                self._give_up(out)
            return False
        size = self._buffer[self._at : end].partition(b";")[0].strip()
        # The last chunk and what follows it pass as they are, and so does what is none.
        if not _SIZE.fullmatch(size) or int(size, 16) == 0:
            self._give_up(out)
            return True
        self._at, self._left, self._part = end + 2, int(size, 16), _Part.DATA
        return True

    def _flush(self, out: bytearray) -> None:
        if self._kept:
            out += b"%x\r\n" % len(self._kept) + self._kept + b"\r\n"
            self._kept = bytearray()

    def _give_up(self, out: bytearray) -> None:
        """Send what is held back, and let the rest pass."""
        self._kept += self._hider.release()
        self._flush(out)
        self._part = _Part.PLAIN
