"""What the tap costs: streams and memory through it, beside the same through nginx.

Every way goes to the same scripted server with the same load in turn, round by round,
so that whatever else the machine does is shared by all. What a way adds is compared
within a round, with the direct way.

    python bench/run.py --only tap            # writes the section anew
    chrt -r 1 python bench/run.py --only tap  # on a machine that does other things too
"""

import asyncio
import contextlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from answers import upstream, write_growing
from page import table
from processes import (
    HERE,
    MIB,
    Moment,
    Running,
    Usage,
    free_port,
    has_priority,
    serving,
)
from section import FOR_A_PERCENTILE, Goal, Section
from tap_client import hold, request, stream

DIRECT = "direct"
TAP = "tap"
NGINX = "nginx"
#: What is promised: streams at a time, and what the tap adds to an event and to the
#: first bytes of an answer, in milliseconds, at the median and at the 99th percentile.
STREAMS = 32
MEDIAN_MS = 1.0
P99_MS = 5.0
#: Events of a stream, and how many come in a second.
_EVENTS = 100
_RATE = 50
#: Streams that are open while memory is measured.
_HELD = 1024
#: Differences below this are noise, in milliseconds: no ratio is made of them.
_NOISE = 0.005
#: Share of the machine that other processes may take while times are judged.
QUIET = 0.05
#: One process and one thread, as the tap is; streams pass on as they come; connections
#: are kept.
_NGINX_CONFIG = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  keepalive_requests 1000000000;
  upstream server {{ server {server}; keepalive 2048; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    location / {{
      proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 1h;
    }}
  }}
}}
"""


@dataclass(frozen=True)
class Passing:
    """How streams pass one way."""

    way: str  # its name
    #: Whether the events of all streams come at the same moments, as those of an
    #: engine's step do.
    step: bool
    #: What it adds to an event, at the median and at the 99th percentile; all of it for
    #: the direct way.
    event_ms: tuple[float, float]
    #: Likewise, from a request to the first bytes of its answer.
    first_ms: tuple[float, float]
    cpu_seconds: float  # processor time of the process in between, an event
    events: int  # how many were timed
    firsts: int  # how many first bytes were


@dataclass(frozen=True)
class Memory:
    """Resident memory of a process in between, in bytes."""

    a_stream: float  # of an open stream
    after_a_tenth: float  # of the requests
    at_end: float  # after all of them


_HEAD = (
    f"{STREAMS} streams",
    "an event, median",
    "99th percentile",
    "the first bytes, median",
    "99th percentile",
    "processor time an event",
)


def section(rounds: int, seconds: float, requests: int) -> Section:
    """Measure all of it: each way has a turn of some `seconds` a round.

    Memory after all `requests` is compared with that after a tenth of them.
    """
    start = Moment.now()
    with (
        tempfile.TemporaryDirectory(prefix="bench-tap-") as name,
        _ways(Path(name)) as ways,
    ):
        memory = {name: _memory(ways[name], requests) for name in (TAP, NGINX)}
        passing = [
            *_times(ways, rounds, seconds, step=False),
            *_times(ways, rounds, seconds, step=True),
        ]
    quiet = has_priority() or Moment.now().others_since(start) <= QUIET
    lines = (
        (
            "Streams through the tap, in front of a scripted server on the same "
            "machine; beside it nginx (`proxy_buffering off`), with one thread as "
            f"the tap. A stream has {_RATE} events a second. Meanwhile the exporter "
            "polls an answer of 55 kB every 5 s. All ways take turns; what one adds "
            "is the median over the rounds. In step: all streams have their events "
            "at the same moment, so the last one waits for all others."
        ),
        "",
        *table(_HEAD, _rows(passing)),
        "",
        (
            f"Each of {_HELD:,} open streams takes {memory[TAP].a_stream / 1000:.1f} "
            f"kB of the tap's memory, and {memory[NGINX].a_stream / 1000:.1f} kB of "
            f"nginx's. From a tenth of {requests:,} requests to all of them the tap "
            f"grows from {memory[TAP].after_a_tenth / MIB:.1f} to "
            f"{memory[TAP].at_end / MIB:.1f} MiB."
        ),
    )
    return Section(
        "The tap",
        lines,
        ratios(passing, memory, quiet=quiet),
        tuple(goals(passing, quiet=quiet)),
    )


@contextlib.contextmanager
def _ways(folder: Path) -> Iterator[dict[str, Running]]:
    """Run the scripted server, and the tap and nginx before it."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    # two connections a stream, and others
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    command = [sys.executable, str(HERE / "tap_server.py")]
    with (
        upstream(write_growing(folder / "metrics")) as metrics,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            address = f"127.0.0.1:{server.stdout.readline().strip()}"
            with _tap(address, metrics) as tap, _nginx(address, folder) as nginx:
                yield {
                    DIRECT: Running(address, server.pid, 0.0),
                    TAP: tap,
                    NGINX: nginx,
                }
        finally:
            server.kill()


def _tap(server: str, metrics: str) -> AbstractContextManager[Running]:
    """Run the real exporter with its tap; it polls the server at the URL `metrics`
    too.
    """
    port = free_port()
    flags = {
        "--vllm.url": metrics,
        "--tap.upstream": f"http://{server}",
        "--tap.listen-address": f"127.0.0.1:{port}",
        "--web.listen-address": f"127.0.0.1:{free_port()}",
        "--log.level": "error",
    }
    command = [sys.executable, "-m", "vllm_specdec_exporter"]
    return serving([*command, *chain.from_iterable(flags.items())], port, "/")


def _nginx(server: str, folder: Path) -> AbstractContextManager[Running]:
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "nginx is missing: apt-get install nginx"
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(
        _NGINX_CONFIG.format(folder=folder, server=server, port=port), encoding="utf-8"
    )
    return serving([program, "-e", f"{folder}/nginx.log", "-c", str(config)], port, "/")


def _memory(way: Running, requests: int) -> Memory:
    """Measure a process that has just started."""

    def resident() -> float:
        return Usage.of(way.pid).resident_bytes

    asyncio.run(request(way.address, 4, 100))  # what is done once is over
    idle = resident()
    streaming = asyncio.run(hold(way.address, _HELD, resident))
    asyncio.run(request(way.address, STREAMS, requests // 10))
    after_a_tenth = resident()
    asyncio.run(request(way.address, STREAMS, requests - requests // 10))
    return Memory((streaming - idle) / _HELD, after_a_tenth, resident())


def _times(
    ways: Mapping[str, Running], rounds: int, seconds: float, *, step: bool
) -> Iterator[Passing]:
    """Yield how streams pass, way by way."""
    script = {"events": _EVENTS, "rate": _RATE, "step": step}
    events: dict[str, list[list[int]]] = {name: [] for name in ways}
    firsts: dict[str, list[list[int]]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            used = Usage.of(way.pid).cpu_seconds
            record = asyncio.run(stream(way.address, STREAMS, seconds, script))
            cpu[name].append((Usage.of(way.pid).cpu_seconds - used) / record.passed)
            events[name].append(record.events)
            firsts[name].append(record.firsts)
    for name in ways:
        yield Passing(
            name,
            step,
            event_ms=added(events[name], None if name == DIRECT else events[DIRECT]),
            first_ms=added(firsts[name], None if name == DIRECT else firsts[DIRECT]),
            cpu_seconds=statistics.median(cpu[name]),
            events=sum(map(len, events[name])),
            firsts=sum(map(len, firsts[name])),
        )


def added(
    rounds: Sequence[Sequence[int]], direct: Sequence[Sequence[int]] | None
) -> tuple[float, float]:
    """Return what a way adds to the direct one in the same round, at the median and the
    99th percentile.

    Rounds are in nanoseconds, and there is no `direct` one of the direct way itself.
    What is added is in milliseconds, the median over the rounds.
    """

    def cuts(nanoseconds: Sequence[int]) -> tuple[float, float]:
        parts = statistics.quantiles(nanoseconds, n=100, method="inclusive")
        return parts[49] / 1e6, parts[98] / 1e6

    # Within a round, so that what slows the machine down for a while cancels out.
    if direct is None:
        base = [(0.0, 0.0)] * len(rounds)
    else:
        base = [cuts(times) for times in direct]
    medians = []
    tails = []
    for times, (base_median, base_p99) in zip(rounds, base, strict=True):
        median, p99 = cuts(times)
        medians.append(median - base_median)
        tails.append(p99 - base_p99)
    return statistics.median(medians), statistics.median(tails)


def _rows(passing: Iterable[Passing]) -> Iterator[tuple[str, ...]]:
    for sample in passing:
        sign = "" if sample.way == DIRECT else "+"
        yield (
            f"{sample.way}{', in step' if sample.step else ''}",
            *(
                f"{value:{sign}.2f} ms"
                for value in (*sample.event_ms, *sample.first_ms)
            ),
            f"{sample.cpu_seconds * 1e6:.0f} µs",
        )


def _of(passing: Iterable[Passing], way: str, *, step: bool) -> Passing:
    return next(
        sample for sample in passing if (sample.way, sample.step) == (way, step)
    )


def goals(passing: Sequence[Passing], *, quiet: bool) -> Iterator[Goal]:
    """Yield what is promised, in step or not; nothing is judged on a busy machine, or
    by few values.
    """
    taps = [sample for sample in passing if sample.way == TAP]
    measured = [sample for sample in passing if sample.way != NGINX]
    for title, added_ms, count in (
        (
            "an event",
            [tap.event_ms for tap in taps],
            min(sample.events for sample in measured),
        ),
        (
            "the first bytes of an answer",
            [tap.first_ms for tap in taps],
            min(sample.firsts for sample in measured),
        ),
    ):
        median, p99 = map(max, zip(*added_ms, strict=True))
        met = None
        if quiet and count >= FOR_A_PERCENTILE:
            met = median < MEDIAN_MS and p99 < P99_MS
        yield Goal(
            f"what the tap adds to {title}, {STREAMS} streams, in step or not",
            (
                f"below {MEDIAN_MS:.0f} ms at the median, {P99_MS:.0f} ms at the 99th "
                "percentile"
            ),
            f"{median:.2f} ms, {p99:.2f} ms",
            met,
        )


def ratios(
    passing: Sequence[Passing], memory: Mapping[str, Memory], *, quiet: bool
) -> dict[str, float | None]:
    """Return the tap beside nginx, in the same run; no times of a busy machine."""

    def over(*, step: bool) -> float | None:
        ours, theirs = (
            _of(passing, way, step=step).event_ms[0] for way in (TAP, NGINX)
        )
        if quiet and theirs > _NOISE:
            return ours / theirs
        return None

    ours, theirs = (_of(passing, way, step=False).cpu_seconds for way in (TAP, NGINX))
    return {
        "tap.event": over(step=False),
        "tap.event_in_step": over(step=True),
        "tap.cpu_event": ours / theirs if quiet else None,
        "tap.memory_stream": memory[TAP].a_stream / memory[NGINX].a_stream,
        "tap.memory_growth": memory[TAP].at_end / memory[TAP].after_a_tenth,
    }
