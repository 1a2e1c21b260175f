"""Every code block of every page is run or checked, or its page says why not, and says so truly."""

from docs.inventory import ROOT, blocks, pages
from docs.taken import TAKEN
from docs.ways import Way, complaint, find


def test_every_block_is_run_or_says_why_not() -> None:
    """Nothing goes unnoticed: each complaint has its file and line."""
    assert [text for one in blocks() if (text := complaint(one))] == []


def test_blocks_are_found() -> None:
    """In every page that has three backticks, and of every kind that is known."""
    with_fences = {path for path in pages() if "```" in path.read_text("utf-8")}
    assert {one.file for one in blocks()} == with_fences
    assert {find(one) for one in blocks()} == set(Way)
    assert len(blocks()) > 250


def test_other_tests_read_the_pages_that_they_are_said_to() -> None:
    """The test exists and names the page, the page exists and has such a block."""
    for row in TAKEN:
        assert row.page.rpartition("/")[2] in (ROOT / "tests" / row.test).read_text("utf-8"), row
        assert any(map(row.has, blocks())), row
