"""One exporter before many servers: are polls spread, is any missed, and what does it
take.
"""

import itertools
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from answers import BODIES, ONE_ENGINE, Servers, servers, write_growing
from load import scraped
from page import table
from poll import parse_seconds
from processes import MIB, Running, Usage, exporter
from section import Goal, Section

TARGETS = 200
INTERVAL = 5.0
_SLOW = 50
_SLOW_SECONDS = 1.0
_RELOADS = 3
#: Seconds of a clump, and most polls in one, over those of an even spread. Up to eight
#: neighbours of 0.4 s begin together, on purpose.
_CLUMP_SECONDS = 0.4
_CLUMP = 2.5
#: Most processor time of a poll, over that of prometheus_client's parser for the same
#: answer.
_SHARE = 0.35

Settings = dict[str, dict[str, object]]


def section(intervals: int) -> Section:
    """Watch one server, and then 200, for so many intervals under each condition."""
    with tempfile.TemporaryDirectory(prefix="bench-targets-") as name:
        folder = Path(name)
        answers = write_growing(folder / "answers")
        parse = parse_seconds(BODIES[ONE_ENGINE])
        single_seconds = _alone(folder, answers, intervals)
        return _many(
            folder,
            answers,
            intervals=intervals,
            single_seconds=single_seconds,
            parse=parse,
        )


def missed_polls(arrivals: Sequence[Sequence[float]], seconds: float) -> int:
    """Return how many polls are lacking: fewer than one a server and interval, but for
    one at the ends.
    """
    due = int(seconds / INTERVAL)
    return sum(max(0, due - 1 - len(server)) for server in arrivals)


def clump(arrivals: Sequence[Sequence[float]]) -> float:
    """Return the most polls within the time of a clump, over those that an even spread
    would have.
    """
    times = sorted(itertools.chain.from_iterable(arrivals))
    largest = 0
    first = 0
    for last, at in enumerate(times):
        while times[first] < at - _CLUMP_SECONDS:
            first += 1
        largest = max(largest, last - first + 1)
    return largest * INTERVAL / (_CLUMP_SECONDS * len(arrivals))


def _alone(folder: Path, answers: Path, intervals: int) -> float:
    """Return the processor time of one poll of a single server, in seconds."""
    with (
        servers(answers) as single,
        exporter("--config.file", str(_configured(folder, single, 0.2)[0])) as running,
    ):
        # The imports and the first polls, which fill caches, are over.
        time.sleep(3)
        single.polled()
        cpu_at_start = Usage.of(running.pid).cpu_seconds
        # At least 25 polls, one each 0.2 s, for a steady mean.
        time.sleep(max(5.0, intervals * 2.0))
        used = Usage.of(running.pid).cpu_seconds - cpu_at_start
        return used / len(single.polled()[0])


def _many(
    folder: Path, answers: Path, intervals: int, single_seconds: float, parse: float
) -> Section:
    seconds = intervals * INTERVAL
    rows: list[tuple[str, ...]] = []
    clumps: list[float] = []
    missed = 0
    with servers(answers, TARGETS) as many:
        config, document = _configured(folder, many, INTERVAL)
        with exporter("--config.file", str(config)) as running:

            def watch(title: str, disturb: Callable[[], None] = lambda: None) -> float:
                """Watch the polls, and return the processor time of one."""
                nonlocal missed
                many.polled()
                start = Usage.of(running.pid).cpu_seconds
                begin = time.monotonic()
                disturb()
                time.sleep(max(0.0, seconds - (time.monotonic() - begin)))
                used = Usage.of(running.pid).cpu_seconds - start
                passed = time.monotonic() - begin
                arrivals = many.polled()
                polls = sum(map(len, arrivals))
                lacking = missed_polls(arrivals, passed)
                missed += lacking
                clumps.append(clump(arrivals))
                rows.append(
                    (
                        title,
                        f"{polls:,}",
                        str(lacking),
                        f"{clumps[-1]:.1f} x",
                        f"{used / passed:.1%}",
                    )
                )
                return used / polls

            # The first polls are spread over one interval, and fill caches.
            time.sleep(2 * INTERVAL)
            each = watch("as they are")
            usage = Usage.of(running.pid)
            scrape = scraped(running, seconds / 2, rate=1, clients=1)
            many.polled(f"slow {_SLOW} {_SLOW_SECONDS}")
            watch(f"{_SLOW} answer after {_SLOW_SECONDS:.0f} s")
            many.polled("slow 0 0")
            time.sleep(INTERVAL)
            watch(
                f"{_RELOADS} reloads meanwhile",
                lambda: _reload(running, config, document),
            )
            watch("after them")
    head = (
        f"{TARGETS} servers",
        "polls",
        "missed",
        f"most in {_CLUMP_SECONDS:g} s, of an even spread",
        "of one core",
    )
    lines = (
        (
            f"One exporter before {TARGETS} servers, each with the real answer of one "
            f"engine (55 kB). The interval is {INTERVAL:.0f} s; each row is "
            f"{seconds:.0f} s. Neighbours are polled together, up to eight. It takes "
            f"{usage.resident_bytes / MIB:.1f} MiB and {usage.descriptors} "
            f"descriptors. A scrape of {scrape['size'] / 1e6:.2f} MB takes "
            f"{scrape['median'] * 1000:.0f} ms at the median. A poll takes "
            f"{each * 1000:.2f} ms of processor time, with a single server "
            f"{single_seconds * 1000:.2f} ms; prometheus_client takes "
            f"{parse * 1000:.2f} ms to parse the answer."
        ),
        "",
        *table(head, rows),
    )
    ratios = {
        "targets.cpu": each / single_seconds,
        "targets.poll": single_seconds / parse,
        "targets.clump": clumps[0],
    }
    return Section(
        f"{TARGETS} servers, one process",
        lines,
        ratios,
        _goals(missed, max(clumps), single_seconds, parse),
    )


def _goals(
    missed: int, worst: float, single_seconds: float, parse: float
) -> tuple[Goal, ...]:
    return (
        Goal(
            f"polls of {TARGETS} servers",
            "none is missed",
            f"{missed} missed",
            missed == 0,
        ),
        Goal(
            "they are spread over the interval, also while settings are reloaded",
            f"at most {_CLUMP:g} times as many at once as evenly",
            f"{worst:.1f} times",
            worst <= _CLUMP,
        ),
        Goal(
            "a poll of one server, all of it",
            f"at most {_SHARE:g} of what prometheus_client takes to parse the answer",
            f"{single_seconds / parse:.2f}: {single_seconds * 1000:.2f} ms",
            single_seconds / parse <= _SHARE,
        ),
    )


def _configured(
    folder: Path, polled: Servers, interval: float
) -> tuple[Path, Settings]:
    """Write the settings for some servers."""
    document: Settings = {
        "vllm": {"url": polled.urls},
        "poll": {"interval": f"{interval * 1000:.0f}ms"},
    }
    path = folder / f"{len(polled.urls)}.yml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path, document


def _reload(running: Running, config: Path, document: Settings) -> None:
    """Reload some times, at moments that have nothing to do with the interval."""
    for turn in range(_RELOADS):
        time.sleep(0.37 * INTERVAL)
        changed = {
            **document,
            "threshold": {"healthy_acceptance_ratio": 0.5 + turn / 100},
        }
        config.write_text(yaml.safe_dump(changed), encoding="utf-8")
        request = urllib.request.Request(running.address + "/-/reload", method="POST")
        with urllib.request.urlopen(request, timeout=30):
            pass
