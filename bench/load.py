"""Many scrapes a second, while the server behind answers and while it hangs: times, failures, event loop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from answers import BODIES, ONE_ENGINE, upstream
from page import table
from poll import parse_seconds
from processes import HERE, Running, Usage, exporter
from section import FOR_A_PERCENTILE, Goal, Section, beside

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Scrapes a second that are promised, and the connections over which they come.
RATE, CLIENTS = 300, 8
_QUICK = ("--poll.interval", "1s", "--poll.timeout", "900ms")
#: How often a probe asks meanwhile, on a connection of its own.
_PROBES = 20
_READY_MS = 50.0


def section(seconds: float) -> Section:
    """Scrape for some seconds each: at the promised rate, and as fast as answers come."""
    rows, ratios, goals = [], {}, []
    loops = []
    parse = parse_seconds(BODIES[ONE_ENGINE])
    for what, path in (("answers", str(BODIES[ONE_ENGINE])), ("hangs", "")):
        with upstream(path) as url, exporter("--vllm.url", url, *_QUICK) as running:
            time.sleep(2.5)
            single = scraped(running, seconds / 2, rate=20, clients=1)
            held = scraped(running, seconds, rate=RATE, clients=CLIENTS)
            zipped = scraped(running, seconds / 2, rate=RATE, clients=CLIENTS, gzip=True)
            most = scraped(running, seconds / 2, rate=0, clients=CLIENTS)
        for kind, found in (
            ("20 a second, one client", single),
            (f"{RATE} a second", held),
            (f"{RATE} a second, gzip", zipped),
            ("as fast as answers come", most),
        ):
            rows.append((what, kind, *_cells(found)))
        ratios[f"load.cpu_{what}"] = held["cpu"] / parse
        failures = sum(found["failures"] for found in (single, held, zipped, most))
        goals.append(
            Goal(
                f"{RATE} scrapes a second while the server {what}",
                "all answered, within 0.1 s for 99 of 100",
                f"{held['answers']:,} answers, {failures} failures, {beside(held['p99'] * 1000, 100)} ms",
                failures == 0 and held["p99"] < 0.1 and held["answers"] > 0.98 * RATE * seconds,
            )
        )
        loops += [(what, *cells) for cells in _loop(path, seconds / 2)]
        if what == "hangs":
            goals.append(
                Goal(
                    "probes meanwhile",
                    f"below {_READY_MS:.0f} ms for 99 of 100",
                    f"{beside(held['ready']['p99'] * 1000, _READY_MS)} ms",
                    in_time(held["ready"]),
                )
            )
    head = (
        "the server",
        "scrapes",
        "answered",
        "failures",
        "median",
        "99th percentile",
        "longest",
        "processor time each",
        "of one core",
        "`/-/ready` meanwhile, median",
        "99th percentile",
    )
    lines = (
        (
            f"Scrapes of `/metrics` over {CLIENTS} kept connections; times count from the moment at which a "
            f"scrape was due. A probe "
            f"asks for `/-/ready` {_PROBES} times a second on a connection of its own. The exporter polls "
            f"every second. While the "
            "server hangs there are fewer series to write, so scrapes are quicker, not slower."
        ),
        "",
        *table(head, rows),
        "",
        (
            "How late the exporter's event loop runs what is due, seen every 5 ms from within (the real "
            "process, with one task more):"
        ),
        "",
        *table(("the server", "scrapes", "median", "99th percentile", "longest"), loops),
    )
    return Section("Many scrapes while the server behind hangs", lines, ratios, tuple(goals))


def in_time(probes: dict[str, Any]) -> bool | None:
    """Tell whether probes are answered in time; ``None`` where there are too few for a percentile."""
    if probes["failures"]:
        return False
    return probes["p99"] * 1000 < _READY_MS if probes["answers"] >= FOR_A_PERCENTILE else None


def scraped(running: Running, seconds: float, *, probed: bool = True, **told: Any) -> dict[str, Any]:
    """Scrape for some seconds; adds what the process says of them, and a probe if there is one."""
    before = Usage.of(running.pid).cpu_seconds
    told |= {"address": running.address, "seconds": seconds}
    probe = {**told, "rate": _PROBES, "clients": 1, "path": "/-/ready", "gzip": False}
    with _client(told) as scrapes, _client(probe) if probed else contextlib.nullcontext() as probes:
        found = json.loads(scrapes.communicate()[0])
        if probes is not None:
            found["ready"] = json.loads(probes.communicate()[0])
    cpu = Usage.of(running.pid).cpu_seconds - before
    return {**found, "share": cpu / found["seconds"], "cpu": cpu / max(1, found["answers"])}


@contextlib.contextmanager
def _client(told: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(HERE / "load_client.py"), json.dumps(told)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process


def _cells(found: dict[str, Any]) -> tuple[str, ...]:
    ready = found["ready"]
    return (
        f"{found['answers'] / found['seconds']:,.0f}/s",
        str(found["failures"] + ready["failures"]),
        *(f"{found[key] * 1000:.1f} ms" for key in ("median", "p99", "longest")),
        f"{found['cpu'] * 1000:.2f} ms",
        f"{found['share']:.0%}",
        *(f"{ready[key] * 1000:.1f} ms" for key in ("median", "p99")),
    )


def _loop(path: str, seconds: float) -> Iterator[tuple[str, ...]]:
    """Yield how late the loop is, without scrapes and with them."""
    with tempfile.TemporaryDirectory() as folder, upstream(path) as url:
        file = Path(folder, "late")
        with exporter("--vllm.url", url, *_QUICK, program=(str(HERE / "probed.py"), str(file))) as running:
            time.sleep(2.5)
            late(running.pid, file)
            time.sleep(seconds)
            yield "none", *in_cells(late(running.pid, file))
            scraped(running, seconds, rate=RATE, clients=CLIENTS)
            yield f"{RATE} a second", *in_cells(late(running.pid, file))


def late(pid: int, file: Path) -> dict[str, float]:
    """Return how late the loop of a probed exporter was since the last time."""
    file.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    while not file.exists():
        time.sleep(0.01)
    found: dict[str, float] = json.loads(file.read_text("utf-8"))
    return found


def in_cells(found: dict[str, float]) -> tuple[str, ...]:
    """Return median, 99th percentile and maximum as cells."""
    return tuple(f"{found[key] * 1000:.1f} ms" for key in ("median", "p99", "longest"))
