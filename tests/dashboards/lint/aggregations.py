"""Checks of what a query computes: counters as rates, sums divided at the end, series told apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import promql_parser as promql

from alerts.lint import CHECKS as RULE_CHECKS
from alerts.lint import Rule, shape
from alerts.lint.expressions import (
    COMPARISONS,
    RATES,
    SETS,
    aggregation,
    bare,
    children,
    nodes,
    number,
    operator,
    selector_name,
    short,
    walk,
)

from . import known
from .queries import ranges, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .document import Dashboard
    from .queries import Query

    QueryCheck = Callable[[Query, Dashboard], list[str]]

#: Checks of rules that hold for queries as well.
_SHARED = (
    "counters", "rate_of_sum", "matching", "regex_matcher", "denominator", "clamped_denominator",
)  # fmt: skip
#: What holds for rules only: a threshold in force, or a whole fleet, is one number and matches everything.
_OF_RULES = "on () matches everything with everything"


def _shared(name: str) -> QueryCheck:
    run = RULE_CHECKS[name]

    def check(query: Query, dashboard: Dashboard) -> list[str]:
        said = run(Rule({"record": "asked", "expr": readable(query.expr)}), known.bundle())
        return [words for words in said if not words.startswith(_OF_RULES)]

    check.__doc__, check.__name__ = run.__doc__, f"query_{name}"
    return check


SHARED = tuple(map(_shared, _SHARED))


def target_promql(query: Query, dashboard: Dashboard) -> list[str]:
    """Every query is PromQL."""
    try:
        query.tree  # noqa: B018 (the property parses)
    except ValueError as error:
        return [f"{query.expr!r} does not parse: {error}"]
    return []


def target_rate_interval(query: Query, dashboard: Dashboard) -> list[str]:
    """Rates are over `$__rate_interval`: at least four scrapes, and no less than a pixel."""
    return [
        f"{call.func.name} over {over}: {short(call)}"
        for call in nodes(query.tree, promql.Call)
        if call.func.name in RATES
        for over in [next((text for _, text in ranges(call.args[0])), "nothing")]
        if over != "$__rate_interval"
    ]


def one_number(query: Query, dashboard: Dashboard) -> list[str]:
    """Everything is put together where one number is meant: in a tile, as a line, or to divide by.

    In a table, or where lines are told apart by labels, an aggregation says by what.
    """
    if query.panel is None or query.panel.kind == "stat":
        return []
    found = shape(query.tree, known.bundle())
    if query.panel.kind != "table" and (found is None or not found.varying):
        return []
    return [
        f"{operator(node)} of everything: {short(node)}"
        for node in _in_front(query.tree)
        if isinstance(node, promql.AggregateExpr)
        and node.modifier is None
        and operator(node) not in ("topk", "bottomk")
        and not _is_threshold(node)
    ]


def _in_front(node: promql.Expr) -> Iterator[promql.Expr]:
    """Yield an expression and all below it, but for what stands behind an operator other than `or`."""
    yield node
    behind = isinstance(node, promql.BinaryExpr) and operator(node) != "or"
    for child in children(node)[: 1 if behind else None]:
        yield from _in_front(child)


def _is_threshold(node: promql.AggregateExpr) -> bool:
    """Return whether it is a threshold in force, which is one number."""
    return bool(re.search(r"vllm_specdec_threshold\{|:threshold\{", str(node)))


_AVERAGES = frozenset({"avg", "quantile", "avg_over_time", "quantile_over_time", "sum", "sum_over_time"})
_RATIO = re.compile(
    r":ratio_|vllm_specdec_\w*(_ratio|speedup|_length|_length_at|_per_step|_batch_size)(:|\Z)"
)


def averaged_ratio(query: Query, dashboard: Dashboard) -> list[str]:
    """No ratio is averaged or summed: it is weighted with what it divides by, or sums are divided."""
    return [
        f"{name} of a ratio: {short(node)}"
        for node in walk(query.tree)
        for name, inner in [aggregation(node)]
        if inner is not None and name in _AVERAGES and _is_ratio(inner) and not _only_drops_labels(node)
    ]


def _is_ratio(node: promql.Expr) -> bool:
    """Return whether a value is a ratio: a series named so, or a quotient of what is counted."""
    node = bare(node)
    if isinstance(node, promql.VectorSelector):
        return bool(_RATIO.search(selector_name(node)))
    if isinstance(node, promql.BinaryExpr):
        return _is_ratio_of_two(node)
    if isinstance(node, promql.Call) and node.func.name in RATES:
        return False
    if isinstance(node, promql.AggregateExpr) and operator(node).startswith(("count", "std", "group")):
        return False
    return any(_is_ratio(child) for child in children(node))


def _is_ratio_of_two(node: promql.BinaryExpr) -> bool:
    """Return whether an operation gives a ratio. A ratio times its denominator is the numerator again."""
    sign, left, right = operator(node), _is_ratio(node.lhs), _is_ratio(node.rhs)
    constant = [number(side) is not None for side in (node.lhs, node.rhs)]
    if sign in SETS | COMPARISONS:
        return left and not (node.modifier is not None and node.modifier.return_bool)
    if sign == "/":
        return left if constant[1] or left else not right
    if 0 in (number(node.lhs), number(node.rhs)):
        return False
    return (left or constant[0]) and (right or constant[1]) and not all(constant)


def _only_drops_labels(node: promql.Expr) -> bool:
    """Return whether it is a sum over labels of one value each, which only takes the labels away."""
    if not isinstance(node, promql.AggregateExpr) or operator(node) != "sum":
        return False
    inner, left = shape(node.expr, known.bundle()), shape(node, known.bundle())
    return inner is None or left is None or inner.varying - left.all_labels <= ONE_OF


#: Labels of which an engine has one value at a time.
ONE_OF = frozenset({"basis"})


def legends(query: Query, dashboard: Dashboard) -> list[str]:
    """Lines and rows are called something, and no two of them the same."""
    if (
        query.panel is None
        or query.target is None
        or query.panel.kind not in ("timeseries", "state-timeline")
    ):
        return []
    legend = query.target.legend
    found = shape(query.tree, known.bundle())
    if legend in ("", "__auto"):
        return ["no legend"]
    if found is None or found.origin:
        return []
    shown = {part.partition("}}")[0].strip() for part in legend.split("{{")[1:]}
    missing = sorted(found.varying - shown)
    return [f"series that differ in {', '.join(missing)} are called the same: {legend}"] if missing else []
