"""Files: written whole or not at all, and told from what they were."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write(path: Path, body: bytes) -> None:
    """Write a file in one step: a reader sees the old one or the new one, never a part.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(body)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def try_to_write(path: Path) -> None:
    """Find out whether `write` could write this file, and leave nothing behind.

    Raises:
        OSError: it could not.
    """
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(number)
    Path(temporary).unlink()


def stamp(path: str) -> tuple[int, ...]:
    """Return what is another after a file was written or exchanged; empty for none, or for no path."""
    if not path:
        return ()
    try:
        found = Path(path).stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
