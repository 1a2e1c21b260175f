"""Speculation: what the operator says of vLLM's ``--speculative-config``, and that JSON written anew."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from .economics.schedule import ScheduleRow

if TYPE_CHECKING:
    from collections.abc import Iterable

_K = "num_speculative_tokens"
_SCHEDULE = "num_speculative_tokens_per_batch_size"
_ROW = ("first batch size", "last batch size", "K")


@dataclass(frozen=True, slots=True)
class Speculation:
    """What the operator says of the server's ``--speculative-config``.

    Attributes:
        configured: whether the server was given one.
        method: how drafts are made, such as ``eagle3`` or ``ngram``.
        draft_model: the model that makes them.
        num_speculative_tokens: K.
        document: the JSON itself.
        schedule: K by batch size, where the JSON has it.
    """

    configured: bool = False
    method: str = ""
    draft_model: str = ""
    num_speculative_tokens: int | None = None
    document: str = ""
    schedule: tuple[ScheduleRow, ...] = ()

    def scheduled_k(self, requests: float | None) -> int | None:
        """Return the K that the schedule has for a batch of so many requests; ``None`` without a schedule."""
        if not self.schedule or requests is None:
            return None
        batch = max(1.0, requests)
        return next(
            (r.num_speculative_tokens for r in self.schedule if batch <= r.last),
            self.schedule[-1].num_speculative_tokens,
        )

    def with_k(self, k: int, schedule: Iterable[ScheduleRow] = ()) -> str:
        """Return the JSON with another K, to paste, and with rows by batch size in place of any it has."""
        document = json.loads(self.document) if self.document else {}
        document.pop(_SCHEDULE, None)
        document[_K] = k
        rows = [[row.first, row.last, row.num_speculative_tokens] for row in schedule]
        if rows:
            document[_SCHEDULE] = rows
        return json.dumps(document)


def parse_schedule(rows: object) -> tuple[ScheduleRow, ...]:
    """Return the rows of ``num_speculative_tokens_per_batch_size``, by rising batch size.

    Raises:
        ValueError: what vLLM could not take either.
    """
    if rows is None:
        return ()
    if not isinstance(rows, list) or not all(_is_row(row) for row in rows):
        msg = f"{_SCHEDULE} is a list of rows [{', '.join(_ROW)}], such as [[1, 64, 3], [65, 512, 0]]"
        raise ValueError(msg)
    found = tuple(ScheduleRow(*row) for row in rows)
    if any(not 1 <= row.first <= row.last or row.num_speculative_tokens < 0 for row in found) or any(
        row.last >= after.first for row, after in pairwise(found)
    ):
        msg = f"{_SCHEDULE}: rows go from a first to a last batch size, from 1 up, rise and do not overlap"
        raise ValueError(msg)
    return found


def _is_row(row: object) -> bool:
    return (
        isinstance(row, list)
        and len(row) == len(_ROW)
        and all(type(number) is int and abs(number) < 2**31 for number in row)
    )


def names_drafter(config: str) -> bool:
    """Tell whether a JSON says how drafts are made, so that it can be given to vLLM as it stands."""
    return '"method"' in config or '"model"' in config
