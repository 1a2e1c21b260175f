"""What one part of the benchmark found: text for the page, ratios for the comparison,
goals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: Of fewer values than this the 99th percentile is but the longest of them, and no goal
#: is judged by it.
FOR_A_PERCENTILE = 100


@dataclass(frozen=True)
class Goal:
    """A promise, and whether it is kept."""

    what: str  # is promised
    limit: str  # as text, with its unit
    found: str  # as text, with its unit
    #: Whether it is kept; None where the run cannot tell: too short, or too much
    #: disturbed.
    met: bool | None

    @property
    def verdict(self) -> str:
        """What became of it, in two words at most."""
        if self.met is None:
            return "not judged"
        if self.met:
            return "met"
        return "MISSED"


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str  # its heading
    lines: tuple[str, ...]  # Markdown below the heading
    #: What depends little on the machine, by the names in `expected.json`; None for one
    #: that the run cannot tell.
    ratios: Mapping[str, float | None] = field(default_factory=dict)
    goals: tuple[Goal, ...] = ()  # what was promised of it
    measured: str = ""  # the day, as in ISO 8601
    #: Share of the machine that other processes took meanwhile, 0 to 1; unknown for
    #: None.
    others: float | None = None
    priority: bool = False  # whether the benchmark's processes had real-time priority

    def document(self) -> dict[str, Any]:
        """Return what JSON holds of it."""
        return asdict(self)

    @classmethod
    def of(cls, document: dict[str, Any]) -> Section:
        """Return the section that a document of `document` describes."""
        goals = tuple(Goal(**goal) for goal in document["goals"])
        return cls(**{**document, "lines": tuple(document["lines"]), "goals": goals})
