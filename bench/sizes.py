"""The most memory of one exporter before 1, 200 and 1,000 servers; windows are full."""

import contextlib
import re
import tempfile
import time
import urllib.request
from pathlib import Path

import yaml

from answers import servers, write_growing
from page import table
from processes import MIB, Running, Usage, exporter
from section import Goal, Section

#: Numbers of servers, with the MiB that docs/deployment.md gives an exporter for them.
SIZES = {1: 128, 200: 128, 1000: 192}
_INTERVAL = 5.0
#: Longer than the longest default window, after which no more samples are kept.
FULL_SECONDS = 330.0
_SCRAPE_SECONDS = 15.0
_IS_UP = re.compile(rb"^vllm_specdec_up(?:\{[^}]*\})? 1\.0$", re.MULTILINE)


def section(seconds: float) -> Section:
    """Poll and scrape for so many seconds, with each number of servers at a time."""
    peaks = {}
    rows = []
    goals = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        answers = write_growing(folder / "answers")
        exporters = {}
        for size in SIZES:
            config = folder / f"{size}.yml"
            many = stack.enter_context(servers(answers, size))
            poll = {"interval": f"{_INTERVAL:.0f}s"}
            document = {"vllm": {"url": many.urls}, "poll": poll}
            config.write_text(yaml.safe_dump(document), encoding="utf-8")
            exporters[size] = stack.enter_context(exporter(f"--config.file={config}"))
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(_SCRAPE_SECONDS, left))
            up = {size: _up(running) for size, running in exporters.items()}
        usages = {size: Usage.of(running.pid) for size, running in exporters.items()}
    for size, usage in usages.items():
        peaks[size] = usage.peak_bytes / MIB
        rows.append(
            (
                f"{size:,}",
                f"{up[size]:,}",
                f"{usage.resident_bytes / MIB:.1f} MiB",
                f"{peaks[size]:.1f} MiB",
                str(usage.descriptors),
                str(usage.threads),
            )
        )
        met = None
        # With too little processor time for all of them, windows are not full.
        if seconds >= FULL_SECONDS and up[size] == size:
            met = peaks[size] < SIZES[size]
        goals.append(
            Goal(
                f"most memory of one exporter, {size:,} servers",
                f"below {SIZES[size]} MiB",
                f"{peaks[size]:.1f} MiB",
                met,
            )
        )
    head = ("servers", "up at the end", "resident", "at most", "descriptors", "threads")
    lines = (
        (
            "Each server has the real answer of one engine (55 kB) and is polled every "
            f"{_INTERVAL:.0f} s; all is scraped every {_SCRAPE_SECONDS:.0f} s, for "
            f"{seconds:.0f} s. At most: since the start of the process."
        ),
        "",
        *table(head, rows),
    )
    ratio = None
    if seconds >= FULL_SECONDS:
        ratio = peaks[200] / peaks[1]
    ratios = {"sizes.200": ratio}
    return Section("Memory by servers", lines, ratios, tuple(goals))


def _up(running: Running) -> int:
    """Scrape, and return how many servers are up."""
    with urllib.request.urlopen(f"{running.address}/metrics", timeout=60) as page:
        return len(_IS_UP.findall(page.read()))
