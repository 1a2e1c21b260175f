"""Log lines as logfmt or JSON, written to standard error without blocking the event
loop.

If the reader of a pipe has stopped (a hung log collector, a paused terminal), a
blocking write would stop polls, scrapes and probes. A thread writes the lines instead.
"""

import contextlib
import json
import logging
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

from ..config.values import format_time
from ..publish.events import Event
from ..publish.terminal import escape_controls

#: Limit of the lines that wait, in bytes: an hour of aggregates; more are dropped.
MAX_WAITING = 256 * 1024
#: Least time between two equal lines that clients can cause, in seconds.
SELDOM_SECONDS = 60.0
#: Longest wait for buffered lines to be written at the end of the process, in seconds.
FLUSH_SECONDS = 0.2


class LineHandler(logging.Handler):
    """Writes each record as a line to a file descriptor, in a thread of its own.

    If lines were dropped, their number is logged. A closed pipe or a full disk is not
    an error.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._size = 0  # of the lines, in bytes
        self._dropped = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Let the thread write a record."""
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        except Exception:  # noqa: BLE001 - as every handler of the standard library does
            self.handleError(record)
            return
        with self._changed:
            if self._size + len(line) > MAX_WAITING:
                self._dropped += 1
                return
            if self._dropped:
                self._add(self._dropped_line())
            self._add(line)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all lines are written, at most `FLUSH_SECONDS`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines, FLUSH_SECONDS)

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)

    def _dropped_line(self) -> bytes:
        text = "log lines dropped: output blocked"
        note = logging.makeLogRecord(
            {
                "name": __name__,
                "levelno": logging.WARNING,
                "levelname": "WARNING",
                "msg": text,
                "fields": {"lines": self._dropped},
            }
        )
        self._dropped = 0
        return f"{self.format(note)}\n".encode()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                line = self._lines[0]
            with contextlib.suppress(OSError):
                unwritten = memoryview(line)
                while unwritten:
                    unwritten = unwritten[os.write(self.descriptor, unwritten) :]
            with self._changed:
                self._lines.popleft()
                self._size -= len(line)
                self._changed.notify_all()


LOGGER = logging.getLogger("vllm_specdec_exporter")

_BARE = re.compile(r'[^\s"=\\]+')


def set_up(form: str, level: str) -> None:
    """Log the exporter's records from `level` on, and warnings of libraries, to
    standard error as `form`.
    """
    root = logging.getLogger()
    handler = _handler(root)
    handler.setFormatter(LineFormatter(form))
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOGGER.setLevel(level.upper())


def _handler(root: logging.Logger) -> logging.Handler:
    """Return the handler for standard error: after a reload the existing one, with its
    buffer.
    """
    if sys.stderr is None:
        return logging.NullHandler()
    handler: logging.Handler
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or without a descriptor
        handler = logging.StreamHandler()
    else:
        for existing in root.handlers:
            if isinstance(existing, LineHandler) and existing.descriptor == descriptor:
                return existing
        handler = LineHandler(descriptor)
    handler.addFilter(_ClientFilter())
    return handler


def write(events: Iterable[Event]) -> None:
    """Log every event."""
    for event in events:
        log(event.level, event.message, **event.fields)


def log(level: int, message: str, /, **fields: object) -> None:
    """Log one line with fields."""
    LOGGER.log(level, message, extra={"fields": fields})


def log_seldom(level: int, message: str, /, **fields: object) -> None:
    """Log a line that clients can cause, at most once in `SELDOM_SECONDS`."""
    LOGGER.log(level, message, extra={"fields": fields, "is_seldom": True})


#: Errors that invalid and aborted requests cause.
_CAUSED_BY_CLIENTS = (HttpProcessingError, RequestPayloadError, ConnectionError)


class _ClientFilter(logging.Filter):
    """Limits records that clients can cause: those of libraries, and those written with
    `log_seldom`.

    One a minute is left of each text. Records of invalid and aborted requests are
    dropped.
    """

    def __init__(self) -> None:
        super().__init__()
        # when, on the monotonic clock in seconds, by text
        self._logged: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        is_seldom = getattr(record, "is_seldom", False)
        if record.name == LOGGER.name and not is_seldom:
            return True
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, _CAUSED_BY_CLIENTS):
            return False
        text = record.msg, str(getattr(record, "fields", type(error)))
        time_now = time.monotonic()
        # Old texts are dropped, because clients can cause any number of them.
        self._logged = {
            each: logged_at
            for each, logged_at in self._logged.items()
            if time_now - logged_at < SELDOM_SECONDS
        }
        if text in self._logged:
            return False
        self._logged[text] = time_now
        return True


class LineFormatter(logging.Formatter):
    """Writes a record on one line: ``time=... level=... msg=... key=value``, or as
    JSON.
    """

    def __init__(self, form: str) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields: dict[str, object] = {
            "time": format_time(record.created, "milliseconds"),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
        }
        extra = getattr(record, "fields", {})
        fields |= {name: value for name, value in extra.items() if value is not None}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        if self._form == "json":
            return escape_controls(json.dumps(fields, ensure_ascii=False, default=str))
        return " ".join(f"{key}={_quote(value)}" for key, value in fields.items())


def _quote(value: object) -> str:
    text = str(value)
    if text.isprintable() and _BARE.fullmatch(text):
        return text
    return escape_controls(json.dumps(text, ensure_ascii=False))
