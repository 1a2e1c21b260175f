"""A dashboard: grafanalib's class without what Grafana has dropped, and panels laid out in rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attr
from grafanalib import core
from grafanalib._gen import DashboardEncoder  # what its own command writes with

from .field import Json
from .panel import Panel, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


#: Of Grafana 10.4; later versions migrate from it.
SCHEMA_VERSION = 39
TAG = "vllm-specdec"
COLUMNS = 24

_DROPPED = ("__inputs", "gnetId", "hideControls", "id", "rows", "sharedCrosshair", "style", "version")


@attr.s(auto_attribs=True, kw_only=True)
class Dashboard(core.Dashboard):
    """A dashboard that answers one question.

    Attributes:
        uid: of its address; never changes.
        title: what it is called.
        description: the question that it answers.
        sections: headings, each with its panels; an empty heading has no row.
        folded: headings below which nothing is shown until somebody clicks them; they come last.
        variables: what can be chosen.
        marks: annotations.
        links: to other dashboards.
    """

    uid: str = ""
    title: str = ""
    description: str = ""
    sections: Sequence[tuple[str, Sequence[Panel]]] = ()
    folded: Sequence[str] = ()
    variables: Sequence[Json] = ()
    marks: Sequence[Json] = ()
    links: Sequence[Json] = ()

    def to_json_data(self) -> Json:
        """Return Grafana's JSON."""
        document: Json = super().to_json_data()
        for key in _DROPPED:
            document.pop(key, None)
        document.update(
            {
                "annotations": {"list": list(self.marks)},
                "editable": False,
                "graphTooltip": 1,
                "links": list(self.links),
                "panels": list(_laid_out(self.sections, self.folded)),
                "refresh": "30s",
                "schemaVersion": SCHEMA_VERSION,
                "tags": [TAG],
                "templating": {"list": list(self.variables)},
                "time": {"from": "now-3h", "to": "now"},
                "timepicker": {},
                "timezone": "browser",
            }
        )
        return document


def encode(dashboard: Dashboard) -> str:
    """Return the text of the JSON file: sorted, without nulls but where Grafana means one."""
    plain = json.loads(json.dumps(dashboard, cls=DashboardEncoder))
    return json.dumps(_without_nulls(plain), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _laid_out(
    sections: Iterable[tuple[str, Sequence[Panel]]], folded: Sequence[str]
) -> Iterator[Panel | Row]:
    """Yield the panels with ids and places: from left to right, a new line where one does not fit.

    A folded row holds its panels, in the places that they have once it is opened.
    """
    y, number = 0, 0
    for heading, panels in sections:
        row = None
        if heading:
            number += 1
            row = Row(title=heading, id=number, gridPos=_place(0, y, COLUMNS, 1))
            y += 1
        x, tallest, placed = 0, 0, list[Panel]()
        for panel in panels:
            if x + panel.width > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            number += 1
            placed.append(attr.evolve(panel, id=number, gridPos=_place(x, y, panel.width, panel.rows)))
            x, tallest = x + panel.width, max(tallest, panel.rows)
        y += tallest
        if row is not None and heading in folded:
            yield attr.evolve(row, folded=placed)
            continue
        if row is not None:
            yield row
        yield from placed


def _place(x: int, y: int, width: int, height: int) -> Json:
    return {"h": height, "w": width, "x": x, "y": y}


def _without_nulls(value: Any, key: str = "") -> Any:
    """Drop nulls; the first step of a scale keeps its own, which means "from anywhere on"."""
    if isinstance(value, dict):
        return {
            name: _without_nulls(inner, name)
            for name, inner in value.items()
            if inner is not None or (key == "steps" and name == "value")
        }
    if isinstance(value, list):
        return [_without_nulls(inner, key) for inner in value]
    return value
