"""What the tap costs: streams, requests and memory through it, beside the same through nginx and HAProxy.

Every way goes to the same scripted server with the same load in turn, round by round, so that whatever else
the machine does is shared by all. What a way adds is compared within a round, with the direct way.

    python bench/run.py --tap              # writes the section anew
    chrt -r 1 python bench/run.py --tap    # on a machine that does other things too
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import threading
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from answers import upstream, write_growing
from bystanders import Moment, comes_first
from page import table
from tap_held_up import held_up
from tap_server import EVENT_BYTES
from tap_ways import ASKING, DIRECT, HAPROXY, NGINX, TAP, Way, haproxy, nginx, server, tap

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Streams at a time, and whether their events come all at once, as those of an engine's step do.
LOADS = ((1, False), (32, False), (256, False), (32, True), (256, True))
#: Events of a stream, and how many come in a second.
EVENTS, RATE = 100, 50
#: How often the tap's own metrics are scraped, in seconds. It polls the server every 5 s by itself.
SCRAPE_SECONDS = 15.0
_UPLOAD_BYTES = 4_000_000
_MIB, _KB = 1024**2, 1000
_HELD = (256, 1024)
#: Differences below this are noise, in milliseconds: no ratio is made of them.
_NOISE = 0.005


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        rounds: how often each way has its turn.
        seconds: of a turn.
        settle: seconds at its beginning in which clients connect, and nothing is counted.
        attempts: turns that are taken until one is hardly disturbed; else the least disturbed one counts.
        requests: after which memory is compared with that after a tenth of them.
    """

    rounds: int = 5
    seconds: float = 5.0
    settle: float = 1.0
    attempts: int = 6
    requests: int = 50_000


QUICK = Size(rounds=2, seconds=2.0, settle=0.5, attempts=1, requests=2_000)
#: Share of the machine that others may take in a turn.
_QUIET = 0.05


def section(size: Size) -> Iterator[str]:
    """Yield the lines of the section."""
    yield "## The tap"
    yield ""
    yield (
        "Streams through the tap, in front of a scripted server on the same machine; beside it nginx "
        "(`proxy_buffering off`) and HAProxy, each as one process with one thread, as the tap is. An event "
        f"has {EVENT_BYTES} bytes, a stream {RATE} of them a second, a request 2 kB. Meanwhile the exporter "
        f"polls an answer of 55 kB every 5 s and is scraped every {SCRAPE_SECONDS:.0f} s. All ways take "
        f"turns, {size.rounds} rounds of {size.seconds:.0f} s each; what one adds is the median over the "
        "rounds. In step: all streams have their events at the same moment, as in a step of an engine, so "
        "the last one waits for all others. The goal for 32 streams is below 1 ms at the median, and below "
        "5 ms at the 99th percentile."
    )
    yield ""
    if comes_first():
        size = replace(size, attempts=1)
        yield (
            "The processes of the benchmark, all of them, had real-time priority, so that others only took "
            "what they left. The last column has what that was at most, of the machine."
        )
    else:
        yield (
            f"A turn in which other processes take more than {_QUIET:.0%} of the machine is taken again, up "
            f"to {size.attempts} times. The last column has what they took at most in the turns that count."
        )
    yield ""
    with tempfile.TemporaryDirectory(prefix="bench-tap-") as name:
        folder = Path(name)
        write_growing(folder / "metrics")
        with upstream(str(folder / "metrics")) as metrics, server() as direct:
            with _ways(direct, metrics, folder) as ways, _scraped(ways):
                yield from table(_TIMES, times(ways, size))
                yield ""
                yield "### How much passes"
                yield ""
                yield (
                    "Requests for small JSON answers from 32 clients; from one, with a new connection for "
                    "each; one stream without a pace; one client that sends "
                    f"{_UPLOAD_BYTES // 10**6} MB at a time. Client and server share the processor, so the "
                    "time of the process in between says more than the rates."
                )
                yield ""
                yield from table(_CEILINGS, ceilings(ways, size))
            yield ""
            yield "### What holds it up"
            yield ""
            yield (
                "The tap shares its thread with the rest of the exporter: what passes waits while one of "
                "these goes on. Groups are those of model, temperature and type of request."
            )
            yield ""
            yield from table(("what", "groups", "processor time"), held_up())
            yield ""
            yield "### Memory"
            yield ""
            yield f"With streams open that send an event a second, and after {size.requests:,} requests."
            yield ""
            with _ways(direct, metrics, folder) as ways:
                yield from table(_MEMORY, memory(ways, size))


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


# --- times

_TIMES = (
    "streams",
    "through",
    "an event, median",
    "99th percentile",
    "the first event, median",
    "processor time an event",
    "added, of nginx's",
    "of HAProxy's",
    "others took",
)


def times(ways: tuple[Way, ...], size: Size) -> Iterator[tuple[str, ...]]:
    """Compare how long events are under way."""
    for clients, step in LOADS:
        script = {"events": EVENTS, "rate": RATE, "step": step}
        told = {"clients": clients, "seconds": size.seconds, "settle": size.settle, "script": script}
        found: dict[str, list[dict[str, Any]]] = {way.name: [] for way in ways}
        for _ in range(size.rounds):
            for way in ways:
                found[way.name].append(_undisturbed(way, ways, size.attempts, told))
        added = {name: _added(reports, found[DIRECT], "event_ms", 0) for name, reports in found.items()}
        for name, reports in found.items():
            sign = "" if name == DIRECT else "+"
            cells = [
                f"{_added(reports, found[DIRECT], key, which):{sign}.2f} ms"
                for key, which in (("event_ms", 0), ("event_ms", 1), ("answer_ms", 0))
            ]
            cpu = statistics.median(report["cpu_seconds"] / report["events"] for report in reports)
            ours = name in (TAP, ASKING)
            yield (
                f"{clients}{', in step' if step else ''}",
                name,
                *cells,
                f"{cpu * 1e6:.0f} µs",
                *(_ratio(added[name], added[other]) if ours else "" for other in (NGINX, HAPROXY)),
                f"{max(report['others'] for report in reports):.0%}",
            )


def _undisturbed(way: Way, ways: tuple[Way, ...], attempts: int, told: dict[str, Any]) -> dict[str, Any]:
    reports: list[dict[str, Any]] = []
    while len(reports) < attempts:
        before = Moment.now(each.pid for each in ways)
        report = _loaded(way, **told)
        report["others"] = Moment.now(each.pid for each in ways).others_since(before)
        reports.append(report)
        if report["others"] <= _QUIET:
            break
    return min(reports, key=lambda report: float(report["others"]))


def _loaded(way: Way, **told: object) -> dict[str, Any]:
    before = way.cpu_seconds
    report = way.load(ask=way.name != ASKING, **told)
    return report | {"cpu_seconds": way.cpu_seconds - before}


def _added(reports: list[dict[str, Any]], direct: list[dict[str, Any]], key: str, which: int) -> float:
    """Return what a way adds to the direct one in the same round; of the direct one itself all of it."""
    base = [0.0 if reports is direct else report[key][which] for report in direct]
    return statistics.median(report[key][which] - less for report, less in zip(reports, base, strict=True))


def _ratio(ours: float, theirs: float) -> str:
    return f"**{ours / theirs:.1f} x**" if theirs > _NOISE else "–"


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


def ceilings(ways: tuple[Way, ...], size: Size) -> Iterator[tuple[str, ...]]:
    """Compare how much passes at most."""
    for way in ways:
        turns: tuple[dict[str, Any], ...] = (
            {"clients": 32, "script": {}},
            {"keep": False, "script": {}},
            {"script": {"events": 100_000}},
            {"size": _UPLOAD_BYTES, "script": {}},
        )
        small, new, stream, upload = (
            _undisturbed(way, ways, size.attempts, {"seconds": size.seconds, **told}) for told in turns
        )
        upload["bytes"] = upload["requests"] * _UPLOAD_BYTES
        yield (
            way.name,
            f"{small['requests'] / small['seconds']:,.0f}/s",
            f"{small['cpu_seconds'] / small['requests'] * 1e6:.0f} µs",
            f"{new['cpu_seconds'] / new['requests'] * 1e6:.0f} µs",
            *(cell for report in (stream, upload) for cell in _bytes(report)),
        )


def _bytes(report: dict[str, Any]) -> tuple[str, str]:
    megabytes = report["bytes"] / 1e6
    return (
        f"{megabytes / report['seconds']:.0f} MB/s",
        f"{report['cpu_seconds'] / megabytes * 1000:.1f} ms",
    )


# --- memory

_MEMORY = (
    "through",
    "no stream",
    *(f"{streams:,} streams" for streams in _HELD),
    "a stream",
    "after a tenth of the requests",
    "after all",
    "growth",
)


def memory(ways: tuple[Way, ...], size: Size) -> Iterator[tuple[str, ...]]:
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
        yield (
            way.name,
            *(f"{found / _MIB:.1f} MiB" for found in seen),
            f"{(seen[-1] - seen[0]) / _HELD[-1] / _KB:.1f} kB",
            *(f"{found / _MIB:.1f} MiB" for found in after),
            f"{(after[1] - after[0]) / _MIB:+.1f} MiB",
        )
