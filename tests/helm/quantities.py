"""Kubernetes' quantities and the quality of service that they give a pod."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

_QUANTITY = re.compile(
    r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|e[+-]?[0-9]+)?"
)
_UNITS = {
    **{
        unit: Fraction(1000) ** power
        for power, unit in enumerate(("n", "u", "m", "", *"kMGTPE"), start=-3)
    },
    **{
        f"{unit}i": Fraction(1024) ** power
        for power, unit in enumerate("KMGTPE", start=1)
    },
}
_COMPUTE = ("cpu", "memory")


def quantity(text: str | float) -> Fraction:
    """Return the number that a quantity such as "200m" or "128Mi" stands for."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"not a quantity: {text!r}")
    number = Fraction(match[1])
    unit = match[2] or ""
    if unit in _UNITS:
        return number * _UNITS[unit]
    return number * Fraction(10) ** int(unit[1:])


def qos_class(pod: Mapping[str, Any]) -> str:
    """Return "Guaranteed", "Burstable" or "BestEffort" of a pod's spec, as the API
    server computes it.

    Every container counts, init containers too. A limit without a request is the
    request as well. A pod is Guaranteed if each container limits CPU and memory, and
    requests what it limits.
    """
    amounts = []
    for container in (*(pod.get("initContainers") or ()), *pod["containers"]):
        resources = container.get("resources") or {}
        limits = _compute(resources.get("limits"))
        amounts.append((limits | _compute(resources.get("requests")), limits))
    if not any(requests for requests, _ in amounts):
        return "BestEffort"
    guaranteed = all(
        requests == limits and len(limits) == len(_COMPUTE)
        for requests, limits in amounts
    )
    if guaranteed:
        return "Guaranteed"
    return "Burstable"


def _compute(amounts: Mapping[str, str] | None) -> dict[str, Fraction]:
    quantities = {}
    for name in _COMPUTE:
        amount = quantity((amounts or {}).get(name, 0))
        # Kubernetes takes an amount of 0 as none.
        if amount > 0:
            quantities[name] = amount
    return quantities
