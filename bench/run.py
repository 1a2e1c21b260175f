"""Measures speed and memory, compares ratios with the expected, writes
docs/reference/performance.md.

Speed is given as ratios between things measured in turn within one run, so that the
machine matters little. Exits with 1 where a goal is missed or a ratio has become worse.
What a run is too short or too much disturbed for is not judged: growth in a quick look,
the time of the rules over fewer engines than promised, percentiles of few values, the
tap's times while other processes take the machine.

    python bench/run.py                  # all sections but the tap; writes the page
    python bench/run.py --only poll tap  # these alone; the page keeps the others
    chrt -r 1 python bench/run.py        # on a machine that does other things too
"""

import argparse
import datetime
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import beside
import load
import memory
import past
import poll
import regression
import rules
import sizes
import start
import tap_section
import targets
from answers import ROOT
from page import page, table
from processes import Moment, has_priority
from section import Section

PAGE = ROOT / "docs" / "reference" / "performance.md"
RESULTS, EXPECTED = (
    Path(__file__).with_name(f"{name}.json") for name in ("results", "expected")
)
#: Sections in the order of the page.
ORDER = (
    "poll",
    "start",
    "memory",
    "load",
    "targets",
    "sizes",
    "beside",
    "tap",
    "rules",
    "past",
)


def measures(*, quick: bool) -> dict[str, Callable[[], Section]]:
    """Return how each section is measured."""
    if quick:
        return {
            "poll": lambda: poll.section(30),
            "start": lambda: start.section(2),
            "memory": lambda: memory.section(memory.POLLS // 10, memory.RESTARTS // 10),
            "load": lambda: load.section(1.2),
            "targets": lambda: targets.section(2),
            "sizes": lambda: sizes.section(10.0),
            "beside": lambda: beside.section(10.0, (1, 10)),
            "tap": lambda: tap_section.section(2, 2.0, 2_000),
            "rules": lambda: rules.section(rules.PROMISED // 10),
            "past": lambda: past.section(past.REPLICAS // 10),
        }
    return {
        "poll": lambda: poll.section(300),
        "start": lambda: start.section(7),
        "memory": lambda: memory.section(memory.POLLS, memory.RESTARTS),
        "load": lambda: load.section(12.0),
        "targets": lambda: targets.section(3),
        "sizes": lambda: sizes.section(sizes.FULL_SECONDS),
        "beside": lambda: beside.section(20.0, (1, 10, 100, 1_000)),
        "tap": lambda: tap_section.section(5, 5.0, 50_000),
        "rules": lambda: rules.section(rules.PROMISED),
        "past": lambda: past.section(past.REPLICAS),
    }


def main() -> int:
    """Measure, write the page unless it is only a quick look, and return the exit
    code.
    """
    arguments = _arguments()
    document: dict[str, Any] = json.loads(EXPECTED.read_text("utf-8"))
    sections = measures(quick=arguments.quick)
    measured = {}
    for name in ORDER:
        if name not in arguments.only:
            continue
        sys.stdout.write(f"\n{name}\n")
        start = Moment.now()
        measured[name] = replace(
            sections[name](),
            measured=datetime.datetime.now(datetime.UTC).date().isoformat(),
            others=Moment.now().others_since(start),
            priority=has_priority(),
        )
        # After each section: an interrupted run keeps what it has measured.
        if not arguments.quick:
            _write({**_read(), name: measured[name]})
    return _judge(measured, document)


def _judge(measured: dict[str, Section], document: dict[str, Any]) -> int:
    """Show the goals and the ratios; return 1 where a goal is missed or a ratio is
    worse than it may be.
    """
    sys.stdout.write("\n")
    missed = []
    for name, section in measured.items():
        for goal in section.goals:
            result = f"{goal.what}: {goal.found} (goal: {goal.limit})"
            sys.stdout.write(f"{goal.verdict:12}{result}\n")
            if goal.met is False:
                missed.append(f"{name}: goal missed: {result}")
    ratios: dict[str, float | None] = {}
    for section in measured.values():
        ratios.update(section.ratios)
    rows = regression.compare(ratios, regression.parse(document), measured)
    sys.stdout.write("\n")
    for _ in table(
        ("ratio", "measured", "expected", "tolerance", "status"), regression.shown(rows)
    ):
        pass
    bad = [row for row in rows if row.status.fails]
    for failure in (*missed, *(f"{row.name}: {row.status}" for row in bad)):
        sys.stderr.write(f"error: {failure}\n")
    if any(row.status is regression.Status.IMPROVED for row in rows):
        sys.stdout.write(
            "\nBetter than expected: lower bench/expected.json, once it is so again.\n"
        )
    if bad or missed:
        return 1
    return 0


def _read() -> dict[str, Section]:
    if not RESULTS.exists():
        return {}
    document = json.loads(RESULTS.read_text("utf-8"))
    return {name: Section.of(document[name]) for name in ORDER if name in document}


def _write(sections: dict[str, Section]) -> None:
    """Write the record and the page."""
    ordered = {name: sections[name] for name in ORDER if name in sections}
    text = json.dumps(
        {name: section.document() for name, section in ordered.items()},
        indent=1,
        ensure_ascii=False,
    )
    RESULTS.write_text(text + "\n", encoding="utf-8")
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    PAGE.write_text(page(ordered, machine), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    # it takes longest, and needs nginx
    without_tap = [name for name in ORDER if name != "tap"]
    parser.add_argument(
        "--only",
        nargs="+",
        choices=ORDER,
        default=without_tap,
        help="these sections alone",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a tenth of the work; the page stays as it is",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
