"""What the chart renders for injection: the policy, and the container and volumes that
it is to add.
"""

from collections.abc import Mapping
from typing import Any

from helm.charts import named_templates, render
from support.published import IMAGE


def injection(values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the objects of injection: the policy, then its binding."""
    return [
        obj
        for obj in render(switched_on(values))
        if obj["kind"].startswith("MutatingAdmission")
    ]


def policy(values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the policy that the chart renders with these values."""
    return injection(values)[0]


def switched_on(values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the values with an image, and injection switched on."""
    chart_values = dict(values or {})
    section = {"enabled": True, **chart_values.get("injection", {})}
    return {
        **chart_values,
        "image": {**IMAGE, **chart_values.get("image", {})},
        "injection": section,
    }


def sidecar(values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the container that the chart's named template gives with these values."""
    return named_templates(switched_on(values))[0]


def volumes(values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the volumes that this container mounts."""
    return named_templates(switched_on(values))[1]
