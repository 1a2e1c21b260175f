"""Lately: counts by name within the window, and what of a counter that only grows falls into it."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from .recent import SLICES

if TYPE_CHECKING:
    from collections.abc import Mapping


class Lately:
    """What was counted within the last `seconds`, by name. Names are few: all are kept."""

    def __init__(self, seconds: float) -> None:
        self._length = seconds / SLICES
        self._slices: deque[tuple[int, Counter[str]]] = deque()

    def add(self, name: str, time: float, count: int = 1) -> None:
        """Count `count` more at `time`, in seconds of a clock that never goes back."""
        number = int(time // self._length)
        if not self._slices or self._slices[-1][0] < number:
            self._forget(number)
            self._slices.append((number, Counter()))
        self._slices[-1][1][name] += count

    def counts(self, time: float) -> Counter[str]:
        """Return what the window holds at `time`."""
        self._forget(int(time // self._length))
        found: Counter[str] = Counter()
        for _, part in self._slices:
            found.update(part)
        return found

    def _forget(self, number: int) -> None:
        while self._slices and self._slices[0][0] <= number - SLICES:
            self._slices.popleft()


def growth(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Return by how much counters have grown; those that have not are left out."""
    return {name: count - before.get(name, 0) for name, count in now.items() if count > before.get(name, 0)}
