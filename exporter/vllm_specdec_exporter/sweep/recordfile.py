"""The record of a sweep as a file: read to go on from, and written anew after each cell, in one step.

Whatever ends a sweep leaves all finished cells.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .. import files
from ..options import ConfigError
from .record import decode, server_differences, setup_differences

if TYPE_CHECKING:
    from pathlib import Path

    from .record import ServerIdentity, Setup, SweepRecord

FILE = "sweep.json"


def load(directory: Path) -> SweepRecord | None:
    """Return the record in `directory`, ``None`` if there is none.

    Raises:
        ConfigError: there is one that cannot be used.
    """
    path = directory / FILE
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        msg = f"--out {_quote(directory)}: {FILE} cannot be read: {error.strerror}"
        raise ConfigError(msg) from error
    except ValueError as error:
        msg = f"--out {_quote(directory)}: {FILE} {error}"
        raise ConfigError(msg) from error


def check_same(directory: Path, old: SweepRecord, server: ServerIdentity, setup: Setup) -> None:
    """Make sure that the record in `directory` is of the same sweep.

    Raises:
        ConfigError: it is of another one; the message says what differs.
    """
    found = server_differences(old.server, server) + setup_differences(old.setup, setup)
    if found:
        msg = (
            f"--out {_quote(directory)}: holds another sweep: {'; '.join(found)}; "
            "repeat that one's settings to continue it, or choose another directory"
        )
        raise ConfigError(msg)


def save(path: Path, body: bytes) -> None:
    """Write a file in one step: a reader sees the old one or the new one, never a part.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, body)
    except OSError as error:
        msg = f"--out {_quote(path.parent)}: {path.name} cannot be written: {error.strerror}"
        raise ConfigError(msg) from error


def _quote(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)
