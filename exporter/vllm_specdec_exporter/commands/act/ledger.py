"""The ledger: which decisions were acted upon, and when the next may be. Pure; time is passed in.

Its laws, whatever comes in and whenever the process is started anew:

* A decision that was acted upon with success is never acted upon again.
* In no hour begin more commands than `Limits.per_hour`.
* Two commands for one model begin at least `Limits.per_model` apart, unless the later one tries once more
  what the earlier one failed to do.
* After `MOST_FAILURES` failures in a row a decision is given up until its alert resolves.

The begin of a command is entered before it runs. If the process ends meanwhile, nobody knows what became of
it: that counts as a failure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from ...config import files
from .decision import Key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


HOUR = 3600.0
#: Failures in a row after which a decision is given up.
MOST_FAILURES = 3
#: Seconds after which a decision that no alert repeats any more is forgotten.
FORGET_AFTER = 30 * 24 * HOUR
#: Decisions that are remembered; those that were not seen for longest are forgotten first.
MOST_ENTRIES = 10_000

#: How much older the last sight of a decision may look than it is: not every repeat is worth a write.
_SIGHT = HOUR


@dataclass(frozen=True, slots=True)
class Limits:
    """How often something may be done.

    Attributes:
        per_model: least seconds between two actions on one model, from 0 to 30 days.
        per_hour: most actions in any hour over all models, at least 1.
    """

    per_model: float = HOUR
    per_hour: int = 4


class Outcome(StrEnum):
    """What is known of the last command for a decision."""

    BEGUN = "begun"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Entry:
    """One decision.

    Attributes:
        outcome: what is known of its last command.
        failures: failures in a row.
        started: when its last command began, Unix seconds.
        seen: when its alert was last seen, Unix seconds; at least `started`.
    """

    outcome: Outcome
    failures: int
    started: float
    seen: float


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is remembered.

    Attributes:
        entries: by decision.
        starts: when commands began within the last hour, Unix seconds, rising.
    """

    entries: Mapping[Key, Entry] = field(default_factory=dict)
    starts: tuple[float, ...] = ()

    def tidy(self, now: float) -> Ledger:
        """Return the ledger without what is too old to matter, or too much.

        Moments after `now` are there when the clock was set back. They count as now: limits hold for longer,
        but not until the clock has caught up.
        """
        entries = {
            key: _not_after(entry, now)
            for key, entry in self.entries.items()
            if now - entry.seen <= FORGET_AFTER
        }
        if len(entries) > MOST_ENTRIES:
            newest = sorted(entries.items(), key=lambda item: item[1].seen)[-MOST_ENTRIES:]
            entries = dict(newest)
        starts = tuple(min(start, now) for start in self.starts if now - start < HOUR)
        return Ledger(entries, starts)

    def why_not(self, key: Key, now: float, limits: Limits) -> str:
        """Say why a decision is not acted upon now; empty where it is."""
        entry = self.entries.get(key)
        if entry is not None and entry.outcome is Outcome.DONE:
            return f"already acted upon at {moment(entry.started)}"
        if entry is not None and entry.failures >= MOST_FAILURES:
            return f"given up after {entry.failures} failures in a row, until the alert resolves"
        allowed, why = max(self._model_allows(key, limits), self._hour_allows(limits))
        return "" if allowed <= now else f"{why}: allowed again at {moment(allowed)}"

    def begin(self, key: Key, now: float) -> Ledger:
        """Return the ledger with a command that begins."""
        before = self.entries.get(key)
        entry = Entry(Outcome.BEGUN, before.failures if before else 0, now, now)
        return Ledger({**self.entries, key: entry}, (*self.starts, now))

    def finish(self, key: Key, *, succeeded: bool) -> Ledger:
        """Return the ledger with how the command that had begun ended."""
        entry = self.entries[key]
        if succeeded:
            return self._with(key, replace(entry, outcome=Outcome.DONE, failures=0))
        return self._with(key, replace(entry, outcome=Outcome.FAILED, failures=entry.failures + 1))

    def saw(self, key: Key, now: float) -> Ledger:
        """Return the ledger with a repeat of the alert: what still fires is not forgotten."""
        entry = self.entries.get(key)
        if entry is None or now - entry.seen < _SIGHT:
            return self
        return self._with(key, replace(entry, seen=now))

    def adopt(self, key: Key, same_as: Key) -> Ledger:
        """Return the ledger with what was done for one alert as done for another that asked for the same."""
        entry = self.entries.get(same_as)
        if entry is None or entry.outcome is not Outcome.DONE or key in self.entries:
            return self
        return self._with(key, entry)

    def resolve(self, key: Key) -> Ledger:
        """Return the ledger after the alert resolved: failures are forgiven, what was done stays done."""
        entry = self.entries.get(key)
        if entry is None or not entry.failures:
            return self
        return self._with(key, replace(entry, failures=0))

    def recover(self) -> Ledger:
        """Return the ledger for a new process: what had begun in the last one counts as failed."""
        begun = [key for key, entry in self.entries.items() if entry.outcome is Outcome.BEGUN]
        ledger = self
        for key in begun:
            ledger = ledger.finish(key, succeeded=False)
        return ledger

    def _with(self, key: Key, entry: Entry) -> Ledger:
        return replace(self, entries={**self.entries, key: entry})

    def _model_allows(self, key: Key, limits: Limits) -> tuple[float, str]:
        others = (
            entry.started
            for other, entry in self.entries.items()
            if other.model == key.model and other != key
        )
        latest = max(others, default=-math.inf)
        return latest + limits.per_model, "this model was acted upon less than --limit.per-model ago"

    def _hour_allows(self, limits: Limits) -> tuple[float, str]:
        full = len(self.starts) >= limits.per_hour
        allowed = sorted(self.starts)[-limits.per_hour] + HOUR if full else -math.inf
        return allowed, f"--limit.per-hour {limits.per_hour} is reached"


def moment(seconds: float) -> str:
    """Return Unix seconds as RFC 3339 in UTC, rounded up to whole seconds."""
    return datetime.fromtimestamp(math.ceil(seconds), UTC).isoformat().replace("+00:00", "Z")


def _not_after(entry: Entry, now: float) -> Entry:
    if entry.seen <= now and entry.started <= now:
        return entry
    return replace(entry, started=min(entry.started, now), seen=min(entry.seen, now))


#: What the file says it is. The number rises when an older version could not read it.
FORMAT = "vllm-specdec-act/1"


class StateError(ValueError):
    """A state file that cannot be used. The message is one line that says why."""


@dataclass(frozen=True, slots=True)
class State:
    """What outlives the process.

    Attributes:
        acted: the ledger of what was done.
        rehearsed: the ledger of what dry-run would have done.
    """

    acted: Ledger = Ledger()
    rehearsed: Ledger = Ledger()


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    cluster: str
    namespace: str
    model_name: str
    action: str
    recommended_k: str
    starts_at: str
    outcome: Outcome
    failures: int
    started: float
    seen: float


class _Ledger(msgspec.Struct, forbid_unknown_fields=True):
    entries: list[_Entry]
    starts: list[float]


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    acted: _Ledger
    rehearsed: _Ledger


class _Head(msgspec.Struct):
    format: str


def encode(state: State) -> bytes:
    """Return the file's content."""
    document = _Document(FORMAT, _written(state.acted), _written(state.rehearsed))
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decode(body: bytes) -> State:
    """Return the state that a file's content holds.

    Raises:
        StateError: not such a content, of another version, or with impossible values.
    """
    try:
        found = msgspec.json.decode(body, type=_Head).format
        if found == FORMAT:
            document = msgspec.json.decode(body, type=_Document)
            return State(_read(document.acted), _read(document.rehearsed))
    except (ValueError, RecursionError) as error:
        raise StateError(f"not a state file of act: {' '.join(str(error).split())}") from error
    raise StateError(f"its format is {found[:40]!r}, and {FORMAT} is understood")


def load(path: Path) -> State:
    """Read a state file; one that does not exist yet is empty.

    Raises:
        StateError: it cannot be read, or holds nothing usable.
    """
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return State()
    except OSError as error:
        raise StateError(f"cannot be read: {error.strerror}") from error


def save(path: Path, state: State) -> None:
    """Write a state file in one step.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    files.write(path, encode(state))


def _written(ledger: Ledger) -> _Ledger:
    return _Ledger(
        [
            _Entry(*key, entry.outcome, entry.failures, entry.started, entry.seen)
            for key, entry in ledger.entries.items()
        ],
        list(ledger.starts),
    )


def _read(found: _Ledger) -> Ledger:
    entries = {}
    for row in found.entries:
        if row.failures < 0 or not _is_moment(row.started) or not _is_moment(row.seen):
            raise ValueError("failures and times are numbers from 0 up")
        key = Key(row.cluster, row.namespace, row.model_name, row.action, row.recommended_k, row.starts_at)
        entries[key] = Entry(row.outcome, row.failures, row.started, row.seen)
    if not all(map(_is_moment, found.starts)):
        raise ValueError("starts are numbers from 0 up")
    return Ledger(entries, tuple(sorted(found.starts)))


def _is_moment(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds >= 0
