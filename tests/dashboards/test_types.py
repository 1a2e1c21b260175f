"""Grafana's own types know everything in the dashboards, and would read it as it is meant."""

from __future__ import annotations

import copy
import json
from typing import Any

from dashboards.documents import dashboards
from dashboards.grafana_types import UNTYPED, misfits


def test_grafana_knows_everything_in_a_dashboard() -> None:
    """What its types do not name is listed, and used."""
    for uid, dashboard in dashboards().items():
        assert misfits(dashboard) == [], uid
    text = json.dumps(dict(dashboards()))
    assert [path for path in UNTYPED if f'"{path.rpartition(".")[2]}"' not in text] == []


def test_what_grafana_does_not_know_is_noticed() -> None:
    """Keys that it would drop, also in overrides, and types of panels that it does not have."""
    titles = [panel["title"] for panel in dashboards()["overview"]["panels"]]
    line = f"panels.{titles.index('Speedup')}"
    override = {"matcher": {"id": "byName", "options": "x"}, "properties": [{"id": "units", "value": "s"}]}
    examples: list[tuple[str, Any, str]] = [
        (f"{line}.targets.0.expression", "up", "targets[0].expression: unknown"),
        (f"{line}.type", "graph", "no panel of type graph"),
        (f"{line}.fieldConfig.overrides", [override], "fieldConfig.defaults.units: unknown"),
    ]
    for path, value, words in examples:
        place: Any = copy.deepcopy(dict(dashboards()["overview"]))
        document = place
        *above, last = path.split(".")
        for key in above:
            place = place[int(key) if isinstance(place, list) else key]
        place[last] = value
        found = misfits(document)
        assert any(words in one for one in found), (path, found)
