"""Progress: a line for each cell, and what is left."""

import io

import pytest

from sweep.records import result
from vllm_specdec_exporter.commands.sweep.record import CellResult, Status
from vllm_specdec_exporter.commands.sweep.runner import SweepProgress, outcome


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_tell_each_cell_and_what_is_left_of_each_sweep() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = SweepProgress(stream, clock)
    for _ in range(2):  # `calibrate` measures several sweeps
        progress.begin(3)
        clock.now += 40
        progress.finished(result(0.4, 0.71, concurrency=4))
    assert (
        stream.getvalue().splitlines()
        == [
            "3 cells",
            "[1/3] code, temperature 0.4, concurrency 4: acceptance 0.71, 163.8 tokens/s; about 1m20s left",
        ]
        * 2
    )


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (result(0.8, None, status=Status.FAILED, reasons=("broke",)), "failed: broke"),
        (result(0.8, None), "no drafts, 163.8 tokens/s"),
        (
            result(0.4, 0.7, status=Status.DISTURBED, reasons=("others",)),
            "acceptance 0.70, 163.8 tokens/s; disturbed: others",
        ),
        (result(0.4, 0.7, reasons=("1 error",)), "acceptance 0.70, 163.8 tokens/s; 1 error"),
    ],
)
def test_a_cell_is_told_with_its_trouble(cell: CellResult, words: str) -> None:
    assert outcome(cell) == words
