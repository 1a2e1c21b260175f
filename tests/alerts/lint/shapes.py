"""The labels that the series of an expression have, worked out from the expression.

What is known of raw series says what a selector has, and each operation what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import promql_parser as promql

from .bundle import Bundle, records
from .expressions import SETS, bare, children, many_side, matched_on, names, operator, selector_name
from .series import raw_metrics
from .vocabulary import TARGET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Shape:
    """The labels of a vector.

    Attributes:
        labels: those known by name. A series need not have each: no namespace means no such label.
        origin: whose target labels it has besides; empty where an aggregation left nothing but `labels`.
        pinned: values that are the same for all of its series.
    """

    labels: frozenset[str] = frozenset()
    origin: str = ""
    pinned: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_labels(self) -> frozenset[str]:
        """Every label that a series can have."""
        return self.labels | TARGET if self.origin else self.labels

    @property
    def varying(self) -> frozenset[str]:
        """The labels by which its series differ."""
        return self.all_labels.difference(self.pinned)

    def has(self, label: str) -> bool:
        """Return whether a series can have this label."""
        return label in self.all_labels

    def keep(self, labels: Iterable[str]) -> Shape:
        """Return what `by` leaves."""
        kept = self.all_labels & frozenset(labels)
        return Shape(kept, "", {name: value for name, value in self.pinned.items() if name in kept})

    def drop(self, labels: Iterable[str]) -> Shape:
        """Return what `without` leaves."""
        gone = frozenset(labels)
        pinned = {name: value for name, value in self.pinned.items() if name not in gone}
        return Shape(self.labels - gone, self.origin, pinned)

    def matches(self, other: Shape) -> bool:
        """Return whether series of both can have all labels equal."""
        clash = any(other.pinned.get(name, value) != value for name, value in self.pinned.items())
        return (self.labels, self.origin) == (other.labels, other.origin) and not clash

    def __str__(self) -> str:
        words = [f'{name}="{self.pinned[name]}"' if name in self.pinned else name for name in self.labels]
        origin = [f"the {self.origin}'s target labels"] if self.origin else []
        return ", ".join(sorted(words) + origin) or "none"


def shape(node: promql.Expr, bundle: Bundle) -> Shape | None:
    """Return the labels of an expression's series; ``None`` for scalars and strings."""
    if isinstance(node, promql.VectorSelector):
        return selected(node, bundle)
    if isinstance(node, promql.AggregateExpr):
        return _aggregated(node, bundle)
    if isinstance(node, promql.BinaryExpr):
        return _joined(node, bundle)
    if isinstance(node, promql.Call):
        return _called(node, bundle)
    return shape(children(node)[0], bundle) if children(node) else None


def selected(node: promql.VectorSelector, bundle: Bundle) -> Shape:
    """Return the labels of the series that a selector finds."""
    name = selector_name(node)
    pinned = {m.name: m.value for m in node.matchers.matchers if m.op == promql.MatchOp.Equal and m.value}
    pinned.pop("__name__", None)
    if name in records(bundle):
        found = _recorded(bundle, name)
    elif name == "ALERTS":
        found = _alerts(bundle, pinned.get("alertname", ""))
    else:
        known = raw_metrics().get(name)
        found = Shape(frozenset(known.labels), known.origin) if known else Shape(origin=name)
    return Shape(found.labels, found.origin, {**found.pinned, **pinned})


@cache
def _recorded(bundle: Bundle, name: str) -> Shape:
    rule = records(bundle)[name]
    found = shape(rule.tree, bundle) or Shape()
    return Shape(found.labels.union(rule.labels), found.origin, {**found.pinned, **rule.labels})


def _alerts(bundle: Bundle, name: str) -> Shape:
    """Return the labels of `ALERTS` for an alert: its own, and those of what it fires for."""
    labels, origin = frozenset({"alertname", "alertstate"}), ""
    for rule in bundle.alerts:
        if rule.name == name:
            labels = labels.union(rule.labels)
            for source in _sources(rule.tree):
                if "ALERTS" not in names(source) and (found := shape(source, bundle)):
                    labels, origin = labels | found.labels, origin or found.origin
    return Shape(labels, origin)


def _sources(node: promql.Expr) -> Iterator[promql.Expr]:
    """Yield the parts of an alert that give it its labels; its dead band refers to itself, and adds none."""
    node = bare(node)
    if not isinstance(node, promql.BinaryExpr) or operator(node) not in SETS:
        yield node
        return
    yield from _sources(node.lhs)
    if operator(node) == "or":
        yield from _sources(node.rhs)


def _called(node: promql.Call, bundle: Bundle) -> Shape | None:
    name = node.func.name
    if name == "vector":
        return Shape()
    inner = next((found for arg in node.args if (found := shape(arg, bundle))), None)
    if inner is None or name == "scalar":
        return None
    if name.startswith("absent"):
        return Shape(frozenset(inner.pinned), "", inner.pinned)
    if name == "histogram_quantile":
        return inner.drop({"le"})
    if name in ("label_replace", "label_join"):
        return Shape(inner.labels | {_text(node.args[1])}, inner.origin, inner.pinned)
    return inner


def _aggregated(node: promql.AggregateExpr, bundle: Bundle) -> Shape | None:
    inner = shape(node.expr, bundle)
    if inner is None:
        return None
    if operator(node) in ("topk", "bottomk"):
        # Of the first of each group, the other labels are those of one series.
        by = node.modifier and node.modifier.type == promql.AggModifierType.By
        first = by and str(node.param) == "1"
        alone = inner.labels - set(node.modifier.labels) if first and node.modifier else frozenset()
        return Shape(inner.labels, inner.origin, {**inner.pinned, **dict.fromkeys(alone, "of the first")})
    if node.modifier is None:
        found = Shape()
    elif node.modifier.type == promql.AggModifierType.By:
        found = inner.keep(node.modifier.labels)
    else:
        found = inner.drop(node.modifier.labels)
    if operator(node) == "count_values":
        return Shape(found.labels | {_text(node.param)}, found.origin, found.pinned)
    return found


def _text(node: object) -> str:
    return node.val if isinstance(node, promql.StringLiteral) else ""


def _joined(node: promql.BinaryExpr, bundle: Bundle) -> Shape | None:
    left, right = shape(node.lhs, bundle), shape(node.rhs, bundle)
    if left is None or right is None:
        return left or right
    if operator(node) == "or":
        both = dict(left.pinned.items() & right.pinned.items())
        return Shape(left.labels | right.labels, left.origin or right.origin, both)
    if operator(node) in SETS:
        return left
    if side := many_side(node):
        many = left if side == "left" else right
        more = frozenset((node.modifier and node.modifier.group_labels) or ())
        return Shape(many.labels | more, many.origin, many.pinned)
    on, labels = matched_on(node)
    return left.keep(labels) if on else left.drop(labels)
