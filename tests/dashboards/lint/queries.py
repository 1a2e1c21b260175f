"""The queries of a dashboard: of panels, annotations and variables, as trees that keep its variables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import promql_parser as promql

from alerts.lint.expressions import nodes, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .document import Dashboard, Panel, Target, Variable

#: A variable, as Grafana takes it: `$name`, `${name}`, `${name:format}`, `[[name]]`.
VARIABLE = re.compile(
    r"\$(?P<plain>[A-Za-z_]\w*)"
    r"|\$\{(?P<braced>[A-Za-z_][\w.]*)(?::(?P<format>\w+))?\}"
    r"|\[\[(?P<old>\w+)\]\]"
)
#: Formats that Grafana knows.
FORMATS = frozenset({"csv", "json", "pipe", "queryparam", "raw", "regex", "singlequote", "text"})
#: Durations of Grafana itself, and what stands for them in trees: no other duration is as odd.
DURATIONS = {
    "__rate_interval": timedelta(minutes=1, milliseconds=1),
    "__interval": timedelta(seconds=15, milliseconds=2),
    "__range": timedelta(hours=3, milliseconds=3),
    "window": timedelta(minutes=5, milliseconds=4),
    "over": timedelta(minutes=30, milliseconds=5),
}
_NUMBERS = {"__interval_ms": 15000, "__range_ms": 10800000, "__range_s": 10800}
#: Variables that Grafana has by itself.
BUILT_IN = frozenset({*DURATIONS, *_NUMBERS, "__from", "__to", "__dashboard"} - {"window", "over"})
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)""")
_LABEL_VALUES = re.compile(r"label_values\(\s*(?:(?P<selector>.+),\s*)?(?P<label>\w+)\s*\)", re.DOTALL)
_QUERY_RESULT = re.compile(r"query_result\((?P<expr>.+)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Query:
    """A query.

    Attributes:
        place: what complaints call the panel, annotation or variable that asks.
        expr: what is asked.
        panel: the panel that asks, if one does.
        target: the target of the panel that asks, if one does.
        variable: the variable that asks, if one does.
    """

    place: str
    expr: str
    panel: Panel | None = None
    target: Target | None = None
    variable: Variable | None = None

    @property
    def tree(self) -> promql.Expr:
        """What is asked, parsed.

        Raises:
            ValueError: it is no PromQL.
        """
        return parse(readable(self.expr))


def queries(dashboard: Dashboard) -> Iterator[Query]:
    """Yield all queries of a dashboard."""
    for panel in dashboard.panels:
        for target in panel.targets:
            yield Query(panel.place, target.expr, panel=panel, target=target)
    for mark in dashboard.annotations:
        if "expr" in mark:
            yield Query(f"annotation {mark.get('name')}", str(mark["expr"]))
    for variable in dashboard.variables:
        if variable.kind == "query" and (expr := asked(variable)):
            yield Query(f"variable {variable.name}", expr, variable=variable)


def asked(variable: Variable) -> str:
    """Return the PromQL in a variable's query; "" for `label_values(label)`, which needs none."""
    if found := _LABEL_VALUES.fullmatch(variable.query.strip()):
        return found["selector"] or ""
    found = _QUERY_RESULT.fullmatch(variable.query.strip())
    return found["expr"] if found else variable.query


def asked_label(variable: Variable) -> str:
    """Return the label whose values a variable has; "" where its query does not say."""
    found = _LABEL_VALUES.fullmatch(variable.query.strip())
    return found["label"] if found else ""


def readable(expr: str) -> str:
    """Return an expression as PromQL: variables in strings stay, others become odd durations or numbers."""
    parts = _QUOTED.split(expr)
    return "".join(part if at % 2 else VARIABLE.sub(_value, part) for at, part in enumerate(parts))


def _value(found: re.Match[str]) -> str:
    """Return what stands for a variable: a duration, or a number, as one that is chosen may be."""
    name = _name(found)
    if name in DURATIONS:
        return f"{DURATIONS[name] // timedelta(milliseconds=1)}ms"
    return found[0] if name.startswith("__") and name not in _NUMBERS else str(_NUMBERS.get(name, 3))


def _name(found: re.Match[str]) -> str:
    return found["plain"] or found["braced"] or found["old"]


def variables_in(text: str) -> list[str]:
    """Return the names of the variables in a text."""
    return [_name(found) for found in VARIABLE.finditer(text)]


def ranges(tree: promql.Expr) -> Iterator[tuple[promql.Expr, str]]:
    """Yield range selectors and subqueries with their ranges: a variable with its `$`, or a duration."""
    known = {value: f"${name}" for name, value in DURATIONS.items()}
    for node in nodes(tree, promql.MatrixSelector | promql.SubqueryExpr):
        yield node, known.get(node.range, f"{node.range.total_seconds():g}s")


def matchers(selector: promql.VectorSelector) -> list[Any]:
    """Return the matchers of a selector but for that of its name."""
    return [matcher for matcher in selector.matchers.matchers if matcher.name != "__name__"]
