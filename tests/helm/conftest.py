"""For the chart's tests: somebody's own chart that has ours as a dependency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .charts import CHART, render
from .manifest_schemas import problems
from .value_cases import IMAGE, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Its pod.
PARENT = """
{{- $specdec := index .Values "vllm-specdec-exporter" }}
apiVersion: v1
kind: Pod
metadata:
  name: vllm
spec:
  automountServiceAccountToken: false
  initContainers:
    - {{- include "vllm-specdec-exporter.sidecar" (dict "Values" $specdec) | nindent 6 }}
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.8.5
      ports: [{name: http, containerPort: 8000}]
      resources: {requests: {cpu: "8", memory: 64Gi}, limits: {cpu: "8", memory: 64Gi}}
  {{- with include "vllm-specdec-exporter.volumes" (dict "Values" $specdec) }}
  volumes:
    {{- . | nindent 4 }}
  {{- end }}
"""


@pytest.fixture(scope="session")
def parent(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function from values for our chart, all parts of it off, to the spec of the parent's pod."""
    chart = tmp_path_factory.mktemp("parent") / "vllm"
    (chart / "templates").mkdir(parents=True)
    (chart / "charts").mkdir()
    (chart / "charts" / CHART.name).symlink_to(CHART)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: vllm\nversion: 1.0.0\n")
    (chart / "templates" / "pod.yaml").write_text(PARENT)

    def pod_spec(values: Mapping[str, Any]) -> dict[str, Any]:
        off = {
            part: {"enabled": False}
            for part, inner in values.items()
            if isinstance(inner, dict) and "enabled" in inner and part != "tap"  # of the container
        }
        off["dashboards"] = {"enabled": False, "grafanaDashboard": {"enabled": False}}
        given = merged(IMAGE, values, off, {"extraManifests": []})
        (pod,) = render({CHART.name: given}, chart=chart)
        assert problems(pod) == []
        return dict(pod["spec"])

    return pod_spec
