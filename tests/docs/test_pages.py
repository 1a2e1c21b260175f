"""Pages that list what the code has: each list is complete, and its numbers are those of the code."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import vllm_specdec_exporter
from vllm_specdec_exporter.metrics import METRICS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = Path(vllm_specdec_exporter.__file__).parent

_UNITS = {"": 1, "s": 1, "bytes": 1, "KiB": 1024, "MiB": 1024**2}
_LIMIT = re.compile(r"^\| .* \| (?P<values>[^|]+) \| (?P<names>`[\w.]+`(?:, `[\w.]+`)*) \|$", re.MULTILINE)


def read(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def test_the_architecture_names_every_module() -> None:
    """Modules and folders at the top of the package; what is private or an entry point is left out."""
    table = read("architecture.md").partition("| module |")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)/?`", table))
    there = {path.stem for path in PACKAGE.glob("*.py")} | {
        path.parent.name for path in PACKAGE.glob("*/__init__.py")
    }
    assert {name for name in there if not name.startswith("_")} - named == set()


def test_concepts_speak_of_every_metric() -> None:
    """By its whole name, so that it can be searched for."""
    text = read("concepts.md")
    assert [row.name for row in METRICS if f"`vllm_specdec_{row.name}" not in text] == []


def messages() -> set[str]:
    """Return the messages of all events that the source writes out."""
    found = {
        "log lines left out, nobody took them",
        "poll failed unexpectedly",
        "waiting for the server",
        "server is down",
    }
    for path in PACKAGE.rglob("*.py"):
        if {"act", "simulator"} & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Event" and len(node.args) > 1:
                message = node.args[1]
                if isinstance(message, ast.Constant):
                    found.add(message.value)
    return found


def test_operations_explain_every_log_line() -> None:
    """And none that does not exist any more."""
    table = read("operations.md").partition("| message | level |")[2].partition("\n\n")[0]
    told = {name for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}
    assert told == messages()


@pytest.mark.parametrize(
    "row", [match.groupdict() for match in _LIMIT.finditer(read("threat-model.md"))], ids=str
)
def test_limits_are_those_of_the_code(row: dict[str, str]) -> None:
    """Each constant that a row names is one of the numbers that it gives."""
    numbers = {
        float(number.replace(",", "")) * _UNITS[unit]
        for number, unit in re.findall(r"([\d,]+) ?(\w*)", row["values"])
    }
    for name in re.findall(r"`([\w.]+)`", row["names"]):
        module, _, constant = name.rpartition(".")
        value = getattr(importlib.import_module(f"vllm_specdec_exporter.{module}"), constant)
        assert float(value) in numbers, name


def test_there_are_limits() -> None:
    """The table above was found."""
    assert len(_LIMIT.findall(read("threat-model.md"))) > 20


def test_the_index_lists_every_page() -> None:
    """docs/README.md links to each page and schema beside it."""
    linked = set(re.findall(r"\]\((?:\./)?([\w.-]+)\)", read("README.md")))
    there = {path.name for pattern in ("*.md", "*.json") for path in DOCS.glob(pattern)} - {"README.md"}
    assert there - linked == set()


def test_decisions_are_numbered_and_listed() -> None:
    """Each record has the next number and stands in the index."""
    records = sorted(path.name for path in (DOCS / "decisions").glob("[0-9]*.md"))
    assert [name[:4] for name in records] == [f"{number:04d}" for number in range(1, len(records) + 1)]
    assert re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", read("decisions/README.md")) == records
