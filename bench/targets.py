"""One exporter before many servers: are polls spread, is any missed, and what does it take."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from answers import BODIES, ONE_ENGINE
from load import in_cells, late, scraped
from page import table
from poll import parse_seconds
from processes import HERE, MIB, Usage, environment, exporter
from section import Goal, Section, beside
from spread import CLUMP_SECONDS, spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from processes import Running

TARGETS = 200
INTERVAL = 5.0
_SLOW, _SLOW_SECONDS, _RELOADS = 50, 1.0, 3
#: Polls in a tenth of a second that are no clump, over those of an even spread.
_CLUMP = 2.5
#: Most processor time of a poll, over that of prometheus_client's parser for the same answer.
_SHARE = 0.2
_PROGRAM = str(HERE / "probed.py")


def section(intervals: int) -> Section:
    """Watch one server, and then 200, for so many intervals under each condition."""
    with tempfile.TemporaryDirectory(prefix="bench-targets-") as name:
        parse, one = parse_seconds(BODIES[ONE_ENGINE]), _alone(Path(name), intervals)
        return _many(Path(name), intervals, one, parse)


def _alone(folder: Path, intervals: int) -> float:
    """Return the processor time of one poll of a single server, in seconds."""
    with (
        _servers(1) as servers,
        exporter("--config.file", str(_configured(folder, servers, 0.2)[0])) as running,
    ):
        time.sleep(3)
        _ask(servers, "")
        before = Usage.of(running.pid).cpu_seconds
        time.sleep(max(5.0, intervals * 2.0))
        used = Usage.of(running.pid).cpu_seconds - before
        return used / len(_ask(servers, "")[0])


def _many(folder: Path, intervals: int, one: float, parse: float) -> Section:
    seconds = intervals * INTERVAL
    file = folder / "late"
    rows = []
    with _servers(TARGETS) as servers:
        config, document = _configured(folder, servers, INTERVAL)
        flags = ("--config.file", str(config))
        with exporter(*flags, program=(_PROGRAM, str(file))) as running:
            time.sleep(2 * INTERVAL)

            def watched(what: str, before: Callable[[], None]) -> tuple[float, float, int]:
                _ask(servers, "")
                late(running.pid, file)
                start, begin = Usage.of(running.pid).cpu_seconds, time.monotonic()
                before()
                time.sleep(max(0.0, seconds - (time.monotonic() - begin)))
                share = (Usage.of(running.pid).cpu_seconds - start) / (time.monotonic() - begin)
                found = spread(_ask(servers, ""), INTERVAL, time.monotonic() - begin)
                rows.append(
                    (
                        what,
                        f"{found.polls:,}",
                        str(found.missed),
                        f"{found.largest_gap:.1f} x",
                        f"{found.clump:.1f} x",
                        f"{found.longest:.2f}",
                        f"{share:.1%}",
                        *in_cells(late(running.pid, file)),
                    )
                )
                return found.clump, share * (time.monotonic() - begin) / found.polls, found.missed

            steady = watched("as they are", lambda: None)
            usage = Usage.of(running.pid)
            scrapes = scraped(running, seconds / 2, rate=1, clients=1)
            _ask(servers, f"slow {_SLOW} {_SLOW_SECONDS}")
            slow = watched(f"{_SLOW} answer after {_SLOW_SECONDS:.0f} s", lambda: None)
            _ask(servers, "slow 0 0")
            time.sleep(INTERVAL)
            reloaded = watched(f"{_RELOADS} reloads meanwhile", lambda: _reload(running, config, document))
            after = watched("after them", lambda: None)
    head = (
        f"{TARGETS} servers",
        "polls",
        "missed",
        "largest gap, of an even one",
        f"most in {CLUMP_SECONDS:g} s, of an even spread",
        "longest between two of a server, in intervals",
        "of one core",
        "event loop late, median",
        "99th percentile",
        "longest",
    )
    lines = (
        (
            f"One exporter before {TARGETS} servers, each with the real answer of one engine (55 kB), all in "
            f"one other process, which takes "
            f"down when it was polled. The interval is {INTERVAL:.0f} s; each row is {seconds:.0f} s."
        ),
        "",
        *table(head, rows),
        "",
        *table(
            ("what", "value"),
            (
                ("resident memory", f"{usage.resident_bytes / MIB:.1f} MiB"),
                ("open descriptors", str(usage.descriptors)),
                ("size of a scrape", f"{scrapes['size'] / 1e6:.2f} MB"),
                (
                    "a scrape, median and longest",
                    f"{scrapes['median'] * 1000:.0f} ms, {scrapes['longest'] * 1000:.0f} ms",
                ),
                ("processor time of a poll", f"{steady[1] * 1000:.2f} ms"),
                ("the same where there is one server", f"{one * 1000:.2f} ms"),
                ("prometheus_client, which only parses the answer", f"{parse * 1000:.2f} ms"),
            ),
        ),
    )
    missed = steady[2] + slow[2] + reloaded[2] + after[2]
    worst = max(steady[0], slow[0], after[0])
    return Section(
        f"{TARGETS} servers, one process",
        lines,
        {"targets.cpu": steady[1] / one, "targets.poll": one / parse, "targets.clump": steady[0]},
        (
            Goal(f"polls of {TARGETS} servers", "none is missed", f"{missed} missed", missed == 0),
            Goal(
                "they are spread over the interval",
                f"at most {_CLUMP:g} times as many at once as evenly",
                f"{beside(worst, _CLUMP)} times",
                worst <= _CLUMP,
            ),
            Goal(
                "also while settings are reloaded",
                f"at most {_CLUMP:g} times as many at once as evenly",
                f"{beside(reloaded[0], _CLUMP)} times",
                reloaded[0] <= _CLUMP,
            ),
            Goal(
                "a poll of one server, all of it",
                f"at most {_SHARE:g} of what prometheus_client takes to parse the answer",
                f"{beside(one / parse, _SHARE, 2)}: {one * 1000:.2f} ms",
                one / parse <= _SHARE,
            ),
        ),
    )


def _servers(count: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "targets_server.py"), str(count)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )


def _configured(
    folder: Path, servers: subprocess.Popen[str], interval: float
) -> tuple[Path, dict[str, dict[str, object]]]:
    """Write the settings for the servers whose ports are on standard output."""
    assert servers.stdout is not None
    ports = json.loads(servers.stdout.readline())
    document: dict[str, dict[str, object]] = {
        "vllm": {"url": [f"http://127.0.0.1:{port}" for port in ports]},
        "poll": {"interval": f"{interval * 1000:.0f}ms"},
    }
    path = folder / f"{len(ports)}.yml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path, document


def _ask(servers: subprocess.Popen[str], line: str) -> list[list[float]]:
    assert servers.stdin is not None
    assert servers.stdout is not None
    servers.stdin.write(line + "\n")
    servers.stdin.flush()
    found: list[list[float]] = json.loads(servers.stdout.readline())
    return found


def _reload(running: Running, config: Path, document: dict[str, dict[str, object]]) -> None:
    """Reload some times, at moments that have nothing to do with the interval."""
    for turn in range(_RELOADS):
        time.sleep(0.37 * INTERVAL)
        changed = {**document, "threshold": {"healthy_acceptance_ratio": 0.5 + turn / 100}}
        config.write_text(yaml.safe_dump(changed), encoding="utf-8")
        request = urllib.request.Request(running.address + "/-/reload", method="POST")
        with urllib.request.urlopen(request, timeout=30):
            pass
