"""Tables from several queries: one row for each series, one column for each query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .field import Json, named
from .panel import Table
from .target import columns

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Column:
    """A column: its heading, its query, and what its cells look like."""

    title: str
    expr: str
    unit: str = "short"
    decimals: int | None = None
    width: int | None = None
    mappings: Sequence[Json] = ()
    filled: bool = False

    def override(self) -> Json:
        """Return how its cells look."""
        properties: dict[str, Any] = {"unit": self.unit}
        if self.decimals is not None:
            properties["decimals"] = self.decimals
        if self.width is not None:
            properties["custom__width"] = self.width
        if self.mappings:
            properties["mappings"] = list(self.mappings)
        if self.filled:
            properties["custom__cellOptions"] = {"type": "color-background", "mode": "basic"}
        return named(self.title, **properties)


def joined(
    title: str,
    description: str,
    labels: dict[str, str],
    values: Sequence[Column],
    hidden: Sequence[str] = (),
    overrides: Sequence[Json] = (),
    **more: Any,
) -> Table:
    """Return a table of queries that have the same labels.

    Args:
        title: of the panel.
        description: of the panel.
        labels: from label names to headings, in order; other labels must not occur.
        values: the columns behind them, in order.
        hidden: labels that links need and nobody needs to see.
        overrides: for the columns of labels.
        more: whatever else a panel takes.
    """
    # Grafana adds the letter where there are several queries only.
    several = len(values) > 1
    value_names = [f"Value #{chr(ord('A') + index)}" if several else "Value" for index in range(len(values))]
    order = [*labels, *value_names, *hidden]
    return Table(
        title=title,
        description=description,
        targets=[columns(value.expr) for value in values],
        reshape=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True},
                    "indexByName": {name: index for index, name in enumerate(order)},
                    "renameByName": {
                        **labels,
                        **dict(zip(value_names, (value.title for value in values), strict=True)),
                    },
                },
            },
        ],
        overrides=[
            *(value.override() for value in values),
            *(named(name, custom__hidden=True) for name in hidden),
            *overrides,
        ],
        **more,
    )
