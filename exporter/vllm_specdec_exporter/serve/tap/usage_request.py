"""The question: which requests are asked for their usage, and how that is put into their bytes."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING

from ...requests.exchange import Exchange
from ...requests.stream_usage import put_question
from .http_framing import END_OF_HEAD, LONE_LF, MAX_HEAD, AmbiguousFramingError, ChunkedEnd, parse_request
from .usage_removal import UsageEventRemover

if TYPE_CHECKING:
    from .http_framing import RequestHead


#: Bytes of a request that are held back until it is whole; larger ones are not asked.
MAX_ASKED = 8 * 1024 * 1024

_LENGTH = re.compile(rb"(?im)^(content-length:[ \t]*)(\d+)([ \t]*\r?)$")
_CODINGS = re.compile(rb"(?im)^(accept-encoding:)[^\r\n]*")
_PLAIN_REFUSED = re.compile(r"(identity|\*)\s*;\s*q=0(\.0*)?\s*(,|$)", re.IGNORECASE)


def may_be_asked(head: RequestHead) -> bool:
    """Tell whether a request may be a stream that is asked, by its head.

    One that waits for a ``100 Continue`` sends its body after its head, in which the length would change. One
    that insists on a compressed answer would get one from which nothing can be taken out.
    """
    headers = head.headers
    if head.length is None or not 0 < head.length <= MAX_ASKED or "expect" in headers:
        return False
    if headers.get("te", "trailers").lower() != "trailers" or _PLAIN_REFUSED.search(
        headers.get("accept-encoding", "")
    ):
        return False
    return Exchange.concerns(head.method, head.path, headers)


def put_into(head: bytes, body: bytearray) -> bytes | None:
    """Put the question into `body`, and return the head that goes with it; ``None`` where it is not due.

    It is due in a stream that says nothing of its options. Its answer is not to be compressed, or else
    nothing could be taken out of it.
    """
    if len(_LENGTH.findall(head)) != 1:
        return None
    try:
        if not put_question(body):
            return None
    except Exception:  # noqa: BLE001 - traffic must go on; who observes meets the same defect, and says so
        return None
    length = b"%d" % len(body)
    head = _LENGTH.sub(lambda found: found[1] + length + found[3], head)
    return _CODINGS.sub(rb"\1 identity", head)


class _Phase(Enum):
    HEAD = auto()
    HELD = auto()  # a body that is waited for
    BODY = auto()  # a body of known length that passes
    CHUNKS = auto()  # a body in chunks that passes
    PLAIN = auto()  # everything passes, for good


class UsageRequests:
    """Asks the streams of one connection for their usage."""

    def __init__(self) -> None:
        self._phase = _Phase.HEAD
        self._buffer = bytearray()  # of a head, then of the body that is held back
        self._passed = 0  # bytes of that head that were passed on already
        self._head = b""
        self._left = 0
        self._chunks = ChunkedEnd()
        self._remover: UsageEventRemover | None = None

    @property
    def held(self) -> int:
        """Bytes of a request's body that are held back now."""
        return len(self._buffer) if self._phase is _Phase.HELD else 0

    @property
    def waits(self) -> bool:
        """Whether a request is held back, although it has begun."""
        return self._phase is _Phase.HELD

    def request(self, data: bytes, *, alone: bool = True) -> bytes:
        """Return what to send to the server for `data` from the client.

        Args:
            data: the bytes that came.
            alone: whether no other request is under way; else none is asked, for whose answer the next one
                is would be unsure.
        """
        out: list[bytes] = []
        while data:
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
        """Return what is held back of a request, which goes on without a question."""
        if self._phase is _Phase.HELD:
            self._phase = _Phase.BODY
            return self._take_back()
        if self._phase is _Phase.HEAD:
            return self._pass_for_good()
        return b""

    def answer(self, data: bytes) -> bytes:
        """Return what to send to the client for `data` from the server."""
        return data if self._remover is None else self._remover.feed(data)

    def end_of_answers(self) -> bytes:
        """Return what is held back of an answer, for the server sends no more."""
        return b"" if self._remover is None else self._remover.end()

    def _take_head(self, data: bytes, *, alone: bool) -> tuple[bytes, bytes]:
        """Return what can be sent of a head, and what is left of `data`."""
        before = len(self._buffer)
        self._buffer += data
        end = self._buffer.find(END_OF_HEAD, max(0, before - len(END_OF_HEAD)))
        if end < 0:
            return self._part_of_head(before), b""
        end += len(END_OF_HEAD)
        head, rest = bytes(self._buffer[:end]), data[end - before :]
        found = parse_request(head)
        if found is None:
            return self._pass_for_good(), b""
        passed, self._passed = self._passed, 0
        self._buffer.clear()
        if found.length is None:
            self._phase, self._chunks = _Phase.CHUNKS, ChunkedEnd()
            return head[passed:], rest
        self._left = found.length
        if alone and may_be_asked(found) and (self._remover is None or self._remover.done):
            self._phase, self._head = _Phase.HELD, head
            return b"", rest
        self._phase = _Phase.BODY if self._left else _Phase.HEAD
        return head[passed:], rest

    def _part_of_head(self, before: int) -> bytes:
        """Return what can be sent of a head that is not whole: all, unless its request may be asked."""
        # Who ends lines otherwise would wait for an answer while its empty line is waited for here.
        if len(self._buffer) > MAX_HEAD or LONE_LF.search(self._buffer, max(0, before - 1)):
            return self._pass_for_good()
        if b"POST ".startswith(self._buffer[:5]):
            return b""
        passed, self._passed = self._passed, len(self._buffer)
        return bytes(self._buffer[passed:])

    def _take_body(self, data: bytes) -> tuple[bytes, bytes]:
        """Return what can be sent of a body of known length, and what is left of `data`."""
        part, data = data[: self._left], data[self._left :]
        self._left -= len(part)
        held = self._phase is _Phase.HELD
        if held:
            self._buffer += part
            part = b""
        if not self._left:
            self._phase = _Phase.HEAD
            if held:
                part = self._ask()
        return part, data

    def _take_chunks(self, data: bytes) -> tuple[bytes, bytes]:
        """Return what belongs to a body in chunks, and what is left of `data`."""
        try:
            end = self._chunks.feed(data)
        except AmbiguousFramingError:
            self._phase = _Phase.PLAIN
            return data, b""
        if self._chunks.done:
            self._phase = _Phase.HEAD
        return data[:end], data[end:]

    def _ask(self) -> bytes:
        """Return the request that was held back, with the question where it is due."""
        # Not copied: pages of a large body would be touched anew each time.
        head = put_into(self._head, self._buffer)
        if head is not None:
            self._head, self._remover = head, UsageEventRemover()
        return self._take_back()

    def _take_back(self) -> bytes:
        out = self._head + self._buffer
        self._head = b""
        self._buffer.clear()
        return out

    def _pass_for_good(self) -> bytes:
        self._phase = _Phase.PLAIN
        out = bytes(self._buffer[self._passed :])
        self._buffer.clear()
        return out
