"""Alertmanager's routes and inhibitions in the form of the operator's
AlertmanagerConfig.
"""

import re
from collections.abc import Mapping
from typing import Any

_MATCHER = re.compile(r'^(\w+)(=~|!~|!=|=)"(.*)"$')
#: Keys of a route, and how the operator spells them.
_ROUTE = {
    "receiver": "receiver",
    "group_by": "groupBy",
    "group_wait": "groupWait",
    "group_interval": "groupInterval",
    "repeat_interval": "repeatInterval",
    "continue": "continue",
}


def alertmanager_config(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return route and inhibitRules of an AlertmanagerConfig.

    Args:
        document: alertmanager.yml. Its root route passes everything of ours to one
            child; that one becomes the root here, for the operator sets one in front of
            it. Receivers come from the chart's values.

    Raises:
        ValueError: something has no counterpart, and would be lost.
    """
    (ours,) = document["route"]["routes"]
    return {
        "route": _route(ours),
        "inhibitRules": [_inhibition(rule) for rule in document["inhibit_rules"]],
    }


def _route(route: Mapping[str, Any]) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    for key, value in route.items():
        if key == "matchers":
            converted["matchers"] = [_matcher(text) for text in value]
        elif key == "routes":
            converted["routes"] = [_route(child) for child in value]
        elif key in _ROUTE:
            converted[_ROUTE[key]] = value
        else:
            # Left out silently, it would change who is notified.
            msg = f"route: {key} has no counterpart in an AlertmanagerConfig"
            raise ValueError(msg)
    return converted


def _inhibition(rule: Mapping[str, Any]) -> dict[str, Any]:
    left = set(rule) - {"source_matchers", "target_matchers", "equal"}
    if left:
        msg = (
            f"inhibit_rules: {', '.join(sorted(left))} has no counterpart in an "
            "AlertmanagerConfig"
        )
        raise ValueError(msg)
    return {
        "sourceMatch": [_matcher(text) for text in rule["source_matchers"]],
        "targetMatch": [_matcher(text) for text in rule["target_matchers"]],
        "equal": rule["equal"],
    }


def _matcher(text: str) -> dict[str, str]:
    match = _MATCHER.match(text)
    if not match:
        msg = f"not a matcher: {text}"
        raise ValueError(msg)
    name, kind, value = match.groups()
    # Equality is the operator's default; a bare "=" is a trap in YAML 1.1.
    matcher = {"name": name, "value": value}
    if kind != "=":
        matcher["matchType"] = kind
    return matcher
