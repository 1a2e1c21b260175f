"""Checks of how raw series are read: counters as rates, gauges over some time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import promql_parser as promql

from .bundle import Bundle, Rule, records
from .expressions import RATES, SETS, bare, children, nodes, operator, selector_name, short
from .series import is_counter, raw_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

_LEAST_RANGE = 240.0
_OF_COUNTERS = RATES | {
    "changes", "resets", "count_over_time", "present_over_time", "absent_over_time", "absent",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Use:
    """How an expression uses a series.

    Attributes:
        name: the series.
        function: the function right above it.
        presence: whether only its presence counts, not its value.
    """

    name: str
    function: str
    presence: bool


def _uses(node: promql.Expr, function: str = "", *, presence: bool = False) -> Iterator[_Use]:
    if isinstance(node, promql.VectorSelector):
        yield _Use(selector_name(node), function, presence)
    elif isinstance(node, promql.ParenExpr | promql.MatrixSelector):
        yield from _uses(children(node)[0], function, presence=presence)
    elif isinstance(node, promql.BinaryExpr) and operator(node) in SETS:
        yield from _uses(node.lhs, presence=presence)
        yield from _uses(node.rhs, presence=presence or operator(node) != "or")
    else:
        function = node.func.name if isinstance(node, promql.Call) else ""
        counted = isinstance(node, promql.AggregateExpr) and operator(node) in ("count", "group")
        for child in children(node):
            yield from _uses(child, function, presence=counted)


def counters(rule: Rule, bundle: Bundle) -> list[str]:
    """Rates are of raw counters, and raw counters are only read as rates or for their presence."""
    found = []
    for use in _uses(rule.tree):
        counter = use.name not in records(bundle) and is_counter(use.name)
        if use.function in RATES and not counter:
            found.append(f"{use.function} of {use.name}, which is no counter")
        if counter and use.function not in _OF_COUNTERS and not use.presence:
            found.append(f"{use.name} is a counter, and stands outside of rate, increase, changes and resets")
    return found


def bare_gauge(rule: Rule, bundle: Bundle) -> list[str]:
    """A gauge of the exporter is read over some time, so that a lost scrape hides nothing."""
    return [
        f"{use.name} without a function over time"
        for use in _uses(rule.tree)
        if use.name.startswith("vllm_specdec_")
        and not is_counter(use.name)
        and not use.function.endswith("_over_time")
        and use.function != "changes"
    ]


def rate_of_sum(rule: Rule, bundle: Bundle) -> list[str]:
    """Rates come before sums: a sum hides that one of its counters began anew."""
    return [
        f"{node.func.name} of an expression, not of a counter: {short(node)}"
        for node in nodes(rule.tree, promql.Call)
        if node.func.name in RATES and not isinstance(bare(node.args[0]), promql.MatrixSelector)
    ]


def short_range(rule: Rule, bundle: Bundle) -> list[str]:
    """A rate is over at least four scrapes a minute apart."""
    return [
        f"{node.func.name} over less than 4 minutes: {short(node)}"
        for node in nodes(rule.tree, promql.Call)
        if node.func.name in RATES
        and isinstance(arg := bare(node.args[0]), promql.MatrixSelector)
        and arg.range.total_seconds() < _LEAST_RANGE
    ]


def offset(rule: Rule, bundle: Bundle) -> list[str]:
    """What is looked up in the past is a recorded series or a gauge."""
    return [
        f"offset of {name}, which is neither recorded nor a gauge"
        for selector in nodes(rule.tree, promql.VectorSelector)
        if selector.offset
        and (name := selector_name(selector)) not in records(bundle)
        and (name not in raw_metrics() or is_counter(name))
    ]
