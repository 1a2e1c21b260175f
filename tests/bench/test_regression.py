"""The benchmark's comparison: what became worse is flagged, and what is expected
changes on purpose alone.
"""

import math
from typing import Any

import pytest

from bench.bench_module import FOLDER, load
from support.repository import data_of

regression = load("regression")
Status = regression.Status

TABLE: dict[str, dict[str, Any]] = {
    "poll.cost": {"what": "ours over theirs", "value": 0.04, "tolerance": 0.1},
    "memory.steady": {"what": "end over begin", "value": 1.0, "tolerance": 0.02},
}
EXPECTED = regression.parse(TABLE)


@pytest.mark.parametrize(
    ("name", "ratio", "status"),
    [
        ("poll.cost", 0.0439, Status.AS_EXPECTED),
        ("poll.cost", 0.0441, Status.REGRESSION),
        ("poll.cost", 0.0361, Status.AS_EXPECTED),
        ("poll.cost", 0.0359, Status.IMPROVED),
        ("poll.cost", math.nan, Status.REGRESSION),
        ("memory.steady", 1.019, Status.AS_EXPECTED),
        ("memory.steady", 1.021, Status.REGRESSION),
        ("memory.steady", math.inf, Status.REGRESSION),
    ],
)
def test_a_ratio_is_judged_by_its_tolerance(
    name: str, ratio: float, status: Any
) -> None:
    """Above it by more it is a regression, below an improvement; what is no number is a
    regression.
    """
    (row,) = regression.compare({name: ratio}, EXPECTED, [])
    assert row.status is status


def test_a_run_fails_by_what_is_worse_missing_or_unknown() -> None:
    """An improvement does not fail it, nor does what a short run cannot judge."""
    failing = {status.name for status in Status if status.fails}
    assert failing == {"REGRESSION", "MISSING", "UNKNOWN"}


def test_a_ratio_that_is_no_longer_given_or_that_nobody_expects_is_flagged() -> None:
    """A check does not pass by going away, and a new one needs a tolerance.

    Sections that were not measured are not asked.
    """
    rows = {row.name: row.status for row in regression.compare({}, EXPECTED, ["poll"])}
    assert rows == {"poll.cost": Status.MISSING}
    (row,) = regression.compare({"load.new": 1.0}, EXPECTED, ["load"])
    assert row.status is Status.UNKNOWN


@pytest.mark.parametrize(
    "change", [{"tolerance": 0.0}, {"tolerance": 1.0}, {"value": 0.0}], ids=str
)
def test_a_table_against_which_nothing_can_fail_is_refused(
    change: dict[str, float],
) -> None:
    """Without a tolerance every run fails, with all of it none does, and nothing is
    relative to 0.
    """
    with pytest.raises(ValueError, match=r"poll\.cost"):
        regression.parse({"poll.cost": {**TABLE["poll.cost"], **change}})


def test_a_ratio_that_a_run_cannot_tell_is_neither_expected_nor_a_failure() -> None:
    """It is there, so it is not missing."""
    (row,) = regression.compare({"poll.cost": None}, EXPECTED, ["poll"])
    assert row.status is Status.NOT_JUDGED
    assert not row.status.fails


def test_every_committed_section_has_a_goal_and_ratios_that_can_fail() -> None:
    """Nothing is measured that no run is held to."""
    results = data_of(FOLDER / "results.json")
    expected = data_of(FOLDER / "expected.json")
    sections = {name.partition(".")[0] for name in regression.parse(expected)}
    assert set(results) == sections == set(load("run").ORDER)
    for name, section in results.items():
        assert section["goals"], name
        assert section["ratios"], name


def test_the_committed_page_is_that_of_the_committed_record() -> None:
    """A section that is edited in one of them alone is noticed."""
    run = load("run")
    page = load("page")
    committed = run.PAGE.read_text("utf-8")
    # Taken from the page, for it is written on another machine.
    machine = committed.partition("measured (")[2].partition(")")[0]
    assert page.page(run._read(), machine) == committed
