"""Label selectors, by Kubernetes' rules."""

from collections.abc import Mapping
from typing import Any


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects something with these labels; an empty one selects everything."""
    exact = (selector.get("matchLabels") or {}).items()
    return all(labels.get(key) == value for key, value in exact) and all(
        _meets(expression, labels) for expression in selector.get("matchExpressions") or ()
    )


def _meets(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
    msg = f"not an operator: {expression['operator']}"
    raise ValueError(msg)
