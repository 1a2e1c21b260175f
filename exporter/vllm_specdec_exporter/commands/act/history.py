"""The history of actions: which decisions were acted upon, and when the next command may run.

The class is pure; time is an argument. These rules hold for any input, also across restarts:

* A decision whose command succeeded is never acted upon again, nor is the same one of an alert that fires
  anew within `RESUMED_WITHIN`: a gap in scraping, or a restart of Prometheus, is no new decision.
* At most `Limits.per_hour` commands begin in any hour.
* Two commands for one model begin at least `Limits.per_model` apart, unless the later one retries the
  earlier one.
* After `MAX_FAILURES` failures in a row a decision is given up until its alert resolves.

A command is recorded before it starts. If the process ends before the command does, that counts as a failure.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec

from ...config import files
from .decision import DecisionKey

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


HOUR = 3600.0
#: Failures in a row after which a decision is given up.
MAX_FAILURES = 3
#: Seconds after the end of an alert in which the same one that begins anew is the same decision.
RESUMED_WITHIN = HOUR
#: Seconds without a repeat of its alert after which a decision is forgotten.
FORGET_AFTER = 30 * 24 * HOUR
#: Maximum number of decisions; beyond it, those whose alert was seen least recently are dropped, and last the
#: newest of a model.
MAX_DECISIONS = 10_000

#: `seen` is updated at most this often, in seconds, to save writes.
_SEEN_RESOLUTION = HOUR


@dataclass(frozen=True, slots=True)
class Limits:
    """How often commands may run."""

    per_model: float = HOUR  # minimum seconds between two actions on one model, from 0 to 30 days
    per_hour: int = 4  # maximum number of actions in any hour over all models, at least 1


class CommandState(StrEnum):
    """The state of the last command of a decision."""

    BEGUN = "begun"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """The record of one decision."""

    state: CommandState  # the state of its last command
    failures: int
    started: float  # when its last command began, Unix seconds
    seen: float  # when its alert was last received, Unix seconds; at least `started`


@dataclass(frozen=True, slots=True)
class ActionHistory:
    """The past actions."""

    decisions: Mapping[DecisionKey, DecisionRecord] = field(default_factory=dict)  # the records by decision
    starts: tuple[float, ...] = ()  # when commands began within the last hour, Unix seconds, rising

    def prune(self, now: float) -> ActionHistory:
        """Return the history without old records and those beyond the maximum.

        Times after `now` (the clock was set back) are replaced by `now`: limits hold longer, but not until
        the clock has caught up.
        """
        decisions = {
            key: replace(record, started=min(record.started, now), seen=min(record.seen, now))
            for key, record in self.decisions.items()
            if now - record.seen <= FORGET_AFTER
        }
        if len(decisions) > MAX_DECISIONS:
            # The newest of each model stays: without it, --limit.per-model would not hold.
            rising = sorted(decisions, key=lambda key: decisions[key].started)
            newest = set({key.model: key for key in rising}.values())
            rising.sort(key=lambda key: (key in newest, decisions[key].seen))
            decisions = {key: decisions[key] for key in rising[-MAX_DECISIONS:]}
        starts = tuple(min(start, now) for start in self.starts if now - start < HOUR)
        return ActionHistory(decisions, starts)

    def reason_against(self, key: DecisionKey, now: float, limits: Limits) -> str:
        """Return why a decision must not be acted upon now; empty if it may."""
        record = self.decisions.get(key)
        if record is not None and record.state is CommandState.DONE:
            return f"already acted upon at {moment(record.started)}"
        if record is not None and record.failures >= MAX_FAILURES:
            return f"given up after {record.failures} failures in a row, until the alert resolves"
        allowed, why = max(self._model_allows(key, limits), self._hour_allows(limits))
        return "" if allowed <= now else f"{why}: allowed again at {moment(allowed)}"

    def begin(self, key: DecisionKey, now: float) -> ActionHistory:
        """Return the history with a command that begins now."""
        before = self.decisions.get(key)
        record = DecisionRecord(CommandState.BEGUN, before.failures if before else 0, now, now)
        return ActionHistory({**self.decisions, key: record}, (*self.starts, now))

    def finish(self, key: DecisionKey, *, succeeded: bool) -> ActionHistory:
        """Return the history with the result of the command that had begun."""
        record = self.decisions[key]
        if succeeded:
            return self._with(key, replace(record, state=CommandState.DONE, failures=0))
        return self._with(key, replace(record, state=CommandState.FAILED, failures=record.failures + 1))

    def saw(self, key: DecisionKey, now: float) -> ActionHistory:
        """Return the history after the alert was received again, so that it is kept while it fires."""
        record = self.decisions.get(key)
        if record is None or now - record.seen < _SEEN_RESOLUTION:
            return self
        return self._with(key, replace(record, seen=now))

    def copy_success(self, key: DecisionKey, same_as: DecisionKey) -> ActionHistory:
        """Return the history with a decision marked as done if another one with the same request is done."""
        record = self.decisions.get(same_as)
        if record is None or record.state is not CommandState.DONE or key in self.decisions:
            return self
        return self._with(key, record)

    def resume(self, key: DecisionKey, now: float) -> ActionHistory:
        """Return the history with a decision marked as done, if its alert was done and is briefly back."""
        if key in self.decisions:
            return self
        for other, record in self.decisions.items():
            recent = now - record.seen <= RESUMED_WITHIN
            if other[:-1] == key[:-1] and record.state is CommandState.DONE and recent:
                return self._with(key, replace(record, seen=now))
        return self

    def resolve(self, key: DecisionKey, now: float) -> ActionHistory:
        """Return the history after the alert resolved: without its failures, but not without its success."""
        record = self.decisions.get(key)
        return self if record is None else self._with(key, replace(record, failures=0, seen=now))

    def recover(self) -> ActionHistory:
        """Return the history for a new process: commands that the last one did not finish count as failed."""
        history = self
        for key, record in self.decisions.items():
            if record.state is CommandState.BEGUN:
                history = history.finish(key, succeeded=False)
        return history

    def _with(self, key: DecisionKey, record: DecisionRecord) -> ActionHistory:
        return replace(self, decisions={**self.decisions, key: record})

    def _model_allows(self, key: DecisionKey, limits: Limits) -> tuple[float, str]:
        others = (other for other in self.decisions if other.model == key.model and other != key)
        latest = max((self.decisions[other].started for other in others), default=-math.inf)
        return latest + limits.per_model, "this model was acted upon less than --limit.per-model ago"

    def _hour_allows(self, limits: Limits) -> tuple[float, str]:
        full = len(self.starts) >= limits.per_hour
        allowed = sorted(self.starts)[-limits.per_hour] + HOUR if full else -math.inf
        return allowed, f"--limit.per-hour {limits.per_hour} is reached"


def moment(seconds: float) -> str:
    """Return Unix seconds as RFC 3339 in UTC, rounded up to whole seconds."""
    return datetime.fromtimestamp(math.ceil(seconds), UTC).isoformat().replace("+00:00", "Z")


#: The version of the state file. It changes when an older version of `act` could not read the file.
FORMAT = "vllm-specdec-act/1"


class StateError(ValueError):
    """A state file that cannot be used. The message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class State:
    """What the state file contains: the actions that were carried out, and those of dry-run."""

    acted: ActionHistory = ActionHistory()
    rehearsed: ActionHistory = ActionHistory()


_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of `DecisionKey`, then those of `DecisionRecord`."""

    cluster: str
    namespace: str
    model_name: str
    action: str
    recommended_k: str
    starts_at: str
    outcome: CommandState
    failures: Annotated[int, msgspec.Meta(ge=0)]
    started: _Seconds
    seen: _Seconds


class _History(msgspec.Struct, forbid_unknown_fields=True):
    entries: list[_Row]
    starts: list[_Seconds]


class _StateFile(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    acted: _History
    rehearsed: _History


class _Format(msgspec.Struct):
    format: str


def encode_state(state: State) -> bytes:
    """Return the content of a state file."""
    document = _StateFile(FORMAT, _encoded(state.acted), _encoded(state.rehearsed))
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decode_state(body: bytes) -> State:
    """Return the state in the content of a state file; StateError if it is none of this version."""
    try:
        found = msgspec.json.decode(body, type=_Format).format
        if found == FORMAT:
            document = msgspec.json.decode(body, type=_StateFile)
            return State(_decoded(document.acted), _decoded(document.rehearsed))
    except (ValueError, RecursionError) as error:
        raise StateError(f"not a state file of act: {' '.join(str(error).split())}") from error
    raise StateError(f"its format is {found[:40]!r}, and {FORMAT} is understood")


def load_state(path: Path) -> State:
    """Read a state file; one that does not exist is empty, one that cannot be used a StateError."""
    try:
        return decode_state(path.read_bytes())
    except FileNotFoundError:
        return State()
    except OSError as error:
        raise StateError(f"cannot be read: {error.strerror}") from error


def save_state(path: Path, state: State) -> None:
    """Replace a state file atomically; OSError if it cannot be written, and the old content stays."""
    files.write(path, encode_state(state), mode=0o600)


def _encoded(history: ActionHistory) -> _History:
    rows = [_Row(*key, *astuple(record)) for key, record in history.decisions.items()]
    return _History(rows, list(history.starts))


def _decoded(found: _History) -> ActionHistory:
    rows = [msgspec.structs.astuple(row) for row in found.entries]
    size = len(DecisionKey._fields)
    decisions = {DecisionKey(*row[:size]): DecisionRecord(*row[size:]) for row in rows}
    return ActionHistory(decisions, tuple(sorted(found.starts)))
