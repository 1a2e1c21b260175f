"""Checks of runbooks: one for each alert, its headings, and the queries to paste."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .metrics import query_complaints
from .series import PROMETHEUS

if TYPE_CHECKING:
    from .bundle import Bundle

_HEADINGS = ("Meaning", "Impact", "Diagnosis", "Mitigation")
_FENCE = re.compile(r"^[ \t]*```promql[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)


def runbook_complaints(name: str, text: str, bundle: Bundle) -> list[str]:
    """Return what is wrong with the runbook of an alert."""
    found = []
    first = text.lstrip().partition("\n")[0]
    if first != f"# {name}":
        found.append(f"begins with {first!r}, not with # {name}")
    _, *parts = re.split(r"^## +(.*)\n", text, flags=re.MULTILINE)
    titles = tuple(title.strip() for title in parts[::2])
    sections = dict(zip(titles, parts[1::2], strict=True))
    if titles != _HEADINGS:
        found.append(f"has the headings {', '.join(titles) or 'none'}, not {', '.join(_HEADINGS)}")
    if not _FENCE.search(sections.get("Diagnosis", "")):
        found.append("has no ```promql query in Diagnosis")
    for fence in _FENCE.findall(text):
        found += query_complaints(fence.strip(), bundle, PROMETHEUS)
    return found


def missing_runbooks(bundle: Bundle) -> list[str]:
    """Return which alerts have no runbook, and which runbooks no alert."""
    there = set(bundle.runbooks or ()) - {"README.md"}
    needed = {f"{rule.name}.md" for rule in bundle.alerts}
    missing = [f"no runbook {name}" for name in sorted(needed - there)]
    return missing + [f"{name} is the runbook of no alert" for name in sorted(there - needed)]
