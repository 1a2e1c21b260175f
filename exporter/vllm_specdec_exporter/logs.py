"""Logging: logfmt or JSON lines on standard error, with fields behind the message."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

from .log_stream import LineHandler

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .events import Event

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
