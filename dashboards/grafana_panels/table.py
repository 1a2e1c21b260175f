"""Tables from several queries: one row for each series, one column for each query."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .field import Json, fixed, named, override
from .palette import BLUE
from .panel import Table, columns

#: Heading of the hidden column that rows are sorted by.
_RANK = "Rank"
#: Cell options of texts that may be longer than their column.
WRAPPED = {"type": "auto", "wrapText": True}
#: How columns of labels look in every table, by heading; other properties of a table
#: add to this.
LOOKS: Json = {
    "Cluster": {"custom__width": 58},
    "Namespace": {"custom__width": 90},
    "Pod": {"custom__width": 100, "custom__cellOptions": WRAPPED},
    "Engine": {"custom__width": 65},
    "Instance": {"custom__width": 125},
    "Model": {"custom__cellOptions": WRAPPED},
    "K": {"custom__width": 50},
}


@dataclass(frozen=True)
class Column:
    """A column: its heading, its query, and what its cells look like.

    Attributes:
        title: its heading.
        expr: its query.
        unit: Grafana's id of a unit.
        decimals: digits after the point.
        width: in pixels.
        mappings: from values to words.
        filled: whether the colour of a word fills the cell.
        bars: whether a bar shows the value, a share.
    """

    title: str
    expr: str
    unit: str = "short"
    decimals: int | None = None
    width: int | None = None
    mappings: Sequence[Json] = ()
    filled: bool = False
    bars: bool = False

    def override(self) -> Json:
        """Return how its cells look."""
        properties: dict[str, Any] = {"unit": self.unit}
        if self.decimals is not None:
            properties["decimals"] = self.decimals
        if self.width is not None:
            properties["custom__width"] = self.width
        if self.filled:
            properties |= filled(self.mappings)
        elif self.mappings:
            properties["mappings"] = list(self.mappings)
        if self.bars:
            properties["custom__cellOptions"] = {
                "type": "gauge",
                "mode": "basic",
                "valueDisplayMode": "text",
            }
            properties["color"] = fixed(BLUE)
            properties["min"] = 0
            properties["max"] = 1
        return named(self.title, **properties)


def filled(mappings: Sequence[Json]) -> Json:
    """Return the properties of cells that the colour of their word fills; those without
    a value have none.
    """
    steps = [{"color": "transparent", "value": None}]
    return {
        "mappings": list(mappings),
        "custom__cellOptions": {"type": "color-background", "mode": "basic"},
        "thresholds": {"mode": "absolute", "steps": steps},
    }


def joined_table(
    title: str,
    description: str,
    labels: dict[str, str],
    values: Sequence[Column],
    hidden: Sequence[str] = (),
    overrides: Sequence[Json] = (),
    numbered: str = "",
    ranked: str = "",
    **more: Any,
) -> Table:
    """Return a table of queries that have the same labels.

    Args:
        title: of the panel.
        description: of the panel.
        labels: from label names to headings, in order; other labels must not occur.
        values: the columns behind them, in order.
        hidden: labels that only links need.
        overrides: for the columns of labels.
        numbered: heading of a label whose values are numbers: rows are sorted by it, as
            numbers.
        ranked: query of a number for each row, by which they come in ascending order.
        more: whatever else a panel takes.
    """
    if ranked:
        values = [*values, Column(_RANK, ranked)]
        overrides = [*overrides, named(_RANK, custom__hidden=True)]
    # Grafana adds the letter where there are several queries only.
    several = len(values) > 1
    value_names = [
        f"Value #{chr(ord('A') + index)}" if several else "Value"
        for index in range(len(values))
    ]
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
                    "excludeByName": {"Time": True, "__name__": True},
                    "indexByName": {name: index for index, name in enumerate(order)},
                    "renameByName": {
                        **labels,
                        **dict(
                            zip(
                                value_names,
                                (value.title for value in values),
                                strict=True,
                            )
                        ),
                    },
                },
            },
            *(_by_number(numbered) if numbered else ()),
            *([_by(_RANK)] if ranked else ()),
        ],
        overrides=[
            *(override("byType", kind, noValue="-") for kind in ("number", "string")),
            *(value.override() for value in values),
            *(named(name, custom__hidden=True) for name in hidden),
            *(named(name, **LOOKS[name]) for name in labels.values() if name in LOOKS),
            *overrides,
        ],
        **more,
    )


def _by_number(column: str) -> list[Json]:
    """Return the transformations that sort rows by a label as a number: as a text, 10
    comes before 2.
    """
    conversion = {"targetField": column, "destinationType": "number"}
    return [
        {
            "id": "convertFieldType",
            "options": {"conversions": [conversion], "fields": {}},
        },
        _by(column),
    ]


def _by(column: str) -> Json:
    """Return the transformation that sorts rows by a column; equal ones stay in their
    order.
    """
    return {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": column}]}}
