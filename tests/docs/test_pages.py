"""Pages that list what the code has: each list is complete, and its numbers are those
of the code.
"""

import ast
import importlib
import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

import vllm_specdec_exporter
from docs.inventory import pages
from support.programs import printed
from support.published import IS_PUBLISHED
from support.repository import ROOT, data_of, text_of
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
_LIMITS: dict[str, dict[str, list[str]]] = data_of("tests/docs/limits.yml")
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


#: The calls that write an event.
_LOGGING = {"Event", "log", "logs.log", "logs.log_seldom"}


def read(name: str) -> str:
    return text_of(DOCS / name)


def test_the_generated_pages_are_current() -> None:
    """`make generate` would write them so."""
    assert printed(sys.executable, DOCS / "generate.py", "--check") == ""


def table(page: str, first_cell: str) -> list[list[str]]:
    """Return the rows below the head of a table, as cells; its head begins with this
    cell.
    """
    (rows,) = re.findall(
        rf"(?m)^\| {re.escape(first_cell)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", page
    )
    lines = rows.splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize(("page", "first_cell", "values"), _ENUMERATIONS)
def test_a_table_has_every_value_and_no_other(
    page: str, first_cell: str, values: type[StrEnum]
) -> None:
    """The first cells of its rows are the values."""
    cells = " ".join(row[0] for row in table(read(page), first_cell))
    assert set(re.findall(r"[a-z_]+", cells)) == set(values) - _REST


def test_the_readme_has_every_verdict_and_state() -> None:
    text = text_of("README.md")
    rows = {
        row[0].partition("{")[0].strip("`"): row[2] for row in table(text, "series")
    }
    verdicts = re.findall(r"`(\w+)`", rows["vllm_specdec_payoff"])
    states = re.findall(r"`(\w+)`", rows["vllm_specdec_activity"])
    assert set(verdicts) == set(PayoffVerdict)
    assert set(states) == set(ActivityState)


def messages(*levels: str) -> set[str]:
    """Return the messages of events of these levels that the source writes out."""
    written = set()
    for path in PACKAGE.rglob("*.py"):
        # They run apart from the exporter, and have pages of their own.
        if {"act", "simulate"} & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(args=[level, ast.Constant(value=message), *_]) if (
                    ast.unparse(node.func) in _LOGGING and ast.unparse(level) in levels
                ):
                    written.add(message)
    return written


def test_operations_explain_every_warning_and_error() -> None:
    """And none that does not exist any more."""
    cells = " ".join(row[0] for row in table(read("operations.md"), "message"))
    named = set(re.findall(r"`([^`]+)`", cells))
    # Messages that the source puts together.
    computed = {
        "log lines dropped: output blocked",
        "discovery failed unexpectedly",
        "poll failed unexpectedly",
        "server is down",
        "tap failed unexpectedly",
    }
    assert named == computed | messages("logging.WARNING", "logging.ERROR")


def test_limits_are_those_of_the_code() -> None:
    """Each row of the threat model's limits has the numbers of its constants, and
    tests of what is beyond them.
    """
    rows = table(read("threat-model.md").partition("\n## Limits\n")[2], "what")
    missing = []
    for subject, limits, *_ in rows:
        held = [row for begin, row in _LIMITS.items() if subject.startswith(begin)]
        assert held or subject.startswith(_LIMIT_OF_A_LIBRARY), subject
        numbers = {
            float(number.replace(",", "")) * _UNITS[unit]
            for number, unit in re.findall(r"([\d,]+) ?(KiB|MiB|s|)", limits)
        }
        for name in itertools.chain.from_iterable(row["constants"] for row in held):
            module, _, constant = name.rpartition(".")
            source = importlib.import_module(f"vllm_specdec_exporter.{module}")
            if float(getattr(source, constant)) not in numbers:
                missing.append((subject, name))
    assert missing == []
    assert len(rows) == len(_LIMITS) + 1
    assert_exist(
        itertools.chain.from_iterable(row["tests"] for row in _LIMITS.values())
    )


def assert_exist(tests: Iterable[str]) -> None:
    """Each is a path and a function."""
    for test in tests:
        path, _, function = test.partition("::")
        assert f"def {function}(" in text_of(ROOT / "tests" / path), test


#: The tests of the threat model's other sentences, by how these begin.
_CLAIMS: dict[str, Any] = data_of("tests/docs/claims.yml")
_NAMED = re.compile(r"`tests/([\w/.]+)`")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a section and the rows of its tables, without the names of
    tests.
    """
    text = re.sub(r" ?\(`tests/[^()]*\)", "", text)
    # A drawing, and the lines below heads of tables.
    text = re.sub(r"(?ms)^<!--[^\n]*\n|^```.*?^```\n|^\|--[^\n]*\n", "", text)
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("|"):
            yield line.strip("|").strip()
        else:
            yield from re.split(
                r"(?<=[.;:]) (?=[\w*`\[])(?!false`)", line.removeprefix("- ")
            )


def test_every_claim_of_the_threat_model_has_its_tests() -> None:
    """Each sentence and row has some, or claims no protection; each section names their
    files.
    """
    claims: dict[str, list[str]] = _CLAIMS["claims"]
    others: list[str] = _CLAIMS["nothing claimed"]
    begun = set()
    for section in re.split(r"^##+ ", read("threat-model.md"), flags=re.MULTILINE)[1:]:
        if section.startswith("Limits\n"):
            continue  # they have a test of their own
        needed = set()
        for sentence in sentences(section.partition("\n")[2]):
            begins = [each for each in (*claims, *others) if sentence.startswith(each)]
            assert len(begins) == 1, (sentence, begins)
            begun.update(begins)
            tests = claims.get(begins[0], [])
            needed |= {test.partition("::")[0] for test in tests}
        assert set(_NAMED.findall(section)) == needed, section.partition("\n")[0]
    assert begun == {*claims, *others}
    assert all(claims.values())
    assert_exist(itertools.chain.from_iterable(claims.values()))


def test_the_index_lists_every_page() -> None:
    """docs/README.md links to each page and schema beside it."""
    linked = set(re.findall(r"\]\(((?:reference/)?[\w.-]+)\)", read("README.md")))
    existing = (*DOCS.glob("*.md"), *DOCS.glob("reference/*.[mj]*"))
    names = {path.relative_to(DOCS).as_posix() for path in existing}
    assert names - linked == {"README.md"}


def test_no_page_installs_an_unpublished_package_from_an_index() -> None:
    """Until the name is taken, a package of somebody else would be installed."""
    if IS_PUBLISHED:
        return
    installs = re.compile(
        r"\b(?:pip3?|pipx|uv|uvx)\b[^`\n]*[ \"']vllm[-_]specdec[-_]exporter(?![\w./-])"
    )
    assert [path for path in pages() if installs.search(text_of(path))] == []


def test_what_the_exporter_needs_is_what_is_measured_and_pinned() -> None:
    """The page of deployment has the goals that `make bench` holds, and the number of
    pinned packages.

    The memory of the image, which `make test-containers` holds, stands wherever people
    size a container.
    """
    text = read("deployment.md")
    measured = read("reference/performance.md")
    for figure in ("below 46 MiB", "at most 0.35 of what"):
        assert figure in text, figure
        assert figure in measured, figure
    assert "below 48 MiB in the image" in text
    for path in ("docs/operations.md", "helm/vllm-specdec-exporter/values.yaml"):
        assert "below 48 MiB" in text_of(path), path
    lock = text_of("requirements/runtime.txt")
    pinned = re.findall(r"(?m)^[\w-]+==", lock)
    assert f"| {len(pinned)}, all pinned by hash" in text
