"""Time and memory from the start of the process to its first answer, and memory when
its windows are full.
"""

import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from answers import BODIES, ONE_ENGINE, upstream, write_growing
from page import table
from processes import MIB, Usage, environment, exporter
from section import Goal, Section

_SECONDS = 1.0
_RESIDENT_MIB = 46.0
#: Ten minutes of the default settings at ten times the pace: as many samples in each
#: window.
_FASTER = 10
_PACE = ("--poll.interval", "500ms", "--window", "3s", "--window", "30s")
_POLLED_SECONDS = 600 / _FASTER
_SCRAPE_SECONDS = 15 / _FASTER
#: What any exporter on aiohttp carries, as a process that has just started.
_BARE = """
import resource, sys, time
import aiohttp.web, prometheus_client, yaml
usage = resource.getrusage(resource.RUSAGE_SELF)
status = open("/proc/self/status").read()
resident = int(status.partition("VmRSS:")[2].split()[0]) * 1024
print(usage.ru_utime + usage.ru_stime, resident)
"""


def section(times: int) -> Section:
    """Start the exporter some times, in turn with a Python that imports what it stands
    on.
    """
    seconds = []
    memory = []
    cpu = []
    bare_cpu = []
    bare_memory = []
    with upstream(BODIES[ONE_ENGINE]) as url:
        for turn in range(times + 1):
            with exporter("--vllm.url", url) as running:
                time.sleep(0.5)
                usage = Usage.of(running.pid)
            bare = _bare()
            if turn:  # the first one wrote the byte code
                seconds.append(running.seconds)
                memory.append(usage.resident_bytes)
                cpu.append(usage.cpu_seconds)
                bare_cpu.append(bare[0])
                bare_memory.append(bare[1])
    took = statistics.median(seconds)
    started = statistics.median(memory) / MIB
    resident = _later() / MIB
    rows = [
        (
            "processor time until half a second later",
            f"{statistics.median(cpu):.2f} s",
            f"{statistics.median(bare_cpu):.2f} s",
        ),
        (
            "resident memory then",
            f"{started:.1f} MiB",
            f"{statistics.median(bare_memory) / MIB:.1f} MiB",
        ),
    ]
    lines = (
        (
            "Beside it a Python that only imports aiohttp's server, "
            "prometheus_client and PyYAML, on which the exporter stands. The median "
            f"of {times} starts each. Windows are full after 120 polls and 40 "
            f"scrapes, those of ten minutes, {_FASTER} times as fast."
        ),
        "",
        *table(("what", "the exporter", "imports alone"), rows),
    )
    return Section(
        "Start",
        lines,
        {
            "start.cpu": statistics.median(cpu) / statistics.median(bare_cpu),
            "start.memory": statistics.median(memory) / statistics.median(bare_memory),
        },
        (
            Goal(
                "time to the first answer",
                f"below {_SECONDS:.0f} s",
                f"{took:.2f} s",
                took < _SECONDS,
            ),
            Goal(
                "resident memory, windows full",
                f"below {_RESIDENT_MIB:.0f} MiB",
                f"{resident:.1f} MiB",
                resident < _RESIDENT_MIB,
            ),
        ),
    )


def _later() -> float:
    """Return the resident memory of a sidecar whose windows are full, in bytes."""
    with tempfile.TemporaryDirectory() as name:
        answers = write_growing(Path(name, "answers"))
        with upstream(answers) as url, exporter("--vllm.url", url, *_PACE) as running:
            end = time.monotonic() + _POLLED_SECONDS
            while time.monotonic() < end:
                time.sleep(_SCRAPE_SECONDS)
                with urllib.request.urlopen(
                    f"{running.address}/metrics", timeout=10
                ) as answer:
                    answer.read()
            return Usage.of(running.pid).resident_bytes


def _bare() -> tuple[float, float]:
    out = subprocess.run(
        [sys.executable, "-c", _BARE],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ).stdout
    cpu, memory = map(float, out.split())
    return cpu, memory
