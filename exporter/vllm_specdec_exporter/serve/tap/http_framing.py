"""HTTP heads and chunked bodies, parsed strictly enough to change the body that follows a head.

Ambiguous messages are rejected, because another parser could read them differently (request smuggling).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from ...requests.exchange import MOST_LACKING, SMALL

#: Limit of a head, in bytes.
MAX_HEAD = 64 * 1024
END_OF_HEAD = b"\r\n\r\n"
#: A line end that is not HTTP's; with it, the end of the head is ambiguous.
LONE_LF = re.compile(rb"(?<!\r)\n")
_LONE_CR = re.compile(rb"\r(?!\n)")

_LENGTH = re.compile(r"[0-9]{1,15}")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The head of a request whose body has a known end."""

    method: str  # as sent
    path: str  # as sent
    headers: dict[str, str]  # names in lower case; values of repeated headers are joined with commas
    length: int | None  # bytes of the body; ``None`` if it is chunked


def parse_request(head: bytes) -> RequestHead | None:
    """Return the head of a plain HTTP/1.1 request; ``None`` if it is ambiguous."""
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
    """Return the length of a body; ``None`` if it is invalid."""
    return int(text) if _LENGTH.fullmatch(text) else None


def parse_response(head: bytes) -> tuple[str, dict[str, str]] | None:
    """Return status and headers (names in lower case) of a response; ``None`` if it is not HTTP/1."""
    found = _parse(head)
    if found is None or not re.match(r"HTTP/1\.[01] [0-9]{3}( |$)", found[0]):
        return None
    return found[0][9:12], found[1]


def _parse(head: bytes) -> tuple[str, dict[str, str]] | None:
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


#: Limit of the line with the size of a chunk, in bytes.
MAX_SIZE_LINE = 4096
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
#: Stricter than the standard: what other parsers reject must not become valid.
_SIZE = re.compile(
    rb"([0-9A-Fa-f]{1,15})(?:;%(token)b(?:=(?:%(token)b|\"[!#-\[\]-~]*\"))?)*" % {b"token": _TOKEN}
)
_TRAILER = re.compile(rb"%b:[^\r\n]*\r\n" % _TOKEN)


class AmbiguousFramingError(ValueError):
    """The end of a body is ambiguous."""


def read_size(line: bytes) -> int | None:
    """Return the size of a chunk from its line without the line end; ``None`` if it is invalid."""
    found = _SIZE.fullmatch(line)
    return int(found[1], 16) if found else None


def chunk(content: bytes) -> bytes:
    """Return `content` as one chunk; nothing if it is empty, because an empty chunk ends a body."""
    return b"%x\r\n%b\r\n" % (len(content), content) if content else b""


def only_chunk(data: bytes) -> bytes:
    """Return the content of the chunk that is all of `data`; empty if it is anything else."""
    end = data.find(b"\r\n", 0, MAX_SIZE_LINE)
    size = read_size(data[:end]) if end > 0 else None
    return data[end + 2 : -2] if size and len(data) == end + size + 4 and data.endswith(b"\r\n") else b""


class _Next(Enum):
    SIZE = auto()
    AFTER = auto()  # the line end after a chunk
    TRAILER = auto()


class ChunkedEnd:
    """Finds the end of one chunked body, and is then `done`."""

    def __init__(self) -> None:
        self._next = _Next.SIZE
        self._line = bytearray()
        self._left = 0
        self._trailers = 0
        self._lacking = 0
        self.done = False

    def feed(self, data: bytes) -> int:
        """Return how many bytes of `data` belong to the body, or raise AmbiguousFramingError."""
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
                msg = "line too long"
                raise AmbiguousFramingError(msg)
            if end:
                line, self._line = bytes(self._line), bytearray()
                self._take_line(line)
        return at

    def _take_line(self, line: bytes) -> None:
        size = read_size(line[:-2]) if self._next is _Next.SIZE and line.endswith(b"\r\n") else None
        if size is not None and self._lacking <= MOST_LACKING:
            self._left = size
            self._lacking = max(0, self._lacking + SMALL - size)
            self._next = _Next.AFTER if self._left else _Next.TRAILER
        elif self._next is _Next.AFTER and line == b"\r\n":
            self._next = _Next.SIZE
        elif self._next is _Next.TRAILER and line == b"\r\n":
            self.done = True
        elif self._next is _Next.TRAILER and _TRAILER.fullmatch(line) and self._trailers <= MAX_HEAD:
            self._trailers += len(line)
        else:
            msg = "invalid chunked encoding, or many tiny chunks"
            raise AmbiguousFramingError(msg)
