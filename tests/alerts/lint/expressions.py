"""PromQL expressions: the tree that the parser makes, and questions to it."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import promql_parser as promql

if TYPE_CHECKING:
    from collections.abc import Iterator

SETS = frozenset({"and", "or", "unless"})
RATES = frozenset({"rate", "increase", "irate"})


@cache
def parse(text: str) -> promql.Expr:
    """Return the tree of an expression.

    Raises:
        ValueError: it is none.
    """
    return promql.parse(text)


def children(node: promql.Expr) -> tuple[promql.Expr, ...]:
    """Return the expressions right below this one."""
    if isinstance(node, promql.BinaryExpr):
        return node.lhs, node.rhs
    if isinstance(node, promql.Call):
        return tuple(node.args)
    if isinstance(node, promql.MatrixSelector):
        return (node.vector_selector,)
    if isinstance(node, promql.AggregateExpr | promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        return (node.expr,)
    return ()


def walk(node: promql.Expr) -> Iterator[promql.Expr]:
    """Yield an expression and all below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def nodes(node: promql.Expr, kind: Any) -> Iterator[Any]:
    """Yield those of an expression and all below it that are of a kind."""
    return (item for item in walk(node) if isinstance(item, kind))


def bare(node: promql.Expr) -> promql.Expr:
    """Return what parentheses hold."""
    return bare(node.expr) if isinstance(node, promql.ParenExpr) else node


def operator(node: promql.BinaryExpr | promql.AggregateExpr) -> str:
    """Return the operator or aggregation as it is written, without `bool`."""
    return str(node.op).split()[0]


def aggregation(node: promql.Expr) -> tuple[str, promql.Expr | None]:
    """Return the name of an aggregation, over series or over time, and what it aggregates."""
    if isinstance(node, promql.AggregateExpr):
        return operator(node), node.expr
    if isinstance(node, promql.Call) and node.func.name.endswith("_over_time"):
        return node.func.name, node.args[-1]
    return "", None


def selector_name(node: promql.VectorSelector) -> str:
    """Return the metric that a selector names, however it is written."""
    named = (m.value for m in node.matchers.matchers if m.name == "__name__" and m.op == promql.MatchOp.Equal)
    return node.name or next(named, "")


def names(node: promql.Expr) -> set[str]:
    """Return the series that an expression uses."""
    return {selector_name(item) for item in nodes(node, promql.VectorSelector)}


def thresholds_in(used: set[str]) -> set[str]:
    """Return those of some series that are recorded thresholds."""
    return {name for name in used if name.endswith(":threshold")}


def matched_on(node: promql.BinaryExpr) -> tuple[bool, frozenset[str]]:
    """Return whether series are matched `on` labels, not `ignoring` some, and which."""
    found = node.modifier.matching if node.modifier else None
    if found is None:
        return False, frozenset()
    return found.type == promql.LabelModifierType.Include, frozenset(found.labels)


def many_side(node: promql.BinaryExpr) -> str:
    """Return the side, left or right, on which several series may match one: that of group_left or _right."""
    card = node.modifier.card if node.modifier else None
    if card == promql.VectorMatchCardinality.ManyToOne:
        return "left"
    return "right" if card == promql.VectorMatchCardinality.OneToMany else ""


def short(node: promql.Expr) -> str:
    """Return an expression as complaints show it."""
    text = re.sub(r"\s+", " ", str(node)).replace("{}", "")
    return text if len(text) <= 90 else f"{text[:87]}..."
