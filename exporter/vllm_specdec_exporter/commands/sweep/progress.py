"""Progress of a sweep: a line for each cell, with the estimated time for the rest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...config.values import format_duration
from .record import Status

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from .record import CellResult


class SweepProgress:
    """Writes to `stream`, or nothing without one; `clock` is monotonic, in seconds."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._total = self._done = 0
        self._started = 0.0

    def say(self, words: str) -> None:
        """Print a message."""
        if self._stream is not None:
            print(words, file=self._stream, flush=True)

    def begin(self, total: int) -> None:
        """Print that the sweep has `total` cells."""
        self._total, self._done, self._started = total, 0, self._clock()
        self.say(f"{total} cells")

    def finished(self, result: CellResult) -> None:
        """Print the result of a cell, and the estimate for the rest."""
        self._done += 1
        rest = (self._clock() - self._started) / self._done * (self._total - self._done)
        left = f"; about {format_duration(float(round(rest)))} left" if self._done < self._total else ""
        self.say(f"[{self._done}/{self._total}] {result.cell.name}: {outcome(result)}{left}")


def outcome(result: CellResult) -> str:
    """Return a short result of a cell."""
    reasons = "; ".join(result.reasons)
    if result.status is Status.FAILED:
        return f"failed: {reasons}"
    acceptance = result.acceptance_ratio
    words = "no drafts" if acceptance is None else f"acceptance {acceptance:.2f}"
    if result.tokens_per_second is not None:
        words += f", {result.tokens_per_second:.1f} tokens/s"
    if result.status is Status.DISTURBED:
        return f"{words}; disturbed: {reasons}"
    return f"{words}; {reasons}" if reasons else words
