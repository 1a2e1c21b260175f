"""Memory over days of virtual time: one process polls as fast as it can, by a clock of
its own.

With a server's URL, a number of polls, and every how many polls to look, it is the
child that does this.
"""

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from aiohttp import web

from answers import BODIES, ONE_ENGINE, body, upstream, write_growing
from page import table
from processes import MIB, Usage, environment
from section import Goal, Section
from vllm_specdec_exporter.publish.metrics_text import metrics_text
from vllm_specdec_exporter.serve import command
from vllm_specdec_exporter.serve.endpoints import create_app
from vllm_specdec_exporter.serve.exporter import Exporter
from vllm_specdec_exporter.settings import configuration

#: Seconds of virtual time between two polls.
POLL_SECONDS = 5.0
_GROWTH = 0.02
#: After so many tenths growth counts: by then the caches of labels are full, which hold
#: 500 restarts.
_FULL = 3
#: A day of polls, and so many restarts: growth over fewer is that of windows which
#: fill.
POLLS = 17_280
RESTARTS = 2_600


def section(polls: int, restarts: int) -> Section:
    """Measure resident memory over many polls of one server, and over restarts with
    other labels each time.

    Ten polls are made after a restart. Growth is judged from `POLLS` and `RESTARTS` on.
    """
    real = body(BODIES[ONE_ENGINE])
    rows = []
    ratios = {}
    goals = []
    with tempfile.TemporaryDirectory() as name:
        steady = write_growing(Path(name, "steady"))
        churning = Path(name, "churning")
        churning.write_bytes(real.replace(b"tiny-llama", b"model-{label}"))
        churn = f"{restarts:,} restarts with new labels, 10 polls each"
        for key, title, path, count, enough in (
            ("steady", f"{polls:,} polls", steady, polls, polls >= POLLS),
            ("churn", churn, churning, restarts * 10, restarts >= RESTARTS),
        ):
            with upstream(path) as url:
                samples = _child(url, count, count // 10)
            resident_full = samples[_FULL]["resident"] / MIB
            resident_end = samples[-1]["resident"] / MIB
            growth = resident_end / resident_full - 1
            ratios[f"memory.{key}"] = resident_end / resident_full
            rows.append(
                (
                    title,
                    f"{count * POLL_SECONDS / 3600:.0f} h",
                    f"{resident_full:.1f} MiB",
                    f"{resident_end:.1f} MiB",
                    *(
                        f"{samples[_FULL][part]} → {samples[-1][part]}"
                        for part in ("descriptors", "tasks", "objects")
                    ),
                )
            )
            met = None
            if enough:
                met = growth < _GROWTH
            goals.append(
                Goal(
                    f"memory over {title}",
                    f"growth below {_GROWTH:.0%}",
                    f"{growth:+.2%}",
                    met,
                )
            )
    head = (
        "over",
        "virtual time",
        "after three tenths",
        "at the end",
        "descriptors",
        "tasks",
        "objects",
    )
    lines = (
        (
            "Exporter, HTTP server and bare client in one process, whose clock goes "
            f"on by {POLL_SECONDS:.0f} s a poll; every third poll is scraped. Counts "
            "are after three tenths and at the end; objects are those that Python's "
            "garbage collector tracks."
        ),
        "",
        *table(head, rows),
    )
    return Section("Memory over days of virtual time", lines, ratios, tuple(goals))


def _child(url: str, polls: int, step: int) -> list[dict[str, int]]:
    command = [sys.executable, __file__, url, str(polls), str(step)]
    out = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, env=environment()
    ).stdout
    samples: list[dict[str, int]] = json.loads(out)
    return samples


def held() -> dict[str, int]:
    """Return what this process holds."""
    gc.collect()
    usage = Usage.of(os.getpid())
    return {
        "resident": round(usage.resident_bytes),
        "descriptors": usage.descriptors,
        "tasks": len(asyncio.all_tasks()),
        "objects": len(gc.get_objects()),
    }


async def poll(url: str, polls: int, step: int) -> None:
    """Poll as fast as possible, and print what this process holds at every `step`
    polls, as JSON.
    """
    virtual_seconds = 0.0

    def clock() -> float:
        return virtual_seconds

    exporter = Exporter(
        lambda: configuration.load({"vllm.url": [url]}, {}), clock=clock
    )
    runner = web.AppRunner(create_app(exporter))
    await runner.setup()
    poller = exporter._pollers[0]
    samples = []
    for done in range(polls + 1):
        if done % step == 0:
            samples.append(held())
        virtual_seconds = done * POLL_SECONDS
        await poller.poll()
        assert poller.latest.up, poller.latest.failure
        if done % 3 == 0:
            b"".join(map(str.encode, metrics_text(exporter.latest())))
    await poller.close()
    await runner.cleanup()
    sys.stdout.write(json.dumps(samples))


if __name__ == "__main__":
    assert command.__name__  # imported, as the real process does
    asyncio.run(poll(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
