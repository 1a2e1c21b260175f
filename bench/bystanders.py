"""How much of the machine others take: a measurement that they disturb can be taken again."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Moment:
    """A moment, and what was used up to it.

    Attributes:
        at: in seconds.
        machine: processor time of all processes, in seconds.
        own: that of the benchmark's processes.
    """

    at: float
    machine: float
    own: float

    @classmethod
    def now(cls, pids: Iterable[int]) -> Moment:
        """Look at the machine; the benchmark's processes are this one, its ended children, and `pids`."""
        user, nice, system = Path("/proc/stat").read_text("ascii").split()[1:4]
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own = sum(usage.ru_utime + usage.ru_stime for usage in used) + sum(map(cpu_seconds, pids))
        return cls(time.monotonic(), (int(user) + int(nice) + int(system)) / _TICKS, own)

    def others_since(self, before: Moment) -> float:
        """Return the share of the machine that others have taken since then, 0 to 1."""
        others = (self.machine - before.machine) - (self.own - before.own)
        return max(0.0, others / (self.at - before.at) / (os.cpu_count() or 1))


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text("ascii").split()[0]) for task in tasks) / 1e9


def comes_first() -> bool:
    """Tell whether this process, and with it those that it starts, has real-time priority."""
    return os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
