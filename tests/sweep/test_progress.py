"""Progress: a line on a terminal, lines elsewhere."""

import io

from sweep.records import result
from vllm_specdec_exporter.commands.sweep.grid import Cell
from vllm_specdec_exporter.commands.sweep.progress import Lines, ProgressBar, span
from vllm_specdec_exporter.commands.sweep.record import Status

CELL = Cell("code", 4, 0.4)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_tell_each_cell_and_what_is_left() -> None:
    stream, clock = io.StringIO(), Clock()
    lines = Lines(stream, clock)
    lines.begin(4, 1)
    lines.cell(CELL, 2)
    clock.now = 30
    lines.finished(result(0.4, 0.71, concurrency=4))
    lines.cell(CELL, 2)
    clock.now = 60
    lines.finished(result(0.8, None, status=Status.FAILED, reasons=("broke",)))
    assert stream.getvalue().splitlines() == [
        "4 cells, of which 1 are measured already",
        "[2/4] code, temperature 0.4, concurrency 4: acceptance 0.71, 163.8 tokens/s; about 1m left",
        "[3/4] code, temperature 0.8, concurrency 1: failed: broke; about 30s left",
    ]


def test_the_bar_is_drawn_over_itself_and_taken_away() -> None:
    stream, clock = io.StringIO(), Clock()
    bar = ProgressBar(stream, 100, clock)
    bar.begin(4, 0)
    bar.cell(CELL, 4)
    for _ in range(2):
        clock.now += 10
        bar.answered()
    assert bar.line() == (
        "[##..................] 0/4 cells  2m left  code, temperature 0.4, concurrency 4 (2/4)"
    )
    bar.finished(result(0.4, 0.71))
    assert bar.line().startswith("[#####...............] 1/4 cells")
    bar.end()
    shown = stream.getvalue()
    assert shown.endswith("\r\x1b[K")
    assert shown.count("\n") == 1  # only the line with the number of cells


def test_a_cell_with_trouble_gets_a_line_also_beside_the_bar() -> None:
    stream = io.StringIO()
    bar = ProgressBar(stream, 100, Clock())
    bar.begin(2, 0)
    bar.cell(CELL, 4)
    bar.finished(result(0.4, 0.7, status=Status.DISTURBED, reasons=("others",)))
    assert "code, temperature 0.4, concurrency 1: acceptance 0.70, 163.8 tokens/s; disturbed: others" in (
        stream.getvalue()
    )


def test_the_bar_is_never_wider_than_the_terminal() -> None:
    for width in (10, 40, 80):
        bar = ProgressBar(io.StringIO(), width, Clock())
        bar.begin(100, 99)
        bar.cell(Cell("a" * 200, 4, 0.4), 4)
        assert len(bar.line()) < width


def test_spans_are_rough() -> None:
    spans = {0: "1s", 59.4: "59s", 61: "1m", 3599: "1h00m", 4800: "1h20m"}
    assert {seconds: span(seconds) for seconds in spans} == spans
