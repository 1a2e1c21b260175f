"""What the linter is tested with: a small dashboard without fault, and what can be wrong with it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dashboards.lint import Dashboard

if TYPE_CHECKING:
    from collections.abc import Callable

    Json = dict[str, Any]
    Change = Callable[[Json], None]

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TARGET = 'cluster=~"$cluster",namespace=~"$namespace",job=~"$job",instance=~"$instance",pod=~"$pod"'
ENGINE = f'{TARGET},model_name=~"$model_name",engine=~"$engine"'
VLLM = ENGINE.replace("$job", "$vllm_job").replace("$instance", "$vllm_instance")
RATE = f"sum(rate(vllm_specdec_drafts_total{{{ENGINE}}}[$__rate_interval]))"
BY_MODEL = RATE.replace("sum(", "sum by (cluster, namespace, model_name) (")
STATES = (
    f'max(1 * (vllm_specdec_activity{{{ENGINE},state="idle"}} == 1)) '
    f'or max(0 * (vllm_specdec_activity{{{ENGINE},state="off"}} == 1))'
)
_LABELS = ("cluster", "namespace", "job", "instance", "pod", "model_name", "engine")


def _variable(name: str, before: tuple[str, ...]) -> Json:
    metric = "vllm_specdec_info" if name in ("model_name", "engine") else "vllm_specdec_up"
    among = ",".join(f'{label}=~"${label}"' for label in before)
    query = f"label_values({metric}{{{among}}}, {name})"
    return {
        "allValue": ".+" if name in ("job", "instance") else ".*",
        "current": {"text": "All", "value": "$__all"},
        "datasource": SOURCE,
        "definition": query,
        "includeAll": True,
        "label": name.title(),
        "multi": True,
        "name": name,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "type": "query",
    }


def _target(expr: str, legend: str, form: str = "time_series", *, now: bool = False, ref: str = "A") -> Json:
    return {
        "datasource": SOURCE,
        "expr": expr,
        "format": form,
        "instant": now,
        "legendFormat": legend,
        "range": not now,
        "refId": ref,
    }


def _panel(kind: str, title: str, place: tuple[int, int, int], targets: list[Json], **defaults: Any) -> Json:
    number, x, y = place
    return {
        "datasource": SOURCE,
        "description": (
            "What engines do, from `vllm_specdec_drafts_total` and `vllm_specdec_activity`. "
            "If it falls, look at the load."
        ),
        "fieldConfig": {
            "defaults": {"noValue": "no drafts", "color": {"mode": "thresholds"}, **defaults},
            "overrides": [],
        },
        "gridPos": {"h": 4, "w": 12, "x": x, "y": y},
        "id": number,
        "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}}
        if kind == "timeseries"
        else {},
        "pluginVersion": "10.4.0",
        "targets": targets,
        "title": title,
        "type": kind,
    }


def document() -> Json:
    """Return a dashboard without fault: a heading, a tile and a line, a table and a text."""
    words = {"0": {"text": "OFF", "color": "#5A5A5A"}, "1": {"text": "IDLE", "color": "#8C8C8C"}}
    tile = _panel(
        "stat", "Does it run?", (2, 0, 1), [_target(STATES, "state", now=True)],
        mappings=[{"type": "value", "options": words}],
    )  # fmt: skip
    tile["options"] = {"colorMode": "background_solid", "reduceOptions": {"calcs": ["lastNotNull"]}}
    line = _panel(
        "timeseries", "Drafts", (3, 12, 1), [_target(RATE, "all")],
        unit="ops", min=0, color={"mode": "fixed", "fixedColor": "#0072B2"},
    )  # fmt: skip
    table = _panel(
        "table", "Drafts by model", (4, 0, 5), [_target(BY_MODEL, "__auto", "table", now=True)]
    )  # fmt: skip
    names = {"cluster": "Cluster", "namespace": "Namespace", "model_name": "Model", "Value": "Drafts"}
    table["transformations"] = [{"id": "organize", "options": {"renameByName": names}}]
    table["fieldConfig"]["overrides"] = [
        {"matcher": {"id": "byName", "options": "Drafts"}, "properties": [{"id": "unit", "value": "ops"}]}
    ]
    table["options"] = {"sortBy": [{"displayName": "Drafts", "desc": True}]}
    text = {
        "gridPos": {"h": 4, "w": 12, "x": 12, "y": 5},
        "id": 5,
        "options": {"content": "Look at `vllm_specdec_drafts_total`.", "mode": "markdown"},
        "pluginVersion": "10.4.0",
        "title": "What to do",
        "type": "text",
    }
    row = {
        "collapsed": False,
        "gridPos": {"h": 1, "w": 24, "x": 0, "y": 0},
        "id": 1,
        "panels": [],
        "title": "Now",
        "type": "row",
    }
    datasource = {
        "label": "Data source", "name": "datasource", "query": "prometheus", "type": "datasource",
    }  # fmt: skip
    window = {
        **_variable("window", _LABELS),
        "current": {"text": "5m", "value": "5m"},
        "definition": f"label_values(vllm_specdec_window_drafts{{{ENGINE}}}, window)",
        "includeAll": False,
        "label": "Window",
        "query": f"label_values(vllm_specdec_window_drafts{{{ENGINE}}}, window)",
    }
    window = {key: value for key, value in window.items() if key not in ("allValue", "multi")}
    marked = f'changes(vllm_specdec_window_drafts{{{ENGINE},window="$window"}}[$window]) > 0'
    return {
        "annotations": {
            "list": [
                {
                    "datasource": SOURCE,
                    "enable": True,
                    "expr": marked,
                    "iconColor": "#0072B2",
                    "name": "Marks",
                    "step": "60s",
                    "textFormat": "{{pod}}",
                    "titleFormat": "Mark",
                }
            ]
        },
        "description": "Is there a fault?",
        "editable": False,
        "graphTooltip": 1,
        "links": [],
        "panels": [row, tile, line, table, text],
        "refresh": "30s",
        "schemaVersion": 39,
        "tags": ["vllm-specdec"],
        "templating": {
            "list": [
                datasource,
                *(_variable(name, _LABELS[:at]) for at, name in enumerate(_LABELS)),
                window,
            ]
        },
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "title": "Payoff",
        "uid": "vllm-specdec-payoff",
    }


def dashboard(*changes: Change) -> Dashboard:
    """Return the dashboard without fault, but for some changes."""
    body = copy.deepcopy(document())
    for change in changes:
        change(body)
    return Dashboard(body)


def put(path: str, value: Any) -> Change:
    """Return the change that puts a value at a path like `panels.2.title`; None takes away what is there."""

    def change(body: Json) -> None:
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

    return change


#: Where in the dashboard its panels are, and its variables.
TILE, LINE, TABLE, TEXT = (f"panels.{at}" for at in (1, 2, 3, 4))
FIELD = f"{LINE}.fieldConfig.defaults"
VARIABLES = "templating.list"
JOB, INSTANCE, ENGINES = (f"{VARIABLES}.{at}" for at in (3, 4, 7))


def tile(expr: str) -> Dashboard:
    """Return a dashboard whose tile asks something."""
    return dashboard(put(f"{TILE}.targets.0.expr", expr))


def line(expr: str, legend: str = "all") -> Dashboard:
    """Return a dashboard whose line asks something."""
    return dashboard(put(f"{LINE}.targets.0.expr", expr), put(f"{LINE}.targets.0.legendFormat", legend))


def words(*texts: tuple[str, str]) -> Change:
    """Return the change that gives codes from 0 on words and colours in the tile."""
    options = {str(at): {"text": text, "color": color} for at, (text, color) in enumerate(texts)}
    return put(f"{TILE}.fieldConfig.defaults.mappings", [{"type": "value", "options": options}])


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples for a check.

    Attributes:
        bad: dashboards that it must catch, each with words of the complaint.
        good: dashboards without fault that look alike.
    """

    bad: list[tuple[Dashboard, str]]
    good: tuple[Dashboard, ...] = ()


def bad(*found: tuple[Dashboard, str], good: tuple[Dashboard, ...] = ()) -> Examples:
    """Return examples: bad ones with words of the complaint, and good ones besides the usual dashboard."""
    return Examples(list(found), (dashboard(), *good))


def bad_put(path: str, value: Any, complaint: str) -> tuple[Dashboard, str]:
    """Return a bad example: the usual dashboard with a value put in."""
    return dashboard(put(path, value)), complaint
