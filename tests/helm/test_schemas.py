"""The checks of objects themselves: each notices one bad example, and takes good ones."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
import yaml

from .kubernetes_yaml import DuplicateKeyError, documents
from .manifest_schemas import CRDS, problems, problems_everywhere
from .quantities import qos_class
from .sidecar_shape import sidecar_faults

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
OPERATORS: list[dict[str, Any]] = [
    {"apiVersion": f"monitoring.coreos.com/{version}", "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    for version, kind, spec in (
        (
            "v1",
            "PodMonitor",
            {"selector": {}, "podMetricsEndpoints": [{"port": "a", "relabelings": [{"targetLabel": "job"}]}]},
        ),
        (
            "v1alpha1",
            "AlertmanagerConfig",
            {
                "receivers": [{"name": "a"}],
                "route": {
                    "receiver": "a",
                    "routes": [{"receiver": "a", "routes": [{"receiver": "a", "groupWait": "1s"}]}],
                },
            },
        ),
    )
]
BOARD = {
    "apiVersion": "grafana.integreatly.org/v1beta1",
    "kind": "GrafanaDashboard",
    "metadata": {"name": "a"},
    "spec": {"instanceSelector": {}, "configMapRef": {"name": "a", "key": "b"}},
}


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


def unknown_fields_are_noticed(obj: dict[str, Any]) -> None:
    assert problems_everywhere([obj]) == []
    for path in maps(obj):
        (found,) = problems(changed(obj, f"{path}/unheardOf", 1))
        assert "unheardOf" in found, path


def test_sound_objects_have_no_problems_and_unknown_fields_are_noticed() -> None:
    """At every level of them; the one addition is the one problem."""
    assert problems_everywhere([DEPLOYMENT]) == []
    unknown_fields_are_noticed(BOARD)


@pytest.mark.full
def test_unknown_fields_of_the_operators_objects_are_noticed() -> None:
    """At every level of them."""
    for obj in OPERATORS:
        unknown_fields_are_noticed(obj)


def test_what_only_the_api_server_checks_is_noticed() -> None:
    """With words that find the place."""
    pods = "spec/template/spec"
    container = DEPLOYMENT["spec"]["template"]["spec"]["containers"][0]
    for path, value, said in (
        (f"{pods}/containers/0/ports/0/containerPort", "8000", "containerPort"),
        (f"{pods}/containers/0/ports/0/name", "a-name-of-16-char", "port name"),
        (f"{pods}/containers/0/volumeMounts/0/name", "other", "no volume"),
        (f"{pods}/containers/0/resources", {"limits": {"cpu": "1 core"}}, "quantity"),
        (f"{pods}/containers", [container, container], "stands twice"),
        ("spec/selector/matchLabels", {"app": "other"}, "not among the labels"),
        ("metadata/labels", {"a": "b" * 64}, "no label value"),
        ("metadata/annotations", {"a": "x" * 300000}, "256 KiB"),
        ("metadata/name", "Upper", "DNS subdomain"),
    ):
        found = problems(changed(DEPLOYMENT, path, value), "1.33")
        assert any(said in problem for problem in found), (path, found)


def test_no_schema_of_ours_lets_unknown_fields_pass() -> None:
    """And each says of which project, file and version it is."""
    files = [path.read_text("utf-8") for path in CRDS.glob("*.json")]
    kinds = {json.loads(text)["properties"]["kind"]["const"] for text in files}
    assert kinds >= {"GrafanaDashboard", "PodMonitoring", "Rules", "VMPodScrape", "VMRule"}
    for text in files:
        assert '"$comment": "Only the fields' in text
        assert text.count('"properties"') <= text.count('"additionalProperties": false')


def test_yaml_is_read_as_kubernetes_reads_it() -> None:
    """Numbers, dates and keys that PyYAML would read otherwise."""
    read = {"1e3": 1000.0, "2026-11-21": "2026-11-21", "1:30": "1:30", "0x1f": 31, ".5": 0.5, "-1": -1}
    for text, value in {**read, "~": None, "v1": "v1"}.items():
        assert documents(f"a: {text}\n---\n") == [{"a": value}]
    with pytest.raises(DuplicateKeyError, match="'a' stands twice"):
        documents("a: 1\na: 2\n")
    with pytest.raises(ValueError, match="not an object"):
        documents("- a\n")


BOTH = {"cpu": "1", "memory": "1Gi"}


def test_quality_of_service() -> None:
    """By the definition in Kubernetes' documentation."""

    def of(limits: dict[str, str] | None = None, requests: dict[str, str] | None = None) -> dict[str, Any]:
        return {"name": "a", "resources": {"limits": limits or {}, "requests": requests or {}}}

    for pod, expected in (
        ({"containers": [of()]}, "BestEffort"),
        ({"containers": [of(BOTH, {"cpu": "1000m", "memory": "1024Mi"})]}, "Guaranteed"),
        ({"containers": [of(BOTH, {"cpu": "500m"})]}, "Burstable"),
        ({"containers": [of({}, BOTH)]}, "Burstable"),
        ({"containers": [of(BOTH)], "initContainers": [of()]}, "Burstable"),
    ):
        assert qos_class(pod) == expected, pod


def test_dangerous_sidecars_are_noticed() -> None:
    """Each of the traps that would gate, restart or slow down vLLM."""
    sidecar = yaml.safe_load("""
name: specdec-exporter
image: a:1
restartPolicy: Always
ports: [{name: specdec-metrics, containerPort: 9850}]
livenessProbe: {httpGet: {path: /-/healthy, port: 9850}, periodSeconds: 30, failureThreshold: 5}
resources: {limits: {cpu: "1", memory: 1Gi}}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  privileged: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  runAsUser: 65532
  seccompProfile: {type: RuntimeDefault}
""")
    vllm = {"name": "vllm", "ports": [{"containerPort": 8000}], "resources": {"limits": BOTH}}
    good = {"containers": [vllm], "initContainers": [sidecar]}
    assert sidecar_faults(good) == []
    more = [*sidecar["ports"], {"name": "more", "containerPort": 1}]
    for path, value, said in (
        ("readinessProbe", {"httpGet": {}}, "decides over the whole pod"),
        ("startupProbe", {"httpGet": {}}, "decides over the whole pod"),
        ("restartPolicy", "OnFailure", "no native sidecar"),
        ("livenessProbe/httpGet/port", "specdec-metrics", "works in every version"),
        ("livenessProbe/httpGet/path", "/metrics", "may depend on vLLM"),
        ("livenessProbe", {"exec": {"command": ["a"]}}, "livenessProbe"),
        ("livenessProbe/failureThreshold", 0, "patience"),
        ("ports/0/name", "metrics", "the port is"),
        ("ports/0/containerPort", 8000, "another container's"),
        ("ports", more, "another port than the tap's"),
        ("resources", {}, "Burstable"),
        ("securityContext/runAsUser", 0, "root"),
        ("securityContext/readOnlyRootFilesystem", False, "readOnlyRootFilesystem"),
        ("securityContext/capabilities", {"drop": ["ALL"], "add": ["NET_ADMIN"]}, "capabilities"),
        ("securityContext/seccompProfile", {}, "seccomp"),
        ("lifecycle", {"preStop": {}}, "hook"),
    ):
        found = sidecar_faults({**good, "initContainers": [changed(sidecar, path, value)]})
        assert any(said in fault for fault in found), (path, found)
