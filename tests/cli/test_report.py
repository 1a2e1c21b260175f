"""The report of `check` as text: golden files.

`UPDATE_GOLDEN=1 pytest tests/cli` writes the files anew; look at the difference before it is committed.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from golden.cases import CASES, Case, run
from vllm_specdec_exporter import report

HERE = Path(__file__).parent / "golden"
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")

#: One of each kind; the values are those of the golden `/metrics` files.
NAMES = (
    "ngram-steady",
    "ngram-collapse",
    "ngram-idle",
    "ngram-torn",
    "nospec",
    "nospec-though-configured",
    "v0-with-spec-config",
    "diffusion",
    "llamacpp",
    "not-polled-yet",
    "two-targets-one-down",
)
SHOWN = [case for case in CASES if case.name in NAMES]

every_case = pytest.mark.parametrize("case", SHOWN, ids=str)


@every_case
def test_the_report_is_the_golden_file(case: Case) -> None:
    """Every byte of the report is as committed."""
    path = HERE / f"{case.name}.txt"
    now = report.render(run(case)) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        HERE.mkdir(exist_ok=True)
        path.write_text(now, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == now


def test_every_golden_report_belongs_to_a_case() -> None:
    """No file is left over from a case that is gone."""
    assert {f"{name}.txt" for name in NAMES} == {path.name for path in HERE.iterdir()}


@every_case
def test_colours_change_nothing_but_the_colour(case: Case) -> None:
    """Without its escape codes, the coloured report is the plain one: not a line is broken elsewhere."""
    painted = report.render(run(case), colour=True)
    assert painted != report.render(run(case))
    assert ESCAPES.sub("", painted) == report.render(run(case))


@every_case
def test_lines_fit_into_a_terminal(case: Case) -> None:
    """No line is longer than 100 columns, and none ends in blanks."""
    lines = report.render(run(case)).splitlines()
    assert [line for line in lines if len(line) > 100] == []
    assert [line for line in lines if line != line.rstrip()] == []


def test_long_names_and_messages_fit_too() -> None:
    """Whatever a server calls its model, and whatever went wrong, lines are wrapped; a word stays whole."""
    (case,) = (case for case in CASES if case.name == "two-targets-one-down")
    result = run(case)
    up, down = result.targets
    assert down.failure is not None
    message = f"no trusted TLS connection: {'certificate ' * 20}"
    engines = tuple(replace(engine, model_name="org/a-model-" + "x" * 40) for engine in up.engines)
    down = replace(down, failure=replace(down.failure, message=message))
    lines = report.render(replace(result, targets=(replace(up, engines=engines), down))).splitlines()
    assert [line for line in lines if len(line) > 100] == []
