"""Checks of how a panel asks and what it does with the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .document import Dashboard, Panel

#: Types of panels that show how things are now, and those that show how they went.
NOW = frozenset({"stat", "table", "bargauge", "gauge"})
OVER_TIME = frozenset({"timeseries", "state-timeline", "heatmap"})
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
#: Transformations in use, and the options that Grafana reads of each.
TRANSFORMATIONS = {
    "merge": set[str](),
    "organize": {"excludeByName", "includeByName", "indexByName", "renameByName"},
    "filterFieldsByName": {"include", "exclude"},
    "sortBy": {"sort"},
    "joinByField": {"byField", "mode"},
    "labelsToFields": {"mode", "keepLabels", "valueLabel"},
    "reduce": {"reducers", "mode", "labelsToFields", "includeTimeField"},
    "seriesToRows": set[str](),
    "renameByRegex": {"regex", "renamePattern"},
}


def panel_no_targets(panel: Panel, dashboard: Dashboard) -> list[str]:
    """A panel asks something; a text does not."""
    if panel.kind in ("text", "row"):
        return ["asks something"] if panel.targets else []
    return [] if panel.targets and all(target.expr for target in panel.targets) else ["asks nothing"]


def panel_datasource(panel: Panel, dashboard: Dashboard) -> list[str]:
    """A panel and its queries go to the data source that the variable holds."""
    if panel.kind in ("text", "row"):
        return []
    asked = [("the panel", panel.body), *((target.ref, target.body) for target in panel.targets)]
    return [
        f"the data source of {name} is {body.get('datasource')}"
        for name, body in asked
        if body.get("datasource") != DATASOURCE
    ]


def ref_ids(panel: Panel, dashboard: Dashboard) -> list[str]:
    """Queries are called by letters, each once."""
    refs = [target.ref for target in panel.targets]
    wrong = [f"refId {ref!r} is no letter" for ref in refs if not (len(ref) == 1 and ref.isupper())]
    return wrong + [f"refId {ref} stands twice" for ref in sorted(set(refs)) if refs.count(ref) > 1]


def instants(panel: Panel, dashboard: Dashboard) -> list[str]:
    """Tiles, tables and bars ask for now; lines, rows of states and heatmaps for all of the time range."""
    if panel.kind not in NOW | OVER_TIME:
        return []
    now = panel.kind in NOW
    words = "ask for now only" if now else "ask for the whole time range only"
    wanted = {"instant": now, "range": not now}
    return [
        f"query {target.ref} does not {words}"
        for target in panel.targets
        if any(target.body.get(key, False) is not value for key, value in wanted.items())
    ]


def formats(panel: Panel, dashboard: Dashboard) -> list[str]:
    """Tables ask for tables, heatmaps for heatmaps, all others for time series."""
    wanted = {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series")
    return [
        f"query {target.ref} has format {target.body.get('format')}, not {wanted}"
        for target in panel.targets
        if target.body.get("format") != wanted
    ]


def reductions(panel: Panel, dashboard: Dashboard) -> list[str]:
    """A tile or bar shows the last value of each series: it asks for no other."""
    if panel.kind not in ("stat", "bargauge"):
        return []
    how = panel.body.get("options", {}).get("reduceOptions", {})
    if (how.get("calcs"), how.get("values", False)) == (["lastNotNull"], False):
        return []
    return [f"reduced by {how}"]


def transformations(panel: Panel, dashboard: Dashboard) -> list[str]:
    """Transformations are of those in use, with options that Grafana reads."""
    found = []
    for one in panel.body.get("transformations", ()):
        name = one.get("id")
        if name not in TRANSFORMATIONS:
            found.append(f"unknown transformation {name}")
            continue
        given = set(one.get("options", {}))
        found += [f"{name} has no option {key}" for key in sorted(given - TRANSFORMATIONS[name])]
    return found
