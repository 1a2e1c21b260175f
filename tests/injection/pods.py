"""Pods as an API server gets them: those that get the sidecar, and those that do not, with the reason."""

from typing import Any

LABELS = {"app": "vllm", "vllm-specdec-exporter/inject": "enabled"}
_AMOUNTS = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"}
VLLM: dict[str, Any] = {
    "name": "vllm",
    "image": "vllm/vllm-openai:v0.32.0",
    "ports": [{"name": "http", "containerPort": 8000}, {"containerPort": 8001}],
    "resources": {"requests": _AMOUNTS, "limits": _AMOUNTS},
}
DOWNLOAD: dict[str, Any] = {
    "name": "download",
    "image": "busybox:1.37",
    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
}
PROXY: dict[str, Any] = {
    "name": "proxy",
    "image": "registry.example.com/proxy:1",
    "restartPolicy": "Always",
    "ports": [{"name": "proxy", "containerPort": 8080}],
}


def pod(*, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a labelled pod with vLLM in it, and what else is given."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "vllm", "labels": LABELS, **(metadata or {})},
        "spec": {"containers": [VLLM], **spec},
    }


def _owned(kind: str, api: str) -> dict[str, Any]:
    owner = {"apiVersion": api, "kind": kind, "name": "vllm", "uid": "1", "controller": True}
    return {"name": "vllm-7d", "generateName": "vllm-", "ownerReferences": [owner]}


#: What is injected into, by name.
INJECTED: dict[str, dict[str, Any]] = {
    "bare": pod(),
    "no-ports": pod(containers=[{"name": "vllm", "image": "vllm/vllm-openai:v0.32.0"}]),
    "init-container-and-native-sidecar": pod(initContainers=[DOWNLOAD, PROXY]),
    "second-container": pod(
        metadata={"annotations": {"prometheus.io/scrape": "true"}},
        containers=[VLLM, {"name": "log", "image": "busybox:1.37"}],
        volumes=[{"name": "models", "emptyDir": {}}],
        nodeSelector={"gpu": "h100"},
    ),
    "deployment": pod(
        metadata=_owned("ReplicaSet", "apps/v1"),
        serviceAccountName="default",
        volumes=[{"name": "kube-api-access-x", "projected": {"sources": []}}],
        imagePullSecrets=[{"name": "theirs"}],
    ),
    "linux-job": pod(
        metadata=_owned("Job", "batch/v1"),
        restartPolicy="Never",
        os={"name": "linux"},
        nodeSelector={"kubernetes.io/os": "linux"},
    ),
}

#: What is not, by the condition that it does not meet.
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "sidecar-there": ("no-sidecar-yet", pod(initContainers=[{"name": "specdec-exporter", "image": "x"}])),
    "sidecar-as-plain-container": (
        "no-sidecar-yet",
        pod(containers=[VLLM, {"name": "specdec-exporter", "image": "x"}]),
    ),
    "port-number-taken": (
        "port-specdec-metrics-is-free",
        pod(containers=[VLLM, {"name": "a", "image": "x", "ports": [{"containerPort": 9850}]}]),
    ),
    "port-number-taken-by-init-container": (
        "port-specdec-metrics-is-free",
        pod(initContainers=[{"name": "a", "image": "x", "ports": [{"containerPort": 9850}]}]),
    ),
    "port-name-taken": (
        "port-specdec-metrics-is-free",
        pod(containers=[{**VLLM, "ports": [{"name": "specdec-metrics", "containerPort": 8000}]}]),
    ),
    "windows": ("not-windows", pod(os={"name": "windows"})),
    "windows-node": ("not-windows", pod(nodeSelector={"kubernetes.io/os": "windows"})),
    "host-network": ("not-in-the-hosts-network", pod(hostNetwork=True)),
    "pod-level-resources": ("no-resources-of-the-pod", pod(resources={"limits": {"cpu": "8"}})),
    # A restart of any container makes their whole group anew.
    "group": (
        "not-in-a-leaderworkerset",
        pod(metadata={"labels": {**LABELS, "leaderworkerset.sigs.k8s.io/name": "a"}}),
    ),
    "mirror": ("not-a-mirror", pod(metadata={"annotations": {"kubernetes.io/config.mirror": "1"}})),
}
