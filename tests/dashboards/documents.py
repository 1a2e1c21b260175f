"""The committed dashboards, and the parts of their JSON that tests check."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from support.repository import ROOT, data_of

Json = Mapping[str, Any]


FOLDER = ROOT / "dashboards/json"
#: A variable, as Grafana takes it: `$name`, `${name}`, `${name:format}`.
VARIABLE = re.compile(
    r"\$(?P<plain>[A-Za-z_]\w*)|\$\{(?P<braced>[A-Za-z_][\w.]*)(?::(?P<format>\w+))?\}"
)


@cache
def dashboards() -> Mapping[str, Json]:
    """Return the committed dashboards by uid, without their common beginning."""
    documents = list(map(data_of, sorted(FOLDER.glob("*.json"))))
    return {
        document["uid"].removeprefix("vllm-specdec-"): document
        for document in documents
    }


def every_panel(dashboard: Json) -> list[Json]:
    """Return all panels: headings of rows, and what is folded into them, too."""
    every = []
    for outer in dashboard["panels"]:
        every += [outer, *outer.get("panels", ())]
    return every


def named_panels() -> dict[str, Json]:
    """Return all panels of all dashboards but rows, by dashboard and title."""
    named = {}
    for uid, dashboard in dashboards().items():
        for panel in every_panel(dashboard):
            if panel["type"] != "row":
                named[f"{uid}: {panel.get('title', panel['type'])}"] = panel
    return named


def fields(panel: Json) -> Iterator[tuple[str, Json]]:
    """Yield the field options of a panel: those of all fields, named "", and the
    overrides.
    """
    config = panel.get("fieldConfig", {"defaults": {}, "overrides": []})
    yield "", config["defaults"]
    for override in config["overrides"]:
        yield (
            str(override["matcher"]["options"]),
            {item["id"]: item["value"] for item in override["properties"]},
        )


def columns(panel: Json) -> dict[str, str]:
    """Return the headings of a table's columns by the names that Grafana gives them at
    first.
    """
    headings: dict[str, str] = {}
    for transformation in panel.get("transformations", ()):
        headings |= transformation["options"].get("renameByName", {})
    return headings


def placed(panel: Json) -> set[str]:
    """Return the names that the transformations of a table give a place, renamed or
    not.
    """
    headings = columns(panel)
    names = set()
    for transformation in panel.get("transformations", ()):
        for name in transformation["options"].get("indexByName", {}):
            names.add(headings.get(name, name))
    return names


def under(value: Any, *keys: str) -> Iterator[Any]:
    """Yield what stands under these keys anywhere in JSON, without Grafana's own
    annotation and exemplars.
    """
    if isinstance(value, dict) and not value.get("builtIn"):
        for name, inner in value.items():
            if name in keys:
                yield inner
            if name != "exemplars":
                yield from under(inner, *keys)
    elif isinstance(value, list):
        for inner in value:
            yield from under(inner, *keys)


def variables_in(text: str) -> list[str]:
    """Return the names of the variables in a text."""
    return [match["plain"] or match["braced"] for match in VARIABLE.finditer(text)]
