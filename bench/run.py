"""Measures speed and memory, and writes docs/performance.md and the table in docs/scaling.md.

Speed is given as ratios between things measured in turn within one run, so that the machine matters little.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import rules
import scale
from vllm_specdec_exporter import dialects, pipeline
from vllm_specdec_exporter.collector import ResultCollector
from vllm_specdec_exporter.result import ExporterResult, TargetResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vllm_specdec_exporter.pipeline import EngineState
    from vllm_specdec_exporter.reading import EngineKey

    States = dict[EngineKey, EngineState]

ROOT = Path(__file__).parent.parent
CAPTURES = ROOT / "tests" / "data" / "captures"
PAGE = ROOT / "docs" / "performance.md"
BODIES = {
    "1 engine, K=4 (real answer)": CAPTURES / "ngram-phases" / "metrics-final.txt",
    "8 engines, K=5": CAPTURES / "rendered" / "vllm-0.32.0-8engine-k5.classic.txt.gz",
}


def body(path: Path) -> bytes:
    """Return the answer that a capture holds."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def growing(raw: bytes, count: int) -> list[bytes]:
    """Return `count` answers whose counters grow as those of a busy server do."""
    counters = re.compile(rb"^(vllm:(?:spec_decode|generation_tokens)\S*_total\S*) (\S+)$", re.MULTILINE)
    return [
        counters.sub(lambda m, n=n: b"%s %.1f" % (m[1], (float(m[2]) + 1) * n), raw)
        for n in range(1, count + 1)
    ]


def poll_cost(rounds: int) -> Iterator[tuple[str, ...]]:
    """Compare one poll, from bytes to published result, with prometheus_client reading the whole answer."""
    settings, warm, measured = pipeline.Settings(), 100, 20
    for name, path in BODIES.items():
        answers = growing(body(path), warm + measured)

        def poll_all(states: States, first: int, last: int, answers: list[bytes] = answers) -> States:
            for n in range(first, last):
                reading = dialects.read(answers[n])
                states, _ = pipeline.observe(states, reading, n * 5.0, settings)
            return states

        full = poll_all({}, 0, warm)  # the windows are full from here on
        ours, theirs = [], []
        for _ in range(rounds):
            theirs.append(
                timed(lambda answers=answers: list(text_string_to_metric_families(answers[-1].decode())))
            )
            ours.append(timed(lambda full=full: poll_all(full, warm, warm + measured)) / measured)
        _, engines = pipeline.observe(full, dialects.read(answers[-1]), warm * 5.0, settings)
        registry = CollectorRegistry()
        target = TargetResult("t", up=True, engines=engines)
        registry.register(ResultCollector(lambda target=target: ExporterResult("0", 0.0, (target,))))
        scrape = statistics.median(
            timed(lambda registry=registry: generate_latest(registry)) for _ in range(rounds)
        )
        mine, others = statistics.median(ours), statistics.median(theirs)
        yield (
            name,
            f"{len(answers[0]) / 1000:.0f} kB",
            f"{mine * 1000:.2f} ms",
            f"{others * 1000:.1f} ms",
            f"**{others / mine:.0f} x**",
            f"{scrape * 1000:.1f} ms",
        )


def timed(function: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@contextlib.contextmanager
def upstream(path: str) -> Iterator[str]:
    """Run the bare server in a process of its own; gives its URL."""
    command = [sys.executable, str(ROOT / "bench" / "upstream.py"), path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


@contextlib.contextmanager
def exporter(url: str, *flags: str) -> Iterator[tuple[str, float, subprocess.Popen[bytes]]]:
    """Run the real exporter; gives its URL, the seconds until its first answer, and the process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm_specdec_exporter", "--vllm.url", url, "--log.level", "error"]
    start = time.perf_counter()
    with subprocess.Popen([*command, "--web.listen-address", f"127.0.0.1:{port}", *flags]) as process:
        address = f"http://127.0.0.1:{port}"
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/metrics", timeout=5):
                break
            time.sleep(0.005)
        try:
            yield address, time.perf_counter() - start, process
        finally:
            process.terminate()


def latencies(address: str, scrapes: int) -> tuple[float, float]:
    """Return median and 99th percentile of a scrape in seconds."""
    found = []
    for _ in range(scrapes):
        start = time.perf_counter()
        with urllib.request.urlopen(f"{address}/metrics", timeout=5) as answer:
            answer.read()
        found.append(time.perf_counter() - start)
    return statistics.median(found), statistics.quantiles(found, n=100)[98]


def hanging(scrapes: int) -> Iterator[tuple[str, ...]]:
    """Compare scrapes while the server behind answers with scrapes while it hangs."""
    quick = ("--poll.interval", "1s", "--poll.timeout", "900ms")
    for name, path in (("answers", str(BODIES["1 engine, K=4 (real answer)"])), ("hangs", "")):
        with upstream(path) as url, exporter(url, *quick) as (address, _, _):
            time.sleep(2.5)
            median, slow = latencies(address, scrapes)
        yield name, f"{median * 1000:.1f} ms", f"{slow * 1000:.1f} ms"


def start_up(times: int) -> Iterator[tuple[str, ...]]:
    """Measure the time from the start of the process to its first answer, and its memory then."""
    seconds, memory = [], []
    with upstream(str(BODIES["1 engine, K=4 (real answer)"])) as url:
        for _ in range(times):
            with exporter(url) as (_, took, process):
                time.sleep(0.5)
                status = Path(f"/proc/{process.pid}/status").read_text("ascii")
                seconds.append(took)
                memory.append(int(status.partition("VmRSS:")[2].split()[0]) / 1024)
    yield "time to the first answer", f"{statistics.median(seconds):.2f} s"
    yield "resident memory then", f"{statistics.median(memory):.1f} MiB"


def memory(polls: int, restarts: int) -> Iterator[tuple[str, ...]]:
    """Measure resident memory over many polls, and over restarts that change the labels each time."""
    real = body(BODIES["1 engine, K=4 (real answer)"])
    with tempfile.TemporaryDirectory() as folder:
        steady, churning = Path(folder, "steady"), Path(folder, "churning")
        steady.mkdir()
        for n, answer in enumerate(growing(real, 200)):
            (steady / f"{n:03}").write_bytes(answer)
        churning.write_bytes(real.replace(b"tiny-llama", b"model-{label}"))
        for name, path, count, step in (
            (f"{polls:,} polls", steady, polls, polls // 10),
            (f"{restarts:,} restarts with new labels, 10 polls each", churning, restarts * 10, restarts),
        ):
            with upstream(str(path)) as url:
                command = [sys.executable, str(ROOT / "bench" / "memory.py"), url, str(count), str(step)]
                out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            seen = list(json.loads(out).values())
            early, late = seen[1] / 1024, seen[-1] / 1024
            yield name, f"{early:.1f} MiB", f"{late:.1f} MiB", f"{late - early:+.1f} MiB"


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    """Yield a Markdown table, and show its rows as they come."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        line = f"| {' | '.join(row)} |"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        yield line


def page(*, quick: bool) -> Iterator[str]:
    """Yield the lines of the page."""
    scale = 10 if quick else 1
    yield "<!-- Written by `make bench`; do not edit. -->"
    yield "# Performance"
    yield ""
    yield (
        f"Measured by `make bench` with Python {platform.python_version()} on {os.cpu_count()} cores. Times "
        "are of that machine; ratios are between things measured in turn in one run."
    )
    yield ""
    yield "## One poll, from the answer's bytes to the published result"
    yield ""
    yield (
        "Against prometheus_client's parser reading the same answer, without deriving anything from it. The "
        "goal is 25 times."
    )
    yield ""
    head = ("answer", "size", "one poll", "prometheus_client, parse only", "cheaper by", "one scrape of ours")
    yield from table(head, poll_cost(300 // scale))
    yield ""
    yield "## `/metrics` while the server behind hangs"
    yield ""
    yield "While it hangs there are fewer series to write, so the scrape is quicker, not slower."
    yield ""
    yield from table(("the server", "median", "99th percentile"), hanging(500 // scale))
    yield ""
    yield "## Start"
    yield ""
    yield "The goal is below one second."
    yield ""
    yield from table(("what", "value"), start_up(5))
    yield ""
    yield "## Memory"
    yield ""
    yield "Resident memory of the process, HTTP server included. The goal: no growth, below 45 MiB in all."
    yield ""
    yield from table(
        ("over", "after a tenth", "at the end", "growth"), memory(10_000 // scale, 1_000 // scale)
    )
    yield ""
    engines = 1_000 // scale
    yield f"## All rules in Prometheus, for {engines:,} engines"
    yield ""
    yield (
        f"A real Prometheus with a day of {engines:,} engines ({rules.REPLICAS} a model, an exporter each, "
        "a sample a minute), which scrapes nothing. The share of one core is the time of an evaluation over "
        "the interval at which it comes in production."
    )
    yield ""
    yield from table(("rule group", "rules", "every", "one evaluation", "of one core"), rules.cost(engines))


def main() -> None:
    """Measure, and write the page unless it is only a quick look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work; the page stays as it is")
    quick = parser.parse_args().quick
    text = "\n".join(page(quick=quick)) + "\n"
    if not quick:
        PAGE.write_text(text, encoding="utf-8")
        # A fleet's table is in a document of its own, which people have written.
        scale.write(list(scale.lines()))


if __name__ == "__main__":
    main()
