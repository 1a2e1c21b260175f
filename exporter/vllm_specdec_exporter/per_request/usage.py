"""Usage: streams tell it, and with it their record, only to who asks; the event it comes in is taken out.

Used where somebody asks in a client's place: by the tap, and by the client library. Bytes of everything else
stay as they are.
"""

from __future__ import annotations

from .answer import UnreadableError, read_answer, route_of, wants_usage
from .exchange import MAX_EVENT
from .sse import EventSplitter, EventTooLargeError, data_of

#: The question, to be put in front of a request's fields.
ASK = b'"stream_options":{"include_usage":true},'


def ask(path: str, body: bytes) -> bytes | None:
    """Return a request's body with the question; ``None`` where it does not stream, or says what it wants.

    Args:
        path: of the request.
        body: the JSON of the request.
    """
    if route_of(path) not in ("chat", "completions") or not wants_usage(body):
        return None
    opening = body.index(b"{") + 1
    return body[:opening] + ASK + body[opening:]


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


class Hider:
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
