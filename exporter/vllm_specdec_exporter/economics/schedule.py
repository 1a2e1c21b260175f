"""The K schedule: which K pays best at which batch size, as vLLM takes it.

vLLM's `num_speculative_tokens_per_batch_size` has rows of first batch size, last batch size and K. Rows start
at 1, do not overlap, and the last K goes on beyond the last row; a K of 0 switches speculation off. vLLM
ignores the whole schedule with data parallelism, which would let ranks choose differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .cost import CostProfile

#: Where the last row ends; a batch larger than this is not met in practice.
LARGEST_BATCH = 1024


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """From `first` to `last` requests in the batch, draft `num_speculative_tokens`; 0 is none."""

    first: int
    last: int
    num_speculative_tokens: int


def make_schedule(
    lengths: Sequence[float],
    profile: CostProfile,
    largest: int = LARGEST_BATCH,
    prefer: int = 0,
    minimum_gain: float = 0.0,
) -> tuple[ScheduleRow, ...]:
    """Return the rows for batches of 1 to `largest` requests.

    Acceptance is taken not to depend on the batch. No K beyond the present one is scheduled, because vLLM
    allows none.

    Args:
        lengths: at index i, the mean acceptance length of K = i + 1.
        profile: what steps cost.
        largest: the largest batch to plan for, at least 1.
        prefer: a K to take wherever it pays and no other gains enough: the one advised for the present load.
        minimum_gain: relative gain in speedup from which on another K is worth a row of its own, from 0 up.
    """

    def best(batch: int) -> int:
        speedups = [length / profile.step_cost(k, batch) for k, length in enumerate(lengths, 1)]
        top = max(speedups, default=0.0)
        if 0 < prefer <= len(speedups) and speedups[prefer - 1] >= max(1.0, top / (1 + minimum_gain)):
            return prefer
        return speedups.index(top) + 1 if top > 1 else 0

    rows: list[ScheduleRow] = []
    for first, last in _runs(1, largest, best):
        k = best(first)
        if rows and rows[-1].num_speculative_tokens == k:
            rows[-1] = ScheduleRow(rows[-1].first, last, k)
        else:
            rows.append(ScheduleRow(first, last, k))
    return tuple(rows)


def _runs(first: int, last: int, best: Callable[[int], int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of batch sizes with the same best K, found by halving.

    The best K moves one way only as the batch grows: what a further token costs, relative to a plain step,
    is a ratio of two straight lines, which does not turn.
    """
    if first == last or best(first) == best(last):
        yield first, last
        return
    middle = (first + last) // 2
    yield from _runs(first, middle, best)
    yield from _runs(middle + 1, last, best)
