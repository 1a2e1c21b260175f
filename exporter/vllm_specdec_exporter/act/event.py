"""Events: what became of one alert, as one JSON line. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from .decision import LONGEST, Action

if TYPE_CHECKING:
    from .decision import EventKind, Request

#: The labels of the alert that a line shows.
_LABELS = ("action", "recommended_k", "model_name", "namespace", "cluster", "alertname")


@dataclass(frozen=True, slots=True)
class ActEvent:
    """What became of one alert.

    Attributes:
        kind: in one word.
        why: in a sentence.
        request: the alert, as it was understood.
        command: the argument list that was or would be run; ``None`` where there is none.
        exit_code: how the command ended; minus the signal's number if by one, ``None`` where it did not run.
        output: the end of what it printed.
    """

    kind: EventKind
    why: str
    request: Request
    command: tuple[str, ...] | None = None
    exit_code: int | None = None
    output: str = ""

    @property
    def action(self) -> str:
        """The action as a label of bounded values: ``none`` without one, ``unknown`` for any other."""
        text = self.request.alert.label("action")
        return text if text in list(Action) else "unknown" if text else "none"

    def line(self, now: float) -> str:
        """Return the event as one line of JSON, in ASCII, without a line's end.

        Args:
            now: Unix seconds.
        """
        alert, decision = self.request.alert, self.request.decision
        time = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        document = {
            "time": time,
            "event": str(self.kind),
            "why": self.why,
            **{name: alert.label(name)[:LONGEST] for name in _LABELS},
            "starts_at": decision.starts_at if decision else alert.starts_at[:LONGEST],
            "command": self.command,
            "exit_code": self.exit_code,
            "output": self.output,
        }
        return json.dumps(document)
