"""How the names of engines' series begin stands in the tables of `engines` alone: who
renames them is found by everything that reads them, or by nothing.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.repository import ROOT
from vllm_specdec_exporter.engines.tables import DIALECTS

PREFIXES = {prefix for dialect in DIALECTS for prefix in dialect.prefixes}
#: A beginning with `_` may be that of another word, and the exporter's own series begin
#: with one of them.
BEGINNING = re.compile(
    r"(?<![\w:])(?:"
    + "|".join(
        re.escape(prefix) + (r"(?!specdec)\w" if prefix.endswith("_") else "")
        for prefix in PREFIXES
    )
    + ")"
)
SOURCES = sorted(
    path for folder in ("exporter", "alerts", "dashboards")
    for path in (ROOT / folder).rglob("*.py")
)  # fmt: skip


def _texts(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a module that are no docstrings."""
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose:
            yield str(node.value)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_name_of_an_engines_series_stands_elsewhere(path: Path) -> None:
    texts = _texts(ast.parse(path.read_text("utf-8")))
    assert [text for text in texts if BEGINNING.search(text)] == []


@pytest.mark.parametrize("prefix", sorted(PREFIXES))
def test_a_name_would_be_found(prefix: str) -> None:
    (text,) = _texts(ast.parse(f'expr = f"sum(rate({prefix}drafts_total[{{window}}]))"'
                               .replace("{window}", "5m")))  # fmt: skip
    assert BEGINNING.search(text)
