"""The checks of objects themselves: each notices one bad example, and takes good ones."""

from copy import deepcopy
from typing import Any

import pytest
import yaml

from .manifest_schemas import CRDS, problems, problems_everywhere

DEPLOYMENT: dict[str, Any] = yaml.safe_load("""
apiVersion: apps/v1
kind: Deployment
metadata: {name: vllm, labels: {app.kubernetes.io/name: vllm}}
spec:
  selector: {matchLabels: {app: vllm}}
  template:
    metadata: {labels: {app: vllm}}
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.8.5
          ports: [{name: http, containerPort: 8000}]
          volumeMounts: [{name: models, mountPath: /models}]
      volumes: [{name: models, emptyDir: {}}]
""")
OPERATORS: list[dict[str, Any]] = list(
    yaml.safe_load_all("""
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {name: a}
spec: {selector: {}, podMetricsEndpoints: [{port: a, relabelings: [{targetLabel: job}]}]}
---
apiVersion: monitoring.coreos.com/v1alpha1
kind: AlertmanagerConfig
metadata: {name: a}
spec:
  receivers: [{name: a}]
  route: {receiver: a, routes: [{receiver: a, routes: [{receiver: a, groupWait: 1s}]}]}
""")
)


def changed(obj: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with something else at a path."""
    result = deepcopy(obj)
    *parts, last = path.split("/")
    here: Any = result
    for part in parts:
        here = here[int(part)] if isinstance(here, list) else here[part]
    here[int(last) if isinstance(here, list) else last] = value
    return result


def maps(value: Any, path: str = "") -> list[str]:
    """The paths of all maps below the root."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    here = [path] if isinstance(value, dict) and path else []
    return here + [one for key, below in inner for one in maps(below, f"{path}/{key}".lstrip("/"))]


@pytest.mark.full
def test_unknown_fields_of_the_operators_objects_are_noticed() -> None:
    """At every level, though the operator's own schemas let them pass; the addition is the one problem."""
    for obj in OPERATORS:
        assert problems(obj) == []
        for path in maps(obj):
            (found,) = problems(changed(obj, f"{path}/unheardOf", 1))
            assert "unheardOf" in found, path


def test_what_only_the_api_server_checks_is_noticed() -> None:
    """With words that find the place."""
    assert problems_everywhere([DEPLOYMENT]) == []
    pods = "spec/template/spec"
    for path, value, said in (
        (f"{pods}/containers/0/ports/0/name", "a-name-of-16-char", "the port name"),
        (f"{pods}/containers/0/volumeMounts/0/name", "other", "no volume"),
        (f"{pods}/containers/0/resources", {"limits": {"cpu": "1 core"}}, "quantity"),
        (f"{pods}/containers/0/resources", {"requests": {"cpu": 2}, "limits": {"cpu": 1}}, "above its limit"),
        (f"{pods}/containers", DEPLOYMENT["spec"]["template"]["spec"]["containers"] * 2, "stands twice"),
        ("metadata/labels", {"a": "b" * 64}, "labels, a value"),
        ("spec/selector/matchLabels", {"app": "other"}, "not among the labels"),
        ("metadata/annotations", {"a": "x" * 300000}, "256 KiB"),
        ("metadata/name", "Upper", "metadata.name"),
    ):
        found = problems(changed(DEPLOYMENT, path, value), "1.33")
        assert any(said in problem for problem in found), (path, found)


def test_no_schema_of_ours_lets_unknown_fields_pass() -> None:
    texts = [path.read_text("utf-8") for path in CRDS.glob("*.json")]
    assert texts
    assert all(text.count('"properties"') <= text.count('"additionalProperties": false') for text in texts)
