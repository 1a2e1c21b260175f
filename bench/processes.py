"""The real exporter as a process, what the system says of a process, and how busy the
machine was.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
MIB = 1024**2
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """What a process holds and has used."""

    resident_bytes: float  # its memory
    peak_bytes: float  # the most that it was
    descriptors: int  # that are open
    threads: int
    cpu_seconds: float  # processor time so far

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Read what a process holds and has used now."""
        folder = Path(f"/proc/{pid}")
        status = (folder / "status").read_text("ascii")
        threads = [
            int(thread.read_text("ascii").split()[0])
            for thread in (folder / "task").glob("*/schedstat")
        ]
        return cls(
            1024.0 * int(status.partition("VmRSS:")[2].split()[0]),
            1024.0 * int(status.partition("VmHWM:")[2].split()[0]),
            sum(1 for _ in (folder / "fd").iterdir()),
            len(threads),
            sum(threads) / 1e9,
        )


@dataclass(frozen=True)
class Moment:
    """A moment, and the processor time used up to it."""

    at: float  # in seconds
    machine: float  # processor time of all processes, in seconds
    benchmark: (
        float  # that of the benchmark and of those of its processes that have ended
    )

    @classmethod
    def now(cls) -> Moment:
        """Read the machine's counters."""
        user, nice, system = Path("/proc/stat").read_text("ascii").split()[1:4]
        usages = [
            resource.getrusage(who)
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        benchmark = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        return cls(
            time.monotonic(),
            (int(user) + int(nice) + int(system)) / _TICKS,
            benchmark,
        )

    def others_since(self, start: Moment) -> float:
        """Return the share of the machine that other processes have taken since then, 0
        to 1.
        """
        # Processor time, and not the load, which counts what waits for a disk too.
        others = (self.machine - start.machine) - (self.benchmark - start.benchmark)
        return max(0.0, others / (self.at - start.at) / (os.cpu_count() or 1))


def has_priority() -> bool:
    """Tell whether this process, and with it those that it starts, has real-time
    priority.
    """
    return os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)


def free_port() -> int:
    """Return a port that nothing uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment() -> dict[str, str]:
    """Return the environment of processes: with byte code in files, as wherever a
    package is installed.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE"
    }


@dataclass(frozen=True)
class Running:
    """A process that serves."""

    address: str  # ``http://host:port``
    pid: int  # its number
    seconds: float  # from its start to its first answer


@contextlib.contextmanager
def serving(command: Sequence[str], port: int, path: str) -> Iterator[Running]:
    """Run a command until it answers at a port of this machine, and end it
    afterwards.
    """
    address = f"http://127.0.0.1:{port}"
    start = time.perf_counter()
    with subprocess.Popen(command, env=environment()) as process:
        try:
            while True:
                assert process.poll() is None, f"{command[0]} ended"
                with (
                    contextlib.suppress(OSError),
                    urllib.request.urlopen(address + path, timeout=5),
                ):
                    break
                # Short beside the tenths of a second that a start takes.
                time.sleep(0.002)
            yield Running(address, process.pid, time.perf_counter() - start)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


@contextlib.contextmanager
def exporter(*flags: str) -> Iterator[Running]:
    """Run the real exporter on a free port; only errors are logged."""
    port = free_port()
    command = [sys.executable, "-m", "vllm_specdec_exporter", "--log.level", "error"]
    listen = ["--web.listen-address", f"127.0.0.1:{port}"]
    with serving([*command, *listen, *flags], port, "/metrics") as running:
        yield running


def prometheus(folder: Path) -> contextlib.AbstractContextManager[Running]:
    """Run Prometheus with `prometheus.yml` and `data` of a folder."""
    program = shutil.which("prometheus")
    assert program, "prometheus is missing: apt-get install prometheus"
    port = free_port()
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    return serving(command, port, "/-/ready")
