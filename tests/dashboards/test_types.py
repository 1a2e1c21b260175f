"""Grafana's own types know everything that stands in the dashboards, and would read it as it is meant."""

from __future__ import annotations

import copy
import json
from typing import Any

from dashboards.documents import dashboards
from dashboards.grafana_types import UNTYPED, misfits


def test_grafana_knows_everything_in_a_dashboard() -> None:
    for uid, dashboard in dashboards().items():
        assert misfits(dashboard) == [], uid


def spoilt(path: str, value: Any) -> dict[str, Any]:
    """Return a copy of the Overview with a value at a path like `panels.2.title`."""
    body: Any = copy.deepcopy(dict(dashboards()["overview"]))
    *above, last = path.split(".")
    place = body
    for key in above:
        place = place[int(key) if isinstance(place, list) else key]
    place[last] = value
    assert isinstance(body, dict)
    return body


def test_what_grafana_does_not_know_is_noticed() -> None:
    """Keys that it would drop, also where its types leave content as it is, and values that no type has."""
    titles = [panel["title"] for panel in dashboards()["overview"]["panels"]]
    tile, line = (f"panels.{titles.index(title)}" for title in ("Alerts", "Speedup"))
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
    for path, value, words in examples:
        found = misfits(spoilt(path, value))
        assert any(words in one for one in found), (path, found)


def test_what_the_types_do_not_name_is_used() -> None:
    """Every exception is one that the dashboards need."""
    text = json.dumps(dict(dashboards()))
    assert [path for path in UNTYPED if f'"{path.rpartition(".")[2]}"' not in text] == []
