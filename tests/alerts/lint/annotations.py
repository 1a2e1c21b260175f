"""Checks of what an alert says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .metrics import query_complaints
from .shapes import Shape, shape
from .templating import queries, template_complaints

if TYPE_CHECKING:
    from .bundle import Bundle, Rule


def summary(rule: Rule, bundle: Bundle) -> list[str]:
    """The summary is one sentence that never changes."""
    text = rule.annotations.get("summary", "")
    if "{{" in text:
        return ["the summary has a template"]
    if not re.fullmatch(r"(?:[A-Z]|vLLM)[^.!?]*\.", text):
        return [f"the summary is not one sentence with a full stop: {text!r}"]
    return []


def description(rule: Rule, bundle: Bundle) -> list[str]:
    """The description names a value or whom it is about, where the alert has either."""
    text = rule.annotations.get("description", "")
    if not text:
        return ["no description"]
    anonymous = shape(rule.tree, bundle) == Shape()
    if anonymous or re.search(r"\$(value|labels\.)", text):
        return []
    return ["the description names no value and nobody"]


def links(rule: Rule, bundle: Bundle) -> list[str]:
    """An alert says what to do, and links to its runbook and a dashboard."""
    needed = ("action", "runbook_url", "dashboard_url")
    found = [f"no {name}" for name in needed if not rule.annotations.get(name)]
    if not rule.annotations.get("runbook_url", "").endswith(f"/{rule.name}.md"):
        found.append("runbook_url does not end in the alert's name")
    return found


def templates(rule: Rule, bundle: Bundle) -> list[str]:
    """Templates call only what all servers have, and name labels that the alert has."""
    labels = (shape(rule.tree, bundle) or Shape()).all_labels.union(rule.labels)
    return [
        f"{name}: {words}"
        for name, text in rule.annotations.items()
        for words in template_complaints(text, labels)
    ]


def template_queries(rule: Rule, bundle: Bundle) -> list[str]:
    """Queries in templates parse, and ask for what exists."""
    return [
        f"{name}: {words}"
        for name, text in rule.annotations.items()
        for query in queries(text)
        for words in query_complaints(query, bundle)
    ]
