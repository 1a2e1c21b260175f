"""Grafana's own types know everything that stands in the dashboards, and would read it as it is meant."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dashboards import lint
from dashboards.lint.document import spoilt
from dashboards.lint.oracle import UNTYPED, misfits

DASHBOARDS = lint.read_dashboards()
PAYOFF = next(one for one in DASHBOARDS if one.uid == "vllm-specdec-payoff")


@pytest.mark.parametrize("found", DASHBOARDS, ids=lambda found: found.uid.removeprefix("vllm-specdec-"))
def test_grafana_knows_everything_in_a_dashboard(found: lint.Dashboard) -> None:
    assert misfits(found.body) == []


def test_what_grafana_does_not_know_is_noticed() -> None:
    """Keys that it would drop, also where its types leave content as it is, and values that no type has."""
    titles = [panel["title"] for panel in PAYOFF.body["panels"]]
    tile, line = (f"panels.{titles.index(title)}" for title in ("Speedup", "Coverage and waste"))
    override = {"matcher": {"id": "byName", "options": "x"}, "properties": [{"id": "units", "value": "s"}]}
    examples: list[tuple[str, Any, str]] = [
        ("hideControls", False, "hideControls: unknown"),
        (f"{tile}.options.graphmode", "none", "options.graphmode: unknown"),
        (f"{line}.fieldConfig.defaults.units", "s", "fieldConfig.defaults.units: unknown"),
        (f"{line}.targets.0.expression", "up", "targets[0].expression: unknown"),
        ("links.0.keeptime", True, "links[0].keeptime: unknown"),
        ("templating.list.1.useTags", False, "list[1].useTags: unknown"),
        (f"{tile}.options.colorMode", "rainbow", "'rainbow' is no BigValueColorMode"),
        (f"{line}.fieldConfig.defaults.min", "0", "'0' is no float"),
        (f"{line}.type", "graph", "no panel of type graph"),
        (f"{tile}.fieldConfig.defaults.custom", {"lineWidth": 1}, "no such options in a panel of type stat"),
        (f"{line}.fieldConfig.overrides", [override], "override 0: fieldConfig.defaults.units"),
    ]
    missed = {}
    for path, value, words in examples:
        found = misfits(spoilt(PAYOFF, path, value).body)
        if not any(words in one for one in found):
            missed[path] = found
    assert missed == {}


def test_what_the_types_do_not_name_is_used() -> None:
    """Every exception is one that the dashboards need."""
    text = " ".join(json.dumps(found.body) for found in DASHBOARDS)
    keys = {path.rpartition(".")[2] for path in UNTYPED}
    assert sorted(key for key in keys if f'"{key}":' not in text) == []
