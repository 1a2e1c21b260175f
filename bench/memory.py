"""Memory over days of virtual time: one process polls as fast as it can, by a clock of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from answers import BODIES, ONE_ENGINE, body, upstream, write_growing
from page import table
from processes import HERE, MIB, environment
from section import Goal, Section, beside

#: Seconds of virtual time between two polls.
POLL_SECONDS = 5.0
_GROWTH = 0.02
#: A day of polls, and so many restarts: growth over fewer is that of windows which fill.
POLLS, RESTARTS = 17_280, 2_600


def section(polls: int, restarts: int) -> Section:
    """Measure resident memory over many polls, and over restarts that change the labels each time.

    Args:
        polls: of one server; growth is judged from `POLLS` on.
        restarts: of a server, ten polls each; growth is judged from `RESTARTS` on.
    """
    real = body(BODIES[ONE_ENGINE])
    rows, ratios, goals = [], {}, []
    with tempfile.TemporaryDirectory() as name:
        steady, churning = Path(name, "steady"), Path(name, "churning")
        write_growing(steady)
        churning.write_bytes(real.replace(b"tiny-llama", b"model-{label}"))
        churn = f"{restarts:,} restarts with new labels, 10 polls each"
        for key, what, path, count, enough in (
            ("steady", f"{polls:,} polls", steady, polls, polls >= POLLS),
            ("churn", churn, churning, restarts * 10, restarts >= RESTARTS),
        ):
            with upstream(str(path)) as url:
                seen = _child(url, count, count // 10)
            early, late = seen[1]["resident"] / MIB, seen[-1]["resident"] / MIB
            growth = late / early - 1
            ratios[f"memory.{key}"] = late / early
            rows.append(
                (
                    what,
                    f"{count * POLL_SECONDS / 3600:.0f} h",
                    f"{early:.1f} MiB",
                    f"{late:.1f} MiB",
                    f"{late - early:+.1f} MiB",
                    *(f"{seen[1][part]} → {seen[-1][part]}" for part in ("descriptors", "tasks", "objects")),
                )
            )
            goals.append(
                Goal(
                    f"memory over {what}",
                    f"growth below {_GROWTH:.0%}",
                    f"{beside(growth * 100, _GROWTH * 100, sign='+')}%",
                    growth < _GROWTH if enough else None,
                )
            )
    head = (
        "over",
        "virtual time",
        "after a tenth",
        "at the end",
        "growth",
        "descriptors",
        "tasks",
        "objects",
    )
    lines = (
        (
            "Exporter, HTTP server and bare client in one process, whose clock goes on by "
            f"{POLL_SECONDS:.0f} s a poll; every third poll is scraped. Counts are after a tenth and at "
            "the end; objects are those that Python's garbage collector tracks."
        ),
        "",
        *table(head, rows),
    )
    return Section("Memory over days of virtual time", lines, ratios, tuple(goals))


def _child(url: str, polls: int, step: int) -> list[dict[str, int]]:
    command = [sys.executable, str(HERE / "memory_child.py"), url, str(polls), str(step)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment()).stdout
    seen: list[dict[str, int]] = json.loads(out)
    return seen
