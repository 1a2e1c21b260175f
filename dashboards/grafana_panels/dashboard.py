"""A dashboard: grafanalib's class without what Grafana has dropped, and panels laid out in rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attr
from grafanalib import core
from grafanalib._gen import DashboardEncoder  # what its own command writes with

from alert_rules.yaml_text import RUNBOOKS

from .field import Json
from .panel import PLUGIN_VERSION, Panel, Row
from .variables import INPUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


#: Of Grafana 10.4; later versions migrate from it.
SCHEMA_VERSION = 39
#: The first one is of these dashboards alone: links between them find it.
TAGS = ("vllm-specdec", "vllm", "speculative-decoding")
FAMILY = "vLLM / Speculative decoding"
COLUMNS = 24
#: Where the documentation is: beside the runbooks that alerts link to.
DOCS = RUNBOOKS.replace("alerts/runbooks", "docs/")

_DROPPED = ("gnetId", "hideControls", "id", "rows", "sharedCrosshair", "style", "version")


@attr.s(auto_attribs=True, kw_only=True)
class Dashboard(core.Dashboard):
    """A dashboard.

    Attributes:
        uid: of its address; never changes.
        title: its name within the family.
        description: the question that it answers.
        page: of docs/, which descriptions of panels link to.
        sections: headings, each with its panels; an empty heading has no row.
        folded: headings below which nothing is shown until somebody opens them.
        variables: what can be chosen.
        marks: annotations.
        links: to other dashboards.
    """

    uid: str = ""
    title: str = ""
    description: str = ""
    page: str = ""
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
                "__inputs": [_input()],
                "__requires": list(_requirements(self.sections)),
                "annotations": {"list": list(self.marks)},
                "editable": True,
                "graphTooltip": 1,
                "links": list(self.links),
                "panels": list(_laid_out(self.sections, self.folded, DOCS + self.page)),
                "refresh": "30s",
                "schemaVersion": SCHEMA_VERSION,
                "tags": list(TAGS),
                "templating": {"list": list(self.variables)},
                "time": {"from": "now-3h", "to": "now"},
                "timepicker": {},
                "timezone": "browser",
                "title": f"{FAMILY} / {self.title}",
            }
        )
        return document


def encode(dashboard: Dashboard) -> str:
    """Return the text of the JSON file: sorted, without nulls but where Grafana means one."""
    plain = json.loads(json.dumps(dashboard, cls=DashboardEncoder))
    return json.dumps(_without_nulls(plain), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _input() -> Json:
    """Return what Grafana asks for at an import: the data source."""
    return {
        "name": INPUT,
        "label": "Prometheus",
        "description": "A Prometheus that scrapes the exporter.",
        "type": "datasource",
        "pluginId": "prometheus",
        "pluginName": "Prometheus",
    }


def _requirements(sections: Iterable[tuple[str, Sequence[Panel]]]) -> Iterator[Json]:
    """Yield the Grafana and the plugins that a dashboard needs; all come with Grafana."""
    yield {"type": "grafana", "id": "grafana", "name": "Grafana", "version": PLUGIN_VERSION}
    yield {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"}
    for kind in sorted({panel.KIND for _, panels in sections for panel in panels}):
        yield {"type": "panel", "id": kind, "name": kind.replace("-", " ").capitalize(), "version": ""}


def _laid_out(
    sections: Iterable[tuple[str, Sequence[Panel]]], folded: Sequence[str], page: str
) -> Iterator[Panel | Row]:
    """Yield the panels with ids and places: from left to right, a new line where one does not fit.

    A folded row holds its panels, in their places below it; Grafana moves the rest down when it is opened.
    """
    y, number = 0, 0
    for heading, panels in sections:
        row = None
        if heading:
            number += 1
            row = Row(title=heading, id=number, gridPos=_place(0, y, COLUMNS, 1))
            y += 1
        x, line, tallest, placed = 0, y, 0, list[Panel]()
        for panel in panels:
            if x + panel.width > COLUMNS:
                x, line, tallest = 0, line + tallest, 0
            number += 1
            at = _place(x, line, panel.width, panel.rows)
            placed.append(attr.evolve(panel, id=number, gridPos=at, page=page))
            x, tallest = x + panel.width, max(tallest, panel.rows)
        if row is not None and heading in folded:
            yield attr.evolve(row, folded=placed)
            continue
        if row is not None:
            yield row
        yield from placed
        y = line + tallest


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
