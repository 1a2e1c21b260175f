"""A dashboard: grafanalib's class without what Grafana has dropped, and panels laid out
in rows.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attr
from grafanalib import core

from mixin import COMMITTED_RUNBOOKS, Mixin

from .field import Json
from .links import to_all
from .panel import PLACEHOLDER, PLUGIN_VERSION, Panel, Row
from .variables import INPUT

#: Of Grafana 10.4; later versions migrate from it.
SCHEMA_VERSION = 39
#: The first one is of these dashboards alone: links between them find it.
TAGS = ("vllm-specdec", "vllm", "speculative-decoding")
FAMILY = "vLLM / Speculative decoding"
COLUMNS = 24
#: Where the documentation is: beside the runbooks that alerts link to.
DOCS = COMMITTED_RUNBOOKS.replace("alerts/runbooks", "docs/")

#: Series of engines, up to the matcher of their model, and the matchers that choose
#: among them.
_ENGINES = re.compile(
    r'(?<![\w:])((?:engine:)?vllm_specdec_[\w:]+\{[^{}]*model_name=\\"\$model_name\\")'
)
_CHOSEN = r'\1,pod=~\\"$pod\\",engine=~\\"$engine\\"'

_DROPPED = (
    "gnetId",
    "hideControls",
    "id",
    "rows",
    "sharedCrosshair",
    "style",
    "version",
)


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
        names: those of a Prometheus and a Grafana.
        of_one_model: whether one model is shown, by its exact name, and a choice of its
            pods and engines.
    """

    uid: str = ""
    title: str = ""
    description: str = ""
    page: str = ""
    sections: Sequence[tuple[str, Sequence[Panel]]] = ()
    folded: Sequence[str] = ()
    variables: Sequence[Json] = ()
    marks: Sequence[Json] = ()
    names: Mixin = Mixin()
    of_one_model: bool = False

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
                "links": to_all(
                    self.names.tags or TAGS[:1],
                    "" if PLACEHOLDER in DOCS else DOCS + "dashboards.md",
                ),
                "panels": list(self._laid_out()),
                "refresh": "30s",
                "schemaVersion": SCHEMA_VERSION,
                "tags": list(self.names.tags or TAGS),
                "templating": {"list": list(self.variables)},
                "time": {"from": "now-3h", "to": "now"},
                "timepicker": {},
                "timezone": "browser",
                "title": f"{FAMILY} / {self.title}",
            }
        )
        return document

    def _laid_out(self) -> Iterator[Panel | Row]:
        """Yield the panels with ids and places: from left to right, a new line where
        one does not fit.

        A folded row holds its panels, in their places below it; Grafana moves the rest
        down when it is opened.
        """
        page = DOCS + self.page
        interval = self.names.scrape_interval or None
        y = 0
        number = 0
        for heading, panels in self.sections:
            row = None
            if heading:
                number += 1
                row = Row(title=heading, id=number, gridPos=_place(0, y, COLUMNS, 1))
                y += 1
            x = 0
            line = y
            tallest = 0
            placed = list[Panel]()
            for panel in panels:
                if x + panel.width > COLUMNS:
                    x = 0
                    line = line + tallest
                    tallest = 0
                number += 1
                at = _place(x, line, panel.width, panel.rows)
                placed.append(
                    attr.evolve(
                        panel, id=number, gridPos=at, page=page, interval=interval
                    )
                )
                x = x + panel.width
                tallest = max(tallest, panel.rows)
            if row is not None and heading in self.folded:
                yield attr.evolve(row, folded=placed)
                continue
            if row is not None:
                yield row
            yield from placed
            y = line + tallest


def encode(dashboard: Dashboard, names: Mixin) -> str:
    """Return the text of the JSON file: sorted, without nulls but where Grafana means
    one.
    """
    document = names.fill(_plain(attr.evolve(dashboard, names=names)))
    if dashboard.of_one_model:
        document = json.loads(_of_one_model(json.dumps(document)))
        document["panels"] = json.loads(
            _ENGINES.sub(_CHOSEN, json.dumps(document["panels"]))
        )
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _of_one_model(text: str) -> str:
    """Return a document without regular expressions of the model.

    Grafana does not escape a single value.
    """
    exact = text.replace(
        'model_name=~\\"$model_name\\"', 'model_name=\\"$model_name\\"'
    )
    return exact.replace("$model_name|", "${model_name:regex}|")


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
    """Yield the Grafana and plugins that a dashboard needs; all come with Grafana."""
    yield {
        "type": "grafana",
        "id": "grafana",
        "name": "Grafana",
        "version": PLUGIN_VERSION,
    }
    yield {
        "type": "datasource",
        "id": "prometheus",
        "name": "Prometheus",
        "version": "1.0.0",
    }
    for kind in sorted({panel.KIND for _, panels in sections for panel in panels}):
        yield {
            "type": "panel",
            "id": kind,
            "name": kind.replace("-", " ").capitalize(),
            "version": "",
        }


def _place(x: int, y: int, width: int, height: int) -> Json:
    return {"h": height, "w": width, "x": x, "y": y}


def _plain(value: Any, key: str = "") -> Any:
    """Return grafanalib's objects as JSON has them, without nulls.

    The first step of a scale keeps its own, which means "from anywhere on".
    """
    if hasattr(value, "to_json_data"):
        return _plain(value.to_json_data(), key)
    if isinstance(value, dict):
        return {
            name: _plain(inner, name)
            for name, inner in value.items()
            if inner is not None or (key == "steps" and name == "value")
        }
    if isinstance(value, list | tuple):
        return [_plain(inner, key) for inner in value]
    return value
