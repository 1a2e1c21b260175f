"""Checks of what a panel says: title, description, and the words where there is no value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from alerts.lint.expressions import names

from . import known
from .queries import Query, variables_in

if TYPE_CHECKING:
    from .document import Dashboard, Panel

_MOST = 60
_METRIC = re.compile(r"\w+:\w+|\b[a-z0-9]+(_[a-z0-9]+)+\b")
_SENTENCE = re.compile(r"[.?!](?=[*`)]*(?:\s|\Z))")
_QUOTED = re.compile(r"`([^`]+)`")
#: What a sentence has that says what to do or when; "Condition: what to do." among it.
_ADVICE = re.compile(
    r"\w: [a-z]|\b(if|when|where|while|until|unless|once|before|as soon as|below|above|near)\b"
    r"|\b(add|ask|check|choose|click|compare|consider|disable|enable|expect|find|fix|follow|free|give|go|keep|leave|"
    r"look|lower|measure|move|open|paste|raise|read|record|restart|see|set|start|stop|switch|try|turn|use|wait)\b",
    re.IGNORECASE,
)
#: Types of panels that can be empty, and then say so.
CAN_BE_EMPTY = frozenset({"stat", "table", "bargauge", "timeseries"})


def panel_title(panel: Panel, dashboard: Dashboard) -> list[str]:
    """A title is a question or a noun, short, no metric's name, and the only one of its kind."""
    title = panel.title
    if not title:
        return [] if panel.kind == "text" else ["no title"]
    found = []
    if len(title) > _MOST:
        found.append(f"the title has {len(title)} characters, not at most {_MOST}")
    if _METRIC.search(title):
        found.append(f"the title names a metric: {title}")
    if not re.match(r"[A-Z0-9]|vLLM", title) or title.endswith((".", ":", "!")):
        found.append(f"the title is neither a question nor a noun: {title}")
    if [other.title for other in dashboard.all_panels].count(title) > 1:
        found.append(f"two panels are called {title}")
    return found


def panel_title_description(panel: Panel, dashboard: Dashboard) -> list[str]:
    """A description has two sentences: what it shows, from which series it asks, and what to do."""
    if panel.kind in ("text", "row"):
        return []
    text = panel.description
    if not text:
        return ["no description"]
    found = []
    if len(_SENTENCE.findall(text)) < 2:
        found.append("the description has less than two sentences")
    asked = {name for target in panel.targets for name in _names(panel, target.expr)}
    quoted = {_series(part) for part in _QUOTED.findall(text)}
    if not asked & quoted:
        found.append(f"the description names none of {', '.join(sorted(asked))} in backticks")
    if not _ADVICE.search(text):
        found.append("the description does not say what to do")
    return found


def named_series(panel: Panel, dashboard: Dashboard) -> list[str]:
    """A series that a description names exists."""
    text = panel.description + str(panel.body.get("options", {}).get("content", ""))
    return [
        f"the description names {name}, which does not exist"
        for part in _QUOTED.findall(text)
        for name in [_series(part)]
        if re.fullmatch(r"vllm(:|_specdec_)\w+|\w+:vllm_\w+:\w+", name) and not known.exists(name)
    ]


def _series(quoted: str) -> str:
    return quoted.partition("{")[0].partition("[")[0].strip()


def _names(panel: Panel, expr: str) -> set[str]:
    try:
        return names(Query(panel.place, expr).tree)
    except ValueError:
        return set()


def says_something(panel: Panel, dashboard: Dashboard) -> list[str]:
    """A panel that can be empty says what that means; a text says something, as Markdown."""
    if panel.kind in CAN_BE_EMPTY and not panel.defaults.get("noValue"):
        return ["no text where there is no value"]
    options = panel.body.get("options", {})
    if panel.kind == "text" and not (
        options.get("mode") == "markdown" and options.get("content", "").strip()
    ):
        return ["says nothing as Markdown"]
    return []


def variables_in_words(panel: Panel, dashboard: Dashboard) -> list[str]:
    """Variables in titles, descriptions and texts are the dashboard's."""
    texts = (panel.title, panel.description, str(panel.body.get("options", {}).get("content", "")))
    return [
        f"no variable {name}"
        for text in texts
        for name in variables_in(text)
        if name not in dashboard.names and not name.startswith("__")
    ]
