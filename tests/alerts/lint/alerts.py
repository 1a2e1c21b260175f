"""Checks of when an alert fires and whom it reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import promql_parser as promql

from .expressions import names, nodes, operator, thresholds_in
from .shapes import Shape, shape
from .templating import names_asked
from .vocabulary import ACTIONS, LEVELS, PAGING, PREFIX, SEVERITIES, SUBJECTS

if TYPE_CHECKING:
    from .bundle import Bundle, Rule


def alert_labels(rule: Rule, bundle: Bundle) -> list[str]:
    """Severity, subject and level are of those that routes and inhibition know; only some subjects page."""
    severity, subject, level = (rule.labels.get(label) for label in ("severity", "subject", "level"))
    found = []
    if severity not in SEVERITIES:
        found.append(f"severity {severity}; known: {', '.join(SEVERITIES)}")
    if subject not in SUBJECTS:
        found.append(f"subject {subject}; known: {', '.join(SUBJECTS)}")
    if level is not None and level not in LEVELS:
        found.append(f"level {level}; known: {', '.join(LEVELS)}")
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
