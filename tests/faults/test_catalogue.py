"""The catalogue is complete: every fault has its test, and faults.md lists it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from faults.catalogue import AREAS, DOCUMENT, document, text
from faults.test_responses import FAULTS

pytestmark = pytest.mark.full

HERE = Path(__file__).parent


def test_every_fault_has_one_test() -> None:
    """By the name of the test's function, or in brackets behind it, or in the table of responses."""
    promised = Counter((area.name, fault.name) for area in AREAS for fault in area.faults)
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", HERE],
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.findall(r"test_(\w+)\.py::test_(\w+)(?:\[(\w+)\])?$", listed.stdout, re.MULTILINE)
    injected = Counter((area, row or name) for area, name, row in found)
    injected.update(("upstream", name) for name in FAULTS)
    injected = Counter({fault: number for fault, number in injected.items() if fault in promised})
    assert promised == injected
    assert set(promised.values()) == {1}


def test_the_document_is_current() -> None:
    """`make generate` writes it."""
    assert DOCUMENT.read_text() == text(document())


def test_the_check_tells_one_that_is_not() -> None:
    """What `make check-generated` goes by can fail."""
    program = (
        "import sys; from pathlib import Path; from faults import catalogue; "
        "catalogue.DOCUMENT = Path(sys.argv[1]); sys.exit(catalogue.main(['--check']))"
    )
    for file, code in ((DOCUMENT, 0), (Path(__file__), 1), (HERE / "none.md", 1)):
        done = subprocess.run(
            [sys.executable, "-c", program, str(file)], cwd=HERE.parent, capture_output=True, check=False
        )
        assert done.returncode == code, done.stderr
