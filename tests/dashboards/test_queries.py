"""What dashboards query: series that exist, narrowed down by every variable, at Grafana's rates."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import promql_parser as promql

from alerts.lint.bundle import RATES, nodes, selector_name
from dashboards.documents import Json, dashboards, every_panel
from dashboards.series import DURATIONS, exists, labels, matchers, tree

#: Labels that a variable of the same name narrows down.
NARROWED = ("cluster", "namespace", "model_name", "window")
#: The same of the exporter's own series of engines, in panels.
OF_ENGINES = ("pod", "engine")
#: What must be equal, by board: Grafana does not escape the value of a variable that has only one.
EXACT = {("window", "overview"), ("window", "deep-dive"), ("model_name", "deep-dive")}
#: Ratios whose mean over engines is meant: the size of a cache is not known.
MEANT = ("vllm_specdec_kv_cache_usage_ratio",)
#: Characters of a query that can still be read, as the longest of kube-prometheus; longer ones are recorded.
MAX_QUERY = 900
_VARIABLE = re.compile(r"label_values\((.+), \w+\)|query_result\((.+)\)", re.DOTALL)
_RATIO = re.compile(r"vllm_specdec_\w*(_ratio|speedup|_length)|:ratio_")


class Query(NamedTuple):
    """A query: its dashboard, its panel, annotation or variable, its PromQL, and the variables it may use."""

    dashboard: str
    place: str
    expr: str
    before: Sequence[str]

    @property
    def selectors(self) -> list[promql.VectorSelector]:
        """What it selects."""
        return list(nodes(tree(self.expr), promql.VectorSelector))


def _queries(uid: str, dashboard: Json) -> Iterator[Query]:
    variables = dashboard["templating"]["list"]
    names = [one["name"] for one in variables]
    for panel in every_panel(dashboard):
        for target in panel.get("targets", ()):
            yield Query(uid, panel["title"], target["expr"], names)
    for mark in (one for one in dashboard["annotations"]["list"] if "expr" in one):
        yield Query(uid, f"annotation {mark['name']}", mark["expr"], names)
    for at, variable in enumerate(variables):
        if variable["type"] == "query":
            found = _VARIABLE.fullmatch(variable["query"]["query"])
            assert found is not None
            yield Query(uid, f"variable {variable['name']}", found[1] or found[2], names[:at])


QUERIES = [query for uid, dashboard in dashboards().items() for query in _queries(uid, dashboard)]


def test_every_series_exists() -> None:
    """Also those in branches that no world of the tests reaches."""
    assert [
        (query.dashboard, query.place, selector_name(selector))
        for query in QUERIES
        for selector in query.selectors
        if not exists(selector_name(selector))
    ] == []


def test_rates_are_over_grafanas_rate_interval_or_minutes() -> None:
    """At least four scrapes, and no less than a pixel; where a window is meant, it has five minutes."""
    assert [
        (query.dashboard, query.place, inner.range)
        for query in QUERIES
        for call in nodes(tree(query.expr), promql.Call)
        if call.func.name in RATES
        for inner in nodes(call.args[0], promql.MatrixSelector | promql.SubqueryExpr)
        if round(inner.range.total_seconds() * 1000) != DURATIONS["__rate_interval"]
        and inner.range.total_seconds() < 300
    ] == []


def test_no_query_is_a_burden() -> None:
    """A subquery is evaluated for a whole range at each point: over time, rules record such things."""
    targets = [
        (uid, panel["title"], target)
        for uid, dashboard in dashboards().items()
        for panel in every_panel(dashboard)
        for target in panel.get("targets", ())
    ]
    assert [place for *place, target in targets if len(target["expr"]) > MAX_QUERY] == []
    assert [(one.dashboard, one.place) for one in QUERIES if len(one.expr) > MAX_QUERY] == []
    assert [
        place
        for *place, target in targets
        if not target["instant"] and any(nodes(tree(target["expr"]), promql.SubqueryExpr))
    ] == []


def test_no_ratio_is_averaged() -> None:
    """It is weighted with what it divides by, or sums are divided: replicas are of very different traffic."""
    averaged = {
        (query.dashboard, query.place, name)
        for query in QUERIES
        for node in nodes(tree(query.expr), promql.AggregateExpr)
        if str(node.op) in ("avg", "quantile")
        for name in [selector_name(one) for one in nodes(node.expr, promql.VectorSelector)]
        if _RATIO.search(name) and name not in MEANT
    }
    assert averaged == set()


def lacking(selector: promql.VectorSelector, query: Query) -> Iterator[str]:
    """Yield the variables that apply to a selector and do not narrow it down."""
    there, alert = labels(selector), selector_name(selector) == "ALERTS"
    own = selector_name(selector).startswith(("vllm_specdec_", "engine:"))
    own = own and {"model_name", "engine"} <= there
    in_panel = not query.place.startswith(("annotation ", "variable "))
    for label in NARROWED:
        if label not in there or label not in query.before or (alert and label == "window"):
            continue
        exact = (label, query.dashboard) in EXACT and not alert
        operator = promql.MatchOp.Equal if exact else promql.MatchOp.Re
        # An alert of an exporter has no model: "or none" is as good there.
        wanted = {f"${label}", f"${label}|", f"${{{label}:regex}}|"} if alert else {f"${label}"}
        if not any((m.name, m.op) == (label, operator) and m.value in wanted for m in matchers(selector)):
            yield label
    chosen = {(m.name, m.value) for m in matchers(selector) if m.op == promql.MatchOp.Re}
    if own and in_panel and query.dashboard == "deep-dive":
        yield from (label for label in OF_ENGINES if (label, f"${label}") not in chosen)


def is_joined(selector: promql.VectorSelector, query: Query) -> bool:
    """Return whether it is a record of all models that is joined with one of the chosen models."""
    of_models = [one for one in query.selectors if selector_name(one).startswith("model:")]
    every = [one for one in of_models if not {m.name for m in matchers(one)} & set(NARROWED)]
    chosen = any(one not in every and not [*lacking(one, query)] for one in of_models)
    return selector in every and chosen and " on (" in query.expr


def test_every_selector_is_narrowed_down_by_every_variable_that_applies() -> None:
    """But what is joined with narrowed ones; and since when alerts are active, matched with the alerts."""
    assert [
        f"{query.dashboard}, {query.place}: {selector_name(selector)} lacks {label}"
        for query in QUERIES
        for selector in query.selectors
        if selector_name(selector) != "ALERTS_FOR_STATE"
        and 'alertname="VLLMSpecDecodeWatchdog"' not in str(selector)
        and not is_joined(selector, query)
        for label in lacking(selector, query)
    ] == []
