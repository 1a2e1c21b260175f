"""The real exporter as a process, and what the system knows of a process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from bystanders import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parent
MIB = 1024**2


@dataclass(frozen=True)
class Usage:
    """What a process holds and has used.

    Attributes:
        resident_bytes: its memory, those of its children included.
        descriptors: that are open.
        threads: that run.
        cpu_seconds: processor time so far, that of its children included.
    """

    resident_bytes: float
    descriptors: int
    threads: int
    cpu_seconds: float

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Look at a process and its children."""
        pids = family(pid)
        return cls(
            sum(map(resident_bytes, pids)),
            sum(_entries(f"/proc/{one}/fd") for one in pids),
            sum(_entries(f"/proc/{one}/task") for one in pids),
            sum(map(cpu_seconds, pids)),
        )


def _entries(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def family(pid: int) -> list[int]:
    """Return a process and all of its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return [pid, *(one for child in children for one in family(int(child)))]


def resident_bytes(pid: int) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return 1024.0 * int(status.partition("VmRSS:")[2].split()[0])


def free_port() -> int:
    """Return a port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment() -> dict[str, str]:
    """Return the environment of processes: with byte code in files, as wherever a package is installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True)
class Running:
    """A process that serves.

    Attributes:
        address: ``http://host:port``.
        pid: its number.
        seconds: from its start to its first answer.
    """

    address: str
    pid: int
    seconds: float


@contextlib.contextmanager
def serving(
    command: Sequence[str], port: int, path: str = "/metrics", log: IO[bytes] | None = None
) -> Iterator[Running]:
    """Run a command until it answers at a port of this machine, and end it afterwards.

    Args:
        command: words.
        port: where it will listen.
        path: what it answers.
        log: takes what it writes; by default it goes where the benchmark's own output goes.
    """
    address = f"http://127.0.0.1:{port}"
    start = time.perf_counter()
    with subprocess.Popen(command, env=environment(), stdout=log, stderr=log) as process:
        try:
            while True:
                assert process.poll() is None, f"{command[0]} ended"
                with contextlib.suppress(OSError), urllib.request.urlopen(address + path, timeout=5):
                    break
                time.sleep(0.002)
            yield Running(address, process.pid, time.perf_counter() - start)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


@contextlib.contextmanager
def exporter(
    *flags: str,
    program: Sequence[str] = ("-m", "vllm_specdec_exporter"),
    log: IO[bytes] | None = None,
) -> Iterator[Running]:
    """Run the real exporter on a free port; without a file for its log it tells of errors alone."""
    port = free_port()
    words = [sys.executable, *program, "--log.level", "info" if log else "error"]
    with serving([*words, "--web.listen-address", f"127.0.0.1:{port}", *flags], port, log=log) as running:
        yield running
