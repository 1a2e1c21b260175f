"""Checks of where panels stand in the grid of 24 columns."""

from __future__ import annotations

from itertools import combinations, groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .document import Dashboard, Panel

COLUMNS = 24


def _touch(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def overlaps(dashboard: Dashboard) -> list[str]:
    """No two panels overlap."""
    return [
        f"{one.place} and {other.place} overlap"
        for one, other in combinations(dashboard.all_panels, 2)
        if _touch(one.box[::2], other.box[::2]) and _touch(one.box[1::2], other.box[1::2])
    ]


def columns(dashboard: Dashboard) -> list[str]:
    """No panel leaves the grid, and a heading is as wide as it."""
    found = []
    for panel in dashboard.all_panels:
        left, top, right, bottom = panel.box
        if left < 0 or top < 0 or right > COLUMNS or right <= left or bottom <= top:
            found.append(f"{panel.place} is at {panel.box}")
        if panel.kind == "row" and (left, right, bottom - top) != (0, COLUMNS, 1):
            found.append(f"the heading {panel.place} is at {panel.box}")
    return found


def holes(dashboard: Dashboard) -> list[str]:
    """Panels that begin on one line fill it, side by side, and are of one height."""
    found = []
    lines = groupby(sorted(dashboard.all_panels, key=_reading_order), key=lambda panel: panel.box[1])
    for top, line in lines:
        at = 0
        panels = list(line)
        for panel in panels:
            if panel.box[0] != at:
                found.append(f"a hole before {panel.place}, in columns {at} to {panel.box[0]} of line {top}")
            at = panel.box[2]
        if at != COLUMNS:
            found.append(f"a hole behind {panels[-1].place}, from column {at} of line {top} on")
        if len({panel.box[3] for panel in panels}) > 1:
            found.append(f"panels of different heights beside {panels[0].place}, in line {top}")
    return found


def floating(dashboard: Dashboard) -> list[str]:
    """Every panel stands right below another: Grafana would move it up."""
    found = []
    for panel in dashboard.all_panels:
        above = [
            other.box[3]
            for other in dashboard.all_panels
            if other.box[3] <= panel.box[1] and _touch(other.box[::2], panel.box[::2])
        ]
        if max(above, default=0) != panel.box[1]:
            found.append(f"{panel.place} floats at line {panel.box[1]}: there is room above it")
    return found


def reading_order(dashboard: Dashboard) -> list[str]:
    """Panels stand in the file as they are read."""
    panels = list(dashboard.all_panels)
    ordered = sorted(panels, key=_reading_order)
    return [
        f"{one.place} stands where {other.place} is read"
        for one, other in zip(panels, ordered, strict=True)
        if one is not other and one.box != other.box
    ][:1]


def _reading_order(panel: Panel) -> tuple[int, int]:
    return panel.box[1], panel.box[0]
