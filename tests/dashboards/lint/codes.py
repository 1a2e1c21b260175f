"""The codes that an expression can give, where it gives words their numbers."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import promql_parser as promql

from alerts.lint.expressions import COMPARISONS, bare, number, operator, selector_name
from vllm_specdec_exporter.publish.metrics import METRICS
from vllm_specdec_exporter.publish.metrics.metric import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .document import Dashboard, Panel

from .queries import Query

_ONE_HOT = frozenset(
    {row.full_name for row in METRICS if getattr(row.expand, "__qualname__", "").startswith("one_hot.")}
)
_YES_NO = frozenset(
    {
        "up",
        *(f"{PREFIX}{name}" for name in ("up", "config_last_reload_successful", "request_workload_mixed")),
    }
)
_ALWAYS_1 = frozenset({f"{PREFIX}info", f"{PREFIX}build_info", "ALERTS"})
_SAME = frozenset(
    {"label_replace", "label_join", "sort", "sort_desc", "last_over_time", "max_over_time", "min_over_time"}
)


def codes(node: promql.Expr) -> set[float] | None:
    """Return all values that an expression can have, or ``None`` if they cannot be counted."""
    node = bare(node)
    if (constant := number(node)) is not None:
        return {constant}
    if isinstance(node, promql.VectorSelector):
        return _of_series(selector_name(node))
    if isinstance(node, promql.MatrixSelector):
        return codes(node.vector_selector)
    if isinstance(node, promql.SubqueryExpr):
        return codes(node.expr)
    if isinstance(node, promql.UnaryExpr):
        inner = codes(node.expr)
        return None if inner is None else {-value for value in inner}
    if isinstance(node, promql.AggregateExpr):
        return _of_aggregation(node)
    if isinstance(node, promql.Call):
        return _of_call(node)
    return _of_operation(node) if isinstance(node, promql.BinaryExpr) else None


def _of_series(name: str) -> set[float] | None:
    if name in _ONE_HOT | _YES_NO:
        return {0, 1}
    return {1} if name in _ALWAYS_1 else None


def _of_aggregation(node: promql.AggregateExpr) -> set[float] | None:
    if operator(node) == "group":
        return {1}
    return codes(node.expr) if operator(node) in ("max", "min", "topk", "bottomk") else None


def _of_call(node: promql.Call) -> set[float] | None:
    if node.func.name == "vector":
        return codes(node.args[0])
    if node.func.name.startswith(("absent", "present_over_time")):
        return {1}
    return codes(node.args[0]) if node.func.name in _SAME else None


def _of_operation(node: promql.BinaryExpr) -> set[float] | None:
    sign = operator(node)
    left, right = codes(node.lhs), codes(node.rhs)
    if sign in COMPARISONS:
        if node.modifier is not None and node.modifier.return_bool:
            return {0, 1}
        return right if sign == "==" and right is not None else left
    if sign in ("and", "unless"):
        return left
    if sign == "*" and (left == {0} or right == {0}):
        return {0}
    if left is None or right is None:
        return None
    if sign == "or":
        return left | right
    apply = {"+": float.__add__, "-": float.__sub__, "*": float.__mul__}.get(sign)
    return {apply(float(a), float(b)) for a, b in product(left, right)} if apply else None


def mapped_codes(panel: Panel, dashboard: Dashboard) -> list[str]:
    """Where values stand for words, every value that the query can give has its word."""
    found = []
    for ref, expr, words in _coded(panel):
        try:
            given = codes(Query(panel.place, expr).tree)
        except ValueError:
            continue
        if given is None:
            found.append(f"cannot tell which codes query {ref} gives")
        else:
            found += [f"query {ref} gives {code:g}, which has no word" for code in sorted(given - words)]
    return found


def _coded(panel: Panel) -> Iterator[tuple[str, str, set[float]]]:
    """Yield the queries whose values are shown as words: letter, expression, and the values that have one."""
    columns = panel.columns
    for target in panel.targets:
        words = _words(panel.defaults.get("mappings", ()))
        column = columns.get(f"Value #{target.ref}", columns.get("Value", target.legend))
        for name, properties in panel.fields:
            if name and name == column and "mappings" in properties:
                words = _words(properties["mappings"])
        if len(words) > 1:
            yield target.ref, target.expr, words


def _words(mappings: object) -> set[float]:
    """Return the values that a mapping of single values has words for."""
    return {
        float(code)
        for one in (mappings if isinstance(mappings, list) else ())
        if one.get("type") == "value"
        for code in one["options"]
        if _is_number(code)
    }


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
