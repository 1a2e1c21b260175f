"""Progress of a sweep: one updated line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

from .record import Status

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from .grid import Cell
    from .record import CellResult

_BAR = 20


class SweepProgress:
    """Receives the events of a sweep, and prints nothing."""

    def say(self, words: str) -> None:
        """A message."""

    def begin(self, total: int, done: int) -> None:
        """The sweep has `total` cells, of which `done` are measured already."""

    def cell(self, cell: Cell, requests: int) -> None:
        """A cell starts."""

    def answered(self) -> None:
        """A request has ended."""

    def finished(self, result: CellResult) -> None:
        """A cell has ended."""

    def end(self) -> None:
        """The sweep has ended."""


class Lines(SweepProgress):
    """Prints a line for each cell; `clock` is monotonic, in seconds."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._total = self._done = self._measured = 0
        self._started = 0.0
        self._requests = self._answers = 0
        self._cell: Cell | None = None

    def say(self, words: str) -> None:
        """Print a message."""
        self._write(f"{words}\n")

    def begin(self, total: int, done: int) -> None:
        """Print the number of cells."""
        self._total, self._done, self._started = total, done, self._clock()
        there = f", of which {done} are measured already" if done else ""
        self.say(f"{total} cells{there}")

    def cell(self, cell: Cell, requests: int) -> None:
        """Store the present cell."""
        self._cell, self._requests, self._answers = cell, requests, 0

    def answered(self) -> None:
        """Count a response."""
        self._answers += 1

    def finished(self, result: CellResult) -> None:
        """Print the result of the cell."""
        self._count()
        eta = self.eta()
        left = f"; about {span(eta)} left" if eta is not None and self._done < self._total else ""
        self.say(f"[{self._done}/{self._total}] {result.cell.name}: {outcome(result)}{left}")

    def _count(self) -> None:
        self._done += 1
        self._measured += 1
        self._answers = 0

    def eta(self) -> float | None:
        """Return the estimated seconds for the rest, from the cells of this run."""
        share = self._answers / self._requests if self._requests else 0.0
        measured = self._measured + share
        if measured < 0.25:
            return None
        return (self._clock() - self._started) / measured * max(0.0, self._total - self._done - share)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class ProgressBar(Lines):
    """Updates one line of a terminal of `width` columns."""

    def __init__(self, stream: TextIO, width: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream, clock)
        self._width = width

    def say(self, words: str) -> None:
        """Print a message above the line."""
        self._write(f"\r\x1b[K{words}\n")
        self._draw()

    def cell(self, cell: Cell, requests: int) -> None:
        """Show the new cell."""
        super().cell(cell, requests)
        self._draw()

    def answered(self) -> None:
        """Show the response."""
        super().answered()
        self._draw()

    def finished(self, result: CellResult) -> None:
        """Print a line only for a cell that needs attention."""
        if result.status is not Status.OK or result.errors:
            super().finished(result)
        else:
            self._count()
            self._draw()

    def end(self) -> None:
        """Remove the line."""
        self._cell = None
        self._write("\r\x1b[K")

    def line(self) -> str:
        """Return the present line."""
        share = (self._done + (self._answers / self._requests if self._requests else 0)) / max(1, self._total)
        filled = round(_BAR * min(1.0, share))
        eta = self.eta()
        left = "" if eta is None else f"  {span(eta)} left"
        name = "" if self._cell is None else f"  {self._cell.name} ({self._answers}/{self._requests})"
        text = f"[{'#' * filled}{'.' * (_BAR - filled)}] {self._done}/{self._total} cells{left}{name}"
        return text[: self._width - 1]

    def _draw(self) -> None:
        if self._cell is not None:
            self._write(f"\r\x1b[K{self.line()}")


def outcome(result: CellResult) -> str:
    """Return a short result of a cell."""
    if result.status is Status.FAILED:
        return f"failed: {'; '.join(result.reasons)}"
    acceptance = result.acceptance_ratio
    words = "no drafts" if acceptance is None else f"acceptance {acceptance:.2f}"
    rate = result.tokens_per_second
    words += "" if rate is None else f", {rate:.1f} tokens/s"
    if result.status is Status.DISTURBED:
        return f"{words}; disturbed: {'; '.join(result.reasons)}"
    return words + (f"; {'; '.join(result.reasons)}" if result.reasons else "")


def span(seconds: float) -> str:
    """Return a rough duration: ``40s``, ``3m``, ``1h20m``."""
    if seconds < 60:
        return f"{max(1, round(seconds))}s"
    minutes = round(seconds / 60)
    return f"{minutes}m" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def show_progress(*, quiet: bool) -> SweepProgress:
    """Return a bar on a terminal, else lines; nothing if `quiet`."""
    if quiet:
        return SweepProgress()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return ProgressBar(sys.stderr, shutil.get_terminal_size().columns)
    return Lines(sys.stderr)
