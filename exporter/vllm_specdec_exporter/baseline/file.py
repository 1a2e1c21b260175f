"""The baseline file, read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .document import BaselineError, decode

if TYPE_CHECKING:
    from .document import Baseline


def load(path: str) -> Baseline:
    """Read and check a baseline file.

    Raises:
        BaselineError: it cannot be read, or holds no usable baseline.
    """
    try:
        body = Path(path).read_bytes()
    except OSError as error:
        msg = f"cannot be read: {error.strerror}"
        raise BaselineError(msg) from error
    return decode(body)
