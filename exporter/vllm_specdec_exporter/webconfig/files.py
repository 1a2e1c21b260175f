"""Files: what is in them, where they are of a size and a kind that a configuration may have."""

from __future__ import annotations

import os
import stat

#: Bytes that a file may have: far more than any certificate bundle, far less than what would hurt.
MAX_BYTES = 4 << 20


def read(path: str) -> tuple[bytes | None, str]:
    """Return what is in a file, or nothing and why.

    A device may have no end, and a pipe may never begin: only regular files are read.
    """
    try:
        with open(path, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None, "not a regular file"
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        return None, f"cannot be read: {getattr(error, 'strerror', None) or error}"
    if len(content) > MAX_BYTES:
        return None, f"larger than {MAX_BYTES >> 20} MiB"
    return content, ""


def _open(path: str, flags: int) -> int:
    # Who opens a pipe to read it would wait for whoever writes.
    return os.open(path, flags | os.O_NONBLOCK)
