"""Writes docs/reference/performance.md from the record of what was measured last, section by section.

A section that was not measured this time stays as it was, with its date.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from regression import compare, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from regression import Expectation
    from section import Section

_HEAD = """\
<!-- Written by `make bench`; do not edit. -->
# Performance

Times and megabytes are of the machine on which they were measured ({machine}); ratios are between things
measured in turn within one run. Each section says when it was measured, and how much of the machine other
processes took meanwhile."""


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield a Markdown table, and show its rows as they come."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        line = f"| {' | '.join(row)} |"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        yield line


def page(sections: Mapping[str, Section], expected: Mapping[str, Expectation], machine: str) -> str:
    """Return the page: goals and ratios of all sections first, then the sections in their order."""
    lines = [_HEAD.format(machine=machine), "", *_goals(sections.values()), *_ratios(sections, expected)]
    for section in sections.values():
        lines += [f"## {section.title}", "", *section.lines, "", _when(section), ""]
    return "\n".join(lines).rstrip() + "\n"


def _goals(sections: Iterable[Section]) -> Iterator[str]:
    yield "## Goals"
    yield ""
    yield (
        "`make bench` fails when one that it measured is missed. Not judged is what the last run could not "
        "tell: it was too short or too much disturbed, or did not record it."
    )
    yield ""
    yield "| what | goal | measured | |"
    yield "|---|---|---|---|"
    for section in sections:
        for goal in section.goals:
            verdict = "**missed**" if goal.met is False else goal.verdict
            yield f"| {goal.what} | {goal.limit} | {goal.found} | {verdict} |"
    yield ""


def _ratios(sections: Mapping[str, Section], expected: Mapping[str, Expectation]) -> Iterator[str]:
    found = {name: value for section in sections.values() for name, value in section.ratios.items()}
    yield "## Ratios that a run is held to"
    yield ""
    yield (
        "`make bench` fails when one is worse than `bench/expected.json` has it by more than its tolerance; "
        "to change what is expected is a deliberate act (`bench/run.py --accept`)."
    )
    yield ""
    yield "| ratio | measured | expected | tolerance | |"
    yield "|---|---|---|---|---|"
    for row in shown(compare(found, expected, sections)):
        yield f"| {' | '.join(row)} |"
    yield ""


def _when(section: Section) -> str:
    said = [f"Measured on {section.measured}"]
    if section.priority:
        said.append("with real-time priority")
    if section.others is not None:
        said.append(f"other processes took {section.others:.0%} of the machine")
    return f"*{'; '.join(said)}.*"
