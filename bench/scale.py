"""What a fleet costs its Prometheus: a real one scrapes 10, 100 and 1,000 exporters and evaluates all rules.

The exporters are one process that plays back what a real one said in two simulated hours, for each engine
from another moment on and under the engine's own model. Memory, time and disk are those of Prometheus alone;
only what grows with the fleet is compared, so that the machine matters little.

    python bench/scale.py            # shows the table of docs/operations.md; half an hour
    python bench/scale.py --write    # and writes it there
    python bench/scale.py 10 100     # these fleets
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from prometheus_client.parser import text_string_to_metric_families

from processes import MIB, resident_bytes
from prometheus_process import ask, prometheus
from rules import REPLICAS, RULES
from scale_block import bytes_per_sample
from scale_exporters import INTERVAL_SECONDS, record

if TYPE_CHECKING:
    from collections.abc import Iterator

FLEETS = (10, 100, 1_000)
#: The fleet that is too large to run here: what the largest measured one gives per engine, times its size.
EXTRAPOLATED = 10_000
#: How long Prometheus runs before it is looked at, and for how long then.
WARM_SECONDS, WATCHED_SECONDS = 150.0, 180.0
#: The fleet that is scraped every second, so that as many samples as in an hour are there in minutes.
HURRIED_FLEET = 100
#: Share of the scrapes that must have been answered while Prometheus is looked at.
ANSWERED = 0.95
#: Where the table goes.
PAGE = Path(__file__).parent.parent / "docs" / "operations.md"
BEGIN, END = "<!-- sizing: written by bench/scale.py -->", "<!-- end of sizing -->"
_TICKS = os.sysconf("SC_CLK_TCK")
_DAY = 86_400
_GB = 1e9


@dataclass(frozen=True)
class Cost:
    """What a Prometheus takes for a fleet.

    Attributes:
        engines: how many it scrapes, an exporter each.
        scraped: series of all exporters together, those that Prometheus adds to a scrape included.
        recorded: series that the rules add, alerts included.
        samples_per_second: what is stored, scraped and recorded.
        memory_bytes: resident memory of Prometheus, the largest seen.
        core_share: processor time of Prometheus over time, 1 for one core.
        rule_share: time of one evaluation of each group over the group's interval, all groups together.
    """

    engines: int
    scraped: float
    recorded: float
    samples_per_second: float
    memory_bytes: float
    core_share: float
    rule_share: float

    @property
    def series(self) -> float:
        """All series that are being written."""
        return self.scraped + self.recorded

    def times(self, factor: float) -> Cost:
        """Return the cost of a larger fleet, were it proportional; `docs/operations.md` has what is not."""
        return Cost(
            round(self.engines * factor),
            self.scraped * factor,
            self.recorded * factor,
            self.samples_per_second * factor,
            self.memory_bytes * factor,
            self.core_share * factor,
            self.rule_share * factor,
        )


@dataclass(frozen=True)
class Watch:
    """How a Prometheus is looked at.

    Attributes:
        interval: seconds between two scrapes.
        evaluation: seconds between two evaluations of the rules.
        warm: seconds that it runs before.
        watched: seconds that it is looked at.
    """

    interval: float = INTERVAL_SECONDS
    evaluation: float = 60.0
    warm: float = WARM_SECONDS
    watched: float = WATCHED_SECONDS


#: Samples of an hour, and of the time after which a fleet is looked at otherwise. An hour is enough: a series
#: has at most 120 samples in memory, half an hour's, before they are in a file that is mapped.
LONG = Watch(interval=1.0, evaluation=4.0, warm=220.0, watched=20.0)
SHORT = Watch(interval=1.0, evaluation=4.0, warm=12.0, watched=10.0)


def measure(engines: int, frames: Path, watch: Watch = Watch()) -> Cost:
    """Run a Prometheus over a fleet, and look at it."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-scale-") as name,
        exporters(frames, watch.interval) as address,
    ):
        folder = Path(name)
        config = {
            "global": {
                "scrape_interval": f"{watch.interval:g}s",
                "scrape_timeout": f"{min(watch.interval, 10):g}s",
                "evaluation_interval": f"{watch.evaluation:g}s",
            },
            "rule_files": [str(path) for path in sorted(RULES.glob("*.yml"))],
            "scrape_configs": [
                {
                    "job_name": "vllm-specdec-exporter",
                    "static_configs": [_target(address, engine) for engine in range(engines)],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        with prometheus(folder) as (url, pid):
            time.sleep(watch.warm)
            before, cpu, start = _appended(url), _cpu_seconds(pid), time.monotonic()
            memory = 0.0
            while time.monotonic() - start < watch.watched:
                time.sleep(2)
                memory = max(memory, resident_bytes(pid))
            took = time.monotonic() - start
            answered = _count(
                url, f'avg(avg_over_time(up{{job="vllm-specdec-exporter"}}[{watch.watched:.0f}s]))'
            )
            assert answered > ANSWERED, (
                f"only {answered:.1%} of the scrapes were answered: the machine is busy"
            )
            return Cost(
                engines,
                scraped=_count(url, 'sum(scrape_samples_scraped{job="vllm-specdec-exporter"} + 5)'),
                recorded=_count(url, 'count({__name__=~".+:.+|ALERTS|ALERTS_FOR_STATE"})'),
                samples_per_second=(_appended(url) - before) / took,
                memory_bytes=memory,
                core_share=(_cpu_seconds(pid) - cpu) / took,
                rule_share=_rule_share(url),
            )


def _target(address: str, engine: int) -> dict[str, object]:
    labels = {
        "__metrics_path__": f"/{engine}/{engine // REPLICAS}",
        "instance": f"pod-{engine}:9850",
        "namespace": "chat",
        "pod": f"pod-{engine}",
    }
    return {"targets": [address], "labels": labels}


@contextlib.contextmanager
def exporters(frames: Path, interval: float) -> Iterator[str]:
    """Run the process that plays back every exporter; gives its address."""
    program = str(Path(__file__).with_name("scale_exporters.py"))
    command = [sys.executable, program, str(frames), f"{interval:g}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


# --- looking at Prometheus


def _appended(url: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    name = "prometheus_tsdb_head_samples_appended_total"
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    )


def _count(url: str, query: str) -> float:
    result = ask(url, "query", query=query)["result"]
    return float(result[0]["value"][1]) if result else 0.0


def _rule_share(url: str) -> float:
    groups = ask(url, "rules")["groups"]
    bad = [(r["name"], r.get("lastError")) for g in groups for r in g["rules"] if r["health"] == "err"]
    assert not bad, bad
    return float(sum(group["evaluationTime"] / group["interval"] for group in groups))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


# --- the tables


def lines(fleets: tuple[int, ...] = FLEETS) -> Iterator[str]:
    """Yield the table and what belongs to it, in Markdown, as they are measured."""
    yield f"| {' | '.join(_HEAD)} |"
    yield "|---" * len(_HEAD) + "|"
    frames = asyncio.run(record())
    size = bytes_per_sample(frames)
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as name:
        folder = Path(name)
        for number, frame in enumerate(frames):
            (folder / f"{number:04}").write_bytes(frame)
        for engines in fleets:
            cost = measure(engines, folder)
            yield _row(cost, size)
        yield _row(cost.times(EXTRAPOLATED / cost.engines), size, extrapolated=True)
        short, long = (measure(HURRIED_FLEET, folder, watch).memory_bytes for watch in (SHORT, LONG))
    yield ""
    per_series = cost.memory_bytes / cost.series / 1000
    after = WARM_SECONDS + WATCHED_SECONDS
    yield (
        f"Measured {after:.0f} s after the start. With an hour of samples, memory is "
        f"{long / short:.1f} times as much (measured with {HURRIED_FLEET} "
        f"engines that are scraped every second). A series takes {per_series:.1f} kB of "
        f"memory, a sample {size:.1f} bytes of a block of two hours."
    )


_HEAD = (
    "engines",
    "scraped series",
    "recorded series",
    "samples per second",
    "memory",
    "of one core",
    "rules, of one core",
    "disk a day",
)


def _row(cost: Cost, size: float, *, extrapolated: bool = False) -> str:
    cells = (
        f"{cost.engines:,}" + (" (extrapolated)" if extrapolated else ""),
        f"{cost.scraped:,.0f}",
        f"{cost.recorded:,.0f}",
        f"{cost.samples_per_second:,.0f}",
        f"{cost.memory_bytes / MIB:,.0f} MiB",
        f"{cost.core_share:.1%}",
        f"{cost.rule_share:.1%}",
        f"{cost.samples_per_second * _DAY * size / _GB:,.2f} GB",
    )
    return f"| {' | '.join(cells)} |"


def write(found: list[str]) -> None:
    """Put the lines between the marks of docs/operations.md."""
    head, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    assert tail, f"{PAGE} has no {BEGIN} and {END}"
    text = "\n".join(("", "", *found, "", ""))
    PAGE.write_text(head + BEGIN + text + END + tail, encoding="utf-8")


def main() -> None:
    """Measure, and show or write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fleet", nargs="*", type=int, default=FLEETS, help="numbers of engines")
    parser.add_argument("--write", action="store_true", help="write the table into docs/operations.md")
    arguments = parser.parse_args()
    found = []
    for line in lines(tuple(arguments.fleet)):
        print(line, flush=True)
        found.append(line)
    if arguments.write:
        write(found)


if __name__ == "__main__":
    main()
