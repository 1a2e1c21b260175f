"""Measures speed and memory, compares ratios with the expected, writes docs/reference/performance.md.

Speed is given as ratios between things measured in turn within one run, so that the machine matters little.
By default everything is measured that ends within some minutes. Exits with 1 where a goal is missed or a
ratio has become worse. What a run is too short for is not judged: growth in a quick look or in a soak of less
than ten minutes, the time of the rules over fewer engines than promised, percentiles of few values.

    python bench/run.py                       # the default sections; writes the page
    python bench/run.py --soak 10m --peers    # and these
    python bench/run.py --only poll load      # these alone; the page keeps the others
    python bench/run.py --accept              # take the ratios that were found last as those expected
    chrt -r 1 python bench/run.py             # on a machine that does other things too
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import load
import memory
import peers
import poll
import regression
import rules
import scale
import soak
import start
import tap_section
import tap_times
import targets
from answers import ROOT
from bystanders import Moment, comes_first
from page import page, table
from section import Section

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = ROOT / "docs" / "reference" / "performance.md"
RESULTS, EXPECTED = (Path(__file__).with_name(f"{name}.json") for name in ("results", "expected"))
#: Sections in the order of the page, those that take long apart.
ORDER = ("poll", "start", "memory", "soak", "load", "targets", "peers", "tap", "rules")
LONG = ("peers", "tap")


def measures(arguments: argparse.Namespace) -> dict[str, Callable[[], Section]]:
    """Return how each section is measured."""
    quick = 10 if arguments.quick else 1
    return {
        "poll": lambda: poll.section(300 // quick),
        "start": lambda: start.section(2 if arguments.quick else 7),
        "memory": lambda: memory.section(memory.POLLS // quick, memory.RESTARTS // quick),
        "soak": lambda: soak.section(arguments.soak / quick),
        "load": lambda: load.section(12.0 / quick),
        "targets": lambda: targets.section(2 if arguments.quick else 3),
        "peers": lambda: peers.section(peers.REST / quick, arguments.peers_folder),
        "tap": lambda: tap_section.section(tap_times.QUICK if arguments.quick else tap_times.Size()),
        "rules": lambda: rules.section(rules.PROMISED // quick),
    }


def main() -> int:
    """Measure, write the page unless it is only a quick look, and return the exit code."""
    arguments = _arguments()
    document: dict[str, Any] = json.loads(EXPECTED.read_text("utf-8"))
    if arguments.accept:
        found = {name: value for one in _read().values() for name, value in one.ratios.items()}
        document = regression.accepted(found, document)
        EXPECTED.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        _write(_read(), document)
        return 0
    known = measures(arguments)
    measured = {}
    for name in _chosen(arguments):
        sys.stdout.write(f"\n{name}\n")
        before = Moment.now(())
        found_section = known[name]()
        measured[name] = replace(
            found_section,
            measured=datetime.datetime.now(datetime.UTC).date().isoformat(),
            others=Moment.now(()).others_since(before),
            priority=comes_first(),
        )
        # A short soak is compared, and does not take the place of a long one.
        if not arguments.quick and not (name == "soak" and arguments.soak < soak.RECORDED_SECONDS):
            _write({**_read(), name: measured[name]}, document)
    if arguments.scale and not arguments.quick:
        # A fleet's table is in a document of its own, which people have written.
        scale.write(list(scale.lines()))
    return _judge(measured, document)


def _judge(measured: dict[str, Section], document: dict[str, Any]) -> int:
    """Show the goals and the ratios; return 1 where a goal is missed or a ratio is worse than it may be."""
    sys.stdout.write("\n")
    missed = []
    for name, section in measured.items():
        for goal in section.goals:
            told = f"{goal.what}: {goal.found} (goal: {goal.limit})"
            sys.stdout.write(f"{goal.verdict:12}{told}\n")
            if goal.met is False:
                missed.append(f"{name}: goal missed: {told}")
    found = {name: value for section in measured.values() for name, value in section.ratios.items()}
    rows = regression.compare(found, regression.parse(document), measured)
    sys.stdout.write("\n")
    for _ in table(("ratio", "measured", "expected", "tolerance", "status"), regression.shown(rows)):
        pass
    bad = [row for row in rows if row.status.fails]
    for what in (*missed, *(f"{row.name}: {row.status}" for row in bad)):
        sys.stderr.write(f"error: {what}\n")
    if any(row.status is regression.Status.IMPROVED for row in rows):
        sys.stdout.write("\nBetter than expected: bench/run.py --accept, once it is so again.\n")
    return 1 if bad or missed else 0


def _read() -> dict[str, Section]:
    known = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    return {name: Section.of(known[name]) for name in ORDER if name in known}


def _write(sections: dict[str, Section], document: dict[str, Any]) -> None:
    """Write the record and the page."""
    ordered = {name: sections[name] for name in ORDER if name in sections}
    text = json.dumps({name: one.document() for name, one in ordered.items()}, indent=1, ensure_ascii=False)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    PAGE.write_text(page(ordered, regression.parse(document), machine), encoding="utf-8")


def _chosen(arguments: argparse.Namespace) -> list[str]:
    if arguments.only:
        return [name for name in ORDER if name in arguments.only]
    return [name for name in ORDER if name not in LONG or getattr(arguments, name)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=ORDER, help="these sections alone")
    parser.add_argument("--peers", action="store_true", help="other exporters too; installs them")
    parser.add_argument("--tap", action="store_true", help="the tap too: twenty minutes")
    parser.add_argument(
        "--scale", action="store_true", help="fleets too, for docs/operations.md: half an hour"
    )
    parser.add_argument(
        "--soak", type=_seconds, default=60.0, metavar="DURATION", help="how long, such as 10m"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the work; the page stays as it is")
    parser.add_argument("--accept", action="store_true", help="measure nothing; expect what was found last")
    parser.add_argument(
        "--peers-folder",
        type=Path,
        default=ROOT / "build" / "bench-peers",
        metavar="FOLDER",
        help="where other exporters are installed",
    )
    return parser.parse_args()


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+)(s|m|h)", text)
    if match is None:
        raise argparse.ArgumentTypeError("a number with s, m or h is expected")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


if __name__ == "__main__":
    sys.exit(main())
