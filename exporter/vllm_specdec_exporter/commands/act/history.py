"""The history of actions: which decisions were acted upon, and when the next command
may run.

The history is pure; time is an argument. A model has one record: the last command of
each request (an action with its K). These rules hold for any input, also across
restarts:

* A decision whose command succeeded is never acted upon again. An alert requests the
  same decision as long as it began before `RESUMED_WITHIN` had passed since the last
  sight of one that did: a second reason, a gap in scraping, or a restart of Prometheus,
  is no new decision.
* At most `--limit.per-hour` commands begin in any hour.
* Two commands for one model begin at least `--limit.per-model` apart, unless the later
  one retries the earlier one.
* After `MAX_FAILURES` failures in a row a decision is given up until its alert
  resolves.

A command is recorded as a failure before it starts, so that it is one if the process
ends before the command.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from ...config import files
from ...config.options import ConfigError
from ...config.values import format_time
from .decision import Decision

HOUR = 3600.0
#: Failures in a row after which a decision is given up: repeats of an alert come each
#: hour.
MAX_FAILURES = 3
#: Seconds after the end of an alert in which the same one that begins anew is the same
#: decision.
RESUMED_WITHIN = HOUR
#: Seconds without a repeat of its alert after which a command is forgotten, and the
#: longest limit for a model. It bounds the history: with the limit of 4 commands in an
#: hour, there are at most 2,880.
FORGET_AFTER = 30 * 24 * HOUR
#: `seen` is updated at most this often, in seconds, to save writes.
_SEEN_RESOLUTION = 300.0

_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last command of a request."""

    #: In a row; 0 after a success, or if its alert resolved.
    failures: Annotated[int, msgspec.Meta(ge=0)]
    started: _Seconds  # when it began, Unix seconds
    seen: _Seconds  # when its alert was last received, Unix seconds; at least `started`
    latest: float  # the latest begin of its alerts, Unix seconds, by another clock
    done: bool = False  # whether it succeeded


class ActionHistory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The past actions, and the content of a state file."""

    #: By model: the last command of each of its requests.
    models: dict[str, dict[str, Command]] = {}
    #: When commands began within the last hour, Unix seconds, rising.
    starts: tuple[_Seconds, ...] = ()
    #: Changes when an older version of `act` could not read the file.
    format: Literal["vllm-specdec-act/2"] = "vllm-specdec-act/2"

    def prune(self, now: float) -> ActionHistory:
        """Return the history without what no longer counts.

        Times after `now` (the clock was set back between two processes) become `now`:
        limits must not hold until it has caught up.
        """
        models = {}
        for model, commands in self.models.items():
            last_seen = max(
                (each.seen for each in commands.values()), default=-math.inf
            )
            if now - last_seen <= FORGET_AFTER:
                models[model] = commands
        starts = tuple(start for start in self.starts if now - start < HOUR)
        return ActionHistory(models, starts)._at(lambda time: min(time, now))

    def shift(self, seconds: float) -> ActionHistory:
        """Return the history for a clock that was set by `seconds`: what has passed
        stays the same.
        """
        return self._at(lambda time: max(0.0, time + seconds))

    def _at(self, moved: Callable[[float], float]) -> ActionHistory:
        """Return the history with each time as `moved` returns it."""
        models: dict[str, dict[str, Command]] = {}
        for model, commands in self.models.items():
            models[model] = {}
            for request, command in commands.items():
                models[model][request] = replace(
                    command, started=moved(command.started), seen=moved(command.seen)
                )
        return ActionHistory(models, tuple(map(moved, self.starts)))

    def reason_against(
        self, decision: Decision, now: float, per_model: float, per_hour: int
    ) -> str:
        """Return why a decision must not be acted upon now; empty if it may."""
        command = self._command(decision, now)
        if command is not None and command.done:
            return f"already acted upon at {format_time(math.ceil(command.started))}"
        if command is not None and command.failures >= MAX_FAILURES:
            failures = f"{command.failures} failures in a row"
            return f"given up after {failures}, until the alert resolves"
        commands = self._commands(decision).values()
        others = [each.started for each in commands if each is not command]
        allowed = max(others, default=-math.inf) + per_model
        why = "this model was acted upon less than --limit.per-model ago"
        if len(self.starts) >= per_hour:
            hour_allows = sorted(self.starts)[-per_hour] + HOUR
            if hour_allows > allowed:
                allowed = hour_allows
                why = f"--limit.per-hour {per_hour} is reached"
        if allowed <= now:
            return ""
        return f"{why}: allowed again at {format_time(math.ceil(allowed))}"

    def begin(self, decision: Decision, now: float) -> ActionHistory:
        """Return the history with a command that begins now."""
        latest = decision.starts_at or 0.0
        failures = 0
        previous = self._command(decision, now)
        if previous is not None:
            latest = max(latest, previous.latest)
            failures = previous.failures
        command = Command(failures + 1, started=now, seen=now, latest=latest)
        return replace(self._with(decision, command), starts=(*self.starts, now))

    def succeed(self, decision: Decision) -> ActionHistory:
        """Return the history after the command that had begun succeeded."""
        command = self._commands(decision)[decision.request]
        return self._with(decision, replace(command, failures=0, done=True))

    def saw(self, decision: Decision, now: float, *, firing: bool) -> ActionHistory:
        """Return the history after an alert was received again, without its failures if
        it has resolved.
        """
        command = self._command(decision, now)
        if command is None:
            return self
        latest = max(command.latest, decision.starts_at or 0.0)
        is_new = latest > command.latest or now - command.seen >= _SEEN_RESOLUTION
        if firing and not is_new:
            return self
        command = replace(command, seen=now, latest=latest)
        if not firing:
            command = replace(command, failures=0)
        return self._with(decision, command)

    def _commands(self, decision: Decision) -> dict[str, Command]:
        return self.models.get(decision.model, {})

    def _command(self, decision: Decision, now: float) -> Command | None:
        """Return the last command of the same decision."""
        command = self._commands(decision).get(decision.request)
        if command is None:
            return None
        starts_at = decision.starts_at or 0.0
        resumed = min(starts_at, now) <= command.seen + RESUMED_WITHIN
        return command if resumed or starts_at <= command.latest else None

    def _with(self, decision: Decision, command: Command) -> ActionHistory:
        commands = {**self._commands(decision), decision.request: command}
        return ActionHistory({**self.models, decision.model: commands}, self.starts)


def load(path: Path) -> ActionHistory:
    """Read a state file; one that does not exist is empty, one that cannot be used a
    ConfigError.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=ActionHistory)
    except FileNotFoundError:
        return ActionHistory()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f'--state.file "{path}": cannot be used: {error}; remove the file to begin '
            "anew, and what was done is forgotten"
        ) from error


def save(path: Path, history: ActionHistory) -> None:
    """Replace a state file atomically; OSError if it cannot be written, and the old
    content stays.
    """
    files.write(path, msgspec.json.encode(history), mode=0o600)
