"""What one part of the benchmark found: text for the page, ratios for the comparison, goals."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Goal:
    """A promise, and whether it is kept.

    Attributes:
        what: is promised.
        limit: as text, with its unit.
        found: as text, with its unit.
        met: whether it is kept.
    """

    what: str
    limit: str
    found: str
    met: bool


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        title: its heading.
        lines: Markdown below the heading.
        ratios: what does not depend on the machine, by the names in `expected.json`.
        goals: what was promised of it.
        measured: the day, as in ISO 8601.
        others: share of the machine that other processes took meanwhile, 0 to 1; unknown for ``None``.
        priority: whether the benchmark's processes had real-time priority.
    """

    title: str
    lines: tuple[str, ...]
    ratios: dict[str, float] = field(default_factory=dict)
    goals: tuple[Goal, ...] = ()
    measured: str = ""
    others: float | None = None
    priority: bool = False

    def document(self) -> dict[str, Any]:
        """Return what JSON holds of it."""
        return asdict(self)

    @classmethod
    def of(cls, document: dict[str, Any]) -> Section:
        """Return the section that a document of `document` describes."""
        goals = tuple(Goal(**goal) for goal in document["goals"])
        return cls(**{**document, "lines": tuple(document["lines"]), "goals": goals})
