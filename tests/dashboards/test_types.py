"""Grafana's own types know everything that stands in the dashboards, and would read it as it is meant.

What its Foundation SDK normalises: it adds keys that are not there with Grafana's defaults, and nothing else.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as sdk

from dashboards import lint
from dashboards.lint.oracle import UNTYPED, misfits
from dashboards.lint_examples import FIELD, JOB, LINE, TABLE, TILE, dashboard, put

DASHBOARDS = lint.read_dashboards()


@pytest.mark.parametrize("found", DASHBOARDS, ids=lambda found: found.uid.removeprefix("vllm-specdec-"))
def test_grafana_knows_everything_in_a_dashboard(found: lint.Dashboard) -> None:
    assert misfits(found.body) == []


def test_a_dashboard_without_fault_fits() -> None:
    assert misfits(dashboard().body) == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        # Keys that Grafana drops.
        (f"{TILE}.options.graphmode", "none", "panels[1].options.graphmode: unknown"),
        (f"{FIELD}.custom", {"lineWidht": 2}, "custom.lineWidht: unknown"),
        (f"{FIELD}.units", "s", "fieldConfig.defaults.units: unknown"),
        (f"{LINE}.targets.0.expression", "up", "targets[0].expression: unknown"),
        (f"{LINE}.editable", False, "panels[2].editable: unknown"),
        (f"{JOB}.useTags", False, "templating.list[3].useTags: unknown"),
        ("annotations.list.0.color", "x", "annotations.list[0].color: unknown"),
        ("links", [{"title": "x", "keeptime": True}], "links[0].keeptime: unknown"),
        ("hideControls", False, "hideControls: unknown"),
        (f"{TABLE}.options.sortBy.0.descending", True, "sortBy[0].descending: unknown"),
        # What the SDK leaves as it is, read one level deeper.
        (f"{TILE}.fieldConfig.defaults.mappings.0.options.0.colour", "x", "mappings[0].options.0.colour"),
        (f"{FIELD}.links", [{"title": "x", "adress": "y"}], "links[0].adress: unknown"),
        (f"{TABLE}.fieldConfig.overrides.0.matchers", {}, "overrides[0].matchers: unknown"),
        (
            f"{TABLE}.fieldConfig.overrides.0.properties.0.id",
            "units",
            "override 0: fieldConfig.defaults.units",
        ),
        (
            f"{TABLE}.fieldConfig.overrides.0.properties.0",
            {"id": "custom.cellOptions", "value": {"type": "gauge", "mode": "basc"}},
            "'basc' is no BarGaugeDisplayMode",
        ),
        (f"{TILE}.fieldConfig.defaults.custom", {"lineWidth": 1}, "no such options in a panel of type stat"),
        # Values that no type has.
        (f"{TILE}.options.colorMode", "rainbow", "'rainbow' is no BigValueColorMode"),
        (f"{FIELD}.color.mode", "fixxed", "'fixxed' is no FieldColorModeId"),
        (f"{FIELD}.min", "0", "'0' is no float"),
        (f"{LINE}.targets.0.instant", "no", "'no' is no bool"),
        (f"{LINE}.targets.0.format", "timeseries", "'timeseries' is no PromQueryFormat"),
        (f"{LINE}.gridPos.w", 12.5, "12.5 is no int"),
        (f"{JOB}.refresh", 7, "7 is no VariableRefresh"),
        ("graphTooltip", 5, "5 is no DashboardCursorSync"),
        (f"{TABLE}.options.footer", {"show": False, "fields": ""}, "footer.fields"),
        (f"{LINE}.type", "grph", "no panel of type grph"),
    ],
)
def test_what_grafana_does_not_know_is_noticed(path: str, value: Any, words: str) -> None:
    found = misfits(dashboard(put(path, value)).body)
    assert any(words in one for one in found), found


def test_what_grafana_does_not_know_is_noticed_in_a_folded_panel() -> None:
    document = dashboard(put(f"{TABLE}.fieldConfig.overrides.0.properties.0.id", "units")).body
    row, *others = document["panels"]
    folded = {**document, "panels": [{**row, "collapsed": True, "panels": others}]}
    assert any("units" in one for one in misfits(folded))


def test_a_query_without_a_data_source_is_noticed() -> None:
    """Without its type nobody knows what its keys mean."""
    found = misfits(
        dashboard(put(f"{LINE}.datasource", None), put(f"{LINE}.targets.0.datasource", None)).body
    )
    assert any("a query of a data source without a type" in one for one in found), found


@pytest.mark.parametrize("found", DASHBOARDS, ids=lambda found: found.uid.removeprefix("vllm-specdec-"))
def test_a_wrong_copy_of_every_panel_is_noticed(found: lint.Dashboard) -> None:
    """The dashboards fit because they are right, not because the types look away."""
    for place in ("options", "fieldConfig.defaults.custom", "fieldConfig.defaults", "targets.0"):
        copy = json.loads(json.dumps(dict(found.body)))
        spoilt = [at for at, panel in enumerate(copy["panels"]) if _spoil(panel, place)]
        texts = [text for text in misfits(copy) if ".bogus: unknown to Grafana" in text]
        assert spoilt
        assert sorted({int(text.split("[")[1].split("]")[0]) for text in texts}) == spoilt, place


def _spoil(panel: dict[str, Any], place: str) -> bool:
    """Put a key that Grafana does not know into a place of a panel; say whether there is such a place."""
    inner: Any = panel
    try:
        for key in place.split("."):
            inner = inner[int(key) if isinstance(inner, list) else key]
    except (KeyError, IndexError):
        return False
    inner["bogus"] = 1
    return True


@pytest.mark.parametrize("found", DASHBOARDS, ids=lambda found: found.uid.removeprefix("vllm-specdec-"))
def test_reading_and_writing_changes_nothing_and_adds_only_defaults(found: lint.Dashboard) -> None:
    """The plain round trip of the SDK, as everybody can do it."""
    once = json.loads(json.dumps(sdk.Dashboard.from_json(dict(found.body)), cls=JSONEncoder))
    twice = json.loads(json.dumps(sdk.Dashboard.from_json(dict(once)), cls=JSONEncoder))
    assert once == twice
    kept = {
        key: value for key, value in once.items() if key in found.body and not isinstance(value, dict | list)
    }
    assert kept == {key: found.body[key] for key in kept}
    panels = [one for outer in once["panels"] for one in (outer, *outer.get("panels", ()))]
    assert [panel["title"] for panel in panels if "title" in panel] == [
        panel.title for panel in found.all_panels if "title" in panel.body
    ]


def test_what_the_types_do_not_name_is_used() -> None:
    """Every exception is one that the dashboards need."""
    text = " ".join(json.dumps(found.body) for found in DASHBOARDS)
    keys = {path.rpartition(".")[2] for path in UNTYPED}
    assert sorted(key for key in keys if f'"{key}":' not in text) == []
