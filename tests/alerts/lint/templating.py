"""Templates in annotations: their tokens, the queries in them, and what is wrong with them."""

from __future__ import annotations

import re

from .expressions import names, parse

_ACTION = re.compile(r"\{\{-?(.*?)-?\}\}", re.DOTALL)
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|`[^`]*`|\$\w*(?:\.\w+)*|\.\w*|-?\d+(?:\.\d+)?|[A-Za-z]\w*|[|(),]|:=|\S'
)
#: Functions that the templates of Prometheus, Thanos, Mimir and vmalert share.
_FUNCTIONS = frozenset(
    {"humanize", "humanizePercentage", "humanizeDuration", "query", "first", "value", "printf", "urlquery"}
)
_BLOCKS = frozenset({"with", "range"})


def _actions(text: str) -> list[list[str]]:
    """Return the tokens of each template action."""
    return [_TOKEN.findall(action) for action in _ACTION.findall(text)]


def queries(text: str) -> list[str]:
    """Return the queries in the templates of a text, with a value in place of each verb."""
    found = []
    for tokens in _actions(text):
        if "query" in tokens:
            quoted = next((token for token in tokens if token[0] in '"`'), '""')
            inner = re.sub(r"\\(.)", r"\1", quoted[1:-1]) if quoted[0] == '"' else quoted[1:-1]
            found.append(inner.replace("%q", '"x"').replace("%s", "x"))
    return found


def names_asked(text: str) -> set[str]:
    """Return the series that the queries in the templates of a text use."""
    return {name for query in queries(text) for name in names(parse(query))}


def template_complaints(text: str, labels: frozenset[str]) -> list[str]:
    """Return what is wrong with the templates of an annotation of an alert with these labels."""
    found, depth = [], 0
    if re.search(r"\{\{|\}\}", _ACTION.sub("", text)):
        found.append("a brace too many")
    for tokens in _actions(text):
        head = tokens[0] if tokens else ""
        depth += (head in _BLOCKS) - (head == "end")
        if depth < 0 or (head == "else" and depth == 0):
            found.append(f"{head} without a block")
        for token in tokens[1:] if head in _BLOCKS | {"else", "end"} else tokens:
            found += _token_complaints(token, labels)
        if "printf" in tokens:
            found += _printf_complaints(tokens, tokens.index("printf"))
    return found + (["a block without an end"] if depth > 0 else [])


def _token_complaints(token: str, labels: frozenset[str]) -> list[str]:
    if token.startswith("$labels."):
        label = token.removeprefix("$labels.")
        # These may be missing anyhow: the label is then empty, and so is the text.
        return [] if label in labels | {"cluster", "namespace"} else [f"the alert has no label {label}"]
    if token.startswith("$"):
        return [] if token == "$value" else [f"{token} is none of $labels and $value"]
    if re.match(r"[A-Za-z]", token):
        return [] if token in _FUNCTIONS else [f"{token} is not known to all rule servers"]
    return [] if token in ("|", ".") or token[0] in '"`-0123456789' else [f"{token!r} is no simple template"]


def _printf_complaints(tokens: list[str], at: int) -> list[str]:
    """Say whether the verbs of a `printf` are as many as its values, one of which may be piped into it."""
    form, *values = [*tokens[at + 1 :], "|"]
    given = values.index("|") if "|" in values else 0
    given += "|" in tokens[:at]
    verbs = len(re.findall(r"%[^%]", form.replace("%%", "")))
    return [] if verbs == given else [f"printf with {verbs} verbs and {given} values"]
