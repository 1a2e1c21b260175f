"""YAML, JSON, PromQL and units of the pages: each is read by the tool that it is
for.
"""

import re
import subprocess
from pathlib import Path

import promql_parser
import pytest

from docs.checks import Check, blocks_with
from docs.inventory import Block
from docs.readers import reader_of
from support.programs import find_program
from systemd.unit import UNIT, unit_here
from vllm_specdec_exporter.settings.option_table import OPTIONS

pytestmark = pytest.mark.full


@pytest.mark.parametrize(
    "block", blocks_with(Check.DOCUMENT), ids=lambda block: block.where
)
def test_a_document_is_valid_for_its_tool(block: Block, tmp_path: Path) -> None:
    """YAML and JSON."""
    reader = reader_of(block.document())
    reader.read(block.document(), tmp_path)


def test_queries_are_promql() -> None:
    """Each line of a block; that their series exist is asked in test_names.py."""
    texts = [block.text for block in blocks_with(Check.PROMQL)]
    lines = list(filter(None, "\n".join(texts).splitlines()))
    assert lines
    for line in lines:
        assert promql_parser.parse(line), line


# --- systemd


def test_drop_ins_are_valid_for_systemd(tmp_path: Path) -> None:
    """Beside the unit, whose program is that of this environment; their variables are
    settings.
    """
    blocks = blocks_with(Check.UNIT)
    assert blocks
    variables = {option.variable for option in OPTIONS}
    for number, block in enumerate(blocks):
        assert verified(block.text, tmp_path / str(number)) == "", block.where
        used = set(re.findall(r"\bVLLM_SPECDEC_EXPORTER_\w+", block.text))
        assert used <= variables, block.where
    assert "LoadCredentials" in verified(
        "[Service]\nLoadCredentials=a:/b\n", tmp_path / "wrong"
    )


def verified(text: str, folder: Path) -> str:
    """Return what systemd complains of, of the unit with a drop-in."""
    (drop_in := folder / f"{UNIT.name}.d").mkdir(parents=True)
    (drop_in / "override.conf").write_text(text, encoding="utf-8")
    analyze = find_program("systemd-analyze", "systemd")
    done = subprocess.run(
        [analyze, "verify", "--man=no", unit_here(folder)],
        capture_output=True,
        text=True,
        timeout=180,
    )
    return done.stdout + done.stderr
