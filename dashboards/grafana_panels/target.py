"""Targets: one PromQL query of a panel, in the shape of Grafana's Prometheus data source."""

from __future__ import annotations

from typing import Any

import attr
from grafanalib import core

#: The data source that the variable of this name holds.
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@attr.s(auto_attribs=True, kw_only=True)
class PromTarget(core.Target):
    """A query. grafanalib's own class writes Graphite's keys and half the resolution.

    Attributes:
        expr: PromQL.
        legendFormat: what to call a series.
        instant: asked for the end of the time range only, rather than over all of it.
        format: `time_series`, `table`, or `heatmap`.
    """

    expr: str = ""
    legendFormat: str = ""  # noqa: N815 - grafanalib's name
    instant: bool = False
    format: str = "time_series"
    refId: str = ""  # noqa: N815 - grafanalib's name

    def to_json_data(self) -> dict[str, Any]:
        """Return Grafana's JSON."""
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": self.format,
            "instant": self.instant,
            "legendFormat": self.legendFormat or "__auto",
            "range": not self.instant,
            "refId": self.refId,
        }


def over_time(expr: str, legend: str) -> PromTarget:
    """Return a query over the time range."""
    return PromTarget(expr=expr, legendFormat=legend)


def now(expr: str, legend: str = "") -> PromTarget:
    """Return a query at the end of the time range: what is gone is not shown as if it were there."""
    return PromTarget(expr=expr, legendFormat=legend, instant=True)


def columns(expr: str) -> PromTarget:
    """Return a query whose labels become columns of a table."""
    return PromTarget(expr=expr, instant=True, format="table")


def buckets(expr: str) -> PromTarget:
    """Return a query of cumulative buckets for a heatmap."""
    return PromTarget(expr=expr, legendFormat="{{le}}", format="heatmap")


def lettered(targets: list[PromTarget]) -> list[PromTarget]:
    """Return the targets with their refIds: A, B, C ..."""
    return [attr.evolve(target, refId=chr(ord("A") + index)) for index, target in enumerate(targets)]
