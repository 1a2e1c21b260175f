"""What the tap costs: streams, requests and memory through it, beside the same through nginx and HAProxy.

Every way goes to the same scripted server with the same load in turn, round by round, so that whatever else
the machine does is shared by all. What a way adds is compared within a round, with the direct way.

    python bench/run.py --tap              # writes the section anew
    chrt -r 1 python bench/run.py --tap    # on a machine that does other things too
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from answers import upstream, write_growing
from bystanders import comes_first
from page import table
from processes import MIB
from section import Section
from tap_held_up import held_up
from tap_server import EVENT_BYTES
from tap_times import (
    HEAD,
    MEDIAN_MS,
    P99_MS,
    PROMISED_STREAMS,
    QUIET,
    RATE,
    Passing,
    Size,
    goals,
    least_disturbed,
    ratios,
    rows,
    times,
    undisturbed,
)
from tap_ways import ASKING, DIRECT, Way, haproxy, nginx, server, tap

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How often the tap's own metrics are scraped, in seconds. It polls the server every 5 s by itself.
SCRAPE_SECONDS = 15.0
_UPLOAD_BYTES = 4_000_000
_KB = 1000
_HELD = (256, 1024)


def section(size: Size) -> Section:
    """Measure all of it; some twenty minutes by default."""
    if comes_first():
        size = replace(size, attempts=1)
    passing: list[Passing] = []
    requests: dict[str, float | None] = {}
    held: dict[str, tuple[float, float]] = {}

    def ceilings_table(ways: tuple[Way, ...]) -> Iterator[tuple[str, ...]]:
        for one in ceilings(ways, size):
            requests[one.way] = one.cpu_seconds if one.undisturbed else None
            yield one.cells

    def memory_table(ways: tuple[Way, ...]) -> Iterator[tuple[str, ...]]:
        for one in memory(ways, size):
            held[one.way] = one.a_stream, one.growth
            yield one.cells

    with tempfile.TemporaryDirectory(prefix="bench-tap-") as name:
        folder = Path(name)
        write_growing(folder / "metrics")
        with upstream(str(folder / "metrics")) as metrics, server() as direct:
            with _ways(direct, metrics, folder) as ways, _scraped(ways):
                passing += times(ways, size)
                streams = table(HEAD, rows(passing))
                lines = [_told(size), "", _disturbed(size), "", *streams, "", *_CEILINGS_HEAD]
                lines += table(_CEILINGS, ceilings_table(ways))
            lines += ["", *_HELD_UP_HEAD, *table(("what", "groups", "processor time"), held_up())]
            lines += ["", "### Memory", ""]
            lines += [
                f"With streams open that send an event a second, and after {size.requests:,} requests.",
                "",
            ]
            with _ways(direct, metrics, folder) as ways:
                lines += table(_MEMORY, memory_table(ways))
    return Section("The tap", tuple(lines), ratios(passing, requests, held), tuple(goals(passing)))


def _told(size: Size) -> str:
    return (
        "Streams through the tap, in front of a scripted server on the same machine; beside it nginx "
        "(`proxy_buffering off`) and HAProxy, each as one process with one thread, as the tap is. An event "
        f"has {EVENT_BYTES} bytes, a stream {RATE} of them a second, a request 2 kB. Meanwhile the exporter "
        f"polls an answer of 55 kB every 5 s and is scraped every {SCRAPE_SECONDS:.0f} s. All ways take "
        f"turns, {size.rounds} rounds of {size.seconds:.0f} s each; what one adds is the median over the "
        "rounds. In step: all streams have their events at the same moment, as in a step of an engine, so "
        f"the last one waits for all others. The goal for {PROMISED_STREAMS} streams is below "
        f"{MEDIAN_MS:.0f} ms at the median, and below {P99_MS:.0f} ms at the 99th percentile."
    )


def _disturbed(size: Size) -> str:
    if comes_first():
        return (
            "The processes of the benchmark, all of them, had real-time priority, so that others only took "
            "what they left. The last column has what that was at most, of the machine."
        )
    return (
        f"A turn in which other processes take more than {QUIET:.0%} of the machine is taken again, up "
        f"to {size.attempts} times. The last column has what they took at most in the turns that "
        "count. No time is judged where they took more in most turns."
    )


@contextlib.contextmanager
def _ways(direct: Way, metrics: str, folder: Path) -> Iterator[tuple[Way, ...]]:
    with (
        tap(direct, metrics) as plain,
        tap(direct, metrics, ASKING) as asking,
        nginx(direct, folder) as nginx_way,
        haproxy(direct, folder) as haproxy_way,
    ):
        yield direct, plain, asking, nginx_way, haproxy_way


@contextlib.contextmanager
def _scraped(ways: tuple[Way, ...]) -> Iterator[None]:
    """Scrape the exporters meanwhile, as a Prometheus does."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(SCRAPE_SECONDS):
            for way in ways:
                if way.own:
                    with urllib.request.urlopen(f"http://{way.own}/metrics") as answer:
                        answer.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# --- how much passes

_CEILINGS = (
    "through",
    "requests",
    "processor time a request",
    "with a new connection",
    "a stream",
    "processor time a MB",
    "an upload",
    "processor time a MB",
)


_CEILINGS_HEAD = (
    "### How much passes",
    "",
    (
        "Requests for small JSON answers from 32 clients; from one, with a new connection for each; one "
        f"stream without a pace; one client that sends {_UPLOAD_BYTES // 10**6} MB at a time. Client and "
        "server share the processor, so the time of the process in between says more than the rates."
    ),
    "",
)


@dataclass(frozen=True)
class Ceiling:
    """How much passes one way at most.

    Attributes:
        way: its name.
        cpu_seconds: processor time of a small request.
        undisturbed: whether that was measured while others took little of the machine.
        cells: of the table.
    """

    way: str
    cpu_seconds: float
    undisturbed: bool
    cells: tuple[str, ...]


def ceilings(ways: tuple[Way, ...], size: Size) -> Iterator[Ceiling]:
    """Compare how much passes at most."""
    for way in ways:
        turns: tuple[dict[str, Any], ...] = (
            {"clients": 32, "script": {}},
            {"keep": False, "script": {}},
            {"script": {"events": 100_000}},
            {"size": _UPLOAD_BYTES, "script": {}},
        )
        small, new, stream, upload = (
            least_disturbed(way, ways, size.attempts, {"seconds": size.seconds, **told}) for told in turns
        )
        upload["bytes"] = upload["requests"] * _UPLOAD_BYTES
        cpu = small["cpu_seconds"] / small["requests"]
        cells = (
            way.name,
            f"{small['requests'] / small['seconds']:,.0f}/s",
            f"{cpu * 1e6:.0f} µs",
            f"{new['cpu_seconds'] / new['requests'] * 1e6:.0f} µs",
            *(cell for report in (stream, upload) for cell in _bytes(report)),
        )
        yield Ceiling(way.name, cpu, undisturbed([small["others"]]), cells)


def _bytes(report: dict[str, Any]) -> tuple[str, str]:
    megabytes = report["bytes"] / 1e6
    return (
        f"{megabytes / report['seconds']:.0f} MB/s",
        f"{report['cpu_seconds'] / megabytes * 1000:.1f} ms",
    )


# --- what holds it up, and memory

_HELD_UP_HEAD = (
    "### What holds it up",
    "",
    (
        "The tap shares its thread with the rest of the exporter: what passes waits while one of these goes "
        "on. Groups are those of model, temperature and type of request."
    ),
    "",
)
_MEMORY = (
    "through",
    "no stream",
    *(f"{streams:,} streams" for streams in _HELD),
    "a stream",
    "after a tenth of the requests",
    "after all",
    "growth",
)


@dataclass(frozen=True)
class Held:
    """What a process in between holds.

    Attributes:
        way: its name.
        a_stream: bytes of an open stream.
        growth: resident memory after all requests, over that after a tenth of them.
        cells: of the table.
    """

    way: str
    a_stream: float
    growth: float
    cells: tuple[str, ...]


def memory(ways: tuple[Way, ...], size: Size) -> Iterator[Held]:
    """Measure the resident memory of fresh processes, with streams open and over many requests."""
    for way in ways:
        if way.name == DIRECT:
            continue
        seen = [way.resident_bytes]
        for streams in _HELD:
            with way.holding(streams):
                seen.append(way.resident_bytes)
        after = []
        for requests in (size.requests // 10, size.requests - size.requests // 10):
            for script in ({}, {"events": 5, "rate": 1000}):
                way.load(clients=32, requests=requests // 2, script=script, ask=way.name != ASKING)
            after.append(way.resident_bytes)
        a_stream = (seen[-1] - seen[0]) / _HELD[-1]
        cells = (
            way.name,
            *(f"{found / MIB:.1f} MiB" for found in seen),
            f"{a_stream / _KB:.1f} kB",
            *(f"{found / MIB:.1f} MiB" for found in after),
            f"{(after[1] - after[0]) / MIB:+.1f} MiB",
        )
        yield Held(way.name, a_stream, after[1] / after[0], cells)
