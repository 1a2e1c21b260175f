"""Every code block of every page is run or checked, or its page says why not, and says
so truly.
"""

import re

from docs.checks import Check, check_of, complaint
from docs.inventory import blocks, pages, prose
from docs.other_tests import OTHER_TESTS
from support.repository import ROOT


def test_every_block_is_run_or_says_why_not() -> None:
    """Nothing goes unnoticed: each complaint has its file and line."""
    assert [text for block in blocks() if (text := complaint(block))] == []


def test_no_block_is_overlooked() -> None:
    """Fences are closed, none is indented instead, and there are blocks of every kind
    that is known.
    """
    indented = re.compile(r"(?m)^(?! *(?:[-*+]|\d+\.) | ).*\n\n+    \S")
    texts = {path: prose(path.read_text("utf-8")) for path in pages()}
    assert [
        path for path, text in texts.items() if "```" in text or indented.search(text)
    ] == []
    assert set(map(check_of, blocks())) == set(Check)
    assert len(blocks()) > 250


def test_other_tests_read_the_pages_that_they_are_said_to() -> None:
    """The test exists and names the page, the page exists and has such a block."""
    for row in OTHER_TESTS:
        assert row.page.rpartition("/")[2] in (ROOT / "tests" / row.test).read_text(
            "utf-8"
        ), row
        assert any(map(row.has, blocks())), row
