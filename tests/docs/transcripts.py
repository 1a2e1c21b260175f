"""What a page says that a command prints, held against what it prints: the same but for
numbers.
"""

import re
from dataclasses import dataclass

#: Where a page leaves lines out.
_ELLIPSIS = "..."
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?|(?<!\d)\.\d+")
#: Columns that the head of a table has at least.
_HEAD = 4
#: Characters of a line that may go on in the next.
_FULL = 80
_BAR = re.compile("█+")


@dataclass(frozen=True)
class Transcript:
    """A command and what it prints."""

    command: str
    output: str


def transcript_of(text: str) -> Transcript:
    """Take a block apart: from `$ ` on a command, up to a line without a backslash;
    then what it prints.
    """
    lines = text.removeprefix("$ ").splitlines()
    last = next(number for number, line in enumerate(lines) if not line.endswith("\\"))
    return Transcript("\n".join(lines[: last + 1]), "\n".join(lines[last + 1 :]) + "\n")


def shape(text: str) -> str:
    """Return a text with every number, every address's port and every bar alike, and
    lines filled anew.
    """
    return " ".join(_BAR.sub("█", _NUMBER.sub("#", text)).split())


def missing(printed: str, output: str) -> str:
    """Return the first part of what a page prints that is not in an output in this
    order; empty if all is.
    """
    remaining = shape(output)
    for part in re.split(rf"^ *{re.escape(_ELLIPSIS)}$", printed, flags=re.MULTILINE):
        wanted = shape(part)
        _, present, behind = remaining.partition(wanted)
        if not present:
            longest = max(
                (n for n in range(len(wanted)) if wanted[:n] in remaining), default=0
            )
            return (
                f"as far as {wanted[:longest]!r}, and not "
                f"{wanted[longest : longest + 80]!r}, in\n{remaining}"
            )
        remaining = behind
    return ""


def labels(text: str) -> list[str]:
    """Return what lines say before their first number or column: names of rows, heads
    of columns, notes.

    Of a sentence that goes over several lines, the first counts: how it goes on depends
    on the numbers.
    """
    names = []
    above = ""
    for line in text.splitlines():
        goes_on = len(above) > _FULL and _indent(line) > _indent(above)
        columns = re.split(r" {2,}", line.strip())
        if goes_on:
            continue
        above = line
        if not line.strip():
            continue
        if len(columns) >= _HEAD and not _NUMBER.search(columns[-1]):
            names.append(shape(line))
        elif label := shape(_NUMBER.split(columns[0], maxsplit=1)[0]):
            names.append(label)
    return names


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def unlabelled(printed: str, output: str) -> list[str]:
    """Return the labels that a page prints and an output does not have."""
    printed_lines = set(map(shape, output.splitlines()))
    begins = "\n".join(printed_lines)
    return [label for label in labels(printed) if f"\n{label}" not in f"\n{begins}"]
