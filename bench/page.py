"""Writes docs/reference/performance.md from the record of what was measured last,
section by section.

A section that was not measured this time stays as it was, with its date.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping

from section import Section

_HEAD = """\
<!-- Written by `make bench`; do not edit. -->
# Performance

Times and megabytes are of the machine on which they were measured ({machine});
ratios are between things measured in turn within one run.

## Goals

`make bench` fails when a goal that it measured is missed, or when a ratio is worse
than `bench/expected.json` allows. *Not judged*: the last run was too short or
too much disturbed.
"""


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield a Markdown table, and show its rows as they come."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        line = f"| {' | '.join(row)} |"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        yield line


def page(sections: Mapping[str, Section], machine: str) -> str:
    """Return the page: the goals of all sections first, then the sections in their
    order.
    """
    lines = [_HEAD.format(machine=machine), *_goals(sections.values()), ""]
    for section in sections.values():
        lines += [f"## {section.title}", "", *section.lines, "", _when(section), ""]
    return "\n".join(lines).rstrip() + "\n"


def _goals(sections: Iterable[Section]) -> Iterator[str]:
    yield "| what | goal | measured | |"
    yield "|---|---|---|---|"
    for section in sections:
        for goal in section.goals:
            verdict = "**missed**" if goal.met is False else goal.verdict
            yield f"| {goal.what} | {goal.limit} | {goal.found} | {verdict} |"


def _when(section: Section) -> str:
    said = [section.measured]
    if section.priority:
        said.append("with real-time priority")
    if section.others is not None:
        said.append(f"other processes took {section.others:.0%} of the machine")
    return f"*{'; '.join(said)}.*"
