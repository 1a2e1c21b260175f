"""Templates in annotations: the queries in them, and what they use."""

from __future__ import annotations

import re

from .expressions import names, parse

_ACTION = re.compile(r"\{\{-?(.*?)-?\}\}", re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|`([^`]*)`')
#: Functions that the templates of Prometheus, Thanos, Mimir and vmalert share.
_FUNCTIONS = frozenset(
    {"humanize", "humanizePercentage", "humanizeDuration", "query", "first", "value", "printf", "urlquery"}
)
_WORDS = _FUNCTIONS | {"with", "else", "end"}


def queries(text: str) -> list[str]:
    """Return the queries in the templates of a text, with a value in place of each verb."""
    found = []
    for action in _ACTION.findall(text):
        if re.search(r"\bquery\b", action) and (quoted := _QUOTED.search(action)):
            inner = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted[1] is not None else quoted[2]
            found.append(re.sub(r"%(\[\d\])?q", '"x"', inner).replace("%s", "x"))
    return found


def names_asked(text: str) -> set[str]:
    """Return the series that the queries in the templates of a text use."""
    return {name for query in queries(text) for name in names(parse(query))}


def template_complaints(text: str, labels: frozenset[str]) -> list[str]:
    """Return what templates of an alert with these labels use that it, or some rule server, does not have.

    Labels of where it runs may be missing anyhow: the label is then empty, and so is the text.
    """
    used = _QUOTED.sub("", " ".join(_ACTION.findall(text)))
    known = labels | {"cluster", "namespace"}
    found = [
        f"the alert has no label {name}" for name in re.findall(r"\$labels\.(\w+)", used) if name not in known
    ]
    words = re.findall(r"(?<![$.\w])[A-Za-z]\w*", used)
    return found + [f"{word} is not known to all rule servers" for word in words if word not in _WORDS]
