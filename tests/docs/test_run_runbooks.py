"""Every block of shell commands in the runbooks works, with simulated servers and an Alertmanager.

Placeholders such as VLLM and EXPORTER stand for these, and nothing else is put in the place of anything but
times of minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from docs.inventory import blocks
from docs.many import Outcome, outcomes
from docs.ways import Way, find

if TYPE_CHECKING:
    from pathlib import Path

BLOCKS = tuple(
    block for block in blocks() if block.path.startswith("alerts/runbooks/") and find(block).way is Way.SHELL
)
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """How each ended, by `file:line`."""
    folder: Path = tmp_path_factory.mktemp("runbooks")
    return outcomes(BLOCKS, folder)


@pytest.mark.parametrize("where", [block.where for block in BLOCKS])
def test_a_block_does_what_it_says(where: str, found: dict[str, Outcome]) -> None:
    """Its commands end well; of what cannot be run here, its own tool takes what it can."""
    assert found[where].wrong == "", found[where].wrong


def test_there_are_blocks() -> None:
    assert len(BLOCKS) > 50
