"""What Grafana does with a dashboard before it queries Prometheus: variables,
intervals, and the queries.

After `calculatePrometheusInterval` and `interpolateVariables` of Grafana's
pkg/promlib/models/query.go, `calculateInterval` and `roundInterval` of @grafana/data,
`interpolateQueryExpr` (escaping.ts), metric_find_query.ts, and `addLabelToQuery` for ad
hoc filters.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from dashboards.documents import every_panel
from support.prometheus import PrometheusServer

#: What a variable may be set to: one value, or several.
Value = str | tuple[str, ...]
Json = Mapping[str, Any]

ALL = "$__all"
#: Panels without queries.
SILENT = frozenset({"row", "text"})
#: Points of a series that Grafana never exceeds, whatever the panel wants.
_SAFE_POINTS = 11_000
#: Upper bound of an interval in milliseconds, and what Grafana rounds it to.
_ROUNDED = (
    (10, 1), (15, 10), (35, 20), (75, 50), (150, 100), (350, 200), (750, 500),
    (1_500, 1_000), (3_500, 2_000), (7_500, 5_000), (12_500, 10_000),
    (17_500, 15_000), (25_000, 20_000), (45_000, 30_000), (90_000, 60_000),
    (210_000, 120_000), (450_000, 300_000), (750_000, 600_000),
    (1_050_000, 900_000), (1_500_000, 1_200_000), (2_700_000, 1_800_000),
    (5_400_000, 3_600_000), (9_000_000, 7_200_000), (16_200_000, 10_800_000),
    (32_400_000, 21_600_000), (86_400_000, 43_200_000), (604_800_000, 86_400_000),
    (1_814_400_000, 604_800_000), (3_628_800_000, 2_592_000_000),
)  # fmt: skip
_YEAR = 31_536_000_000
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?::(\w+))?\}")
_LEFT_OVER = re.compile(r"\$\{|\[\[\w+")
_LABEL_VALUES = re.compile(r"label_values\((?:(.+),\s*)?([a-zA-Z_]\w*)\)\s*")
_QUERY_RESULT = re.compile(r"query_result\((.+)\)\s*")
_SELECTOR = re.compile(r"(\w\{[^{}]*)\}")


class DashboardError(ValueError):
    """Grafana could not make a query of this, or would make a wrong one."""


@dataclass(frozen=True)
class Viewing:
    """A person who looks at a dashboard."""

    start: float  # Unix time at which the range begins
    end: float  # Unix time at which it ends
    #: Of variables; of the others, what the dashboard has as `current`
    values: Mapping[str, Value] = field(default_factory=dict)
    #: Ad hoc filters: values that labels are equal to
    filters: Mapping[str, str] = field(default_factory=dict)
    pixels: int = 1440  # width of the dashboard
    scrape_interval: float = 15.0  # of the data source, in seconds


@dataclass(frozen=True)
class Timing:
    """Distances in time of one query, in milliseconds."""

    step: int  # between two points; `$__interval`
    rate_interval: int  # `$__rate_interval`
    range: int  # from the start to the end of the view; `$__range`

    def values(self) -> dict[str, str]:
        """Return Grafana's own variables."""
        return {
            "__interval": _duration(self.step),
            "__rate_interval": _duration(self.rate_interval),
            "__range": f"{round(self.range / 1000)}s",
        }


def timing(viewing: Viewing, panel: Json) -> Timing:
    """Return the distances in time of a panel's queries; one without `gridPos` is as
    wide as the page.
    """
    span = round((viewing.end - viewing.start) * 1000)
    points = max(1, int(viewing.pixels * panel.get("gridPos", {}).get("w", 24) / 24))
    scrape = round(viewing.scrape_interval * 1000)
    wanted = max(scrape, _rounded(span / points))
    step = _rounded(span / points)
    if span / points < wanted:
        step = wanted
    step = max(step, _rounded(span / _SAFE_POINTS))
    return Timing(step, max(wanted + scrape, 4 * scrape), span)


def _rounded(interval: float) -> int:
    return next((value for bound, value in _ROUNDED if interval < bound), _YEAR)


def _duration(value: int) -> str:
    """Return milliseconds as PromQL writes a duration."""
    if value % 1000 == 0:
        return f"{value // 1000}s"
    return f"{value}ms"


# --- variables


@dataclass(frozen=True)
class Variable:
    """A variable with its options and what is chosen."""

    name: str  # its name
    options: tuple[str, ...]  # values to choose from, without All
    value: Value  # what is chosen; `$__all` for All
    #: Whether several can be chosen, or All, so that values are regular expressions.
    multi: bool
    all_value: str = ""  # what All stands for

    @property
    def is_all(self) -> bool:
        """Whether All is chosen."""
        return self.value in (ALL, (ALL,))

    def text(self, format_: str = "") -> str:
        """Return what Grafana puts in the place of the variable.

        Raises:
            DashboardError: the format is unknown.
        """
        values = self.value
        if isinstance(values, str):
            values = (values,)
        if format_ == "queryparam":
            if self.is_all:
                return f"var-{self.name}={ALL}"
            return "&".join(f"var-{self.name}={quote(v, safe='')}" for v in values)
        if format_ == "regex" and isinstance(self.value, str):
            return _escaped(self.value)
        if format_:
            msg = f"${{{self.name}:{format_}}}: unknown format"
            raise DashboardError(msg)
        if self.is_all and self.all_value:
            return self.all_value
        chosen = values
        if self.is_all:
            chosen = self.options
        if not self.multi:
            # Grafana does not escape the only value for regular expressions.
            return chosen[0].replace("\\", "\\\\").replace('"', '\\"')
        escaped = list(map(_escaped, chosen))
        if len(escaped) == 1:
            return escaped[0]
        return f"({'|'.join(escaped)})"


def _escaped(value: str) -> str:
    """Escape for a regular expression within a string of PromQL."""
    return re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", value.replace("\\", "\\\\\\\\"))


def interpolate(
    text: str,
    variables: Mapping[str, Variable],
    built_in: Mapping[str, str] | None = None,
) -> str:
    """Put values in the place of variables; `own` are Grafana's own, such as `__range`.

    Raises:
        DashboardError: a variable is unknown.
    """
    built_in = built_in or {}

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        format_ = match[3] or ""
        if name in built_in and not format_:
            return built_in[name]
        if name.isdigit():
            # a group of label_replace: Grafana leaves unknown variables alone
            return match[0]
        if name not in variables:
            msg = f"{text}: no variable {name}"
            raise DashboardError(msg)
        return variables[name].text(format_)

    if _LEFT_OVER.search(_VARIABLE.sub("", text)):
        msg = f"{text}: not a variable as Grafana writes it"
        raise DashboardError(msg)
    return _VARIABLE.sub(value, text)


def resolve(
    prometheus: PrometheusServer, dashboard: Json, viewing: Viewing
) -> dict[str, Variable]:
    """Return the variables of a dashboard with their options; the values of those
    before narrow them down.
    """
    variables: dict[str, Variable] = {}
    for definition in dashboard["templating"]["list"]:
        if definition["type"] == "adhoc":
            continue
        name = definition["name"]
        several = bool(definition.get("multi"))
        options = _options(prometheus, definition, viewing, variables)
        value = viewing.values.get(name)
        if value is None and definition["type"] == "textbox":
            value = definition["current"]["value"]
        elif value is None:
            value = _current(definition, options)
        variables[name] = Variable(
            name,
            options,
            value=value,
            multi=several,
            all_value=definition.get("allValue") or "",
        )
    return variables


def _current(definition: Json, options: tuple[str, ...]) -> Value:
    """Return the value that a dashboard opens with: one that does not exist gives way
    to the first.
    """
    value = definition["current"].get("value")
    if value == [ALL]:
        return ALL
    if value in options:
        return value
    return next(iter(options), "")


def _options(
    prometheus: PrometheusServer,
    definition: Json,
    viewing: Viewing,
    variables: Mapping[str, Variable],
) -> tuple[str, ...]:
    if definition["type"] in ("datasource", "textbox"):
        return ()
    built_in = {"__range": f"{round(viewing.end - viewing.start)}s"}
    text = interpolate(definition["query"]["query"], variables, built_in)
    values = _answers(prometheus, text, viewing)
    if regex := definition.get("regex"):
        matches = (re.search(regex.strip("/"), value) for value in values)
        values = (match[1] for match in matches if match)
    distinct = tuple(dict.fromkeys(values))
    if definition["sort"]:
        return tuple(sorted(distinct))
    return distinct


def _answers(
    prometheus: PrometheusServer, text: str, viewing: Viewing
) -> Iterator[str]:
    if match := _LABEL_VALUES.fullmatch(text):
        within = {
            "start": f"{viewing.start:.3f}",
            "end": f"{viewing.end:.3f}",
            "match[]": match[1],
        }
        yield from prometheus.api(f"label/{match[2]}/values", **within)
    elif match := _QUERY_RESULT.fullmatch(text):
        for item in prometheus.api("query", query=match[1], time=f"{viewing.end:.3f}")[
            "result"
        ]:
            inner = ",".join(
                f'{key}="{value}"' for key, value in item["metric"].items()
            )
            yield f"{{{inner}}} {item['value'][1]} {round(item['value'][0] * 1000)}"
    else:
        msg = f"not a query of a variable: {text!r}"
        raise DashboardError(msg)


# --- queries


def panels(dashboard: Json) -> list[Json]:
    """Return the panels that have queries, also those folded into rows."""
    return [panel for panel in every_panel(dashboard) if panel["type"] not in SILENT]


def unfolded(dashboard: Json) -> Json:
    """Return a dashboard as it looks once somebody has opened all its rows: each moves
    the rest down.
    """
    opened = []
    moved = 0
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        opened.append(
            {
                **panel,
                "collapsed": False,
                "panels": [],
                "gridPos": {**at, "y": at["y"] + moved},
            }
        )
        for inner in panel.get("panels", ()):
            at = inner["gridPos"]
            opened.append({**inner, "gridPos": {**at, "y": at["y"] + moved}})
        if panel.get("collapsed"):
            moved += max(
                folded["gridPos"]["y"] + folded["gridPos"]["h"]
                for folded in panel["panels"]
            )
            moved -= panel["gridPos"]["y"] + 1
    return {**dashboard, "panels": opened}


@dataclass(frozen=True)
class Query:
    """A query as Prometheus gets it."""

    expression: str  # without variables
    instant: bool  # whether it is for the end of the range only
    step: int  # between two points, in milliseconds


def queries(
    panel: Json, viewing: Viewing, variables: Mapping[str, Variable]
) -> dict[str, Query]:
    """Return the queries of a panel by `refId`.

    Raises:
        DashboardError: Grafana would send none, or another.
    """
    when = timing(viewing, panel)
    by_ref: dict[str, Query] = {}
    for target in panel["targets"]:
        ref = target["refId"]
        instant = bool(target.get("instant"))
        if instant == bool(target.get("range")) or ref in by_ref:
            msg = (
                f"{panel.get('title')}: {ref} is not one query, either instant or over "
                "the range"
            )
            raise DashboardError(msg)
        expression = interpolate(target["expr"], variables, when.values())
        by_ref[ref] = Query(filtered(expression, viewing.filters), instant, when.step)
    return by_ref


def filtered(expression: str, filters: Mapping[str, str]) -> str:
    """Return an expression whose selectors, which all have braces here, also match the
    ad hoc filters.
    """
    added = "".join(f',{label}="{value}"' for label, value in filters.items())
    if added:
        return _SELECTOR.sub(rf"\g<1>{added}}}", expression)
    return expression


def ask(prometheus: PrometheusServer, query: Query, viewing: Viewing) -> Any:
    """Return the `data` of Prometheus's response; a range begins and ends at multiples
    of the step.
    """
    if query.instant:
        return prometheus.api(
            "query", query=query.expression, time=f"{viewing.end:.3f}"
        )
    step = query.step / 1000
    return prometheus.api(
        "query_range",
        query=query.expression,
        start=f"{viewing.start // step * step:.3f}",
        end=f"{viewing.end // step * step:.3f}",
        step=f"{step:g}",
    )


def annotations(
    prometheus: PrometheusServer, dashboard: Json, viewing: Viewing
) -> dict[str, Any]:
    """Return the `data` of the responses to a dashboard's own annotations, by name."""
    variables = resolve(prometheus, dashboard, viewing)
    when = timing(viewing, {})
    # Their own step, where Grafana's would be smaller.
    step = max(when.step, 60_000)
    built_in = Timing(step, max(step + 60_000, 240_000), when.range).values()
    return {
        mark["name"]: ask(
            prometheus,
            Query(interpolate(mark["expr"], variables, built_in), False, step),
            viewing,
        )
        for mark in dashboard["annotations"]["list"]
        if not mark.get("builtIn")
    }
