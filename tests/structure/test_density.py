"""The code is not packed: what makes a line dense stays below these limits.

They are what a reader bears, with a little room above what the folders have. A limit
that is reached is a reason to split an expression or to name a value, not to raise the
limit.
"""

from pathlib import Path

import pytest

from structure.density import density
from support.repository import ROOT

#: The most of each measure that a folder of the product may have; of comments, the
#: least. `density` describes the measures.
PRODUCT = {
    "characters": 35,
    "conditionals": 15,
    "nested conditionals": 1,
    "comprehensions": 22,
    "nested comprehensions": 1.5,
    "tuple assignments": 2,
    "calls with many arguments": 12,
    "vague names": 1,
}
#: Of folders whose tables and generators are lists by nature.
GENERATORS = PRODUCT | {"comprehensions": 50, "nested comprehensions": 2}
TESTS = {
    "characters": 35,
    "conditionals": 6,
    "nested conditionals": 2,
    "comprehensions": 45,
    "nested comprehensions": 3,
    "tuple assignments": 1,
    "calls with many arguments": 30,
    "vague names": 1.3,
}
LIMITS = {
    "exporter": PRODUCT,
    "alerts": PRODUCT,
    "dashboards": PRODUCT,
    "helm": GENERATORS,
    "bench": GENERATORS,
    "docs": GENERATORS,
    "release": PRODUCT,
    "tests": TESTS,
}
LEAST_COMMENTS = {"exporter": 3.5, "tests": 1.9}


@pytest.mark.parametrize("folder", LIMITS)
def test_a_folder_is_not_dense(folder: str) -> None:
    """Every measure of a folder is within its limit."""
    measures = density(ROOT / folder)
    too_much = {}
    for name, limit in LIMITS[folder].items():
        if measures[name] > limit:
            too_much[name] = (round(measures[name], 1), limit)
    assert too_much == {}


@pytest.mark.parametrize("folder", LEAST_COMMENTS)
def test_reasons_stand_in_the_code(folder: str) -> None:
    """Comments, which say why, are a share of all lines."""
    assert density(ROOT / folder)["comments"] >= LEAST_COMMENTS[folder]


def test_density_counts_what_is_packed(tmp_path: Path) -> None:
    """Each measure, of code in which it was counted by hand."""
    (tmp_path / "packed.py").write_text(
        '"""Three lines of code, and a comment."""\n'
        "# why\n"
        "one, b = 1, 2\n"
        "c = [x if x else (y if y else 0) for x in one for y in b]\n"
        "f(1, 2, 3, 4, 5)\n",
        "utf-8",
    )
    measures = density(tmp_path)
    assert measures["tuple assignments"] == pytest.approx(1000 / 3)
    assert measures["conditionals"] == pytest.approx(2000 / 3)
    assert measures["nested conditionals"] == 1
    assert measures["comprehensions"] == pytest.approx(1000 / 3)
    assert measures["nested comprehensions"] == pytest.approx(1000 / 3)
    assert measures["calls with many arguments"] == 1
    assert measures["comments"] == pytest.approx(20)
    assert measures["vague names"] == pytest.approx(20)  # one of five
