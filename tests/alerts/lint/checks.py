"""Checks of rules, by name: each returns its complaints about one rule in words, none
where all is well.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path

import promql_parser as promql

from vllm_specdec_exporter.config.thresholds import Thresholds

from .bundle import (
    PREFIX,
    RATES,
    Bundle,
    Rule,
    bare,
    names,
    nodes,
    parse,
    records,
    selector_name,
)
from .series import TARGET, is_counter, raw_metrics

Check = Callable[[Rule, Bundle], list[str]]


#: A rate is over at least four scrapes a minute apart.
_LEAST_RANGE = 240.0
#: Subjects that may page: monitoring is lost, or users are hurt.
_PAGING = ("monitoring", "payoff", "errors")
#: Alerts without `for`: one always fires, the other while two alerts do that wait
#: themselves.
_AT_ONCE = (f"{PREFIX}Watchdog", f"{PREFIX}Disable")
#: Recorded for panels and for the queries of runbooks.
_FOR_DASHBOARDS = (
    "model:vllm_specdec_verdict:info",
    "model:vllm_specdec_drafts:rate1d",
)
#: Functions and words that the templates of Prometheus, Thanos, Mimir and vmalert
#: share.
_TEMPLATE_WORDS = frozenset(
    (
        "humanize",
        "humanizePercentage",
        "humanizeDuration",
        "printf",
        "urlquery",
        "query",
        "first",
        "value",
        "label",
        "range",
        "if",
        "with",
        "else",
        "end",
    )
)
_RECORD = re.compile(r"[a-z]+:\w+:\w+")
_TEMPLATE = re.compile(r"\{\{-?(.*?)-?\}\}", re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|`([^`]*)`')


# --- of every rule


def rates(rule: Rule, bundle: Bundle) -> list[str]:
    """A rate is of a raw counter over some minutes: a sum hides that one of its
    counters began anew.
    """
    found = []
    for call in nodes(rule.tree, promql.Call):
        argument = bare(call.args[0]) if call.func.name in RATES else None
        if isinstance(argument, promql.MatrixSelector):
            name = selector_name(argument.vector_selector)
            if not is_counter(name) or name in records(bundle):
                found.append(f"{call.func.name} of {name}, which is no counter")
            if argument.range.total_seconds() < _LEAST_RANGE:
                found.append(f"{call.func.name} over less than 4 minutes: {name}")
        elif argument is not None:
            found.append(f"{call.func.name} of an expression, not of a counter")
    return found


def over_time(rule: Rule, bundle: Bundle) -> list[str]:
    """A gauge of the exporter is read over some time, so that a lost scrape hides
    nothing.
    """
    if rule.name == "model:vllm_specdec_restarts:count2h":
        return []  # an engine that was not there two hours ago is a new one
    selectors = nodes(rule.tree, promql.VectorSelector, without=promql.MatrixSelector)
    used = sorted({selector_name(selector) for selector in selectors})
    return [
        f"{name} without a function over time"
        for name in used
        if name.startswith("vllm_specdec_") and not is_counter(name)
    ]


def known(rule: Rule, bundle: Bundle) -> list[str]:
    """Every series exists, and every raw one has the labels that it is selected by."""
    return _unknown(rule.tree, bundle)


def orphan(rule: Rule, bundle: Bundle) -> list[str]:
    """Every record is used: by an alert, by a record that is used, or by dashboards."""
    if rule.is_alert or rule.name in _used(bundle):
        return []
    return ["recorded, and used by nothing"]


# --- of alerts


def alert_labels(rule: Rule, bundle: Bundle) -> list[str]:
    """Only some subjects page, and no label has a template: each value would be another
    alert.
    """
    subject = rule.labels.get("subject")
    pages = rule.labels.get("severity") == "critical"
    if pages and subject not in _PAGING:
        found = [f"{subject} may not page"]
    else:
        found = []
    return found + [
        f"label {name} is a template"
        for name, value in rule.labels.items()
        if "{{" in value
    ]


def steadiness(rule: Rule, bundle: Bundle) -> list[str]:
    """An alert waits before it fires, and does not flap: it is kept for a while or has
    a dead band.
    """
    if rule.body.get("for") or rule.name in _AT_ONCE:
        found = []
    else:
        found = ["no for: fires at the first sample"]
    steady = rule.body.get("keep_firing_for") or "ALERTS" in names(rule.tree)
    if steady or rule.name in _AT_ONCE:
        return found
    return [*found, "neither keep_firing_for nor a dead band"]


def summary(rule: Rule, bundle: Bundle) -> list[str]:
    """The summary is one sentence that never changes."""
    text = rule.annotations.get("summary", "")
    if re.fullmatch(r"(?:[A-Z]|vLLM)[^.!?{]*\.", text):
        return []
    return [f"no one sentence: {text!r}"]


def templates(rule: Rule, bundle: Bundle) -> list[str]:
    """Templates call only what all rule servers have."""
    actions = " ".join(
        action
        for text in rule.annotations.values()
        for action in _TEMPLATE.findall(text)
    )
    words = re.findall(r"(?<![$.\w])[A-Za-z]\w*", _QUOTED.sub("", actions))
    return [
        f"{word} is not in all rule servers"
        for word in words
        if word not in _TEMPLATE_WORDS
    ]


#: Checks of every rule, and those of alerts only.
CHECKS: Mapping[str, Check] = {
    one.__name__: one for one in (rates, over_time, known, orphan)
}
ALERT_CHECKS: Mapping[str, Check] = {
    one.__name__: one for one in (alert_labels, steadiness, summary, templates)
}


def complaints(rule: Rule, bundle: Bundle) -> list[str]:
    """Return what all checks say of a rule."""
    checks = {**CHECKS, **(ALERT_CHECKS if rule.is_alert else {})}
    return [
        f"{rule.title}: {words}"
        for check in checks.values()
        for words in check(rule, bundle)
    ]


# --- what exists, and what is used


def query_complaints(query: str, bundle: Bundle, also: frozenset[str]) -> list[str]:
    """Return what is wrong with a query that is not a rule; of the series in `also`
    nothing is known.
    """
    try:
        return _unknown(parse(query), bundle, also)
    except ValueError as error:
        return [f"does not parse: {error}"]


def _unknown(
    tree: promql.Expr, bundle: Bundle, also: frozenset[str] = frozenset()
) -> list[str]:
    found = []
    for selector in nodes(tree, promql.VectorSelector):
        name = selector_name(selector)
        if name not in raw_metrics():
            if name not in records(bundle) and name not in also | {"ALERTS"}:
                found.append(f"unknown metric {name}")
            continue
        labels = {"__name__"} | TARGET | raw_metrics()[name]
        # Of a label that the target has too, Prometheus gives the exporter's another
        # name.
        asked = [
            matcher.name.removeprefix("exported_")
            for matcher in selector.matchers.matchers
        ]
        found += [
            f"{name} has no label {label}" for label in asked if label not in labels
        ]
    return found


@cache
def _dashboards() -> str:
    """Return the text of all dashboards."""
    folder = Path(__file__).parents[3] / "dashboards" / "json"
    return "".join(path.read_text("utf-8") for path in sorted(folder.glob("*.json")))


@cache
def _used(bundle: Bundle) -> set[str]:
    """Return the series that an alert or a dashboard needs, be it through records."""
    needed = {
        *_FOR_DASHBOARDS,
        *(name for name in records(bundle) if name in _dashboards()),
    }
    for alert in bundle.alerts:
        needed |= names(alert.tree) | set(_RECORD.findall(str(alert.annotations)))
    found: set[str] = set()
    while needed:
        name = needed.pop()
        found.add(name)
        if name in records(bundle):
            needed |= names(records(bundle)[name].tree) - found
    return found


def idle_thresholds(bundle: Bundle) -> list[str]:
    """Return the thresholds that are said to be for alerts, and that no alert compares
    with.
    """
    expressions = " ".join(str(rule.body["expr"]) for rule in bundle.rules)
    return [
        item.name
        for item in fields(Thresholds)
        if item.metadata["meaning"].startswith("alerts:")
        and f'{{threshold="{item.name}"}}' not in expressions
    ]
