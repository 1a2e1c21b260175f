"""Each fault that docs/reference/faults.md lists has one test, here or in another
folder.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from faults.test_responses import FAULTS, ODD

pytestmark = pytest.mark.full

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "reference" / "faults.md").read_text("utf-8")


def test_every_fault_has_one_test() -> None:
    """By the name of its function, by the id of a parameter, or in the tables of
    responses.
    """
    promised = Counter(
        re.findall(r"^\| `(\w+)/(\w+)` \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)
    )
    named = re.compile(r'^(?:async )?def test_(\w+)|\bid="(\w+)"', re.MULTILINE)
    injected = Counter()
    for folder in ("faults", "attacks", "service", "tap", "act"):
        for file in (HERE.parent / folder).glob("test_*.py"):
            subject = file.stem.removeprefix("test_")
            injected.update(
                (subject, function or row)
                for function, row in named.findall(file.read_text())
            )
    for table in (*FAULTS.values(), ODD):
        injected.update(("upstream", name) for name in table)
    injected = Counter(
        {fault: number for fault, number in injected.items() if fault in promised}
    )
    assert promised == injected
    assert set(promised.values()) == {1}
    assert f"\n{len(promised)} faults, " in PAGE
