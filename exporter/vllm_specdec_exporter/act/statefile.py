"""The state file: ledgers across restarts, as versioned JSON, written whole or not at all.

Rehearsals are kept apart: what dry-run would have done is not done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from .. import files
from .decision import Key
from .ledger import Entry, Ledger, Outcome

if TYPE_CHECKING:
    from pathlib import Path

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
        msg = f"not a state file of act: {' '.join(str(error).split())}"
        raise StateError(msg) from error
    msg = f"its format is {found[:40]!r}, and {FORMAT} is understood"
    raise StateError(msg)


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
        msg = f"cannot be read: {error.strerror}"
        raise StateError(msg) from error


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
            msg = "failures and times are numbers from 0 up"
            raise ValueError(msg)
        key = Key(row.cluster, row.namespace, row.model_name, row.action, row.recommended_k, row.starts_at)
        entries[key] = Entry(row.outcome, row.failures, row.started, row.seen)
    if not all(map(_is_moment, found.starts)):
        msg = "starts are numbers from 0 up"
        raise ValueError(msg)
    return Ledger(entries, tuple(sorted(found.starts)))


def _is_moment(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds >= 0
