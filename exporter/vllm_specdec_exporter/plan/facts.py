"""Facts of a deployment that no file tells: what the operator says, or that it is not known."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import StrEnum


class Objective(StrEnum):
    """What matters most."""

    TPOT = "tpot"
    """Time per output token."""
    THROUGHPUT = "throughput"
    TTFT = "ttft"
    """Time to first token."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the operator says; ``None`` and an empty tuple: not known, and never assumed.

    Attributes:
        temperatures: sampling temperatures in production, from 0 up.
        objective: what matters most.
        same_family: whether target and draft are of one family (a head: made for this target).
        same_tokenizer: whether they share the tokenizer.
        uniform_batch: whether the requests of a batch are alike.
        validated: whether acceptance was measured at production's temperature.
        monitored: whether acceptance is monitored.
    """

    temperatures: tuple[float, ...] = ()
    objective: Objective | None = None
    same_family: bool | None = None
    same_tokenizer: bool | None = None
    uniform_batch: bool | None = None
    validated: bool | None = None
    monitored: bool | None = None

    @property
    def median_temperature(self) -> float | None:
        """The median of the temperatures."""
        return statistics.median(self.temperatures) if self.temperatures else None

    @property
    def temperature_spread(self) -> float | None:
        """The greatest temperature less the least."""
        if not self.temperatures:
            return None
        return round(max(self.temperatures) - min(self.temperatures), 9)
