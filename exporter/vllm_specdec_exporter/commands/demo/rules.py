"""The same alert rules on a faster clock: every duration divided, so that an hour passes in minutes.

For the demo and the tests: a Prometheus that scrapes and evaluates cannot be hurried in another way. Only
numbers with a unit of time change.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?P<number>\d+)(?P<unit>[smhd])\b")
#: In an expression: ranges, subqueries and offsets; the windows in the names of records are names.
_IN_EXPRESSION = re.compile(r"(?<=\[)[\dsmhd:]+(?=\])|(?<=offset )\d+[smhd]")
#: A comparison of an age with seconds.
_AGE = re.compile(r"(?<=> )300\b")

#: The alert rules: beside the package when installed, or in the source tree.
FOLDERS = (Path(__file__).parents[2] / "rules", Path(__file__).parents[4] / "alerts" / "rules")


def scaled(duration: str, factor: float) -> str:
    """Return a duration, or several in a text, divided by `factor`; never less than a millisecond."""

    def divide(match: re.Match[str]) -> str:
        seconds = float(match["number"]) * _UNITS[match["unit"]] / factor
        return f"{max(1, round(1000 * seconds))}ms"

    return _DURATION.sub(divide, duration)


def rules(texts: Mapping[str, str], factor: float) -> dict[str, str]:
    """Return rule files, as texts by name, each duration divided by `factor`."""
    return {name: yaml.safe_dump(_rules(yaml.safe_load(text), factor)) for name, text in texts.items()}


def _rules(document: dict[str, Any], factor: float) -> dict[str, Any]:
    for group in document["groups"]:
        if "interval" in group:
            group["interval"] = scaled(group["interval"], factor)
        for rule in group["rules"]:
            expr = _IN_EXPRESSION.sub(lambda match: scaled(match[0], factor), rule["expr"])
            rule["expr"] = _AGE.sub(f"{300 / factor:g}", expr)
            for key in ("for", "keep_firing_for"):
                if key in rule:
                    rule[key] = scaled(rule[key], factor)
    return document
