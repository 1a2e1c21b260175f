"""Kubernetes' quantities and the quality of service that they give a pod."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?P<unit>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?"
)
_UNITS = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}
_COMPUTE = ("cpu", "memory")


def quantity(text: str | float) -> Fraction:
    """Return the number that a quantity such as "200m" or "128Mi" stands for."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        msg = f"not a quantity: {text!r}"
        raise ValueError(msg)
    unit = match["unit"] or ""
    factor = _UNITS[unit] if unit in _UNITS else Fraction(10) ** int(unit[1:])
    return Fraction(match["number"]) * factor


def qos_class(pod: Mapping[str, Any]) -> str:
    """Return "Guaranteed", "Burstable" or "BestEffort" of a pod's spec, as the API server reckons it.

    Every container counts, init containers too. A limit without a request is the request as well. Guaranteed
    is a pod in which each container limits CPU and memory, and the requests add up to the limits.
    """
    requests: dict[str, Fraction] = {}
    limits: dict[str, Fraction] = {}
    all_limited = True
    for container in _accounted(pod):
        wanted, bounds = _amounts(container)
        for name, amount in wanted.items():
            requests[name] = requests.get(name, Fraction(0)) + amount
        for name, amount in bounds.items():
            limits[name] = limits.get(name, Fraction(0)) + amount
        all_limited = all_limited and set(bounds) == set(_COMPUTE)
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if all_limited and requests == limits else "Burstable"


def _accounted(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if any(_amounts(pod)):
        yield pod  # resources of the whole pod, where it has them
        return
    yield from pod.get("initContainers") or ()
    yield from pod.get("containers") or ()


def _amounts(container: Mapping[str, Any]) -> tuple[dict[str, Fraction], dict[str, Fraction]]:
    resources = container.get("resources") or {}
    bounds = resources.get("limits") or {}
    wanted = {**bounds, **(resources.get("requests") or {})}
    return _compute(wanted), _compute(bounds)


def _compute(amounts: Mapping[str, str]) -> dict[str, Fraction]:
    found = {name: quantity(amounts[name]) for name in _COMPUTE if name in amounts}
    return {name: amount for name, amount in found.items() if amount > 0}
