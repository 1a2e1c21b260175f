"""What a stack makes of a recipe: the pods that would run, by the facts in
tests/data/stacks/.
"""

import copy
import functools
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from helm.kubernetes_yaml import documents
from helm.manifest_schemas import validated
from injection.kubectl_program import kustomize
from support.repository import ROOT, Json, text_of

EXAMPLES = ROOT / "helm/examples"
STACKS = ROOT / "tests/data/stacks"

#: By what a strategic merge tells the items of a list of a pod's spec apart.
_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
}


Labels = dict[str, str]


@dataclass(frozen=True)
class Pod:
    """A pod that a recipe leads to."""

    name: str  # which of the recipe's pods
    spec: Json  # its spec
    labels: Labels = field(default_factory=dict)  # its labels
    annotations: Labels = field(default_factory=dict)  # its annotations
    serves: bool = True  # whether vLLM's API server, and so /metrics, runs in it

    def manifest(self) -> Json:
        """Return it as an object that Kubernetes' schemas can judge."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "labels": self.labels,
                "annotations": self.annotations,
            },
            "spec": copy.deepcopy(self.spec),
        }


def load(recipe: str) -> list[Json]:
    """Return the documents of a recipe, read as Kubernetes reads YAML."""
    return documents(text_of(EXAMPLES / recipe))


@functools.cache
def stack(name: str) -> Json:
    """Return the facts on a stack."""
    (document,) = documents(text_of(STACKS / f"{name}.yaml"))
    return document


def refusals(name: str, document: Json) -> list[str]:
    """Return what a stack would refuse in what it is given."""
    return validated(jsonschema.Draft202012Validator(stack(name)["accepts"]), document)


def merged(base: Any, patch: Any, name: str = "") -> Any:
    """Return a strategic merge, as the API server and KServe do it: lists by their
    items' names.
    """
    if isinstance(base, dict) and isinstance(patch, dict):
        return {
            key: merged(base.get(key), patch.get(key), key)
            for key in [*base, *(patch.keys() - base.keys())]
        }
    if patch is None:
        return copy.deepcopy(base)
    key = _KEYS.get(name)
    # Lists without such a name, as of arguments, are replaced whole.
    if key is None or not isinstance(base, list):
        return copy.deepcopy(patch)
    items = {item[key]: copy.deepcopy(item) for item in base}
    for item in patch:
        items[item[key]] = merged(items.get(item[key]), item)
    return list(items.values())


# --- what each stack does


def workload(recipe: Sequence[Json]) -> list[Pod]:
    """A Deployment, StatefulSet or Job makes pods of its template; a Service makes
    none.
    """
    return [
        _of_template(document["metadata"]["name"], document["spec"]["template"])
        for document in recipe
        if document["kind"] != "Service"
    ]


def _of_template(name: str, template: Json, *, serves: bool = True) -> Pod:
    metadata = template.get("metadata") or {}
    return Pod(
        name,
        template["spec"],
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        serves=serves,
    )


def vllm_chart(recipe: Sequence[Json]) -> list[Pod]:
    """The chart of vLLM puts the list behind what it has itself."""
    (values,) = recipe
    assert values["extraInit"]["modelDownload"] == {"enabled": False}, (
        "its init container waits for S3"
    )
    spec = copy.deepcopy(stack("vllm-chart")["pod"])
    spec["containers"][0]["command"] = values["image"]["command"]
    spec["initContainers"] += copy.deepcopy(values["extraInit"]["initContainers"])
    return [Pod("vllm", spec, {"environment": "test", "release": "test"})]


def llm_d(_recipe: Sequence[Json]) -> list[Pod]:
    """llm-d's guide makes a Deployment, and kubectl's Kustomize adds the sidecar to it,
    and to no other.
    """
    labels = {"llm-d.ai/role": "decode"}
    spec = stack("llm-d")["pod"]
    made = [
        _deployment(f"guide-nvidia-{name}", labels, {"labels": labels}, spec)
        for name in ("decode", "prefill")
    ]
    decode, prefill = workload(kustomized("llm-d", made))
    assert prefill.spec == spec
    return [decode]


def inference_service(recipe: Sequence[Json]) -> list[Pod]:
    """KServe merges the predictor into the runtime's pod, and its webhook appends the
    storage initializer.
    """
    (document,) = recipe
    facts = stack("kserve-inferenceservice")
    predictor = {
        key: value
        for key, value in document["spec"]["predictor"].items()
        if key not in {"model", "minReplicas"}
    }
    spec = merged(facts["pod"], predictor)
    model = document["spec"]["predictor"]["model"]
    spec["containers"][0]["args"] += model["args"]
    spec["containers"][0]["resources"] = model["resources"]
    spec["initContainers"] += copy.deepcopy(facts["appended"])
    return [Pod("predictor", spec, {"app": document["metadata"]["name"]})]


def llm_inference_service(recipe: Sequence[Json], *, tls: bool = False) -> list[Pod]:
    """KServe merges spec.template into its own, and expands what stands in braces."""
    (document,) = recipe
    spec = merged(
        stack("kserve-llminferenceservice")["pod"],
        _expanded(document["spec"]["template"], tls=tls),
    )
    return [Pod("qwen", spec, {"app.kubernetes.io/name": "qwen"})]


def _expanded(node: Any, *, tls: bool) -> Any:
    """Return what Go's templates make of what the recipe has of them."""
    if isinstance(node, dict):
        return {key: _expanded(value, tls=tls) for key, value in node.items()}
    if isinstance(node, list):
        return [_expanded(item, tls=tls) for item in node]
    if not isinstance(node, str):
        return node
    text = node.replace("{{ .GlobalConfig.EnableTLS }}", str(tls).lower())
    text = text.replace("{{ if .GlobalConfig.EnableTLS }}s{{ end }}", "s" * tls)
    assert "{{" not in text, text
    return text


def leader_worker_set(recipe: Sequence[Json]) -> list[Pod]:
    """LeaderWorkerSet makes a leader and workers."""
    (document,) = recipe
    group = document["spec"]["leaderWorkerTemplate"]
    return [
        _of_template("leader", group.get("leaderTemplate") or group["workerTemplate"]),
        _of_template("worker", group["workerTemplate"], serves=False),
    ]


def dynamo(recipe: Sequence[Json]) -> list[Pod]:
    """Dynamo's operator merges podTemplate into its own pods; a frontend has no
    engine.
    """
    (document,) = recipe
    pods = []
    for component in document["spec"]["components"]:
        kind = component["type"]
        spec = merged(stack("dynamo")["pod"][kind], component["podTemplate"]["spec"])
        pods.append(Pod(component["name"].lower(), spec, serves=kind == "worker"))
    return pods


def production_stack(recipe: Sequence[Json]) -> list[Pod]:
    """vllm-stack renders a labelled Deployment, and kubectl's Kustomize adds the
    sidecar to it.
    """
    (values,) = recipe
    built = kustomized("production-stack", vllm_stack(values))
    labelled = "vllm-specdec-exporter/inject"
    return workload([doc for doc in built if labelled in doc["metadata"]["labels"]])


def vllm_stack(values: Json) -> list[Json]:
    """Return the Deployments that vllm-stack renders: the engines, and a router that
    must be left alone.
    """
    deployments = []
    for model in values["servingEngineSpec"]["modelSpec"]:
        spec = copy.deepcopy(stack("production-stack")["pod"])
        command = ["vllm", "serve", model["modelURL"], "--port", "8000"]
        amounts = {
            "cpu": model["requestCPU"],
            "memory": model["requestMemory"],
            "nvidia.com/gpu": model["requestGPU"],
        }
        limits = amounts | {"cpu": model["limitCPU"], "memory": model["limitMemory"]}
        spec["containers"][0] |= {
            "command": command + model["vllmConfig"]["extraArgs"],
            "resources": {"requests": amounts, "limits": limits},
        }
        labels = {
            "model": model["name"],
            "app.kubernetes.io/component": "serving-engine",
        }
        pod = {
            "labels": labels | model["podLabels"],
            "annotations": model["podAnnotations"],
        }
        name = f"vllm-{model['name']}-deployment-vllm"
        deployments.append(_deployment(name, labels | model["labels"], pod, spec))
    container = {"name": "router", "image": "a", "ports": [{"containerPort": 8000}]}
    # Not labelled for the sidecar, which it must not get.
    labels = {"a": "router"}
    spec = {"containers": [container]}
    return [*deployments, _deployment("router", labels, {"labels": labels}, spec)]


def _deployment(name: str, labels: Labels, pod: Json, spec: Json) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "selector": {"matchLabels": pod["labels"]},
            "template": {"metadata": pod, "spec": copy.deepcopy(spec)},
        },
    }


def kustomized(folder: str, rendered: Sequence[Json]) -> list[Json]:
    """Return what `kubectl kustomize` makes of a folder of the examples with these as
    rendered.yaml.
    """
    with tempfile.TemporaryDirectory(prefix="recipes-") as scratch:
        helm = Path(scratch) / "helm"
        example = helm / "examples" / folder
        shutil.copytree(ROOT / "helm/kustomize", helm / "kustomize")
        shutil.copytree(EXAMPLES / folder, example)
        (example / "rendered.yaml").write_text(yaml.safe_dump_all(rendered))
        return documents(kustomize(example))
