"""Checks of the JSON: keys that Grafana reads, no leftovers, ids that stay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .document import leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .document import Dashboard, Panel

#: The dashboards that alerts and links know.
UIDS = tuple(
    f"vllm-specdec-{name}"
    for name in ("payoff", "acceptance", "cost", "load", "compare", "requests", "exporter")
)
#: Types of panels in use. Of Angular's none is left in Grafana 12.
KINDS = frozenset({"stat", "timeseries", "state-timeline", "table", "bargauge", "heatmap", "text", "row"})
ANGULAR = frozenset(
    {"graph", "singlestat", "table-old", "grafana-piechart-panel", "grafana-worldmap-panel", "heatmap-old"}
)
#: Keys that Grafana has dropped.
LEGACY = frozenset(
    {
        "aliasColors", "bars", "cacheTimeout", "colorBackground", "colorValue", "error", "fill", "format",
        "gauge", "height", "hideControls", "legend", "lines", "linewidth", "mappingType", "minSpan",
        "nullPointMode", "percentage", "pointradius", "points", "postfix", "prefix", "rangeMaps", "renderer",
        "rows", "seriesOverrides", "sharedCrosshair", "span", "spaceLength", "sparkline", "stack",
        "steppedLine", "style", "styles", "thresholds", "tooltip", "valueMaps", "xaxis", "yaxes", "yaxis",
    }
)  # fmt: skip
ALLOWED: Mapping[str, frozenset[str]] = {
    "dashboard": frozenset(
        {
            "annotations", "description", "editable", "fiscalYearStartMonth", "graphTooltip", "links",
            "liveNow", "panels", "preload", "refresh", "schemaVersion", "tags", "templating", "time",
            "timepicker", "timezone", "title", "uid", "weekStart",
        }
    ),
    "panel": frozenset(
        {
            "datasource", "description", "fieldConfig", "gridPos", "id", "interval", "links",
            "options", "pluginVersion", "targets", "timeFrom", "title", "transformations", "transparent",
            "type",
        }
    ),
    "row": frozenset({"collapsed", "gridPos", "id", "panels", "title", "type"}),
    "target": frozenset(
        {
            "datasource", "editorMode", "expr", "format", "instant", "interval", "legendFormat", "range",
            "refId",
        }
    ),
    "variable": frozenset(
        {
            "allValue", "allowCustomValue", "current", "datasource", "definition", "description", "hide",
            "includeAll", "label", "multi", "name", "options", "query", "refresh", "regex", "skipUrlSync",
            "sort", "type",
        }
    ),
    "annotation": frozenset(
        {
            "builtIn", "datasource", "enable", "expr", "hide", "iconColor", "name", "step", "tagKeys",
            "textFormat", "titleFormat", "type",
        }
    ),
    "link": frozenset(
        {
            "asDropdown", "icon", "includeVars", "keepTime", "tags", "targetBlank", "title", "tooltip",
            "type", "url",
        }
    ),
    "fieldConfig": frozenset({"defaults", "overrides"}),
    "defaults": frozenset(
        {
            "color", "custom", "decimals", "links", "mappings", "max", "min", "noValue", "thresholds", "unit",
        }
    ),
    "gridPos": frozenset({"h", "w", "x", "y"}),
}  # fmt: skip
#: Where nothing means something: the end of a path, and what it means.
MEANT: Mapping[str, str] = {
    "thresholds.steps[0].value": "from anywhere on",
    "thresholds.value.steps[0].value": "likewise, in an override",
    "options.reduceOptions.fields": "all numeric fields",
    "from": "no lower bound",
    "to": "no upper bound",
}


def uneditable_dashboard(dashboard: Dashboard) -> list[str]:
    """A dashboard that is generated is not edited."""
    return [] if dashboard.body.get("editable") is False else ["can be edited"]


def schema_version(dashboard: Dashboard) -> list[str]:
    """The schema is one that Grafana 10.4 to 13 read."""
    version = dashboard.body.get("schemaVersion")
    return [] if version in range(39, 43) else [f"schemaVersion {version}"]


def stable_uid(dashboard: Dashboard) -> list[str]:
    """The uid is one that links and alerts know."""
    return [] if dashboard.uid in UIDS else [f"uid {dashboard.uid!r}; known: {', '.join(UIDS)}"]


def manners(dashboard: Dashboard) -> list[str]:
    """It asks a question, refreshes, shares its crosshair, and is found by its tag."""
    found = []
    if not dashboard.body.get("title"):
        found.append("no title")
    if "?" not in str(dashboard.body.get("description", "")):
        found.append("its description asks no question")
    time = dashboard.body.get("time", {})
    if not re.fullmatch(r"now-\d+[mhd]", time.get("from", "")) or time.get("to") != "now":
        found.append(f"the time range is {time}")
    wanted = {"refresh": "30s", "graphTooltip": 1, "timezone": "browser", "tags": ["vllm-specdec"]}
    return found + [
        f"{key} is {dashboard.body.get(key)!r}, not {value!r}"
        for key, value in wanted.items()
        if dashboard.body.get(key) != value
    ]


def panel_ids(dashboard: Dashboard) -> list[str]:
    """Every panel has an id of its own."""
    ids = [panel.body.get("id") for panel in dashboard.all_panels]
    wrong = [f"id {one!r}" for one in ids if not isinstance(one, int) or one <= 0]
    return wrong + [f"id {one} stands twice" for one in sorted({i for i in ids if ids.count(i) > 1}, key=str)]


def leftovers(dashboard: Dashboard) -> list[str]:
    """Nothing is null, an empty text, list or object, but where that means something."""
    return [
        f"{path} is {value!r}"
        for path, value in leaves(dashboard.body)
        if (value is None or value == "") and not any(path.endswith(f".{end}") for end in MEANT)
    ]


def panel_type(panel: Panel, dashboard: Dashboard) -> list[str]:
    """The type of a panel is one of those in use, and none of Angular's."""
    if panel.kind in ANGULAR:
        return [f"{panel.kind} is gone from Grafana"]
    return [] if panel.kind in KINDS else [f"unknown type {panel.kind}"]


def legacy_keys(panel: Panel, dashboard: Dashboard) -> list[str]:
    """A panel has no key that Grafana has dropped."""
    found = [key for key in panel.body if key in LEGACY or key == "editable"]
    found += [f"target {t.ref}: {key}" for t in panel.targets for key in t.body if key in _GRAPHITE]
    return [f"{key} is gone from Grafana" for key in found]


_GRAPHITE = frozenset({"intervalFactor", "metric", "query", "step", "target"})


def panel_keys(panel: Panel, dashboard: Dashboard) -> list[str]:
    """A panel, its queries and its field options have only keys that are known here."""
    config = panel.body.get("fieldConfig", {})
    return [
        *_unknown("row" if panel.kind == "row" else "panel", panel.body),
        *(words for target in panel.targets for words in _unknown("target", target.body)),
        *_unknown("fieldConfig", config),
        *_unknown("defaults", config.get("defaults", {})),
        *_unknown("gridPos", panel.body.get("gridPos", {})),
    ]


def dashboard_keys(dashboard: Dashboard) -> list[str]:
    """A dashboard, its variables, annotations and links have only keys that are known here."""
    return [
        *_unknown("dashboard", dashboard.body),
        *(words for variable in dashboard.variables for words in _unknown("variable", variable.body)),
        *(words for mark in dashboard.annotations for words in _unknown("annotation", mark)),
        *(words for link in dashboard.body.get("links", ()) for words in _unknown("link", link)),
    ]


def missing_keys(panel: Panel, dashboard: Dashboard) -> list[str]:
    """A panel has what Grafana would otherwise guess: its place, its version, its colours and its legend."""
    silent = panel.kind in ("row", "text")
    needed = ["id", "type", "gridPos.h", "gridPos.w", "gridPos.x", "gridPos.y"]
    needed += [] if panel.kind == "row" else ["pluginVersion"]
    needed += [] if silent else ["fieldConfig.defaults.color.mode", "fieldConfig.overrides"]
    if panel.defaults.get("color", {}).get("mode") == "fixed":
        needed.append("fieldConfig.defaults.color.fixedColor")
    if "thresholds" in panel.defaults:
        needed += [f"fieldConfig.defaults.thresholds.{key}" for key in ("mode", "steps.0.color")]
    if panel.kind in ("timeseries", "state-timeline"):
        needed += [f"options.legend.{key}" for key in ("displayMode", "showLegend", "placement")]
    return [f"no {path}" for path in needed if not _has(panel.body, path)]


def _has(body: Any, path: str) -> bool:
    """Return whether there is something at a path."""
    for key in path.split("."):
        try:
            body = body[int(key) if isinstance(body, list) else key]
        except (KeyError, IndexError):
            return False
    return True


def annotations(dashboard: Dashboard) -> list[str]:
    """Every annotation is drawn, asks the chosen data source, and says what happened and to whom."""
    found = []
    for mark in dashboard.annotations:
        if mark.get("builtIn"):
            continue
        name = mark.get("name")
        wanted = {"enable": True, "datasource": {"type": "prometheus", "uid": "${datasource}"}}
        found += [f"{name}: {key} is {mark.get(key)}" for key, it in wanted.items() if mark.get(key) != it]
        needed = ("name", "expr", "iconColor", "step", "titleFormat", "textFormat")
        found += [f"{name}: no {key}" for key in needed if not mark.get(key)]
    return found


def _unknown(kind: str, body: Mapping[str, Any]) -> Iterable[str]:
    return [f"unknown key {key} of a {kind}" for key in body if key not in ALLOWED[kind]]


def repeated_uids(dashboards: Iterable[Dashboard]) -> list[str]:
    """Return the uids and titles that two dashboards have."""
    every = list(dashboards)
    found = []
    for key in ("uid", "title"):
        values = [str(one.body.get(key)) for one in every]
        found += [f"{key} {value} stands twice" for value in sorted(set(values)) if values.count(value) > 1]
    return found


def is_uid(text: str) -> bool:
    """Return whether Grafana takes a text for a uid."""
    return bool(re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", text))
