"""Usage: streams tell it, and with it their record, only to who asks; the event it comes in is taken out.

Used where somebody asks in a client's place: by the tap, and by the client library. Bytes of everything else
stay as they are.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from .exchange import MAX_EVENT, EventSplitter, EventTooLargeError, data_of
from .openai_api import FIELDS, UNREADABLE, UnreadableError, read_answer, route_of

if TYPE_CHECKING:
    import msgspec

_WANTED = b'{"include_usage":true}'

#: The question, to be put in front of a request's fields.
ASK = b'"stream_options":' + _WANTED + b","

#: Options of a stream that say nothing.
_OPTIONS = re.compile(rb'"stream_options"[ \t\r\n]*:[ \t\r\n]*(null)')

#: With the white space around it; what is longer is not copied to be looked at.
_LONGEST_WORD = 64


def ask(path: str, body: bytes) -> bytes | None:
    """Return a request's body with the question; ``None`` where it does not stream, or says what it wants.

    Args:
        path: of the request.
        body: the JSON of the request.
    """
    if route_of(path) not in ("chat", "completions"):
        return None
    asking = bytearray(body)
    return bytes(asking) if put_question(asking) else None


def put_question(body: bytearray) -> bool:
    """Put the question into the JSON of a request, where it is due; tell whether it was."""
    place = _place(body)
    if place is None:
        return False
    start, end = place
    body[start:end] = ASK if start == end else _WANTED
    return True


def _place(body: bytearray) -> tuple[int, int] | None:
    """Return the bytes of a request in whose place the question goes; ``None`` where it is not due."""
    stream, options = _wishes(body)
    # Servers refuse options of a stream where `stream` is 0, which others take for "no".
    if stream != b"true":
        return None
    if not options:
        opening = body.index(b"{") + 1
        return opening, opening
    # Two fields of one name are read differently by different servers, so the value itself has to go.
    places = [found.span(1) for found in islice(_OPTIONS.finditer(body), 2)]
    if options != b"null" or len(places) != 1:
        return None
    start, end = places[0]
    body[start:end] = b"true"  # as long: it is looked whether it is that of the request or of another object
    try:
        return places[0] if _wishes(body)[1] == b"true" else None
    finally:
        body[start:end] = b"null"


def _wishes(body: bytearray) -> tuple[bytes, bytes]:
    """Return what a request says of `stream` and of its options, as JSON; nothing where it does not."""
    try:
        fields = FIELDS.decode(body)
    except UNREADABLE:
        return b"", b""
    return _word(fields.get("stream", b"")), _word(fields.get("stream_options", b""))


def _word(value: msgspec.Raw | bytes) -> bytes:
    return bytes(value).strip() if memoryview(value).nbytes <= _LONGEST_WORD else b"..."


def only_usage(event: bytes) -> bool:
    """Tell whether an event of a stream has usage, and nothing else that a client waits for."""
    if b'"usage"' not in event:
        return False
    try:
        return read_answer(data_of(event)).only_usage
    except UnreadableError:
        return False
    except Exception:  # noqa: BLE001 - traffic must go on; who observes meets the same defect, and says so
        return False


class UsageEventFilter:
    """Takes the event that has only usage out of a stream. All others pass, each as soon as it is whole."""

    def __init__(self) -> None:
        self._events: EventSplitter | None = EventSplitter(MAX_EVENT)

    def feed(self, data: bytes) -> bytes:
        """Return what passes of `data` and of what was held back before."""
        if self._events is None:
            return data
        try:
            events = self._events.feed(data)
        except EventTooLargeError as error:
            # What follows may begin in the middle of an event, and is not looked at any more.
            events, rest, self._events = error.before, self._events.rest, None
        else:
            rest = b""
        return b"".join([*(event for event in events if not only_usage(event)), rest])

    def release(self) -> bytes:
        """Return what is still held back, whatever it is; from here on everything passes."""
        events, self._events = self._events, None
        return b"" if events is None else events.rest

    def rest(self) -> bytes:
        """Return what is still held back at the end of the stream, but for usage."""
        rest = self.release()
        return b"" if only_usage(rest) else rest
