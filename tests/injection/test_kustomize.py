"""The Kustomize component and its example, built with a real kubectl."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from helm.manifest_schemas import problems_everywhere
from helm.quantities import qos_class
from injection.kubectl_program import kustomize
from injection.pods import DOWNLOAD, VLLM
from injection.rendered_policy import sidecar
from vllm_specdec_exporter import __version__
from vllm_specdec_exporter.settings.option_table import OPTIONS

pytestmark = pytest.mark.full

Objects = dict[str, dict[str, Any]]

KUSTOMIZE = Path(__file__).parents[2] / "helm" / "kustomize"
README = (KUSTOMIZE / "README.md").read_text()
COMPONENTS = ("component", "tap")
INJECT = "vllm-specdec-exporter/inject"
ASK = "vllm-specdec-exporter/tap"
KINDS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
}
#: What the second component adds.
TAP = {
    "env": [{"name": "VLLM_SPECDEC_EXPORTER_TAP_LISTEN_ADDRESS", "value": ":9852"}],
    "ports": [
        *sidecar()["ports"],
        {"name": "tap", "containerPort": 9852, "protocol": "TCP"},
    ],
}
FLAGS = ["--vllm.url=http://127.0.0.1:8200"]


def workload(
    kind: str, *init: dict[str, Any], inject: str = "enabled", tap: str = ""
) -> dict[str, Any]:
    """Return a workload that asks for the sidecar, with init containers of its own."""
    spec = {"containers": [VLLM]}
    if init:
        spec["initContainers"] = list(init)
    # A label of the pods asks for nothing here: Kustomize sees the workload's own.
    metadata = {"labels": {"app": "vllm", INJECT: "enabled"}}
    made = {
        "apiVersion": KINDS[kind],
        "kind": kind,
        "metadata": {"labels": {INJECT: inject}, "annotations": {ASK: tap}},
        "spec": {"template": {"metadata": metadata, "spec": spec}},
    }
    if kind == "Job":
        spec["restartPolicy"] = "Never"
    else:
        made["spec"]["selector"] = {"matchLabels": {"app": "vllm"}}
    if kind == "StatefulSet":
        made["spec"]["serviceName"] = "vllm"
    return made


#: Workloads, each with the init containers that it must have afterwards; None: it stays
#: as it is.
WORKLOADS = {
    # Kustomize puts new entries first: the exporter starts before a download.
    "init-container": (workload("Deployment", DOWNLOAD), [sidecar(), DOWNLOAD]),
    "no-tap": (workload("Deployment", tap="false"), [sidecar()]),
    "perhaps-tap": (workload("Deployment", tap="yes"), [sidecar()]),
    # Own flags replace all flags of the component; the tap is none.
    "flags": (workload("Deployment", tap="true"), [sidecar() | TAP | {"args": FLAGS}]),
    "not-asked": (workload("Deployment", inject="disabled", tap="true"), None),
    # Lists of custom resources are not merged but replaced, which would drop their own
    # init containers.
    "custom": (workload("LeaderWorkerSet", DOWNLOAD, tap="true"), None),
}
for _kind in ("Deployment", "StatefulSet", "DaemonSet", "Job"):
    _name = _kind.lower()
    WORKLOADS[f"plain-{_name}"] = (workload(_kind), [sidecar()])
    WORKLOADS[f"tap-{_name}"] = (workload(_kind, tap="true"), [sidecar() | TAP])
SENT = {
    name: {**sent, "metadata": {**sent["metadata"], "name": name}}
    for name, (sent, _) in WORKLOADS.items()
}


def by_name(text: str) -> Objects:
    """Return the objects of a YAML text by name, with ports in the order of their
    numbers.
    """
    objects = {obj["metadata"]["name"]: obj for obj in yaml.safe_load_all(text)}
    for obj in objects.values():
        spec = obj["spec"].get("template", {}).get("spec", {})
        for container in spec.get("initContainers", ()):
            container.get("ports", []).sort(key=lambda port: int(port["containerPort"]))
    return objects


def build(folder: Path, components: tuple[str, ...], objects: Objects) -> Objects:
    """Return the objects as they are after the components, and a patch of the flags of
    one.
    """
    for component in components:
        shutil.copytree(KUSTOMIZE / component, folder / component)
    overlay = folder / "overlay"
    overlay.mkdir()
    (overlay / "workloads.yaml").write_text(yaml.safe_dump_all(objects.values()))
    spec = {"initContainers": [{"name": "specdec-exporter", "args": FLAGS}]}
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "flags"},
        "spec": {"template": {"spec": spec}},
    }
    kustomization = {
        "resources": ["workloads.yaml"],
        "components": [f"../{component}" for component in components],
        "patches": [{"target": {"name": "flags"}, "patch": yaml.safe_dump(patch)}],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return by_name(kustomize(overlay))


def pod_spec(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of the pods of a workload."""
    return dict(obj["spec"]["template"]["spec"])


def test_the_components_have_the_charts_container_and_tap() -> None:
    """The patch is the chart's named template and nothing else; the exporter reads the
    tap's variable.
    """
    patch = yaml.safe_load((KUSTOMIZE / "component" / "sidecar.yaml").read_text())
    assert pod_spec(patch) == {"initContainers": [sidecar()]}
    assert sidecar({"tap": {"enabled": True}})["ports"] == TAP["ports"]
    parsers = {option.variable: option.parse for option in OPTIONS}
    (variable,) = TAP["env"]
    assert parsers[variable["name"]](variable["value"]) == ("", 9852)


def test_workloads_that_ask_get_the_sidecar_and_the_tap(tmp_path: Path) -> None:
    """Nothing else of them changes; in whichever order the components stand; a second
    time adds nothing.
    """
    made = build(tmp_path / "once", COMPONENTS, SENT)
    assert made.keys() == SENT.keys()
    for name, (_, init) in WORKLOADS.items():
        sent = SENT[name]
        injected = made[name]
        if init is None:
            assert injected == sent, name
            continue
        assert pod_spec(injected) == {**pod_spec(sent), "initContainers": init}, name
        assert {**injected, "spec": None} == {**sent, "spec": None}, name
        assert problems_everywhere([injected]) == [], name
        assert qos_class(pod_spec(injected)) == "Guaranteed", name
    assert build(tmp_path / "turned", COMPONENTS[::-1], SENT) == made
    assert build(tmp_path / "twice", COMPONENTS, made) == made


def test_example_adds_and_leaves() -> None:
    """Two workloads with sidecar, the third as it was; the image and one's flags are
    the overlay's.
    """
    made = by_name(kustomize(KUSTOMIZE / "example"))
    sent = by_name((KUSTOMIZE / "example" / "vllm.yaml").read_text())
    assert made.keys() == sent.keys() == {"vllm", "vllm-prefill", "router"}
    assert problems_everywhere(made.values()) == []
    image = f"mirror.example.com/team/vllm-specdec-exporter:{__version__}"
    assert made["router"] == sent["router"]
    assert pod_spec(made["vllm"])["initContainers"] == [{**sidecar(), "image": image}]
    first, second = pod_spec(made["vllm-prefill"])["initContainers"]
    config = '--spec.config={"method": "eagle3", "num_speculative_tokens": 3}'
    flags = ["--startup.on-error=wait", *FLAGS, config]
    assert first == {**sidecar(), "image": image, "args": flags}
    assert second["name"] == "download"


def of_readme(folder: Path, title: str, objects: Objects) -> Objects:
    """Return what a kustomization of the README makes of objects in vllm.yaml."""
    for component in COMPONENTS:
        shutil.copytree(
            KUSTOMIZE / component, folder / "vllm-specdec-exporter" / component
        )
    (block,) = re.findall(
        rf"```yaml\n# {re.escape(title)}\n(.*?)```", README, flags=re.DOTALL
    )
    (folder / "kustomization.yaml").write_text(block)
    (folder / "vllm.yaml").write_text(yaml.safe_dump_all(objects.values()))
    return by_name(kustomize(folder))


def test_readme_is_executed(tmp_path: Path) -> None:
    """Its kustomizations build: with the flags, or with the tap and the Service that
    leads there.
    """
    objects = by_name((KUSTOMIZE / "example" / "vllm.yaml").read_text())
    made = of_readme(tmp_path / "plain", "kustomization.yaml", objects)
    (added,) = pod_spec(made["vllm"])["initContainers"]
    assert added["args"][:2] == [
        "--startup.on-error=wait",
        "--vllm.url=http://127.0.0.1:8000",
    ]
    assert added["args"][2].startswith("--spec.config={")
    assert added["image"] != sidecar()["image"]

    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "vllm"},
        "spec": {
            "selector": {"app": "vllm"},
            "ports": [{"port": 80, "targetPort": 8000}],
        },
    }
    objects = {"tapped": SENT["tap-deployment"], "vllm": service}
    made = of_readme(tmp_path / "tap", "kustomization.yaml, with the tap", objects)
    assert pod_spec(made["tap-deployment"])["initContainers"] == [sidecar() | TAP]
    assert made["vllm"]["spec"]["ports"] == [{"port": 80, "targetPort": 9852}]
    # The version of kubectl that these tests run.
    minor = re.search(
        r"kubectl-v(\d+)", (Path(__file__).parent / "package.json").read_text()
    )
    assert f"1.{minor[1]}" in README
