"""The stream of log lines: what its reader does not take now waits here, and nobody waits for the reader.

The event loop logs. A pipe whose reader has stopped (a hung log collector, a paused terminal) would otherwise
stop polls, scrapes and probes with the next line.
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections import deque

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
