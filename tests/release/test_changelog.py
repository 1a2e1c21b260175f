"""The changelog is in the form of Keep a Changelog, and no release goes without its
section.
"""

import re

import pytest

from release.tree import python, run
from support.repository import ROOT, text_of
from support.scripts import script
from vllm_specdec_exporter import __version__

notes = script("release/notes.py")

TWO = text_of("tests/release/two_releases.md")


def test_ours_is_in_form() -> None:
    """And what is in it is either not released, or of a version up to the present
    one.
    """
    unreleased, *released = notes.sections(text_of("CHANGELOG.md"))
    assert unreleased.version == notes.UNRELEASED
    present = [int(number) for number in __version__.split(".")]
    for section in released:
        numbers = [int(number) for number in section.version.split(".")]
        assert numbers <= present, section.version
    assert unreleased.body or released[0].version == __version__


def test_the_notes_are_the_section_of_the_version() -> None:
    """Without its heading, and without those before and after."""
    assert notes.notes("v1.10.0", "1.10.0", TWO) == (
        "### Added\n\n- Ten.\n  In two lines.\n\n### Security\n\n- Safer.\n"
    )


@pytest.mark.parametrize(
    ("tag", "version", "message"),
    [
        ("v1.10.0", "1.11.0", "wanted v1.11.0"),
        ("1.10.0", "1.10.0", "wanted v1.10.0"),
        ("v1.10.0.1", "1.10.0", "wanted v1.10.0"),
        ("v1.11.0", "1.11.0", "no section [1.11.0]"),
        ("v1.1.0", "1.1.0", "no section [1.1.0]"),
    ],
)
def test_no_release_of_another_version_or_without_a_section(
    tag: str, version: str, message: str
) -> None:
    """The message says what to do."""
    with pytest.raises(notes.ChangelogError, match=re.escape(message)):
        notes.notes(tag, version, TWO)


def test_a_section_that_lists_nothing_is_none() -> None:
    """A release has something to say."""
    with pytest.raises(notes.ChangelogError, match="lists nothing"):
        notes.notes("v1.9.0", "1.9.0", TWO.replace("- Nine.\n", ""))


def test_a_rehearsal_takes_what_is_unreleased() -> None:
    """Where the version has no section yet, and only there."""
    unreleased = notes.notes("v1.11.0", "1.11.0", TWO, rehearse=True)
    assert unreleased == "### Fixed\n\n- Not yet out.\n"
    assert "- Ten." in notes.notes("v1.10.0", "1.10.0", TWO, rehearse=True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("## [1.9.0] - 2026-02-03", "## 1.9.0 - 2026-02-03", "not of the form"),
        ("## [1.9.0] - 2026-02-03", "## [1.9.0] - 3rd of February", "not of the form"),
        ("## [1.9.0] - 2026-02-03", "## [1.9.0] - 2026-02-31", "no date"),
        ("## [1.9.0] - 2026-02-03", "## [1.9.0]", "no date"),
        ("## [1.9.0]", "## [1.9]", "three numbers"),
        ("## [1.9.0]", "## [1.11.0]", "newest first"),
        ("## [1.9.0]", "## [1.10.0]", "newest first"),
        ("## [Unreleased]", "## [Unreleased] - 2026-04-01", "has a date"),
        ("## [Unreleased]", "## [1.11.0] - 2026-04-01", "the first section"),
        ("### Security", "### Better", "headings"),
        ("### Security", "### Added", "headings"),
    ],
)
def test_another_form_is_an_error(old: str, new: str, message: str) -> None:
    """Which names the section."""
    assert TWO.count(old) == 1
    with pytest.raises(notes.ChangelogError, match=message):
        notes.sections(TWO.replace(old, new))


def test_without_notes_there_is_no_release() -> None:
    """As the workflow runs it: nothing is printed, and the error says what was
    wanted.
    """
    done = run(python("release/notes.py", "v9.9.9"), ROOT)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"wanted v{__version__}" in done.stderr
