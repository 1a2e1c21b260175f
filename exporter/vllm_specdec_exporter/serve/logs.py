"""The stream of log lines: what its reader does not take now waits here, and nobody waits for the reader.

The event loop logs. A pipe whose reader has stopped (a hung log collector, a paused terminal) would otherwise
stop polls, scrapes and probes with the next line.
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


#: Bytes of lines that wait for a reader. What comes when there are more is left out, and counted.
MOST_WAITING = 256 * 1024

#: How long lines that wait may hold up the end of the process, in seconds.
FLUSH_SECONDS = 0.2

#: A pipe that can be written to takes so many bytes at once.
_BLOCK = select.PIPE_BUF


class LineHandler(logging.Handler):
    """Writes each record as a line to a file descriptor, as far as that takes it without waiting.

    Lines that wait are written before the next one, or at the end. Where some were left out, a line says how
    many. A descriptor that nobody reads any more, or on a full disk, is no error.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.descriptor = descriptor
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._left_out = 0
        self._torn = False
        self._partly = False
        self._out = _unhurried(descriptor)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, and what waits."""
        self._write(0.0)
        if self._left_out and not self._waiting:
            self._tell()
        self._add(record)
        self._write(0.0)

    def flush(self) -> None:
        """Write what waits, within a moment."""
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
            self._left_out += 1
            return
        self._waiting.append(line)
        self._size += len(line)

    def _tell(self) -> None:
        """Write how many lines were left out."""
        count, self._left_out = self._left_out, 0
        text = "log lines left out, nobody took them"
        note = logging.LogRecord(__name__, logging.WARNING, "", 0, text, None, None)
        note.fields = {"lines": count}
        self._add(note)
        self._write(0.0)
        if self._left_out:  # nobody took that either
            self._left_out = count

    def _write(self, seconds: float) -> None:
        """Write what waits; wait for the reader so long at most."""
        end = time.monotonic() + seconds
        while self._waiting and self._takes(max(0.0, end - time.monotonic())):
            line = self._waiting.popleft()
            self._size -= len(line)
            if self._torn:
                line = b"\n" + line
            try:
                written = os.write(self._out, line[:_BLOCK])
            except BlockingIOError:
                self._put_back(line.removeprefix(b"\n") if self._torn else line)
                return
            except OSError:
                self._left_out += 1
                # Of a line that was written in part, the rest is lost: the next one begins anew.
                self._torn, self._partly = self._torn or self._partly, False
                continue
            self._torn = False
            self._partly = written < len(line)
            if self._partly:
                self._put_back(line[written:])

    def _put_back(self, line: bytes) -> None:
        self._waiting.appendleft(line)
        self._size += len(line)

    def _takes(self, seconds: float) -> bool:
        """Tell whether a write would end at once, also with an error."""
        waiting = select.poll()
        waiting.register(self._out, select.POLLOUT)
        return bool(waiting.poll(seconds * 1000))


def _unhurried(descriptor: int) -> int:
    """Return where to write so that a terminal which is paused makes nobody wait, as it would by itself.

    It is opened anew: whether a descriptor waits, all who have it share.
    """
    if not os.isatty(descriptor):
        return descriptor
    try:
        return os.open(os.ttyname(descriptor), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return descriptor


LOGGER = logging.getLogger("vllm_specdec_exporter")

_BARE = re.compile(r'[^\s"=\\]+')
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def set_up(form: str, level: str) -> None:
    """Send the exporter's log, and other libraries' warnings, to standard error as `form` from `level` on."""
    root = logging.getLogger()
    handler = _handler(root)
    handler.setFormatter(LogfmtFormatter() if form == "logfmt" else JsonFormatter())
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOGGER.setLevel(level.upper())


def _handler(root: logging.Logger) -> logging.Handler:
    """Return what writes to standard error: after a reload the same as before, with the lines that wait."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or none that the system knows
        handler: logging.Handler = logging.NullHandler() if sys.stderr is None else logging.StreamHandler()
    else:
        for known in root.handlers:
            if isinstance(known, LineHandler) and known.descriptor == descriptor:
                return known
        handler = LineHandler(descriptor)
    handler.addFilter(_is_ours)
    return handler


def write(events: Iterable[Event]) -> None:
    """Log every event."""
    for event in events:
        LOGGER.log(event.level, event.message, extra={"fields": event.fields})


def _is_ours(record: logging.LogRecord) -> bool:
    """Leave out what aiohttp says of clients that do not speak HTTP, or break off: the log is not theirs."""
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
        """Return the line; values that would break it are quoted."""
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
    """Escape the control characters that JSON would let through to a terminal."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
