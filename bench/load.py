"""Many scrapes a second, while the server behind answers and while it hangs: times,
failures, probes.
"""

import asyncio
import statistics
import time
from typing import Any

from answers import BODIES, ONE_ENGINE, upstream
from page import table
from poll import parse_seconds
from processes import Running, Usage, exporter
from section import FOR_A_PERCENTILE, Goal, Section

#: Scrapes a second that are promised, and the connections over which they come.
RATE = 300
CLIENTS = 8
_FLAGS = ("--poll.interval", "1s", "--poll.timeout", "900ms")
#: How often `/-/ready` is asked for meanwhile, on a connection of its own.
_PROBES = 20
_SCRAPE_MS = 100.0
_READY_MS = 50.0
_HEAD = (
    "the server",
    "scrapes",
    "answered",
    "median",
    "99th percentile",
    "processor time each",
    "probe, 99th percentile",
)


def section(seconds: float) -> Section:
    """Scrape for some seconds each: at the promised rate, and the same with gzip."""
    rows: list[tuple[str, ...]] = []
    ratios: dict[str, float | None] = {}
    goals: list[Goal] = []
    parse = parse_seconds(BODIES[ONE_ENGINE])
    for server, path in (("answers", BODIES[ONE_ENGINE]), ("hangs", None)):
        with upstream(path) as url, exporter("--vllm.url", url, *_FLAGS) as running:
            time.sleep(2.5)
            reports = {
                f"{RATE} a second": scraped(running, seconds),
                f"{RATE} a second, gzip": scraped(running, seconds / 2, gzip=True),
            }
        rows += [(server, kind, *_cells(report)) for kind, report in reports.items()]
        held = reports[f"{RATE} a second"]
        ratios[f"load.cpu_{server}"] = held["cpu"] / parse
        failures = sum(report["failures"] for report in reports.values())
        goals.append(
            Goal(
                f"{RATE} scrapes a second while the server {server}",
                f"all answered, within {_SCRAPE_MS:.0f} ms for 99 of 100",
                f"{failures} failures, {held['p99'] * 1000:.1f} ms",
                failures == 0
                and held["p99"] * 1000 < _SCRAPE_MS
                and held["answers"] > 0.98 * RATE * seconds,
            )
        )
    probes = held["ready"]
    goals.append(
        Goal(
            "probes while it hangs",
            f"below {_READY_MS:.0f} ms for 99 of 100",
            f"{probes['p99'] * 1000:.1f} ms",
            in_time(probes),
        )
    )
    lines = (
        (
            f"Scrapes of `/metrics` over {CLIENTS} kept connections; times count from "
            "the moment at which a scrape was due. Meanwhile `/-/ready` is asked for "
            f"{_PROBES} times a second, and the exporter polls every second. While "
            "the server hangs there are fewer series to write."
        ),
        "",
        *table(_HEAD, rows),
    )
    return Section(
        "Many scrapes while the server behind hangs", lines, ratios, tuple(goals)
    )


def in_time(probes: dict[str, Any]) -> bool | None:
    """Tell whether probes are answered in time; ``None`` where there are too few for a
    percentile.
    """
    if probes["failures"]:
        return False
    if probes["answers"] >= FOR_A_PERCENTILE:
        return probes["p99"] * 1000 < _READY_MS
    return None


def scraped(
    running: Running,
    seconds: float,
    rate: float = RATE,
    clients: int = CLIENTS,
    *,
    gzip: bool = False,
) -> dict[str, Any]:
    """Scrape for some seconds, and return what `report` gives, that of the probes
    beside it as `ready`.
    """

    async def both() -> tuple[dict[str, Any], dict[str, Any]]:
        return await asyncio.gather(
            report(
                _request("/metrics", gzip=gzip),
                running.address,
                seconds=seconds,
                rate=rate,
                clients=clients,
            ),
            report(
                _request("/-/ready", gzip=False),
                running.address,
                seconds=seconds,
                rate=_PROBES,
                clients=1,
            ),
        )

    cpu_at_start = Usage.of(running.pid).cpu_seconds
    scrapes, probes = asyncio.run(both())
    cpu = Usage.of(running.pid).cpu_seconds - cpu_at_start
    return {**scrapes, "ready": probes, "cpu": cpu / max(1, scrapes["answers"])}


def _request(path: str, *, gzip: bool) -> bytes:
    encoding = "gzip" if gzip else "identity"
    accept = f"Accept: text/plain;version=0.0.4\r\nAccept-Encoding: {encoding}\r\n"
    return f"GET {path} HTTP/1.1\r\nHost: exporter\r\n{accept}\r\n".encode()


async def report(
    request: bytes, address: str, seconds: float, rate: float, clients: int
) -> dict[str, Any]:
    """Make a request over and over, and return how many were answered, and how long it
    took.

    `rate` is requests a second over all `clients`, whose connections are kept, as
    Prometheus keeps its own.
    """
    host, _, port = address.removeprefix("http://").partition(":")
    took: list[float] = []
    sizes: list[int] = []
    failures = 0
    begin = time.monotonic()
    end = begin + seconds

    async def client(number: int) -> None:
        nonlocal failures
        pair = None
        due = begin + number / rate
        while time.monotonic() < end and due < end:
            await asyncio.sleep(due - time.monotonic())
            start, due = due, due + clients / rate  # what waits for its turn has waited
            try:
                if pair is None:
                    pair = await asyncio.open_connection(host, int(port))
                sizes.append(await asyncio.wait_for(_answered(*pair, request), 10))
                took.append(time.monotonic() - start)
            except (OSError, EOFError, TimeoutError, ValueError):
                failures += 1
                if pair is not None:
                    pair[1].close()
                pair = None
        if pair is not None:
            pair[1].close()

    await asyncio.gather(*(client(n) for n in range(clients)))
    # Quantiles need two values; a server that answered less often has failed anyway.
    if len(took) > 1:
        cuts = statistics.quantiles(took, n=100, method="inclusive")
    else:
        cuts = [0.0] * 99
    return {
        "answers": len(took),
        "failures": failures,
        "seconds": time.monotonic() - begin,
        "median": cuts[49],
        "p99": cuts[98],
        "size": statistics.median(sizes) if sizes else 0,
    }


async def _answered(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> int:
    """Send a request, read the whole answer, and return the size of its body."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 200 "):
        raise ValueError(head)
    size = int(head.partition(b"content-length:")[2].split(None, 1)[0])
    await reader.readexactly(size)
    return size


def _cells(report: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{report['answers'] / report['seconds']:,.0f}/s",
        *(f"{report[key] * 1000:.1f} ms" for key in ("median", "p99")),
        f"{report['cpu'] * 1000:.2f} ms",
        f"{report['ready']['p99'] * 1000:.1f} ms",
    )
