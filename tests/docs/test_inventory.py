"""Every code block of every page is run or checked, or its page says why not, and says so truly."""

from docs.inventory import INDENTED, Block, blocks, blocks_of, pages, prose
from docs.taken import TAKEN
from docs.ways import Way, complaint, find


def test_every_block_is_run_or_says_why_not() -> None:
    """Nothing goes unnoticed: each complaint has its file and line."""
    assert [text for one in blocks() if (text := complaint(one))] == []


def test_blocks_are_found() -> None:
    """In every page that has three backticks, and of every kind that is known."""
    with_fences = {path for path in pages() if "```" in path.read_text("utf-8")}
    assert {one.file for one in blocks() if one.language != INDENTED} == with_fences
    assert {find(one) for one in blocks()} == set(Way)
    assert len(blocks()) > 250


def test_other_tests_read_the_pages_that_they_are_said_to() -> None:
    """The test exists and names the page, the page exists and has such a block."""
    untrue = [row for row in TAKEN if not row.names_its_page() or not any(map(row.has, blocks()))]
    assert untrue == []


def test_fences_and_indented_blocks_are_found_with_their_markers() -> None:
    text = (
        "# Title\n\n<!-- not run: needs a cluster -->\n```sh\nkubectl get pods\n```\n\n"
        "1. A list:\n\n   <!-- not run: a -->\n   ```yaml\n   a:\n     b: 1\n   ```\n\n"
        "So:\n\n    one\n      two\n\n    three\n\nEnd.\n\n- a list\n\n    goes on\n"
    )
    assert blocks_of(text, "page.md") == [
        Block("page.md", 4, "sh", "kubectl get pods\n", "needs a cluster"),
        Block("page.md", 11, "yaml", "a:\n  b: 1\n", "a"),
        Block("page.md", 18, INDENTED, "one\n  two\n\nthree\n", ""),
    ]
    assert len(prose(text).splitlines()) == len(text.splitlines())
    assert "kubectl" not in prose(text)
