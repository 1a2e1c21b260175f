"""Grafana's own types know everything in the dashboards, and would read it as it is meant."""

from __future__ import annotations

import json

from dashboards.documents import dashboards
from dashboards.grafana_types import UNTYPED, misfits


def test_grafana_knows_everything_in_a_dashboard() -> None:
    """What its types do not name is listed, and used."""
    for uid, dashboard in dashboards().items():
        assert misfits(dashboard) == [], uid
    text = json.dumps(dict(dashboards()))
    assert [path for path in UNTYPED if f'"{path.rpartition(".")[2]}"' not in text] == []
