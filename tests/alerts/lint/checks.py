"""Checks of rules, by name: how series are read and matched, when an alert fires, and what it says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import promql_parser as promql

from .bundle import Bundle, Rule, records
from .expressions import (
    RATES,
    SETS,
    bare,
    children,
    many_side,
    matched_on,
    names,
    nodes,
    operator,
    selector_name,
    short,
    thresholds_in,
)
from .metrics import known_metrics, orphan
from .series import is_counter
from .shapes import Shape, shape
from .templating import names_asked, template_complaints
from .vocabulary import ACTIONS, PAGING, PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Check = Callable[[Rule, Bundle], list[str]]

# --- how raw series are read: counters as rates, gauges over some time

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


# --- what is matched with what


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


# --- when an alert fires, and whom it reaches


def alert_labels(rule: Rule, bundle: Bundle) -> list[str]:
    """Only some subjects page, and no label has a template; mypy sees to the words themselves."""
    severity, subject = (rule.labels.get(label) for label in ("severity", "subject"))
    found = []
    if severity == "critical" and subject not in PAGING:
        found.append(f"{subject} may not page; only {', '.join(PAGING)} may")
    templates = (name for name, value in rule.labels.items() if "{{" in value)
    return found + [f"label {name} is a template: each value is another alert" for name in templates]


def steadiness(rule: Rule, bundle: Bundle) -> list[str]:
    """An alert waits before it fires, and does not flap: it is kept for a while or has a dead band."""
    if rule.name == f"{PREFIX}Watchdog":
        return []
    found = [] if rule.body.get("for") else ["no for: fires at the first sample"]
    if not rule.body.get("keep_firing_for") and "ALERTS" not in names(rule.tree):
        found.append("neither keep_firing_for nor a dead band (ALERTS)")
    return found


def judgement(rule: Rule, bundle: Bundle) -> list[str]:
    """An alert that compares with a threshold shows value, threshold and sample, and needs a least sample."""
    compared = thresholds_in(names(rule.tree))
    if not any("minimum" not in name for name in compared):
        return []
    texts = rule.annotations
    found = [f"judges, and has no {name}" for name in ("value", "threshold", "sample") if name not in texts]
    shown = thresholds_in(names_asked(texts.get("threshold", "")))
    found += [f"shows {name}, which it does not compare with" for name in sorted(shown - compared)]
    sample, counts = names_asked(texts.get("sample", "")), _counts(rule)
    if not counts:
        found.append("judges without a least sample")
    elif sample and not _at_any_level(sample) & _at_any_level(counts):
        found.append(f"shows the sample {', '.join(sorted(sample))}, and counts {', '.join(sorted(counts))}")
    return found


def _counts(rule: Rule) -> set[str]:
    """Return the series that an alert compares with a least sample."""
    return {
        name
        for node in nodes(rule.tree, promql.BinaryExpr)
        if operator(node) in (">=", ">") and any("minimum" in n for n in thresholds_in(names(node.rhs)))
        for name in names(node.lhs)
    }


def _at_any_level(recorded: set[str]) -> set[str]:
    """Return recorded names without their levels."""
    return {name.partition(":")[2] for name in recorded}


def decision(rule: Rule, bundle: Bundle) -> list[str]:
    """A decision says what to do in the label action, with the K where one is meant."""
    found = shape(rule.tree, bundle) or Shape()
    labels = {**found.pinned, **rule.labels}
    action = labels.get("action")
    if (rule.labels.get("subject") == "decision") != (action is not None):
        return ["no label action" if action is None else "an action, and no decision"]
    if action is None:
        return []
    if action not in ACTIONS:
        return [f"action {action}; known: {', '.join(ACTIONS)}"]
    has_k = "recommended_k" in labels or found.has("recommended_k")
    if has_k != ACTIONS[action]:
        return [f"action {action} has {'a' if has_k else 'no'} recommended_k"]
    if action == "disable" and labels.get("recommended_k") != "0":
        return ["to disable is recommended_k 0"]
    return []


# --- what an alert says


def summary(rule: Rule, bundle: Bundle) -> list[str]:
    """The summary is one sentence that never changes."""
    text = rule.annotations.get("summary", "")
    if "{{" in text:
        return ["the summary has a template"]
    if not re.fullmatch(r"(?:[A-Z]|vLLM)[^.!?]*\.", text):
        return [f"the summary is not one sentence with a full stop: {text!r}"]
    return []


def templates(rule: Rule, bundle: Bundle) -> list[str]:
    """Templates call only what all servers have, and name labels that the alert has."""
    labels = (shape(rule.tree, bundle) or Shape()).all_labels.union(rule.labels)
    return [
        f"{name}: {words}"
        for name, text in rule.annotations.items()
        for words in template_complaints(text, labels)
    ]


# --- all of them

#: Checks of every rule.
CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (
        counters, bare_gauge, rate_of_sum, matching, short_range, known_metrics, orphan,
    )
}  # fmt: skip
#: Checks of alerts only.
ALERT_CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (
        alert_labels, summary, steadiness, judgement, decision, templates,
    )
}  # fmt: skip
