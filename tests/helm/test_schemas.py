"""The harness itself: what an API server would refuse is noticed, and what it would take is not."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from .kubernetes_yaml import DuplicateKeyError, documents
from .manifest_schemas import CRDS, problems, problems_everywhere
from .quantities import qos_class
from .sidecar_shape import sidecar_faults

CONTAINER = {
    "name": "vllm",
    "image": "vllm/vllm-openai:v0.8.5",
    "ports": [{"name": "http", "containerPort": 8000}],
    "volumeMounts": [{"name": "models", "mountPath": "/models"}],
}
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "vllm", "labels": {"app.kubernetes.io/name": "vllm"}},
    "spec": {
        "selector": {"matchLabels": {"app": "vllm"}},
        "template": {
            "metadata": {"labels": {"app": "vllm"}},
            "spec": {"containers": [CONTAINER], "volumes": [{"name": "models", "emptyDir": {}}]},
        },
    },
}
OBJECTS: dict[str, dict[str, Any]] = {
    "PodMonitor": {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": "a"},
        "spec": {
            "selector": {},
            "podMetricsEndpoints": [{"port": "a", "relabelings": [{"targetLabel": "job"}]}],
        },
    },
    "AlertmanagerConfig": {
        "apiVersion": "monitoring.coreos.com/v1alpha1",
        "kind": "AlertmanagerConfig",
        "metadata": {"name": "a"},
        "spec": {
            "receivers": [{"name": "a"}],
            "route": {
                "receiver": "a",
                "routes": [{"receiver": "a", "routes": [{"receiver": "a", "groupWait": "1s"}]}],
            },
        },
    },
    "GrafanaDashboard": {
        "apiVersion": "grafana.integreatly.org/v1beta1",
        "kind": "GrafanaDashboard",
        "metadata": {"name": "a"},
        "spec": {"instanceSelector": {}, "configMapRef": {"name": "a", "key": "b"}},
    },
    "PodMonitoring": {
        "apiVersion": "monitoring.googleapis.com/v1",
        "kind": "PodMonitoring",
        "metadata": {"name": "a"},
        "spec": {"selector": {}, "endpoints": [{"port": "a", "interval": "15s"}]},
    },
    "Rules": {
        "apiVersion": "monitoring.googleapis.com/v1",
        "kind": "Rules",
        "metadata": {"name": "a"},
        "spec": {"groups": [{"name": "a", "rules": [{"alert": "A", "expr": "up", "for": "1m"}]}]},
    },
    "VMPodScrape": {
        "apiVersion": "operator.victoriametrics.com/v1beta1",
        "kind": "VMPodScrape",
        "metadata": {"name": "a"},
        "spec": {"selector": {}, "podMetricsEndpoints": [{"port": "a"}]},
    },
    "VMRule": {
        "apiVersion": "operator.victoriametrics.com/v1beta1",
        "kind": "VMRule",
        "metadata": {"name": "a"},
        "spec": {"groups": [{"name": "a", "rules": [{"alert": "A", "expr": "up", "keep_firing_for": "1m"}]}]},
    },
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


def test_sound_objects_have_no_problems() -> None:
    """Nothing is refused that is right."""
    assert problems_everywhere([DEPLOYMENT, *OBJECTS.values()]) == []


@pytest.mark.parametrize("kind", OBJECTS)
def test_unknown_fields_are_noticed_at_every_level(kind: str) -> None:
    """In every map of the object that is not a map of labels; the one addition is the one problem."""
    obj = OBJECTS[kind]

    def maps(value: Any, path: str = "") -> list[str]:
        inner = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        here = [path] if isinstance(value, dict) and path else []
        return here + [one for key, below in inner for one in maps(below, f"{path}/{key}".lstrip("/"))]

    for path in maps(obj):
        found = problems(changed(obj, f"{path}/unheardOf", 1))
        assert len(found) == 1, path
        assert "unheardOf" in found[0]


PODS = "spec/template/spec"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (f"{PODS}/containers/0/ports/0/containerPort", "8000", "containerPort"),
        (f"{PODS}/containers/0/ports/0/name", "a-name-of-16-char", "port name"),
        (f"{PODS}/containers/0/volumeMounts/0/name", "other", "no volume"),
        (f"{PODS}/containers/0/resources", {"limits": {"cpu": "1 core"}}, "quantity"),
        (f"{PODS}/containers", [CONTAINER, CONTAINER], "stands twice"),
        ("spec/selector/matchLabels", {"app": "other"}, "not among the labels"),
        ("metadata/labels", {"a": "b" * 64}, "no label value"),
        ("metadata/annotations", {"a": "x" * 300000}, "256 KiB"),
        ("metadata/name", "Upper", "DNS subdomain"),
    ],
)
def test_faults_are_noticed(path: str, value: Any, said: str) -> None:
    """What only the API server checks, with words that find the place."""
    found = problems(changed(DEPLOYMENT, path, value), "1.33")
    assert any(said in problem for problem in found), found


def test_every_schema_says_where_it_comes_from() -> None:
    """Project, file and version; and no level lets unknown fields pass."""
    files = sorted(CRDS.glob("*.json"))
    assert {path.stem for path in files} >= {
        "GrafanaDashboard",
        "PodMonitoring",
        "Rules",
        "VMPodScrape",
        "VMRule",
    }
    for path in files:
        text = path.read_text("utf-8")
        assert '"$comment": "Only the fields' in text
        assert text.count('"properties"') <= text.count('"additionalProperties": false')


def test_yaml_is_read_as_kubernetes_reads_it() -> None:
    """Numbers, dates and keys that PyYAML would read otherwise."""
    assert documents("a: 1e3\nb: 2026-11-21\nc: 1:30\nd: 0x1f\ne: 1.5\nf: .5\ng: -1\nh: ~\ni: v1\n---\n") == [
        {
            "a": 1000.0,
            "b": "2026-11-21",
            "c": "1:30",
            "d": 31,
            "e": 1.5,
            "f": 0.5,
            "g": -1,
            "h": None,
            "i": "v1",
        }
    ]
    with pytest.raises(DuplicateKeyError, match="'a' stands twice"):
        documents("a: 1\na: 2\n")
    with pytest.raises(ValueError, match="not an object"):
        documents("- a\n")


def of(*, limits: dict | None = None, requests: dict | None = None) -> dict[str, Any]:
    return {"name": "a", "resources": {"limits": limits or {}, "requests": requests or {}}}


BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({"containers": [of()]}, "BestEffort"),
        ({"containers": [of(limits=BOTH)]}, "Guaranteed"),
        ({"containers": [of(limits=BOTH, requests={"cpu": "1000m", "memory": "1024Mi"})]}, "Guaranteed"),
        ({"containers": [of(limits=BOTH, requests={"cpu": "500m"})]}, "Burstable"),
        ({"containers": [of(limits={"cpu": "1"})]}, "Burstable"),
        ({"containers": [of(requests=BOTH)]}, "Burstable"),
        ({"containers": [of(limits=BOTH), of()]}, "Burstable"),
        ({"containers": [of(limits=BOTH)], "initContainers": [of()]}, "Burstable"),
        ({"containers": [of(limits=BOTH)], "initContainers": [of(limits=BOTH)]}, "Guaranteed"),
        ({"containers": [of(limits={"cpu": "0", "memory": "0"})]}, "BestEffort"),
    ],
)
def test_quality_of_service(pod: dict[str, Any], expected: str) -> None:
    """By the definition in Kubernetes' documentation."""
    assert qos_class(pod) == expected


PORTS = [{"name": "specdec-metrics", "containerPort": 9850}]


def sound_sidecar() -> dict[str, Any]:
    return {
        "name": "specdec-exporter",
        "image": "a:1",
        "restartPolicy": "Always",
        "ports": deepcopy(PORTS),
        "livenessProbe": {
            "httpGet": {"path": "/-/healthy", "port": 9850},
            "periodSeconds": 30,
            "failureThreshold": 5,
        },
        "resources": {"limits": BOTH, "requests": BOTH},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("readinessProbe", {"httpGet": {}}, "decides over the whole pod"),
        ("startupProbe", {"httpGet": {}}, "decides over the whole pod"),
        ("restartPolicy", "OnFailure", "no native sidecar"),
        ("livenessProbe/httpGet/port", "specdec-metrics", "works in every version"),
        ("livenessProbe/httpGet/path", "/metrics", "may depend on vLLM"),
        ("livenessProbe", {"exec": {"command": ["a"]}}, "livenessProbe"),
        ("livenessProbe/failureThreshold", 0, "patience"),
        ("ports/0/name", "metrics", "the port is"),
        ("ports/0/containerPort", 8000, "another container's"),
        ("ports", [*PORTS, {"name": "tap", "containerPort": 8000}], "another container's"),
        ("ports", [*PORTS, {"name": "more", "containerPort": 1}], "another port than the tap's"),
        ("resources", {}, "Burstable"),
        ("securityContext/runAsUser", 0, "root"),
        ("securityContext/readOnlyRootFilesystem", False, "readOnlyRootFilesystem"),
        ("securityContext/capabilities", {"drop": ["ALL"], "add": ["NET_ADMIN"]}, "capabilities"),
        ("securityContext/seccompProfile", {}, "seccomp"),
        ("lifecycle", {"preStop": {}}, "hook"),
    ],
)
def test_dangerous_sidecars_are_noticed(path: str, value: Any, said: str) -> None:
    """Each of the traps that would gate, restart or slow down vLLM."""
    vllm = {"name": "vllm", "ports": [{"containerPort": 8000}], "resources": {"limits": BOTH}}
    good = {"containers": [vllm], "initContainers": [sound_sidecar()]}
    assert sidecar_faults(good) == []
    found = sidecar_faults({**good, "initContainers": [changed(sound_sidecar(), path, value)]})
    assert any(said in fault for fault in found), found
