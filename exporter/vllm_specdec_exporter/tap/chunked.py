"""The chunked encoding, followed to its end as strictly as it takes to know where what follows begins."""

from __future__ import annotations

import re
from enum import Enum, auto

from .heads import MAX_HEAD

#: Bytes of the line that has the size of a chunk.
MAX_SIZE_LINE = 4096

_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[^\r\n]*)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n]*\r\n")


class DoubtError(ValueError):
    """Where the body ends is a matter of opinion."""


def read_size(line: bytes) -> int | None:
    """Return the size of a chunk from its line without the end of it; ``None`` where it has none."""
    size = line.partition(b";")[0].strip()
    return int(size, 16) if _SIZE.fullmatch(size) else None


class _Next(Enum):
    SIZE = auto()
    AFTER = auto()  # the line end behind a chunk
    TRAILER = auto()


class ChunkedEnd:
    """Finds the end of one body in chunks.

    Attributes:
        done: whether it has come.
    """

    def __init__(self) -> None:
        self._next = _Next.SIZE
        self._line = bytearray()
        self._left = 0
        self._trailers = 0
        self.done = False

    def feed(self, data: bytes) -> int:
        """Return how many bytes of `data` belong to the body: all, unless its end is in them.

        Raises:
            DoubtError: readers of these bytes may disagree on where the body ends.
        """
        at = 0
        while at < len(data) and not self.done:
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            end = data.find(b"\n", at) + 1
            self._line += data[at : end or len(data)]
            at = end or len(data)
            if len(self._line) > MAX_SIZE_LINE:
                msg = "a long line"
                raise DoubtError(msg)
            if end:
                line, self._line = bytes(self._line), bytearray()
                self._take_line(line)
        return at

    def _take_line(self, line: bytes) -> None:
        if self._next is _Next.SIZE and (size := _SIZE_LINE.fullmatch(line)):
            self._left = int(size[1], 16)
            self._next = _Next.AFTER if self._left else _Next.TRAILER
        elif self._next is _Next.AFTER and line == b"\r\n":
            self._next = _Next.SIZE
        elif self._next is _Next.TRAILER and line == b"\r\n":
            self.done = True
        elif self._next is _Next.TRAILER and _TRAILER.fullmatch(line) and self._trailers <= MAX_HEAD:
            self._trailers += len(line)
        else:
            msg = "not the chunked encoding"
            raise DoubtError(msg)
