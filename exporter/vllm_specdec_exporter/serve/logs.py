"""Log lines as logfmt or JSON, written to standard error without blocking the event loop.

If the reader of a pipe has stopped (a hung log collector, a paused terminal), a blocking write would stop
polls, scrapes and probes. Lines are buffered instead.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import sys
import time
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..publish.events import Event

MOST_WAITING = 256 * 1024  # limit of the buffer in bytes; further lines are dropped and counted
FLUSH_SECONDS = 0.2  # longest wait for buffered lines to be written at the end of the process, in seconds
_BLOCK = select.PIPE_BUF  # bytes that a writable pipe takes without blocking


class LineHandler(logging.Handler):
    """Writes each record as a line to a file descriptor without blocking.

    Buffered lines are written before the next one, or at the end. If lines were dropped, their number is
    logged. A closed pipe or a full disk is not an error.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.descriptor = descriptor
        self._buffer: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0
        self._line_broken = False  # the rest of a partly written line was lost
        self._line_partial = False  # the rest of a line is the first entry of the buffer
        self._out = _nonblocking(descriptor)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the buffer and a record."""
        self._write(0.0)
        if self._dropped and not self._buffer:
            self._log_dropped()
        self._add(record)
        self._write(0.0)

    def flush(self) -> None:
        """Write the buffer within `FLUSH_SECONDS`."""
        self.acquire()
        try:
            self._write(FLUSH_SECONDS)
        finally:
            self.release()

    def _add(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        except Exception:  # noqa: BLE001 - as every handler of the standard library does
            self.handleError(record)
            return
        if self._size + len(line) > MOST_WAITING:
            self._dropped += 1
            return
        self._buffer.append(line)
        self._size += len(line)

    def _log_dropped(self) -> None:
        count, self._dropped = self._dropped, 0
        text = "log lines dropped: output blocked"
        note = logging.LogRecord(__name__, logging.WARNING, "", 0, text, None, None)
        note.fields = {"lines": count}
        self._add(note)
        self._write(0.0)
        if self._dropped:  # this line too
            self._dropped = count

    def _write(self, seconds: float) -> None:
        """Write the buffer; wait at most `seconds` for the reader."""
        end = time.monotonic() + seconds
        while self._buffer and self._is_writable(max(0.0, end - time.monotonic())):
            line = self._buffer.popleft()
            self._size -= len(line)
            if self._line_broken:
                line = b"\n" + line
            try:
                written = os.write(self._out, line[:_BLOCK])
            except BlockingIOError:
                self._put_back(line.removeprefix(b"\n") if self._line_broken else line)
                return
            except OSError:
                self._dropped += 1
                self._line_broken, self._line_partial = self._line_broken or self._line_partial, False
                continue
            self._line_broken = False
            self._line_partial = written < len(line)
            if self._line_partial:
                self._put_back(line[written:])

    def _put_back(self, line: bytes) -> None:
        self._buffer.appendleft(line)
        self._size += len(line)

    def _is_writable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._out, select.POLLOUT)
        return bool(poll.poll(seconds * 1000))


def _nonblocking(descriptor: int) -> int:
    """Return a non-blocking descriptor for a terminal, which blocks while it is paused.

    The terminal is opened again, because O_NONBLOCK is shared by all processes with the descriptor.
    """
    if not os.isatty(descriptor):
        return descriptor
    try:
        return os.open(os.ttyname(descriptor), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return descriptor


LOGGER = logging.getLogger("vllm_specdec_exporter")

_BARE = re.compile(r'[^\s"=\\]+')
#: Control characters, also those that change lines or the direction of a text.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def set_up(form: str, level: str) -> None:
    """Log the exporter's records from `level` on, and warnings of libraries, to standard error as `form`."""
    root = logging.getLogger()
    handler = _handler(root)
    handler.setFormatter(LogfmtFormatter() if form == "logfmt" else JsonFormatter())
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOGGER.setLevel(level.upper())


def _handler(root: logging.Logger) -> logging.Handler:
    """Return the handler for standard error: after a reload the existing one, with its buffer."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or without a descriptor
        handler: logging.Handler = logging.NullHandler() if sys.stderr is None else logging.StreamHandler()
    else:
        for known in root.handlers:
            if isinstance(known, LineHandler) and known.descriptor == descriptor:
                return known
        handler = LineHandler(descriptor)
    handler.addFilter(_is_no_client_error)
    return handler


def write(events: Iterable[Event]) -> None:
    """Log every event."""
    for event in events:
        log(event.level, event.message, **event.fields)


def log(level: int, message: str, /, **fields: object) -> None:
    """Log one line with fields."""
    LOGGER.log(level, message, extra={"fields": fields})


def _is_no_client_error(record: logging.LogRecord) -> bool:
    """Drop aiohttp's records of invalid and aborted requests, which could flood the log."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | RequestPayloadError)


def _record(record: logging.LogRecord, formatter: logging.Formatter) -> dict[str, object]:
    moment = datetime.fromtimestamp(record.created, UTC)
    found: dict[str, object] = {
        "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "msg": record.getMessage(),
        **getattr(record, "fields", {}),
    }
    if record.exc_info:
        found["traceback"] = formatter.formatException(record.exc_info)
    return found


class LogfmtFormatter(logging.Formatter):
    """Writes ``time=... level=... msg=... key=value`` on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; values are quoted if needed."""
        return " ".join(f"{key}={_quote(value)}" for key, value in _record(record, self).items())


class JsonFormatter(logging.Formatter):
    """Writes one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return _escape(json.dumps(_record(record, self), ensure_ascii=False, default=str))


def _quote(value: object) -> str:
    text = str(value)
    bare = text.isprintable() and _BARE.fullmatch(text)
    return text if bare else _escape(json.dumps(text, ensure_ascii=False))


def _escape(text: str) -> str:
    """Escape the control characters that `json.dumps` does not escape, such as DEL, C1 and bidi."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
