"""Heads of requests and answers, read as strictly as it takes to change something behind them.

What leaves room for doubt is not read at all: two readers of one message must not come to two results.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

#: Bytes that a head may have.
MAX_HEAD = 64 * 1024

END_OF_HEAD = b"\r\n\r\n"
#: A line end of another kind than those of HTTP; with it, where the head ends is a matter of opinion.
LONE_LF = re.compile(rb"(?<!\r)\n")
_LONE_CR = re.compile(rb"\r(?!\n)")

#: Digits of a length; more are no length of anything.
_LENGTH = re.compile(r"[0-9]{1,15}")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The head of a request of whose body it is told where it ends.

    Attributes:
        method: as it was sent.
        path: likewise.
        headers: names in lower case; of several with one name, the values with commas between them.
        length: bytes of the body; ``None`` where it comes in chunks.
    """

    method: str
    path: str
    headers: dict[str, str]
    length: int | None


def parse_request(head: bytes) -> RequestHead | None:
    """Return the head of a plain HTTP/1.1 request; ``None`` where it leaves room for doubt."""
    found = _parse(head)
    if found is None:
        return None
    words, headers = found[0].split(" "), found[1]
    if len(words) != 3 or words[2] != "HTTP/1.1":
        return None
    if "upgrade" in headers:
        return None
    if "transfer-encoding" in headers:
        if headers["transfer-encoding"].lower() != "chunked" or "content-length" in headers:
            return None
        return RequestHead(words[0], words[1], headers, None)
    length = read_length(headers.get("content-length", "0"))
    return None if length is None else RequestHead(words[0], words[1], headers, length)


def read_length(text: str) -> int | None:
    """Return the length of a body; ``None`` for what is none."""
    return int(text) if _LENGTH.fullmatch(text) else None


def parse_answer(head: bytes) -> tuple[str, dict[str, str]] | None:
    """Return status and headers (names in lower case) of an answer; ``None`` where it is none of HTTP/1."""
    found = _parse(head)
    if found is None or not re.match(r"HTTP/1\.[01] [0-9]{3}( |$)", found[0]):
        return None
    return found[0][9:12], found[1]


def _parse(head: bytes) -> tuple[str, dict[str, str]] | None:
    """Return the first line and the headers."""
    if len(head) > MAX_HEAD or LONE_LF.search(head) or _LONE_CR.search(head):
        return None
    first, *lines = head.removesuffix(END_OF_HEAD).decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not _NAME.fullmatch(name) or (name in headers and name == "content-length"):
            return None
        value = value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return first, headers


#: Bytes of the line that has the size of a chunk.
MAX_SIZE_LINE = 4096

_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[^\r\n]*)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n]*\r\n")


class AmbiguousFramingError(ValueError):
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
            AmbiguousFramingError: readers of these bytes may disagree on where the body ends.
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
                raise AmbiguousFramingError(msg)
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
            raise AmbiguousFramingError(msg)
