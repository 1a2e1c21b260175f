"""Pages that list what the code has: each list is complete, and its numbers are those
of the code.
"""

import ast
import importlib
import re
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

import pytest
import yaml

import vllm_specdec_exporter
from docs.inventory import ROOT, pages
from support.published import IS_PUBLISHED
from vllm_specdec_exporter.commands.act.decision import EventKind
from vllm_specdec_exporter.judgement.activity import ActivityState
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.judgement.payoff import Basis, PayoffVerdict
from vllm_specdec_exporter.judgement.quality import QualityLevel

DOCS = ROOT / "docs"
PACKAGE = Path(vllm_specdec_exporter.__file__).parent

_UNITS = {"": 1, "s": 1, "KiB": 1024, "MiB": 1024**2}
#: The constants behind the rows of the threat model's table of limits, by how a row
#: begins.
_LIMITS: dict[str, str] = yaml.safe_load(
    Path(__file__).with_name("limits.yml").read_text("utf-8")
)
#: aiohttp's own limit, which has no constant here.
_LIMIT_OF_A_LIBRARY = "header lines"
#: Pages with a table of all values of an enumeration, whose head begins with this cell.
_ENUMERATIONS = (
    ("concepts.md", "state", ActivityState),
    ("concepts.md", "level", QualityLevel),
    ("payoff.md", "verdict", PayoffVerdict),
    ("payoff.md", "basis", Basis),
    ("payoff.md", "action", Action),
    ("act.md", "event", EventKind),
)
#: What the table of levels leaves out: it is what none of the criteria gives.
_REST = {QualityLevel.FAIR}


def read(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def test_the_generated_pages_are_current() -> None:
    """`make generate` would write them so."""
    done = subprocess.run(
        [sys.executable, DOCS / "generate.py", "--check"], capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def table(page: str, first_cell: str) -> list[list[str]]:
    """Return the rows below the head of a table, as cells; its head begins with this
    cell.
    """
    (rows,) = re.findall(
        rf"^\| {re.escape(first_cell)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE
    )
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in rows.splitlines()
    ]


@pytest.mark.parametrize(("page", "first_cell", "values"), _ENUMERATIONS)
def test_a_table_has_every_value_and_no_other(
    page: str, first_cell: str, values: type[StrEnum]
) -> None:
    rows = table(read(page), first_cell)
    named = {name for row in rows for name in re.findall(r"[a-z_]+", row[0])}
    assert named == {str(value) for value in values if value not in _REST}


def test_the_readme_has_every_verdict_and_state() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    rows = {
        row[0].partition("{")[0].strip("`"): row[2] for row in table(text, "series")
    }
    verdicts = rows["vllm_specdec_payoff"]
    states = rows["vllm_specdec_activity"]
    assert set(re.findall(r"`(\w+)`", verdicts)) == {
        str(verdict) for verdict in PayoffVerdict
    }
    assert set(re.findall(r"`(\w+)`", states)) == {
        str(state) for state in ActivityState
    }


def messages(*levels: str) -> set[str]:
    """Return the messages of events of these levels that the source writes out."""
    calls = (
        node
        for path in PACKAGE.rglob("*.py")
        if not {"act", "simulate"} & set(path.parts)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"Event", "log", "logs.log", "logs.log_seldom"}
    )
    return {
        call.args[1].value
        for call in calls
        if isinstance(call.args[1], ast.Constant)
        and ast.unparse(call.args[0]) in levels
    }


def test_operations_explain_every_warning_and_error() -> None:
    """And none that does not exist any more."""
    named = {
        name
        for row in table(read("operations.md"), "message")
        for name in re.findall(r"`([^`]+)`", row[0])
    }
    computed = {
        "log lines dropped: output blocked",
        "discovery failed unexpectedly",
        "poll failed unexpectedly",
        "server is down",
    }
    assert named == computed | messages("logging.WARNING", "logging.ERROR")


def test_limits_are_those_of_the_code() -> None:
    """Each row of the threat model's limits has the numbers of its constants."""
    rows = {
        row[0]: row[1]
        for row in table(read("threat-model.md").partition("\n## Limits\n")[2], "what")
    }
    wrong = []
    for subject, limits in rows.items():
        constants = next(
            (names for begin, names in _LIMITS.items() if subject.startswith(begin)), ""
        ).split()
        numbers = {
            float(number.replace(",", "")) * _UNITS[unit]
            for number, unit in re.findall(r"([\d,]+) ?(KiB|MiB|s|)", limits)
        }
        if not constants and not subject.startswith(_LIMIT_OF_A_LIBRARY):
            wrong.append(f"{subject}: no constant")
        for name in constants:
            module, _, constant = name.rpartition(".")
            value = getattr(
                importlib.import_module(f"vllm_specdec_exporter.{module}"), constant
            )
            wrong += (
                []
                if float(value) in numbers
                else [f"{name} is {value}, and not {limits}"]
            )
    assert wrong == []
    assert len(rows) == len(_LIMITS) + 1


def test_what_the_threat_model_promises_names_its_tests() -> None:
    """Each section, and each protection against an attack; the files exist."""
    sections = re.split(r"^##+ ", read("threat-model.md"), flags=re.MULTILINE)
    named = {
        text.partition("\n")[0]: re.findall(r"`(tests/[\w/.]+)`", text)
        for text in sections
    }
    assert [
        path for paths in named.values() for path in paths if not (ROOT / path).exists()
    ] == []
    assert [name for name, paths in named.items() if not paths] == [
        "# Threat model",
        "Who could do what",
        "What remains",
    ]
    protections = [
        row[1]
        for text in sections
        if "| attack |" in text
        for row in table(text, "attack")
    ]
    assert len(protections) > 10
    assert [
        each
        for each in protections
        if not re.match("none|nothing", each) and "`tests/" not in each
    ] == []


def test_the_index_lists_every_page() -> None:
    """docs/README.md links to each page and schema beside it."""
    linked = set(re.findall(r"\]\(((?:reference/)?[\w.-]+)\)", read("README.md")))
    there = {
        str(path.relative_to(DOCS))
        for pattern in ("*.md", "reference/*.md", "reference/*.json")
        for path in DOCS.glob(pattern)
    } - {"README.md"}
    assert there - linked == set()


def test_no_page_installs_an_unpublished_package_from_an_index() -> None:
    """Until the name is taken, a package of somebody else would be installed."""
    if IS_PUBLISHED:
        return
    installs = re.compile(
        r"\b(?:pip3?|pipx|uv|uvx)\b[^`\n]*[ \"']vllm[-_]specdec[-_]exporter(?![\w./-])"
    )
    assert [
        str(path.relative_to(ROOT))
        for path in pages()
        if installs.search(path.read_text("utf-8"))
    ] == []


def test_what_the_exporter_needs_is_what_is_measured_and_pinned() -> None:
    """The page of deployment has the goals that `make bench` holds, and the number of
    pinned packages.

    The memory of the image, which `make test-containers` holds, stands wherever people
    size a container.
    """
    text = read("deployment.md")
    measured = read("reference/performance.md")
    for figure in ("below 46 MiB", "at most 0.35 of what"):
        assert figure in text
        assert figure in measured
    for path in ("docs/operations.md", "helm/vllm-specdec-exporter/values.yaml"):
        assert "below 48 MiB in the image" in text
        assert "below 48 MiB" in (ROOT / path).read_text("utf-8"), path
    pinned = re.findall(
        r"^[\w-]+==",
        (ROOT / "requirements" / "runtime.txt").read_text("utf-8"),
        re.MULTILINE,
    )
    assert f"| {len(pinned)}, all pinned by hash" in text
