"""Logging: logfmt or JSON lines on standard error, with fields behind the message."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .events import Event

LOGGER = logging.getLogger("vllm_specdec_exporter")

_BARE = re.compile(r'[^\s"=\\]+')


def set_up(form: str, level: str) -> None:
    """Send the exporter's log, and other libraries' warnings, to standard error as `form` from `level` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogfmtFormatter() if form == "logfmt" else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOGGER.setLevel(level.upper())


def write(events: Iterable[Event]) -> None:
    """Log every event."""
    for event in events:
        LOGGER.log(event.level, event.message, extra={"fields": event.fields})


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
        return json.dumps(_record(record, self), ensure_ascii=False, default=str)


def _quote(value: object) -> str:
    text = str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)
