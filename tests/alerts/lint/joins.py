"""Checks of what is matched with what: the sides of an operation, and labels with values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import promql_parser as promql

from .expressions import SETS, many_side, matched_on, nodes, operator, short
from .shapes import Shape, shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .bundle import Bundle, Rule


def matching(rule: Rule, bundle: Bundle) -> list[str]:
    """Vectors of different labels say what they match on; of several to one, on which side they are."""
    return [
        f"{words}: {short(node)}"
        for node in nodes(rule.tree, promql.BinaryExpr)
        if (left := shape(node.lhs, bundle)) and (right := shape(node.rhs, bundle))
        for words in _mismatch(node, left, right)
    ]


def _mismatch(node: promql.BinaryExpr, left: Shape, right: Shape) -> Iterator[str]:
    on, labels = matched_on(node)
    sides = {"left": left, "right": right}
    if on:
        if not labels:
            yield "on () matches everything with everything"
        for side, one in sides.items():
            if missing := sorted(labels - one.all_labels):
                yield f"on ({', '.join(missing)}), which the {side} side never has"
    elif operator(node) == "or":
        if not left.matches(right):
            yield f"the sides of or have different labels ({left} and {right})"
    elif not left.drop(labels).matches(right.drop(labels)):
        yield f"labels never match: {left.drop(labels)} and {right.drop(labels)}"
    if operator(node) in SETS:
        return
    for side, one in sides.items():
        over = one.varying - labels if on else one.varying & labels
        if over and side != many_side(node):
            yield f"several series of the {side} side match: they differ in {', '.join(sorted(over))}"


def regex_matcher(rule: Rule, bundle: Bundle) -> list[str]:
    """A regular expression is one: a plain string is matched with = or !=."""
    return [
        f'{matcher.name} is matched with the plain string "{matcher.value}" as a regular expression'
        for selector in nodes(rule.tree, promql.VectorSelector)
        for matcher in selector.matchers.matchers
        if matcher.op in (promql.MatchOp.Re, promql.MatchOp.NotRe)
        and not re.search(r"[.*+?|()\[\]{}^$\\]", matcher.value)
    ]
