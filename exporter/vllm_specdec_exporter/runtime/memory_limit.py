"""How much memory this process may take before the kernel ends it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/proc/self/cgroup")
_MOUNTED = Path("/sys/fs/cgroup")


def memory_limit(groups: Path = _GROUPS, mounted: Path = _MOUNTED) -> int:
    """Return the least of the limits of its control groups and of the machine, in
    bytes.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _limit_files(groups, mounted):
        # "max" is no limit; a group of the host is not seen in a container.
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(file.read_text("ascii")))
    return min(limits)


def _limit_files(groups: Path, mounted: Path) -> Iterator[Path]:
    # In a container its own group is the mounted one, whatever its path is outside.
    yield mounted / "memory.max"
    yield mounted / "memory" / "memory.limit_in_bytes"
    try:
        lines = groups.read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        relative = path.lstrip("/")
        if not controllers:
            yield mounted / relative / "memory.max"
        elif controllers == "memory":
            yield mounted / "memory" / relative / "memory.limit_in_bytes"
