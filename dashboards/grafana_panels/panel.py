"""Panels and their queries: subclasses of grafanalib's classes that write what Grafana
10.4 to 13 reads.

grafanalib's own classes write keys that Grafana has dropped (`editable`, `error`,
`span` ...), nulls, a limit of 100 points, and for gauges, tables and heatmaps the
options of removed Angular panels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attr
from grafanalib import core

from .field import Json, colored, fixed, override
from .palette import NEUTRAL

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


def lines(
    title: str,
    description: str,
    series: Mapping[str, tuple[str, str]],
    *,
    others: Sequence[PromTarget] = (),
    overrides: Sequence[Json] = (),
    **more: Any,
) -> TimeSeries:
    """Return a panel of lines with names.

    `series` has the query and the colour of each; `others` have no colour.
    """
    return TimeSeries(
        title=title,
        description=description,
        targets=[
            *(over_time(expr, name) for name, (expr, _) in series.items()),
            *others,
        ],
        overrides=[
            *colored({name: color for name, (_, color) in series.items()}),
            *overrides,
        ],
        **more,
    )


def now(expr: str, legend: str = "") -> PromTarget:
    """Return a query at the end of the time range: what is gone is not shown as if it
    were there.
    """
    return PromTarget(expr=expr, legendFormat=legend, instant=True)


def columns(expr: str) -> PromTarget:
    """Return a query whose labels become columns of a table."""
    return PromTarget(expr=expr, instant=True, format="table")


def buckets(expr: str) -> PromTarget:
    """Return a query of cumulative buckets for a heatmap."""
    return PromTarget(expr=expr, legendFormat="{{le}}", format="heatmap")


#: Of an address that nobody has yet.
PLACEHOLDER = "OWNER"
#: The oldest Grafana that the dashboards are written for. Newer ones migrate from it.
PLUGIN_VERSION = "10.4.0"

#: What grafanalib's panel writes that Grafana no longer has, or would rather not be
#: told.
_DROPPED = (
    "cacheTimeout", "editable", "error", "height", "hideTimeOverride", "links", (
        "maxDataPoints"
    ),
    "maxPerRow", "minSpan", "repeat", "repeatDirection", "span", "timeFrom", (
        "timeShift"
    ), "transparent",
)  # fmt: skip


@attr.s(auto_attribs=True, kw_only=True)
class Panel(core.Panel):
    """What all panels have.

    Attributes:
        title: a question, or a noun that users know.
        description: what it shows, and what to do when it looks bad.
        page: address of the page that says more.
        interval: the least step of its queries; none for the data source's.
        targets: the queries.
        width: of the 24 columns.
        rows: height in grid rows.
        unit: Grafana's id of a unit.
        decimals: digits behind the point.
        least: least value of the axis or bar.
        most: greatest value.
        no_value: what stands where there is no value.
        mappings: from values to words.
        overrides: for single fields.
        color: how values are coloured.
        reshape: transformations.
    """

    KIND = ""

    id: int | None = None
    gridPos: Json | None = None  # noqa: N815 - grafanalib's name
    title: str = ""
    description: str = ""
    page: str = ""
    interval: str | None = None
    targets: list[PromTarget] = attr.ib(factory=list)
    width: int = 12
    rows: int = 8
    unit: str = ""
    decimals: int | None = None
    least: float | None = None
    most: float | None = None
    no_value: str = ""
    mappings: list[Json] = attr.ib(factory=list)
    overrides: list[Json] = attr.ib(factory=list)
    color: Json = attr.ib(factory=lambda: {"mode": "palette-classic-by-name"})
    reshape: list[Json] = attr.ib(factory=list)

    def options(self) -> Json:
        """Return the options of this type of panel."""
        return {}

    def custom(self) -> Json:
        """Return the field options of this type of panel."""
        return {}

    def to_json_data(self) -> Json:
        """Return Grafana's JSON."""
        defaults: Json = {
            "color": self.color,
            "decimals": self.decimals,
            "mappings": self.mappings or None,
            "max": self.most,
            "min": self.least,
            "noValue": self.no_value or None,
            "thresholds": {
                "mode": "absolute",
                "steps": [{"color": NEUTRAL, "value": None}],
            },
            "unit": self.unit or None,
            "custom": self.custom() or None,
        }
        document = self.panel_json(
            {
                "type": self.KIND,
                "options": self.options(),
                "fieldConfig": {"defaults": defaults, "overrides": self.overrides},
                "pluginVersion": PLUGIN_VERSION,
                "datasource": DATASOURCE,
                "transformations": self.reshape or None,
            }
        )
        letters = enumerate(self.targets, ord("A"))
        document["targets"] = [
            attr.evolve(target, refId=chr(letter)) for letter, target in letters
        ]
        # A placeholder of release/publish.toml leads nowhere.
        more = "" if PLACEHOLDER in self.page else f" [More]({self.page})"
        document["description"] = self.description + more
        return {key: value for key, value in document.items() if key not in _DROPPED}


_CALC = {"calcs": ["lastNotNull"], "fields": "", "values": False}


@attr.s(auto_attribs=True, kw_only=True)
class Stat(Panel):
    """Tiles: a word or a number each.

    Attributes:
        text: `value`, `name`, or `value_and_name`.
        background: fill the tile with the colour, as judgements do; else the text has
            it.
    """

    KIND = "stat"

    width: int = 4
    rows: int = 4
    color: Json = attr.ib(factory=lambda: {"mode": "thresholds"})
    text: str = "value"
    background: bool = False

    def options(self) -> Json:
        """Return the options of a stat panel."""
        return {
            "colorMode": "background_solid" if self.background else "none",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": _CALC,
            "showPercentChange": False,
            "textMode": self.text,
            "wideLayout": True,
        }


@attr.s(auto_attribs=True, kw_only=True)
class TimeSeries(Panel):
    """Lines over time.

    Attributes:
        fill: opacity of the area below, in percent.
        stack: one series upon the other.
        soft_least: where the axis begins at the latest.
        soft_most: what the axis reaches at least, so that a line at 0 lies at the
            bottom.
        listed: whether the legend is a table on the right, with the last and the least
            value.
    """

    KIND = "timeseries"

    fill: int = 0
    stack: bool = False
    soft_least: float | None = None
    soft_most: float | None = None
    listed: bool = False

    def __attrs_post_init__(self) -> None:
        """Leave decimals to Grafana but for whole numbers: it would give several lines
        of an axis one label.

        Shares with 0 would have labels at 0 % and 100 % only.
        """
        if self.decimals or self.unit == "percentunit":
            self.decimals = None
        if self.listed:
            # Of a series that has ended, there is no last value.
            self.overrides = [
                override("byType", "number", noValue="-"),
                *self.overrides,
            ]

    def options(self) -> Json:
        """Return the options of a time series panel."""
        return {
            "legend": {
                "calcs": ["last", "min"] if self.listed else [],
                "displayMode": "table" if self.listed else "list",
                "placement": "right" if self.listed else "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }

    def custom(self) -> Json:
        """Return the field options of a time series panel."""
        return {
            "axisPlacement": "auto",
            "axisSoftMax": self.soft_most,
            "axisSoftMin": self.soft_least,
            "drawStyle": "line",
            "fillOpacity": self.fill,
            "lineInterpolation": "linear",
            "lineWidth": 2,
            "showPoints": "auto",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if self.stack else "none"},
        }


@attr.s(auto_attribs=True, kw_only=True)
class StateTimeline(Panel):
    """Words over time, a row for each series; their colours are those of the mappings.

    With colours by thresholds Grafana would merge values by thresholds, and all states
    would be one.

    Attributes:
        legend: whether the words are explained below.
    """

    KIND = "state-timeline"

    color: Json = attr.ib(factory=lambda: fixed(NEUTRAL))
    legend: bool = True

    def options(self) -> Json:
        """Return the options of a state timeline."""
        return {
            "alignValue": "left",
            "legend": {
                "calcs": [],
                "displayMode": "list",
                "placement": "bottom",
                "showLegend": self.legend,
            },
            "mergeValues": True,
            "rowHeight": 0.8,
            "showValue": "auto",
            "tooltip": {"mode": "single", "sort": "none"},
        }

    def custom(self) -> Json:
        """Return the field options of a state timeline."""
        return {"fillOpacity": 85, "lineWidth": 0}


@attr.s(auto_attribs=True, kw_only=True)
class Heatmap(Panel):
    """Buckets of a histogram over time.

    Attributes:
        label: of the axis.
        whole: the buckets hold one whole number each, so that it is the label of the
            row, not of its edge.
    """

    KIND = "heatmap"

    label: str = ""
    whole: bool = False

    def options(self) -> Json:
        """Return the options of a heatmap."""
        return {
            "calculate": False,
            "cellGap": 1,
            "color": {
                "exponent": 0.5,
                "fill": "dark-blue",
                "mode": "scheme",
                "reverse": False,
                "scale": "exponential",
                "scheme": "Viridis",
                "steps": 64,
            },
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "unknown" if self.whole else "auto"},
            "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": True},
            "yAxis": {
                "axisLabel": self.label,
                "axisPlacement": "left",
                "reverse": False,
                "unit": "short",
            },
            "cellValues": {"unit": self.unit},
        }

    def custom(self) -> Json:
        """Return the field options of a heatmap."""
        return {"scaleDistribution": {"type": "linear"}}


@attr.s(auto_attribs=True, kw_only=True)
class Table(Panel):
    """Rows of values.

    Attributes:
        sort: the column to sort by, and whether the greatest comes first.
        header: whether the columns have headings.
    """

    KIND = "table"

    width: int = 24
    color: Json = attr.ib(factory=lambda: {"mode": "thresholds"})
    sort: tuple[str, bool] | None = None
    header: bool = True

    def options(self) -> Json:
        """Return the options of a table."""
        if self.sort:
            by = [{"displayName": self.sort[0], "desc": self.sort[1]}]
        else:
            by = []
        return {
            "cellHeight": "sm",
            "footer": {"show": False},
            "showHeader": self.header,
            "sortBy": by,
        }

    def custom(self) -> Json:
        """Return the field options of a table."""
        return {
            "align": "auto",
            "cellOptions": {"type": "auto"},
            "filterable": False,
            "inspect": False,
        }


@attr.s(auto_attribs=True, kw_only=True)
class Text(Panel):
    """A few words in Markdown."""

    KIND = "text"

    width: int = 24
    rows: int = 2
    content: str = ""

    def to_json_data(self) -> Json:
        """Return Grafana's JSON."""
        return {
            "gridPos": self.gridPos,
            "id": self.id,
            "interval": self.interval,
            "options": {"content": self.content, "mode": "markdown"},
            "pluginVersion": PLUGIN_VERSION,
            "transparent": True,
            "type": self.KIND,
        }


@attr.s(auto_attribs=True, kw_only=True)
class Row(core.Panel):
    """A heading that can be folded; what stands below belongs to it.

    Attributes:
        folded: the panels below it that are not shown at first.
    """

    id: int | None = None
    gridPos: Json | None = None  # noqa: N815 - grafanalib's name
    title: str = ""
    folded: list[Panel] = attr.ib(factory=list)

    def to_json_data(self) -> Json:
        """Return Grafana's JSON."""
        return {
            "collapsed": bool(self.folded),
            "gridPos": self.gridPos,
            "id": self.id,
            "panels": self.folded,
            "title": self.title,
            "type": "row",
        }
