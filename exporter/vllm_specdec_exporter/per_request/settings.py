"""Settings of how requests are grouped and judged."""

from __future__ import annotations

from dataclasses import dataclass

from .classification import Classification
from .grouping import Temperatures
from .tally import Bounds


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """How requests are grouped and judged.

    Attributes:
        classification: which type a request is of, and whose.
        temperatures: buckets of temperature.
        bounds: upper bounds of histograms.
        window_seconds: length of the window that judgement looks at.
    """

    classification: Classification = Classification()
    temperatures: Temperatures = Temperatures()
    bounds: Bounds = Bounds()
    window_seconds: float = 1800.0
