"""Checks of ratios: sums are divided, ratios are not summed, and nothing is divided by 0."""

from __future__ import annotations

import re
from dataclasses import fields

import promql_parser as promql

from vllm_specdec_exporter.config.thresholds import Thresholds

from .bundle import Bundle, Rule, records
from .expressions import (
    COMPARISONS,
    RATES,
    SETS,
    aggregation,
    bare,
    children,
    divides_series,
    nodes,
    number,
    operator,
    selector_name,
    short,
    walk,
)
from .shapes import shape

_AVERAGES = frozenset({"avg", "quantile", "avg_over_time", "quantile_over_time"})
_SUMS = frozenset({"sum", "sum_over_time"})
#: Aggregations whose value is above a number where all that they aggregate is.
_SAME_ABOVE = frozenset(
    {"min", "max", "avg", "min_over_time", "max_over_time", "avg_over_time", "last_over_time"}
)
_RATIO = re.compile(r":ratio_|vllm_specdec_\w*(_ratio|speedup|mean_acceptance_length)(:|\Z)")


def averaged_ratio(rule: Rule, bundle: Bundle) -> list[str]:
    """No ratio is averaged or summed: sums are divided. Deviations of ratios are welcome."""
    return [
        f"{name} of a ratio: {short(node)}"
        for node in walk(rule.tree)
        for name, inner in [aggregation(node)]
        if inner is not None
        and name in _AVERAGES | _SUMS
        and _is_ratio(inner)
        and not _only_drops_labels(node, bundle)
    ]


def _is_ratio(node: promql.Expr) -> bool:
    """Return whether a value is a ratio: a series named so, or a quotient of series."""
    node = bare(node)
    if isinstance(node, promql.VectorSelector):
        return bool(_RATIO.search(selector_name(node)))
    if isinstance(node, promql.BinaryExpr):
        if operator(node) == "/":
            return divides_series(node)
        sides = (node.lhs,) if operator(node) in SETS | COMPARISONS else (node.lhs, node.rhs)
        return any(_is_ratio(side) for side in sides)
    if isinstance(node, promql.Call) and node.func.name in RATES | {"stddev_over_time", "stdvar_over_time"}:
        return False
    if isinstance(node, promql.AggregateExpr) and operator(node).startswith(("count", "std", "group")):
        return False
    return any(_is_ratio(child) for child in children(node))


def _only_drops_labels(node: promql.Expr, bundle: Bundle) -> bool:
    """Return whether it is a sum over labels of one value each, which only takes the labels away."""
    if not isinstance(node, promql.AggregateExpr) or operator(node) != "sum":
        return False
    inner, left = shape(node.expr, bundle), shape(node, bundle)
    return inner is None or left is None or not inner.varying - left.all_labels


def clamped_denominator(rule: Rule, bundle: Bundle) -> list[str]:
    """No denominator is clamped from below: it makes up a ratio near 0 for an idle server."""
    return [
        f"clamp_min in a denominator: {short(node.rhs)}"
        for node in nodes(rule.tree, promql.BinaryExpr)
        if operator(node) == "/"
        and any(call.func.name in ("clamp_min", "clamp") for call in nodes(node.rhs, promql.Call))
    ]


def denominator(rule: Rule, bundle: Bundle) -> list[str]:
    """What is divided by cannot be 0: it is compared with `> 0` or is above 0 by itself."""
    return [
        f"the denominator can be 0: {short(node.rhs)}"
        for node in nodes(rule.tree, promql.BinaryExpr)
        if operator(node) in ("/", "%") and not _never_zero(node.rhs, bundle)
    ]


def _never_zero(node: promql.Expr, bundle: Bundle) -> bool:
    node = bare(node)
    if isinstance(node, promql.UnaryExpr):
        return _never_zero(node.expr, bundle)
    if (
        isinstance(node, promql.BinaryExpr)
        and operator(node) in ("<", "!=")
        and number(node.rhs) == 0
        and not _gives_bool(node)
    ):
        return True
    return _above(node, 0, bundle)


def _gives_bool(node: promql.BinaryExpr) -> bool:
    return node.modifier is not None and node.modifier.return_bool


def _above(node: promql.Expr, least: float, bundle: Bundle) -> bool:
    """Return whether every value of an expression is surely above a number."""
    node = bare(node)
    if (constant := number(node)) is not None:
        return constant > least
    if isinstance(node, promql.BinaryExpr):
        return _above_binary(node, least, bundle)
    if isinstance(node, promql.MatrixSelector):
        node = node.vector_selector
    if isinstance(node, promql.VectorSelector):
        return _above_series(selector_name(node), least, bundle)
    name, inner = aggregation(node)
    if inner is not None and name in (_SAME_ABOVE | _SUMS if least == 0 else _SAME_ABOVE):
        return _above(inner, least, bundle)
    if isinstance(node, promql.Call) and node.func.name == "histogram_quantile":
        # Within a bucket a quantile is interpolated, and vLLM's first bucket begins at 0.
        return least == 0 and (number(node.args[0]) or 0) > 0
    return False


#: Raw series whose values are surely above 0, and why.
_ABOVE_ZERO = {
    "vllm_specdec_speedup": "a quotient of times, both of which are above 0",
    "vllm_specdec_latency_ratio": "the exporter leaves out quantiles that are 0",
}


def _above_series(name: str, least: float, bundle: Bundle) -> bool:
    if limits := _threshold_limits(name):
        return limits[0] > least
    if name in records(bundle):
        return _above(records(bundle)[name].tree, least, bundle)
    return least <= 0 and name in _ABOVE_ZERO


def _threshold_limits(name: str) -> tuple[float, float] | None:
    """Return the least and the most that a recorded threshold can be."""
    for item in fields(Thresholds):
        if name == f"model:vllm_specdec_{item.name}:threshold":
            return item.metadata["least"], item.metadata["most"]
    return None


def _above_binary(node: promql.BinaryExpr, least: float, bundle: Bundle) -> bool:
    sign, left, right = operator(node), number(node.lhs), number(node.rhs)
    if sign == "or":
        return _above(node.lhs, least, bundle) and _above(node.rhs, least, bundle)
    if sign in SETS:
        return _above(node.lhs, least, bundle)
    if sign in COMPARISONS:
        if _gives_bool(node):
            return False
        guarded = right is not None and (
            (sign == ">" and right >= least) or (sign in (">=", "==") and right > least)
        )
        return guarded or _above(node.lhs, least, bundle)
    if sign in ("+", "-") and right is not None:
        return _above(node.lhs, least - right if sign == "+" else least + right, bundle)
    if sign == "+" and left is not None:
        return _above(node.rhs, least - left, bundle)
    if sign == "-" and left is not None and isinstance(found := bare(node.rhs), promql.VectorSelector):
        limits = _threshold_limits(selector_name(found))
        return limits is not None and left - limits[1] > least
    positive = sign in ("*", "/", "^") and least == 0
    return positive and _above(node.lhs, 0, bundle) and _above(node.rhs, 0, bundle)
