"""Checks of what stands in the JSON: keys, places, variables, and how panels ask.

Keys and values that Grafana does not know are found by `oracle`.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from vllm_specdec_exporter.observe.state import DEFAULT_WINDOWS

from .document import leaves
from .queries import asked, asked_label, variables_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .document import Dashboard, Panel, Variable

#: The dashboards that alerts and links know.
UIDS = tuple(
    f"vllm-specdec-{name}"
    for name in ("payoff", "acceptance", "cost", "load", "compare", "requests", "exporter")
)
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
#: Where nothing means something: the end of a path, and what it means.
MEANT: Mapping[str, str] = {
    "thresholds.steps[0].value": "from anywhere on",
    "thresholds.value.steps[0].value": "likewise, in an override",
    "options.reduceOptions.fields": "all numeric fields",
    "from": "no lower bound",
    "to": "no upper bound",
}


# --- the dashboard


def manners(dashboard: Dashboard) -> list[str]:
    """It is known by its uid, read by Grafana 10.4 to 13, not edited, refreshed, found by its tag.

    Its description asks the question that it answers, and it shows the last time.
    """
    body = dashboard.body
    wanted = {
        "uid": UIDS, "editable": (False,), "schemaVersion": range(39, 43), "refresh": ("30s",),
        "graphTooltip": (1,), "timezone": ("browser",), "tags": (["vllm-specdec"],),
    }  # fmt: skip
    found = [f"{key} is {body.get(key)!r}" for key, values in wanted.items() if body.get(key) not in values]
    if not body.get("title"):
        found.append("no title")
    if "?" not in str(body.get("description", "")):
        found.append("its description asks no question")
    time = body.get("time", {})
    if not re.fullmatch(r"now-\d+[mhd]", time.get("from", "")) or time.get("to") != "now":
        found.append(f"the time range is {time}")
    return found


def panel_ids(dashboard: Dashboard) -> list[str]:
    """Every panel has an id of its own."""
    ids = Counter(panel.body.get("id") for panel in dashboard.all_panels)
    return [f"id {one!r} on {n} panels" for one, n in ids.items() if n > 1 or not one]


def leftovers(dashboard: Dashboard) -> list[str]:
    """Nothing is null or an empty text, but where that means something."""
    return [
        f"{path} is {value!r}"
        for path, value in leaves(dashboard.body)
        if (value is None or value == "") and not any(path.endswith(f".{end}") for end in MEANT)
    ]


def annotations(dashboard: Dashboard) -> list[str]:
    """Every annotation is drawn, asks the chosen data source, and says what happened and to whom."""
    found = []
    for mark in dashboard.annotations:
        if mark.get("builtIn"):
            continue
        name = mark.get("name")
        wanted = {"enable": True, "datasource": DATASOURCE}
        found += [f"{name}: {key} is {mark.get(key)}" for key, it in wanted.items() if mark.get(key) != it]
        needed = ("name", "expr", "iconColor", "step", "titleFormat", "textFormat")
        found += [f"{name}: no {key}" for key in needed if not mark.get(key)]
    return found


def grid(dashboard: Dashboard) -> list[str]:
    """Panels fill 24 columns without a hole, line by line, in the order in which they are read."""
    boxes = [panel.box for panel in dashboard.all_panels]
    covered = Counter((x, y) for left, top, right, end in boxes for x in range(left, right)
                      for y in range(top, end))  # fmt: skip
    lines = max((end for *_, end in boxes), default=0)
    found = [
        f"{covered[x, y]} panels in column {x} of line {y}"
        for y in range(lines)
        for x in range(COLUMNS)
        if covered[x, y] != 1
    ]
    for panel in dashboard.all_panels:
        if panel.box[0] < 0 or panel.box[2] > COLUMNS:
            found.append(f"{panel.place} leaves the page")
        if any(other[1] == panel.box[1] and other[3] != panel.box[3] for other in boxes):
            found.append(f"{panel.place} is not as high as those beside it")
    order = [(top, left) for left, top, *_ in boxes]
    return found + (["panels do not stand in the order of reading"] if order != sorted(order) else [])


# --- its variables

#: The exporter's windows, unless told otherwise.
WINDOWS = tuple(window.name for window in DEFAULT_WINDOWS)
#: Labels that every series has, and those that may be absent.
SURE = ("job", "instance")
OPTIONAL = ("cluster", "namespace", "pod", "model_name", "engine", "temperature", "request_type")


def variables(dashboard: Dashboard) -> list[str]:
    """The data source comes first; job and instance are there; each has a name of its own and a heading."""
    first = dashboard.variables[0].body if dashboard.variables else {}
    wanted = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    found = [
        f"{key} of the first variable is {first.get(key)!r}"
        for key, value in wanted.items()
        if first.get(key) != value
    ]
    headings = [(_base(one), str(one.body.get("label", ""))) for one in dashboard.variables]
    found += [
        f"no variable {name}"
        for name in SURE
        if not any(base == name and heading.casefold().endswith(name) for base, heading in headings)
    ]
    found += [f"{name} stands {n} times" for name, n in Counter(dashboard.names).items() if n > 1]
    return found + [f"{one.name} has no heading" for one in dashboard.variables if not one.body.get("label")]


def _base(variable: Variable) -> str:
    """Return the label that a variable is for, without the side that it is of."""
    return variable.name.partition("_")[2] if variable.name[:2] in ("a_", "b_") else variable.name


def choices(dashboard: Dashboard) -> list[str]:
    """A variable of a label is called after it, asks for it by PromQL, and anew when the time changes.

    Several values can be chosen, and All, as it is at first: anything for labels that are sure, or nothing
    for the others.
    """
    found: list[str] = []
    for one in dashboard.variables:
        if one.kind != "query":
            continue
        label = asked_label(one)
        if label and _base(one).removeprefix("vllm_") != label:
            found.append(f"{one.name} has the values of {label}")
        if not asked(one):
            found.append(f"{one.name} asks all series there are")
        wanted: dict[str, Any] = {"datasource": DATASOURCE, "definition": one.query, "refresh": 2}
        if label in SURE + OPTIONAL:
            wanted |= {"multi": True, "includeAll": True, "allValue": ".+" if label in SURE else ".*"}
        found += [f"{key} of {one.name} is {one.body.get(key)!r}" for key in wanted
                  if one.body.get(key) != wanted[key]]  # fmt: skip
        current = one.body.get("current", {}).get("value")
        if one.body.get("includeAll") and current not in ("$__all", ["$__all"]):
            found.append(f"{one.name} is not All at first but {current!r}")
        if one.name == "window" and current not in WINDOWS:
            found.append(f"the window is {current!r} at first, which the exporter does not have")
    return found


def unused_variables(dashboard: Dashboard) -> list[str]:
    """Every variable is used: by a panel, an annotation or a link. That another is chosen by it is no use."""
    used = set(variables_in(str(dashboard.body.get("panels")) + str(dashboard.body.get("annotations"))))
    return [f"{name} is used by nothing" for name in dashboard.names if name not in used]


# --- its panels

#: Types of panels that show how things are now; all others show how they went.
NOW = frozenset({"stat", "table", "bargauge"})
#: Transformations in use, and the options that Grafana reads of each.
TRANSFORMATIONS = {
    "merge": set[str](),
    "organize": {"excludeByName", "includeByName", "indexByName", "renameByName"},
    "filterFieldsByName": {"include", "exclude"},
}


def missing_keys(panel: Panel, dashboard: Dashboard) -> list[str]:
    """A panel has what Grafana would otherwise guess: its version, its colours and its legend."""
    needed = [] if panel.kind == "row" else ["pluginVersion"]
    if panel.kind not in ("row", "text"):
        needed += ["fieldConfig.defaults.color.mode", "fieldConfig.overrides"]
    if panel.defaults.get("color", {}).get("mode") == "fixed":
        needed.append("fieldConfig.defaults.color.fixedColor")
    if "thresholds" in panel.defaults:
        needed += [f"fieldConfig.defaults.thresholds.{key}" for key in ("mode", "steps")]
    if panel.kind in ("timeseries", "state-timeline"):
        needed += [f"options.legend.{key}" for key in ("displayMode", "showLegend", "placement")]
    return [f"no {path}" for path in needed if not _has(panel.body, path)]


def _has(body: Any, path: str) -> bool:
    for key in path.split("."):
        if key not in body:
            return False
        body = body[key]
    return True


def asking(panel: Panel, dashboard: Dashboard) -> list[str]:
    """A panel asks the chosen data source, by queries with a letter each; a text asks nothing.

    Tiles, tables and bars ask for now, and show the last value; all others ask for the whole time range.
    """
    if panel.kind in ("text", "row"):
        return ["asks something"] if panel.targets else []
    if not panel.targets or not all(target.expr for target in panel.targets):
        return ["asks nothing"]
    now = panel.kind in NOW
    form = panel.kind if panel.kind in ("table", "heatmap") else "time_series"
    wanted = {"datasource": DATASOURCE, "instant": now, "range": not now, "format": form}
    found = [
        f"{key} of query {target.ref} is {target.body.get(key, False)}"
        for target in panel.targets
        for key, value in wanted.items()
        if target.body.get(key, False) != value
    ]
    if panel.body.get("datasource") != DATASOURCE:
        found.append(f"its data source is {panel.body.get('datasource')}")
    refs = Counter(target.ref for target in panel.targets)
    found += [
        f"refId {ref!r} {n} times" for ref, n in refs.items() if n > 1 or not re.fullmatch("[A-Z]", ref)
    ]
    how = panel.body.get("options", {}).get("reduceOptions", {})
    if panel.kind in ("stat", "bargauge") and (how.get("calcs"), how.get("values")) != (
        ["lastNotNull"],
        False,
    ):
        found.append(f"reduced by {how}")
    return found


def transformations(panel: Panel, dashboard: Dashboard) -> Iterator[str]:
    """Transformations are of those in use, with options that Grafana reads."""
    for one in panel.body.get("transformations", ()):
        unread = set(one.get("options", {})) - TRANSFORMATIONS.get(one["id"], set())
        if one["id"] not in TRANSFORMATIONS or unread:
            yield f"unknown transformation {one['id']}, or option of it: {sorted(unread)}"


def repeated_uids(dashboards: tuple[Dashboard, ...]) -> list[str]:
    """Return the uids and titles that two dashboards have."""
    values = Counter(str(one.body.get(key)) for one in dashboards for key in ("uid", "title"))
    return [f"{value} stands {n} times" for value, n in values.items() if n > 1]
