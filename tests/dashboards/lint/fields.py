"""Checks of how values are shown: units and axes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from grafana_foundation_sdk.models import units

from alerts.lint import shape
from alerts.lint.expressions import names

from . import known
from .queries import Query

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .document import Dashboard, Panel

#: Ids of units that Grafana has.
UNITS = frozenset(
    value for name, value in vars(units).items() if isinstance(value, str) and name[0].isupper()
)
#: Types of panels that show numbers.
NUMERIC = frozenset({"stat", "timeseries", "table", "bargauge", "gauge", "heatmap"})
_AXES = frozenset({"timeseries", "bargauge", "gauge"})


def panel_units(panel: Panel, dashboard: Dashboard) -> list[str]:
    """Every number has a unit that Grafana has, or is mapped to a word."""
    if panel.kind not in NUMERIC:
        return []
    found = []
    for name, properties in _numbers(panel).items():
        unit = properties.get("unit")
        if not unit and not properties.get("mappings"):
            found.append(f"{name}: no unit")
    for name, properties in panel.fields:
        unit = properties.get("unit")
        if unit and unit not in UNITS:
            found.append(f"{name or 'all fields'}: unit {unit} is none of Grafana's")
    return found


def _numbers(panel: Panel) -> Mapping[str, Mapping[str, object]]:
    """Return the fields of a panel that are numbers, with their options."""
    if panel.kind != "table":
        return {"all fields": panel.defaults}
    by_name: dict[str, dict[str, object]] = {}
    for name, properties in panel.fields:
        by_name[name] = {**by_name.get(name, {}), **properties}
    columns = panel.columns
    single = len(panel.targets) == 1
    found = {}
    for target in panel.targets:
        value = f"Value #{target.ref}"
        name = columns.get(value, columns.get("Value", value) if single else value)
        found[name] = {**panel.defaults, **by_name.get(name, {})}
    return found


def ratio_limits(panel: Panel, dashboard: Dashboard) -> list[str]:
    """The axis of a ratio goes from 0 to 1, so that little does not look like much."""
    if panel.kind not in _AXES:
        return []
    defaults = panel.defaults
    if defaults.get("unit") != "percentunit" or (defaults.get("min"), defaults.get("max")) == (0, 1):
        return []
    return [f"a ratio from {defaults.get('min')} to {defaults.get('max')}"]


def zero_axis(panel: Panel, dashboard: Dashboard) -> list[str]:
    """The axis of a time series begins where it is said to."""
    if panel.kind == "timeseries" and "min" not in panel.defaults:
        return ["no least value of the axis"]
    return []


def table_columns(panel: Panel, dashboard: Dashboard) -> list[str]:
    """Every column of a table has a heading and a place, or is left out or hidden."""
    if panel.kind != "table":
        return []
    steps = [one.get("options", {}) for one in panel.body.get("transformations", ())]
    placed = {name for one in steps for name in one.get("indexByName", {})}
    gone = {name for one in steps for name, out in one.get("excludeByName", {}).items() if out}
    gone |= {name for name, properties in panel.fields if properties.get("custom.hidden")}
    found = []
    for name in sorted(_columns(panel) - gone):
        if name not in panel.columns:
            found.append(f"{name} has no heading")
        if len(panel.targets) > 1 and name not in placed:
            found.append(f"{name} has no place")
    return found


def idle_overrides(panel: Panel, dashboard: Dashboard) -> list[str]:
    """Every override is of a series that the panel can have."""
    if panel.kind == "table":
        return []
    found = []
    for matcher, options, _ in panel.overrides:
        # A label can have any value; a number or a word stands for them all.
        texts = [
            re.sub(r"\{\{.*?\}\}", value, target.legend)
            for target in panel.targets
            for value in ("7", "word")
        ]
        called = any(target.may_be_called(str(options)) for target in panel.targets)
        matches = any(re.search(str(options).strip("/"), text) for text in texts)
        if (matcher == "byName" and not called) or (matcher == "byRegexp" and not matches):
            found.append(f"an override of {options}, which no series is called")
    return found


def _columns(panel: Panel) -> set[str]:
    """Return the columns that the queries of a table give, as far as their labels are known."""
    single = len(panel.targets) == 1
    found = {"Value" if single else f"Value #{target.ref}" for target in panel.targets}
    for target in panel.targets:
        try:
            tree = Query(panel.place, target.expr).tree
        except ValueError:
            continue
        inner = shape(tree, known.bundle())
        if inner and not inner.origin and not names(tree) & known.unknown_to_rules():
            found |= inner.labels
    return found


def sorted_by(panel: Panel, dashboard: Dashboard) -> list[str]:
    """A table is sorted by, and overrides are of, columns that it has."""
    if panel.kind != "table":
        return []
    there = {*panel.columns.values(), *_numbers(panel)}
    by = [one.get("displayName") for one in panel.body["options"].get("sortBy", ())]
    named = [options for matcher, options, _ in panel.overrides if matcher == "byName"]
    steps = [one["options"] for one in panel.body.get("transformations", ())]
    placed = {name for one in steps for name in one.get("indexByName", {})}
    found = [f"sorted by {name}, which is no column" for name in by if name not in there]
    return found + [
        f"an override of {name}, which is no column" for name in named if name not in there | placed
    ]
