"""`history` before a Prometheus with many replicas over 30 days: its time and
memory.
"""

import subprocess
import sys

from answers import ROOT
from page import table
from processes import MIB, environment
from section import Goal, Section

sys.path.append(str(ROOT / "tests"))

from history.api import api
from history.world import four
from support.faulty_server import FaultyServer

REPLICAS = 100
_DAYS = 30
_MIB = 200
#: In a process of its own, whose peak of memory is that of the command alone.
#: The command, and then its processor seconds and the most memory that it took, in
#: bytes.
_CHILD = """
import resource, sys
from vllm_specdec_exporter.cli import main
assert main() == 0
usage = resource.getrusage(resource.RUSAGE_SELF)
most = open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]
print(usage.ru_utime + usage.ru_stime, int(most) * 1024)
"""


def section(replicas: int) -> Section:
    """Run the command for so many replicas, without exporters beside the servers and
    with them.
    """
    world = four(0, replicas, _DAYS)
    rows = []
    seconds = []
    peaks = []
    for title, exporters in (("none", False), ("one beside each server", True)):
        with FaultyServer(api(world, exporters=exporters)) as server:
            command = [
                sys.executable,
                "-c",
                _CHILD,
                "history",
                server.url,
                "--since",
                "2025-11-01",
            ]
            out = subprocess.check_output(command, text=True, env=environment())
        cpu, peak = map(float, out.splitlines()[-1].split())
        seconds.append(cpu)
        peaks.append(peak / MIB)
        rows.append((title, f"{cpu:.0f} s", f"{peak / MIB:.0f} MiB"))
    heads = ("exporters", "processor time", "most memory")
    size = f"{replicas} replicas, {_DAYS} days"
    lines = (
        (
            "`history` before a simulated API, with a past of four configurations "
            "that was scraped every 15 s. The time of a real server for the queries "
            "comes on top."
        ),
        "",
        *table(heads, rows),
    )
    goal = Goal(
        f"`history` of {size}",
        f"below {_MIB} MiB",
        f"{max(peaks):.0f} MiB",
        max(peaks) < _MIB,
    )
    return Section(
        f"The past of {size}",
        lines,
        {"past.exporters": seconds[1] / seconds[0]},
        (goal,),
    )
