"""Every block of shell commands and of Python, outside the runbooks, does what its page says when it is run.

What a block of Python or a program of ours prints is not compared, but that each command ends well, and
that nothing has to be put in its place but addresses, folders, and times of minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from docs.inventory import blocks
from docs.many import Outcome, outcomes
from docs.transcripts import unlabelled
from docs.ways import Way, find, source

if TYPE_CHECKING:
    from pathlib import Path


BLOCKS = tuple(
    block
    for block in blocks()
    if not block.path.startswith("alerts/runbooks/") and find(block).way in (Way.SHELL, Way.PYTHON)
)
#: What a page shows of the output of the block above.
PRINTED = tuple(block for block in blocks() if find(block).way is Way.OUTPUT)
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """How each ended, by `file:line`."""
    folder: Path = tmp_path_factory.mktemp("pages")
    return outcomes(BLOCKS, folder)


@pytest.mark.parametrize("where", [block.where for block in BLOCKS])
def test_a_block_does_what_it_says(where: str, found: dict[str, Outcome]) -> None:
    """Its commands end well; of what cannot be run here, its own tool takes what it can."""
    assert found[where].wrong == "", found[where].wrong


def test_what_is_shown_below_a_block_is_what_it_prints(found: dict[str, Outcome]) -> None:
    """Names of rows, heads of columns and notes; numbers and what they lead to may be others."""
    wrong = {}
    for block in PRINTED:
        above = source(block)
        assert above is not None
        wrong[block.where] = unlabelled(block.text, found[above.where].printed)
    assert {where: labels for where, labels in wrong.items() if labels} == {}


def test_there_are_blocks() -> None:
    assert len(BLOCKS) > 50
