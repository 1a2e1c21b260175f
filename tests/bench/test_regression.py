"""The benchmark's comparison: what became worse is flagged, and what is expected changes on purpose alone."""

import json
import math
from typing import Any

import pytest

from bench.bench_module import FOLDER, load

regression = load("regression")
Status = regression.Status

TABLE: dict[str, dict[str, Any]] = {
    "poll.cheaper": {"what": "theirs over ours", "value": 25.0, "tolerance": 0.1, "better": "higher"},
    "soak.memory": {"what": "end over begin", "value": 1.0, "tolerance": 0.02, "better": "lower"},
}
EXPECTED = regression.parse(TABLE)


def test_a_ratio_is_judged_by_its_tolerance_and_by_which_way_is_better() -> None:
    """Beyond the tolerance it is a regression one way and an improvement the other; no number is worse."""
    for name, ratio, status in (
        ("poll.cheaper", 22.6, Status.AS_EXPECTED),
        ("poll.cheaper", 22.4, Status.REGRESSION),
        ("poll.cheaper", 27.4, Status.AS_EXPECTED),
        ("poll.cheaper", 27.6, Status.IMPROVED),
        ("poll.cheaper", math.nan, Status.REGRESSION),
        ("soak.memory", 1.019, Status.AS_EXPECTED),
        ("soak.memory", 1.021, Status.REGRESSION),
        ("soak.memory", 0.979, Status.IMPROVED),
        ("soak.memory", math.inf, Status.REGRESSION),
    ):
        (row,) = regression.compare({name: ratio}, EXPECTED, [])
        assert row.status is status, (name, ratio)
    assert {status.name for status in Status if status.fails} == {"REGRESSION", "MISSING", "UNKNOWN"}


def test_a_ratio_that_is_no_longer_given_or_that_nobody_expects_is_flagged() -> None:
    """A check does not pass by going away, and a new one needs a tolerance.

    Sections that were not measured are not asked.
    """
    rows = {row.name: row.status for row in regression.compare({}, EXPECTED, ["poll"])}
    assert rows == {"poll.cheaper": Status.MISSING}
    (row,) = regression.compare({"load.new": 1.0}, EXPECTED, ["load"])
    assert row.status is Status.UNKNOWN


def test_a_table_against_which_nothing_can_fail_is_refused() -> None:
    """Without a tolerance every run fails, with all of it none does, and nothing is relative to 0.

    What a new ratio means and how much it varies is for people to say.
    """
    for change in ({"tolerance": 0.0}, {"tolerance": 1.0}, {"value": 0.0}):
        with pytest.raises(ValueError, match=r"poll\.cheaper"):
            regression.parse({"poll.cheaper": {**TABLE["poll.cheaper"], **change}})
    with pytest.raises(ValueError, match=r"load\.new"):
        regression.accepted({"load.new": 1.0}, TABLE)


def test_a_ratio_that_a_run_cannot_tell_is_neither_expected_nor_a_failure() -> None:
    """It is there, so it is not missing; and it does not become what is expected."""
    (row,) = regression.compare({"poll.cheaper": None}, EXPECTED, ["poll"])
    assert row.status is Status.NOT_JUDGED
    assert not row.status.fails
    assert regression.accepted({"poll.cheaper": None}, TABLE) == TABLE


def test_every_committed_section_has_a_goal_and_ratios_that_can_fail() -> None:
    """Nothing is measured that no run is held to."""
    results, expected = (
        json.loads((FOLDER / f"{name}.json").read_text("utf-8")) for name in ("results", "expected")
    )
    sections = {name.partition(".")[0] for name in regression.parse(expected)}
    assert set(results) == sections == set(load("run").ORDER)
    assert [name for name, one in results.items() if not one["goals"] or not one["ratios"]] == []
