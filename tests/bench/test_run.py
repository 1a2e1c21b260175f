"""The benchmark's command: its exit code, and what it writes, with made-up
measurements.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.bench_module import load

run = load("run")
section = load("section")

EXPECTED = {
    "poll.cost": {"what": "ours over theirs", "value": 0.04, "tolerance": 0.1},
    "start.memory": {"what": "ours over theirs", "value": 1.2, "tolerance": 0.1},
}


class Bench:
    """The command in a folder of its own."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        # ratios that it is going to measure, by section
        self.found: dict[str, dict[str, float]] = {}
        # whether a section keeps its goal; else it does
        self.met: dict[str, bool | None] = {}
        for name in ("results", "expected"):
            patch.setattr(run, name.upper(), folder / f"{name}.json")
        # The committed page and record are not touched.
        self.page = folder / "page.md"
        patch.setattr(run, "PAGE", self.page)
        patch.setattr(
            run,
            "measures",
            lambda *, quick: {name: self._measure(name) for name in run.ORDER},
        )
        (folder / "expected.json").write_text(json.dumps(EXPECTED))

    def _measure(self, name: str) -> Any:
        def measured() -> Any:
            goal = section.Goal(
                f"goal of {name}", "below 2", "3", met=self.met.get(name, True)
            )
            return section.Section(
                f"Title of {name}", (f"text of {name}",), self.found[name], (goal,)
            )

        return measured

    def __call__(self, *flags: str) -> int:
        self._patch.setattr(sys, "argv", ["run.py", *flags])
        return int(run.main())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The command, where nothing has been measured yet."""
    return Bench(tmp_path, monkeypatch)


@pytest.mark.parametrize(("met", "verdict"), [(True, "met"), (None, "not judged")])
def test_a_run_as_expected_passes_and_writes_the_page(
    bench: Bench, capsys: pytest.CaptureFixture[str], met: bool | None, verdict: str
) -> None:
    """The goal is met, or not judged, and the ratio within its tolerance: nothing is an
    error.
    """
    bench.found = {"poll": {"poll.cost": 0.039}}
    bench.met = {"poll": met}
    assert bench("--only", "poll") == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert f"{verdict:12}goal of poll: 3 (goal: below 2)\n" in output.out
    page = bench.page.read_text("utf-8")
    assert "## Title of poll\n\ntext of poll\n" in page
    assert f"| goal of poll | below 2 | 3 | {verdict} |" in page


@pytest.mark.parametrize("flags", [(), ("--quick",)], ids=["run", "quick"])
def test_a_missed_goal_and_a_regression_fail_the_run(
    bench: Bench, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    """The exit code is 1, and the error has section, goal and value, or the ratio.

    A quick look does compare, but writes nothing: its numbers are too rough for the
    page.
    """
    bench.found = {"poll": {"poll.cost": 0.08}, "start": {"start.memory": 1.2}}
    bench.met = {"start": False}
    assert bench("--only", "poll", "start", *flags) == 1
    output = capsys.readouterr()
    assert sorted(output.err.splitlines()) == [
        "error: poll.cost: REGRESSION",
        "error: start: goal missed: goal of start: 3 (goal: below 2)",
    ]
    assert "MISSED      goal of start: 3" in output.out
    assert "| 0.08 | 0.04 | 10% | **REGRESSION** |" in output.out
    assert bench.page.exists() == (not flags)
    if not flags:
        row = "| goal of start | below 2 | 3 | **missed** |"
        assert row in bench.page.read_text("utf-8")
