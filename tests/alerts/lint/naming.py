"""Checks of names, and of the levels that they claim."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .shapes import Shape, shape
from .vocabulary import LEVELS, MODEL

if TYPE_CHECKING:
    from .bundle import Bundle, Rule

_RECORDED = re.compile(rf"({'|'.join(LEVELS)}):[a-z][a-z0-9_]*:[a-z][a-z0-9_]*")


def recorded_name(rule: Rule, bundle: Bundle) -> list[str]:
    """A record is called level:metric:operations, with a level that its labels have."""
    if rule.is_alert:
        return []
    match = _RECORDED.fullmatch(rule.name)
    if match is None:
        return [f"not level:metric:operations with one of {', '.join(LEVELS)}"]
    return _level_complaints(match[1], shape(rule.tree, bundle))


def alert_level(rule: Rule, bundle: Bundle) -> list[str]:
    """The labels of an alert are those of the level that it says it has."""
    level, found = rule.labels.get("level"), shape(rule.tree, bundle)
    if level is None:
        return []
    if level == "instance" and found is not None and "engine" not in found.labels:
        return [] if found.has("instance") else [f"level instance has the label instance: {found}"]
    return _level_complaints(level, found)


def _level_complaints(level: str, found: Shape | None) -> list[str]:
    """Say what speaks against series of these labels being of a level."""
    if found is None:
        return ["a scalar has no level"]
    if level == "model":
        others = {"engine", "target", "job", "instance", "pod"}
        if found.origin or found.labels & others or not found.labels >= MODEL:
            return [f"level model has cluster, namespace and model_name, and no other target: {found}"]
    elif not found.origin:
        return [f"level {level} keeps the target labels, here only {found} are left"]
    elif level == "engine" and "engine" not in found.labels:
        return ["level engine keeps the label engine"]
    elif level == "instance" and "engine" in found.labels:
        return ["level instance has no label engine: sum without (engine)"]
    return []


def same_name(rule: Rule, bundle: Bundle) -> list[str]:
    """Two rules of one name can be told apart by severity, level, reason or the like."""
    twins = [r for r in bundle.rules if (r.name, r.distinction) == (rule.name, rule.distinction)]
    return ["there are two of it, alike in severity, level and reason"] if len(twins) > 1 else []
