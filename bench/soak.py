"""Hours of the real process in minutes: servers that fail and change in all ways, clients that do too.

Polls come fifty times as often as by default, and windows are as much shorter, so that they hold as many
samples. What the process holds is compared between the second tenth of the time and the last one.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from page import table
from processes import HERE, MIB, Usage, environment, exporter
from section import Goal, Section, beside
from soak_server import ACT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVERS = 8
_TOKEN = "a-token"
_POLL_SECONDS = 0.1
_DEFAULT_POLL_SECONDS = 5.0
_GROWTH = 0.03
#: Seconds of a soak that is recorded, and whose growth is judged. The longest window is a minute: a shorter
#: soak shows how windows fill, not whether memory stays.
RECORDED_SECONDS = 600.0
#: Seconds after the last client in which connections end.
_REST = 12.0
#: Connections come and go.
_DESCRIPTORS = 5


def section(seconds: float) -> Section:
    """Run the exporter for some time among servers and clients that change and fail."""
    with tempfile.TemporaryDirectory(prefix="bench-soak-") as name, _servers() as servers:
        assert servers.stdin is not None
        assert servers.stdout is not None
        ports = json.loads(servers.stdout.readline())
        folder = Path(name)
        config, token = folder / "config.yml", folder / "token"
        token.write_text(_TOKEN, encoding="ascii")
        config.write_text(yaml.safe_dump(_settings(ports)), encoding="utf-8")
        flags = ("--config.file", str(config), "--push.bearer-token-file", str(token))
        with (folder / "log").open("wb") as log, exporter(*flags, log=log) as running:
            usages = []
            command = [sys.executable, str(HERE / "soak_clients.py"), running.address, str(config), _TOKEN]
            start = time.monotonic()
            with subprocess.Popen([*command, str(seconds)], stdout=subprocess.PIPE) as clients:
                while clients.poll() is None:
                    time.sleep(min(2.0, seconds / 40))
                    usages.append(Usage.of(running.pid))
                assert clients.stdout is not None
                done: dict[str, int] = json.loads(clients.stdout.read())
            took = time.monotonic() - start
            servers.stdin.write("\n")
            servers.stdin.flush()
            played: dict[str, Any] = json.loads(servers.stdout.readline())
            time.sleep(_REST)
            rest = Usage.of(running.pid)
        defects = (folder / "log").read_bytes().count(b"Traceback")
    return found(usages, rest, took, done, played, defects, judged=seconds >= RECORDED_SECONDS)


def _servers() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HERE / "soak_server.py"), str(SERVERS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def _settings(ports: Sequence[int]) -> dict[str, Any]:
    return {
        "vllm": {"url": [f"http://127.0.0.1:{port}" for port in ports]},
        "poll": {"interval": f"{_POLL_SECONDS * 1000:.0f}ms", "timeout": f"{_POLL_SECONDS * 900:.0f}ms"},
        "window": ["1s", "6s"],
        "judgement": {"window": "1s"},
        "requests": {"window": "1m", "tenant": ["team-1", "team-2"]},
        "log": {"interval": "1s"},
    }


def course(tenths: Sequence[float], rest: float) -> str:
    """Tell how memory went, in figures that can be checked against one another.

    Args:
        tenths: MiB, the median of each tenth of the time.
        rest: MiB, after the last client.
    """
    shown, after = [round(tenth, 1) for tenth in tenths], round(rest, 1)
    second, *_, ninth, last = shown[1:]
    highest = " and ".join(str(n) for n, tenth in enumerate(shown, 1) if tenth == max(shown))
    return (
        "Resident memory, the median of each tenth of the time: "
        f"{', '.join(f'{tenth:.1f}' for tenth in shown)} MiB. Beside the second tenth: "
        f"{ninth - second:+.1f} MiB in the ninth, {last - second:+.1f} MiB in the last, "
        f"{after - second:+.1f} MiB at rest after the last client. Highest in tenth {highest}."
    )


def found(
    usages: list[Usage],
    rest: Usage,
    took: float,
    done: dict[str, int],
    played: dict[str, Any],
    defects: int,
    *,
    judged: bool,
) -> Section:
    """Return what was seen, as a section.

    Args:
        usages: of the process, at even distances.
        rest: of the process, some time after the last client.
        took: seconds.
        done: what clients did, how often.
        played: what servers did.
        defects: tracebacks in the log.
        judged: whether the soak was long enough to judge growth.
    """
    tenth = max(1, len(usages) // 10)
    early, late = usages[tenth : 2 * tenth], usages[-tenth:]

    def held(key: str, part: list[Usage]) -> float:
        return float(statistics.median(getattr(usage, key) for usage in part))

    def row(what: str, key: str, unit: float, form: str) -> tuple[str, ...]:
        most = max(getattr(usage, key) for usage in usages)
        cells = held(key, early), held(key, late), most, getattr(rest, key)
        return what, *(form.format(cell / unit) for cell in cells)

    tenths = [held("resident_bytes", usages[n * tenth : (n + 1) * tenth]) / MIB for n in range(10)]
    hours = played["polls"] * _DEFAULT_POLL_SECONDS / 3600
    growth = held("resident_bytes", late) / held("resident_bytes", early) - 1
    descriptors = held("descriptors", early), held("descriptors", late)
    asked = Counter[str]()
    for what, times in done.items():
        asked[what.split()[0]] += times
    scrapes = {what: times for what, times in done.items() if what.startswith("scrape")}
    failed = sum(times for what, times in scrapes.items() if not what.endswith(" 200"))
    lines = (
        (
            f"{took / 60:.0f} minutes of the real process with {played['polls']:,} polls "
            f"({played['polls'] / took:.0f} a second) of {SERVERS} servers: as many as in {hours:.0f} "
            f"hours of "
            f"one "
            f"server at the default interval. Every {ACT_SECONDS:g} s each server becomes another (other "
            f"dialects, "
            "models, engines, K, counters from the beginning) or fails in one of "
            f"{len(played['failures'])} ways, and comes back. Meanwhile {asked['scrape']:,} scrapes in three "
            f"formats, {asked['push']:,} pushes of up to 14 requests of 10,000 models, types and tenants, "
            f"{asked['look']:,} looks at pages and snapshots, {asked['reload']:,} reloads (a fourth of "
            f"them of "
            f"settings that cannot be used), and {asked['rude']:,} clients that leave in the middle. Medians "
            f"over "
            f"the second tenth of the time and over the last one; at rest is {_REST:.0f} s after the last "
            f"client."
        ),
        "",
        *table(
            ("what the process holds", "second tenth", "last tenth", "most", "at rest"),
            (
                row("resident memory", "resident_bytes", MIB, "{:.1f} MiB"),
                row("open descriptors", "descriptors", 1, "{:.0f}"),
                row("threads", "threads", 1, "{:.0f}"),
            ),
        ),
        "",
        course(tenths, rest.resident_bytes / MIB),
    )
    goals = (
        Goal(
            f"memory over as many polls as in {hours:.0f} hours, while everything goes wrong",
            f"growth below {_GROWTH:.0%}",
            f"{beside(growth * 100, _GROWTH * 100, sign='+')}%",
            growth < _GROWTH if judged else None,
        ),
        Goal(
            "open descriptors meanwhile",
            f"no more than before, give or take {_DESCRIPTORS}",
            f"{descriptors[0]:.0f}, then {descriptors[1]:.0f}",
            descriptors[1] <= descriptors[0] + _DESCRIPTORS if judged else None,
        ),
        Goal("scrapes meanwhile", "none fails", f"{failed} of {asked['scrape']:,}", failed == 0),
        Goal("defects that the log tells of", "none", str(defects), defects == 0),
    )
    ratios = {"soak.memory": 1 + growth, "soak.descriptors": descriptors[1] / descriptors[0]}
    return Section("Soak", lines, ratios, goals)
