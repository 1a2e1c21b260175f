"""Pages that list what the code has: each list is complete, and its numbers are those of the code."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import vllm_specdec_exporter
from docs.inventory import ROOT, pages
from support.published import IS_PUBLISHED
from vllm_specdec_exporter.publish.metrics import METRICS

DOCS = ROOT / "docs"
PACKAGE = Path(vllm_specdec_exporter.__file__).parent

_UNITS = {"": 1, "s": 1, "bytes": 1, "KiB": 1024, "MiB": 1024**2}
_LIMIT = re.compile(r"^\| .* \| (?P<values>[^|]+) \| (?P<names>`[\w.]+`(?:, `[\w.]+`)*) \|$", re.MULTILINE)


def read(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def test_the_generated_pages_are_current() -> None:
    """`make generate` would write them so."""
    done = subprocess.run([sys.executable, DOCS / "generate.py", "--check"], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_concepts_speak_of_every_metric() -> None:
    """By its whole name, so that it can be searched for."""
    text = read("concepts.md")
    assert [row.name for row in METRICS if f"`vllm_specdec_{row.name}" not in text] == []


def messages() -> set[str]:
    """Return the messages of all events that the source writes out."""
    found = {
        "log lines dropped: output blocked",
        "discovery failed unexpectedly",
        "poll failed unexpectedly",
        "waiting for the server",
        "server is down",
    }
    for path in PACKAGE.rglob("*.py"):
        if {"act", "simulate"} & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"Event", "logs.log"}:
                message = node.args[1]
                if isinstance(message, ast.Constant):
                    found.add(message.value)
    return found


def test_operations_explain_every_log_line() -> None:
    """And none that does not exist any more."""
    table = read("operations.md").partition("| message | level |")[2].partition("\n\n")[0]
    told = {name for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}
    assert told == messages()


def test_limits_are_those_of_the_code() -> None:
    """Each constant that a row of the threat model names is one of the numbers that it gives."""
    rows = list(_LIMIT.finditer(read("threat-model.md")))
    assert len(rows) > 20
    wrong = []
    for row in rows:
        numbers = {
            float(number.replace(",", "")) * _UNITS[unit]
            for number, unit in re.findall(r"([\d,]+) ?(\w*)", row["values"])
        }
        for name in re.findall(r"`([\w.]+)`", row["names"]):
            module, _, constant = name.rpartition(".")
            value = getattr(importlib.import_module(f"vllm_specdec_exporter.{module}"), constant)
            wrong += [] if float(value) in numbers else [f"{name} is {value}, and not {row['values']}"]
    assert wrong == []


def test_the_index_lists_every_page() -> None:
    """docs/README.md links to each page and schema beside it."""
    linked = set(re.findall(r"\]\(((?:reference/)?[\w.-]+)\)", read("README.md")))
    there = {
        str(path.relative_to(DOCS))
        for pattern in ("*.md", "reference/*.md", "reference/*.json")
        for path in DOCS.glob(pattern)
    } - {"README.md"}
    assert there - linked == set()


def test_no_page_asks_an_index_for_what_is_not_there() -> None:
    """Until something is published, whoever took the name first would be installed."""
    if IS_PUBLISHED:
        return
    asks = re.compile(r"\b(?:pip3?|pipx|uv|uvx)\b[^`\n]*[ \"']vllm[-_]specdec[-_]exporter(?![\w./-])")
    assert [str(path.relative_to(ROOT)) for path in pages() if asks.search(path.read_text("utf-8"))] == []


def test_what_the_exporter_takes_is_what_is_measured_and_pinned() -> None:
    """The page of deployment has the goals that `make bench` holds, and the number of pinned packages.

    The same memory stands wherever people size a container.
    """
    text = read("deployment.md")
    measured = read("reference/performance.md")
    for figure in ("below 46 MiB", "at most 0.2 of what"):
        assert figure in text
        assert figure in measured
    for place in ("docs/operations.md", "helm/vllm-specdec-exporter/values.yaml"):
        assert "below 46 MiB" in (ROOT / place).read_text("utf-8"), place
    pinned = re.findall(
        r"^[\w-]+==", (ROOT / "requirements" / "runtime.txt").read_text("utf-8"), re.MULTILINE
    )
    assert f"| {len(pinned)}, all pinned by hash" in text
