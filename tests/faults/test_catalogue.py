"""The catalogue is complete: every fault has its test, and faults.md lists it."""

import re
from collections import Counter
from pathlib import Path

import pytest

from faults import catalogue
from faults.catalogue import AREAS, DOCUMENT
from faults.test_responses import FAULTS

pytestmark = pytest.mark.full

HERE = Path(__file__).parent


def test_every_fault_has_one_test() -> None:
    """By the name of its function, by the id of a parameter, or in the table of responses."""
    promised = Counter((area.name, fault.name) for area in AREAS for fault in area.faults)
    named = re.compile(r'^(?:async )?def test_(\w+)|\bid="(\w+)"', re.MULTILINE)
    injected = Counter(
        (file.stem.removeprefix("test_"), function or row)
        for file in (*HERE.glob("test_*.py"), *(HERE.parent / "attacks").glob("test_*.py"))
        for function, row in named.findall(file.read_text())
    )
    injected.update(("upstream", name) for name in FAULTS)
    injected = Counter({fault: number for fault, number in injected.items() if fault in promised})
    assert promised == injected
    assert set(promised.values()) == {1}


def test_the_check_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make check-generated` fails for a document that is not current, or not there."""
    for file, code in ((DOCUMENT, 0), (Path(__file__), 1), (HERE / "none.md", 1)):
        monkeypatch.setattr(catalogue, "DOCUMENT", file)
        assert catalogue.main(["--check"]) == code
