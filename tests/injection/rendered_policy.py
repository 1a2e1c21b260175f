"""What the chart renders for injection: the policy, and the container and volumes that it is to add."""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helm.charts import CHART, render

if TYPE_CHECKING:
    from collections.abc import Mapping

IMAGE = {"registry": "registry.example.com", "repository": "vllm-specdec-exporter"}

#: A template that shows what the chart's named templates give.
_NAMED = """\
container:
  {{- include "vllm-specdec-exporter.sidecar" . | nindent 2 }}
volumes:
  {{- include "vllm-specdec-exporter.volumes" . | default "[]" | nindent 2 }}
"""


def injection(values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the objects of injection: the policy, then its binding."""
    return [obj for obj in render(switched_on(values)) if obj["kind"].startswith("MutatingAdmission")]


def policy(values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the policy that the chart renders with these values."""
    return injection(values)[0]


def switched_on(values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the values with an image, and injection switched on."""
    given = dict(values or {})
    section = {"enabled": True, **given.get("injection", {})}
    return {**given, "image": {**IMAGE, **given.get("image", {})}, "injection": section}


def sidecar(values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the container that the chart's named template gives with these values."""
    return dict(_named(values)["container"])


def volumes(values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the volumes that this container mounts."""
    return list(_named(values)["volumes"])


def _named(values: Mapping[str, Any] | None) -> dict[str, Any]:
    (rendered,) = render(switched_on(values), chart=Path(_named_chart().name))
    return rendered


@functools.cache
def _named_chart() -> tempfile.TemporaryDirectory[str]:
    """Return a chart that has the named templates and shows them; it lives as long as the process."""
    scratch = tempfile.TemporaryDirectory(prefix="injection-")
    chart = Path(scratch.name)
    (chart / "templates").mkdir()
    for file in ("Chart.yaml", "values.yaml"):
        shutil.copy(CHART / file, chart / file)
    for template in (CHART / "templates").glob("_*.tpl"):
        shutil.copy(template, chart / "templates")
    (chart / "templates" / "named.yaml").write_text(_NAMED)
    return scratch
