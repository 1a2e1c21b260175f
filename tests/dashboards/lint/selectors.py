"""Checks of what a query selects: it exists, and every variable that applies narrows it down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import promql_parser as promql

from alerts.lint import shape
from alerts.lint.expressions import nodes, selector_name
from alerts.lint.metrics import unknown

from . import known
from .queries import BUILT_IN, matchers, variables_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .document import Dashboard
    from .queries import Query

#: Labels that a variable of the same name narrows down.
NARROWED = (
    "cluster", "namespace", "job", "instance", "pod", "model_name", "engine", "window", "temperature",
    "request_type",
)  # fmt: skip
#: Of vLLM's own series, which are scraped at another port as another job.
SERVER = {"job": "vllm_job", "instance": "vllm_instance"}
#: Of alerts: each is of another level, and an alert of a model has no engine that a variable could choose.
OF_ALERTS = ("cluster", "namespace", "model_name")


def known_series(query: Query, dashboard: Dashboard) -> list[str]:
    """Every series, label and value exists: at the exporter, in vLLM, among the records, or in Prometheus."""
    found = unknown(query.tree, known.bundle(), known.unknown_to_rules())
    for selector in nodes(query.tree, promql.VectorSelector):
        name = selector_name(selector)
        if name in known.unknown_to_rules():
            there = known.labels(selector)
            found += [f"{name} has no label {m.name}" for m in matchers(selector) if m.name not in there]
    return found


def known_labels(query: Query, dashboard: Dashboard) -> list[str]:
    """A query that shows labels shows those that its series have."""
    legend = query.target.legend if query.target else ""
    found = shape(query.tree, known.bundle())
    if found is None or found.origin in known.ALERTS:
        return []
    asked = [part.partition("}}")[0].strip() for part in legend.split("{{")[1:]]
    missing = [label for label in asked if not found.has(label)]
    return [f"the legend shows {label}, which the series never have" for label in missing]


def known_variables(query: Query, dashboard: Dashboard) -> list[str]:
    """Every variable is one of the dashboard's, or Grafana's own."""
    legend = query.target.legend if query.target else ""
    there = BUILT_IN.union(dashboard.names)
    used = dict.fromkeys(variables_in(query.expr) + variables_in(legend))
    return [f"no variable {name}" for name in used if name not in there]


def target_matchers(query: Query, dashboard: Dashboard) -> list[str]:
    """Every selector carries every variable that applies to its series, with `=~`, and all of one set."""
    found = []
    for selector in nodes(query.tree, promql.VectorSelector):
        name = selector_name(selector)
        prefixes = [_prefix(selector, prefix, query, dashboard) for prefix in _prefixes(dashboard)]
        best: list[str] = min(prefixes, key=len, default=[])
        found += [f"{name}: {words}" for words in best]
    return found


def _prefixes(dashboard: Dashboard) -> list[str]:
    """Return the prefixes of the sets of variables: "" or, where two sides are compared, one for each."""
    found = [name.removesuffix("instance") for name in dashboard.names if name.endswith("instance")]
    return [prefix for prefix in found if not prefix.endswith("vllm_")]


def _prefix(selector: promql.VectorSelector, prefix: str, query: Query, dashboard: Dashboard) -> list[str]:
    """Say what a selector lacks of a set of variables."""
    alert = known.origin(selector_name(selector)) == "alert"
    found = []
    for label, variable in _wanted(selector, prefix, query, dashboard):
        operator = promql.MatchOp.Equal if label == "window" else promql.MatchOp.Re
        if not any(
            matcher.name == label
            and matcher.op == operator
            and _goes_by(matcher.value, variable, alert=alert)
            for matcher in matchers(selector)
        ):
            found.append(f'lacks {label}{"=" if label == "window" else "=~"}"${variable}"')
    return found


def _goes_by(value: str, variable: str, *, alert: bool) -> bool:
    """Return whether a matcher's value is a variable, or that of one side or the other.

    An alert of an exporter has no model: "or none" is as good there.
    """
    parts = [part.replace("{", "").replace("}", "") for part in value.split("|")]
    return f"${variable}" in parts and all(part.startswith("$") or (alert and not part) for part in parts)


def _wanted(
    selector: promql.VectorSelector, prefix: str, query: Query, dashboard: Dashboard
) -> Iterator[tuple[str, str]]:
    """Yield the labels that a selector must match, and the variables to match them with."""
    name = selector_name(selector)
    there, source = known.labels(selector), known.origin(name)
    for label in NARROWED:
        if label not in there or (source == "alert" and label not in OF_ALERTS):
            continue
        shared = SERVER.get(label, label) if source == "server" else label
        # What both sides share has no prefix.
        variable = prefix + shared if prefix + shared in dashboard.names else shared
        there_is = variable in dashboard.names and not _comes_later(variable, query, dashboard)
        needed = source == "server" and label in SERVER and not query.variable
        if there_is or needed:
            yield label, variable


def _comes_later(variable: str, query: Query, dashboard: Dashboard) -> bool:
    """Return whether a variable is the one that asks or comes behind it, so that it cannot narrow it down."""
    if query.variable is None:
        return False
    return dashboard.names.index(variable) >= dashboard.names.index(query.variable.name)
