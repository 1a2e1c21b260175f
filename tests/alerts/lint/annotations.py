"""Checks of what an alert says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .shapes import Shape, shape
from .templating import template_complaints

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
