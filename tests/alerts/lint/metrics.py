"""Checks that what is used exists, and that what exists is used: series, labels, values, thresholds."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

import promql_parser as promql

from vllm_specdec_exporter.config.thresholds import Thresholds

from .bundle import Bundle, Rule, records
from .expressions import names, nodes, parse, selector_name, short
from .series import raw_metrics
from .shapes import selected, shape
from .templating import names_asked
from .vocabulary import DASHBOARDS

if TYPE_CHECKING:
    from .series import Values


def known_metrics(rule: Rule, bundle: Bundle) -> list[str]:
    """Every metric, label and value exists: at the exporter, in vLLM's captures, or among the records."""
    return unknown(rule.tree, bundle)


def query_complaints(query: str, bundle: Bundle, also: frozenset[str] = frozenset()) -> list[str]:
    """Return what is wrong with a query that is not a rule; of the metrics in `also` nothing is known."""
    try:
        return unknown(parse(query), bundle, also)
    except ValueError as error:
        return [f"{query}: does not parse: {error}"]


def unknown(tree: promql.Expr, bundle: Bundle, also: frozenset[str] = frozenset()) -> list[str]:
    """Return what an expression names that does not exist; of the metrics in `also` nothing is known."""
    found = []
    for selector in nodes(tree, promql.VectorSelector):
        name = selector_name(selector)
        if name in also:
            continue
        if name != "ALERTS" and name not in records(bundle) and name not in raw_metrics():
            found.append(f"unknown metric {name}")
            continue
        for matcher in selector.matchers.matchers:
            if matcher.name != "__name__":
                found += _unknown_in_matcher(selector, matcher, bundle)
    for node in nodes(tree, promql.AggregateExpr):
        inner = shape(node.expr, bundle)
        if node.modifier is None or inner is None or names(node) & also:
            continue
        if missing := sorted(set(node.modifier.labels) - inner.all_labels):
            found.append(f"{', '.join(missing)}: a label that the series never have: {short(node)}")
    return found


def _unknown_in_matcher(
    selector: promql.VectorSelector, matcher: promql.Matcher, bundle: Bundle
) -> list[str]:
    name, label = selector_name(selector), matcher.name
    if not selected(selector, bundle).has(label):
        return [f"{name} has no label {label}"]
    if matcher.op in (promql.MatchOp.Re, promql.MatchOp.NotRe):
        return []
    is_alert = name == "ALERTS"
    values = _alert_values(selector, label, bundle) if is_alert else _raw_values(name, label, bundle)
    if values is None or matcher.value in values:
        return []
    return [f'{name} never has {label}="{matcher.value}"']


def _alert_values(selector: promql.VectorSelector, label: str, bundle: Bundle) -> Values:
    if label == "alertstate":
        return frozenset({"pending", "firing"})
    if label == "alertname":
        return frozenset(rule.name for rule in bundle.alerts)
    named = {matcher.value for matcher in selector.matchers.matchers if matcher.name == "alertname"}
    return frozenset(r.labels[label] for r in bundle.alerts if r.name in named and label in r.labels) or None


def _raw_values(name: str, label: str, bundle: Bundle) -> Values:
    """Return the values of a label: of a record, those of the raw series that it comes from."""
    if name in raw_metrics():
        return raw_metrics()[name].labels.get(label)
    if name not in records(bundle):
        return None
    sources = names(records(bundle)[name].tree) - {name}
    known = [values for source in sources if (values := _raw_values(source, label, bundle))]
    return frozenset().union(*known) or None


def orphan(rule: Rule, bundle: Bundle) -> list[str]:
    """Every record is used: by an alert, by a record that is used, or by dashboards."""
    if rule.is_alert or rule.name in _used(bundle):
        return []
    return ["recorded, and used by no alert, no other record and no dashboard"]


@cache
def _used(bundle: Bundle) -> set[str]:
    """Return the series that an alert or a dashboard needs, be it through records."""
    needed = set(DASHBOARDS)
    # RulesBlind asks whether all thresholds are there, so it uses none.
    for alert in (one for one in bundle.alerts if one.name != "VLLMSpecDecodeRulesBlind"):
        needed |= names(alert.tree).union(*map(names_asked, alert.annotations.values()))
    found: set[str] = set()
    while needed:
        name = needed.pop()
        found.add(name)
        if name in records(bundle):
            needed |= names(records(bundle)[name].tree) - found
    return found


def idle_thresholds(bundle: Bundle) -> list[str]:
    """Return the thresholds that are said to be for alerts, and that no alert compares with."""
    return [
        f"threshold {item.name} is for alerts, and none compares with it"
        for item in fields(Thresholds)
        if item.metadata["meaning"].startswith("alerts:")
        and f"model:vllm_specdec_{item.name}:threshold" not in _used(bundle)
    ]
