"""Dashboards as the JSON has them."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[3]
DASHBOARDS = ROOT / "dashboards" / "json"


@dataclass(frozen=True, slots=True)
class Target:
    """A query of a panel."""

    body: Mapping[str, Any]

    @property
    def ref(self) -> str:
        """Its letter."""
        return str(self.body.get("refId", ""))

    @property
    def expr(self) -> str:
        """Its PromQL."""
        return str(self.body.get("expr", ""))

    @property
    def legend(self) -> str:
        """What its series are called."""
        return str(self.body.get("legendFormat", ""))

    def may_be_called(self, name: str) -> bool:
        """Return whether a series of it can have this name."""
        words = (re.escape(part) for part in re.split(r"\{\{.*?\}\}", self.legend))
        return bool(re.fullmatch(".*".join(words), name))


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel, be it a row's heading."""

    body: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Its type."""
        return str(self.body.get("type", ""))

    @property
    def title(self) -> str:
        """Its title."""
        return str(self.body.get("title", ""))

    @property
    def place(self) -> str:
        """What complaints call it."""
        return self.title or f"{self.kind} {self.body.get('id')}"

    @property
    def description(self) -> str:
        """Its description."""
        return str(self.body.get("description", ""))

    @property
    def targets(self) -> tuple[Target, ...]:
        """Its queries."""
        return tuple(Target(body) for body in self.body.get("targets", ()))

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Its place in the grid: left, top, right, bottom."""
        at = self.body.get("gridPos", {})
        x, y, w, h = (int(at.get(key, 0)) for key in "xywh")
        return x, y, x + w, y + h

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Its field options."""
        return dict(self.body.get("fieldConfig", {}).get("defaults", {}))

    @property
    def overrides(self) -> tuple[tuple[str, Any, dict[str, Any]], ...]:
        """Its field options for some fields: matcher, its options, and the properties by id."""
        return tuple(
            (
                one["matcher"]["id"],
                one["matcher"].get("options"),
                {prop["id"]: prop.get("value") for prop in one["properties"]},
            )
            for one in self.body.get("fieldConfig", {}).get("overrides", ())
        )

    @property
    def fields(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """All its field options: those for all fields, called "", and those for some."""
        yield "", self.defaults
        yield from ((str(options), properties) for _, options, properties in self.overrides)

    @property
    def columns(self) -> dict[str, str]:
        """What the columns of a table are called in the end, by what they were called at first."""
        return {
            name: new
            for one in self.body.get("transformations", ())
            for name, new in one.get("options", {}).get("renameByName", {}).items()
        }


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a dashboard."""

    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What it is called in expressions."""
        return str(self.body.get("name", ""))

    @property
    def kind(self) -> str:
        """Its type."""
        return str(self.body.get("type", ""))

    @property
    def query(self) -> str:
        """What gives its values."""
        query = self.body.get("query", "")
        return str(query.get("query", "")) if isinstance(query, dict) else str(query)


@dataclass(frozen=True, slots=True, eq=False)
class Dashboard:
    """A dashboard."""

    body: Mapping[str, Any]

    @property
    def uid(self) -> str:
        """Its name in addresses."""
        return str(self.body.get("uid", ""))

    @property
    def all_panels(self) -> tuple[Panel, ...]:
        """Its panels, rows' headings among them, and what is folded into these."""
        return tuple(
            Panel(body)
            for outer in self.body.get("panels", ())
            for body in (outer, *(outer.get("panels", ()) if outer.get("type") == "row" else ()))
        )

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Its panels without the headings."""
        return tuple(panel for panel in self.all_panels if panel.kind != "row")

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Its variables."""
        return tuple(Variable(body) for body in self.body.get("templating", {}).get("list", ()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its variables."""
        return tuple(variable.name for variable in self.variables)

    @property
    def annotations(self) -> tuple[Mapping[str, Any], ...]:
        """Its annotation queries."""
        return tuple(self.body.get("annotations", {}).get("list", ()))


def read_dashboards(folder: Path = DASHBOARDS) -> tuple[Dashboard, ...]:
    """Return the dashboards of a folder."""
    return tuple(Dashboard(json.loads(path.read_text("utf-8"))) for path in sorted(folder.glob("*.json")))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value in JSON that is no object and no list, and empty ones of these, with their paths."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and value:
        for at, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{at}]")
    else:
        yield path, value


def spoilt(dashboard: Dashboard, path: str, value: Any) -> Dashboard:
    """Return a copy of a dashboard with a value at a path like `panels.2.title`; None takes it away."""
    body = copy.deepcopy(dict(dashboard.body))
    *above, last = path.split(".")
    place: Any = body
    for key in above:
        place = place[int(key) if isinstance(place, list) else key]
    at: Any = int(last) if isinstance(place, list) else last
    if value is None:
        del place[at]
    elif isinstance(place, list) and at == len(place):
        place.append(value)
    else:
        place[at] = value
    return Dashboard(body)
