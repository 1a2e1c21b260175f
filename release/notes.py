"""Print the notes of a release: the changelog's section of its version.

    python release/notes.py v1.2.3 [--rehearse]

Fails, and so stops a release, if the tag is not the package's version, or the changelog
has nothing on it.
"""

import argparse
import datetime
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from vllm_specdec_exporter import __version__

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"

#: The kinds of changes of Keep a Changelog.
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
#: What is not released yet.
UNRELEASED = "Unreleased"

_HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\S+))?$")


class ChangelogError(ValueError):
    """The changelog is not in its form, or lacks a section; the message says what."""


@dataclass(frozen=True)
class Section:
    """What changed in a version.

    Attributes:
        version: three numbers, or `UNRELEASED`.
        date: ISO 8601; empty for what is not released.
        body: Markdown; empty if nothing changed.
    """

    version: str
    date: str
    body: str


def sections(text: str) -> list[Section]:
    """Return the sections of a changelog, as they stand: the newest first.

    Raises:
        ChangelogError: it is not in the form of Keep a Changelog.
    """
    listed: list[Section] = []
    for part in re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        match = _HEADING.match(heading)
        if match is None:
            msg = (
                f"{heading!r} is not of the form '## [1.2.3] - 2026-01-31' or '## "
                f"[{UNRELEASED}]'"
            )
            raise ChangelogError(msg)
        listed.append(Section(match["name"], match["date"] or "", body.strip()))
    _check_order(listed)
    for section in listed:
        _check_section(section)
    return listed


def _check_order(listed: list[Section]) -> None:
    if not listed or listed[0].version != UNRELEASED:
        msg = f"the first section is not [{UNRELEASED}]"
        raise ChangelogError(msg)
    # A section in the wrong place was probably given the wrong number.
    numbers = [_numbers(section.version) for section in listed[1:]]
    if numbers != sorted(set(numbers), reverse=True):
        msg = "the versions do not stand newest first, each once"
        raise ChangelogError(msg)


def _check_section(section: Section) -> None:
    if section.version != UNRELEASED:
        try:
            datetime.date.fromisoformat(section.date)
        except ValueError as error:
            msg = f"[{section.version}] has no date of the form 2026-01-31"
            raise ChangelogError(msg) from error
    elif section.date:
        msg = f"[{UNRELEASED}] has a date"
        raise ChangelogError(msg)
    kinds = re.findall(r"^### (.*)$", section.body, re.MULTILINE)
    if len(set(kinds)) < len(kinds) or not set(kinds) <= set(KINDS):
        msg = (
            f"[{section.version}] has the headings {kinds}; each once, of "
            f"{', '.join(KINDS)}"
        )
        raise ChangelogError(msg)


def _numbers(version: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        msg = f"[{version}] is not three numbers as in 1.2.3"
        raise ChangelogError(msg)
    return tuple(int(number) for number in version.split("."))


def notes(tag: str, version: str, changelog: str, *, rehearse: bool = False) -> str:
    """Return the release notes of a tag, in Markdown.

    Args:
        tag: as pushed, with its `v`.
        version: that of the package.
        changelog: its text.
        rehearse: take what is unreleased where the version has no section yet.

    Raises:
        ChangelogError: the tag is of another version, or there is nothing to say about
            it.
    """
    if tag != f"v{version}":
        msg = (
            f"the tag is {tag}, and the package's version {version}: wanted v{version}"
        )
        raise ChangelogError(msg)
    by_version = {listed.version: listed for listed in sections(changelog)}
    section = by_version.get(version)
    # A rehearsal comes before the section gets its number and date.
    if section is None and rehearse:
        section = by_version[UNRELEASED]
    if section is None:
        msg = (
            f"no section [{version}]: name the one that is [{UNRELEASED}] so, with its "
            "date"
        )
        raise ChangelogError(msg)
    # Headings alone tell a reader nothing.
    if not re.search(r"^- \S", section.body, re.MULTILINE):
        msg = f"the section [{version}] lists nothing"
        raise ChangelogError(msg)
    return section.body + "\n"


def main() -> int:
    """Print the notes; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tag", help="the tag of the release, such as v1.2.3")
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help=f"without a section of the version, print [{UNRELEASED}]",
    )
    args = parser.parse_args()
    try:
        text = notes(
            args.tag, __version__, CHANGELOG.read_text("utf-8"), rehearse=args.rehearse
        )
    except ChangelogError as error:
        sys.stderr.write(f"error: CHANGELOG.md: {error}\n")
        return 1
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
