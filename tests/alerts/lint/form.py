"""Checks of the YAML: keys and types that every rule server takes, and expressions that parse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import promql_parser as promql

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .bundle import Bundle, Rule

_RECORD_KEYS = {"record": str, "expr": str, "labels": dict}
_ALERT_KEYS = {
    "alert": str, "expr": str, "for": str, "keep_firing_for": str, "labels": dict, "annotations": dict,
}  # fmt: skip
_GROUP_KEYS = {"name": str, "interval": str, "rules": list}
#: How far back Prometheus looks for a sample.
_LOOK_BACK = 300.0


def parses(rule: Rule, bundle: Bundle) -> list[str]:
    """Every expression parses."""
    try:
        rule.tree  # noqa: B018 (the property parses)
    except ValueError as error:
        return [f"does not parse: {error}"]
    return []


def rule_form(rule: Rule, bundle: Bundle) -> list[str]:
    """A rule has only keys that every rule server takes, of their types; texts are texts, not numbers."""
    found = _form(rule.body, _ALERT_KEYS if rule.is_alert else _RECORD_KEYS, ("expr",))
    for name, value in (*rule.labels.items(), *rule.annotations.items()):
        if not isinstance(value, str):
            found.append(f"{name} is {value!r}, not a text")
        elif not value:
            found.append(f"{name} is empty")
    for key in ("for", "keep_firing_for"):
        if key in rule.body and _seconds(rule.body[key]) is None:
            found.append(f"{key} is {rule.body[key]!r}, which is no duration")
    return found


def group_form(group: Mapping[str, Any], bundle: Bundle) -> list[str]:
    """A group has a name of its own with the prefix, and an interval, if any, below the look-back of 5m."""
    found = _form(group, _GROUP_KEYS, ("name", "rules"))
    name = str(group.get("name", ""))
    if not name.startswith("vllm-specdec."):
        found.append("the name does not begin with vllm-specdec.")
    if sum(other.get("name") == name for other in bundle.groups) > 1:
        found.append("two groups have this name")
    if "interval" in group and not 0 < (_seconds(group["interval"]) or 0) < _LOOK_BACK:
        found.append(f"interval {group['interval']}: series would vanish between two evaluations")
    return found


def _form(body: Mapping[str, Any], known: Mapping[str, type], needed: Iterable[str]) -> list[str]:
    unknown = [f"unknown key {key}" for key in body if key not in known]
    wrong = [
        f"{key} is no {kind.__name__}"
        for key, kind in known.items()
        if key in body and not isinstance(body[key], kind)
    ]
    return unknown + wrong + [f"no {key}" for key in needed if not body.get(key)]


def _seconds(text: object) -> float | None:
    try:
        return promql.parse_duration(str(text)).total_seconds()
    except ValueError:
        return None
