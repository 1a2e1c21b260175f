"""The Kustomize component and its example, built with a real kubectl."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from helm.kubernetes_schemas import KUBE_VERSIONS
from helm.manifest_schemas import problems
from helm.quantities import qos_class
from injection.kubectl_program import kustomize
from injection.pods import DOWNLOAD, VLLM
from injection.rendered_policy import sidecar
from vllm_specdec_exporter import __version__
from vllm_specdec_exporter.serve.option_table import OPTIONS

pytestmark = pytest.mark.full

KUSTOMIZE = Path(__file__).parents[2] / "helm" / "kustomize"
LABEL = {"vllm-specdec-exporter/inject": "enabled"}
KINDS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
}


def workload(kind: str, spec: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    """Return a workload of a kind around a pod's spec."""
    made: dict[str, Any] = {
        "apiVersion": KINDS.get(kind, "leaderworkerset.x-k8s.io/v1"),
        "kind": kind,
        "metadata": {"name": "vllm", "labels": labels},
        "spec": {"template": {"metadata": {"labels": {"app": "vllm"}}, "spec": spec}},
    }
    if kind != "Job":
        made["spec"]["selector"] = {"matchLabels": {"app": "vllm"}}
    if kind == "StatefulSet":
        made["spec"]["serviceName"] = "vllm"
    return made


def labelled(kind: str) -> dict[str, Any]:
    """Return a workload of a kind that asks for the sidecar."""
    spec: dict[str, Any] = {"containers": [VLLM]}
    if kind == "Job":
        spec["restartPolicy"] = "Never"
    return workload(kind, spec, LABEL)


def build(
    folder: Path, *objects: dict[str, Any], components: tuple[str, ...] = ("component",), **more: Any
) -> list[dict[str, Any]]:
    """Return the objects as they are after the components."""
    for component in components:
        shutil.copytree(KUSTOMIZE / component, folder / component)
    overlay = folder / "overlay"
    overlay.mkdir()
    (overlay / "workloads.yaml").write_text(yaml.safe_dump_all(objects))
    named = [f"../{component}" for component in components]
    kustomization = {"resources": ["workloads.yaml"], "components": named, **more}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return list(yaml.safe_load_all(kustomize(overlay)))


def pod_spec(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of the pods of a workload."""
    return dict(obj["spec"]["template"]["spec"])


def test_component_has_the_chart_s_container() -> None:
    """The patch is the chart's named template and nothing else."""
    patch = yaml.safe_load((KUSTOMIZE / "component" / "sidecar.yaml").read_text())
    assert pod_spec(patch) == {"initContainers": [sidecar()]}


def test_labelled_workloads_get_the_sidecar(tmp_path: Path) -> None:
    """Whatever their kind; nothing else of them changes, and the result is valid."""
    sent = [labelled(kind) for kind in KINDS]
    made = build(tmp_path, *sent)
    assert [one["kind"] for one in made] == list(KINDS)
    for before, after in zip(sent, made, strict=True):
        assert pod_spec(after) == {**pod_spec(before), "initContainers": [sidecar()]}
        assert {**after, "spec": None} == {**before, "spec": None}
        assert [problem for version in KUBE_VERSIONS for problem in problems(after, version)] == []
        assert qos_class(pod_spec(after)) == "Guaranteed"


def test_other_init_containers_stay_behind_it(tmp_path: Path) -> None:
    """Kustomize puts new entries first: the exporter starts before a download. A second time adds nothing."""
    sent = workload("Deployment", {"containers": [VLLM], "initContainers": [DOWNLOAD]}, LABEL)
    once = build(tmp_path / "once", sent)
    assert pod_spec(once[0])["initContainers"] == [sidecar(), DOWNLOAD]
    assert build(tmp_path / "twice", *once) == once


def test_other_workloads_stay_as_they_are(tmp_path: Path) -> None:
    """Only the label with its value is a request, and it is looked for on the workload itself."""
    for number, labels in enumerate(({}, {"vllm-specdec-exporter/inject": "disabled"})):
        sent = workload("Deployment", {"containers": [VLLM]}, labels)
        sent["spec"]["template"]["metadata"]["labels"].update(LABEL)
        assert build(tmp_path / str(number), sent) == [sent]


def test_custom_resources_stay_as_they_are(tmp_path: Path) -> None:
    """Their lists are not merged but replaced, which would drop their own init containers."""
    sent = workload("LeaderWorkerSet", {"containers": [VLLM], "initContainers": [DOWNLOAD]}, LABEL)
    assert build(tmp_path, sent) == [sent]


def tapped(kind: str, annotation: str = "true") -> dict[str, Any]:
    """Return a labelled workload that says whether it wants the tap."""
    made = labelled(kind)
    made["metadata"]["annotations"] = {"vllm-specdec-exporter/tap": annotation}
    return made


TAP = {
    "env": [{"name": "VLLM_SPECDEC_EXPORTER_TAP_LISTEN_ADDRESS", "value": ":9852"}],
    "ports": [*sidecar()["ports"], {"name": "tap", "containerPort": 9852, "protocol": "TCP"}],
}


def by_key(container: dict[str, Any]) -> dict[str, Any]:
    """Return a container with its ports in the order of their numbers, which is nothing to Kubernetes."""
    return {**container, "ports": sorted(container["ports"], key=lambda port: int(port["containerPort"]))}


def test_a_workload_that_asks_for_it_gets_the_tap(tmp_path: Path) -> None:
    """A port and a variable, and nothing else; in whichever order the components stand."""
    for components in (("component", "tap"), ("tap", "component")):
        for made in build(tmp_path / components[0], *map(tapped, KINDS), components=components):
            (container,) = pod_spec(made)["initContainers"]
            assert by_key(container) == {**sidecar(), **TAP}, components
            assert [problem for version in KUBE_VERSIONS for problem in problems(made, version)] == []


def test_the_taps_port_is_the_charts_and_its_variable_the_exporters() -> None:
    """What the component writes out is what both know."""
    (port,) = [port for port in sidecar({"tap": {"enabled": True}})["ports"] if port["name"] == "tap"]
    assert port == TAP["ports"][-1]
    variables = {option.variable: option for option in OPTIONS}
    assert variables[TAP["env"][0]["name"]].parse(TAP["env"][0]["value"]) == ("", 9852)


def test_flags_of_a_workload_leave_the_tap_alone(tmp_path: Path) -> None:
    """They replace all flags of the component; the tap is none."""
    container = {"name": "specdec-exporter", "args": ["--vllm.url=http://127.0.0.1:8200"]}
    own = {
        **{key: tapped("Deployment")[key] for key in ("apiVersion", "kind")},
        "metadata": {"name": "vllm"},
        "spec": {"template": {"spec": {"initContainers": [container]}}},
    }
    patches = [{"target": {"kind": "Deployment"}, "patch": yaml.safe_dump(own)}]
    (made,) = build(tmp_path, tapped("Deployment"), components=("component", "tap"), patches=patches)
    (added,) = pod_spec(made)["initContainers"]
    assert added["args"] == container["args"]
    assert added["env"] == TAP["env"]


def test_other_workloads_get_no_tap(tmp_path: Path) -> None:
    """Only `true` asks for it; and without the sidecar's label there is nothing to ask."""
    for annotation in ("false", "yes", ""):
        sent = tapped("Deployment", annotation)
        (made,) = build(tmp_path / f"said-{annotation}", sent, components=("component", "tap"))
        assert pod_spec(made)["initContainers"] == [sidecar()]
    bare = tapped("Deployment")
    del bare["metadata"]["labels"]
    assert build(tmp_path / "bare", bare, components=("component", "tap")) == [bare]


def test_the_readmes_tap_is_executed(tmp_path: Path) -> None:
    """It builds: the sidecar has the tap, and the Service leads there."""
    text = (KUSTOMIZE / "README.md").read_text()
    (kustomization,) = re.findall(
        r"```yaml\n# kustomization.yaml, with the tap\n(.*?)```", text, flags=re.DOTALL
    )
    for component in ("component", "tap"):
        shutil.copytree(KUSTOMIZE / component, tmp_path / "vllm-specdec-exporter" / component)
    (tmp_path / "kustomization.yaml").write_text(kustomization)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "vllm"},
        "spec": {"selector": {"app": "vllm"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    (tmp_path / "vllm.yaml").write_text(yaml.safe_dump_all([tapped("Deployment"), service]))
    made = {obj["kind"]: obj for obj in yaml.safe_load_all(kustomize(tmp_path))}
    (container,) = pod_spec(made["Deployment"])["initContainers"]
    assert by_key(container)["ports"] == TAP["ports"]
    assert made["Service"]["spec"]["ports"] == [{"port": 80, "targetPort": 9852}]


def by_name(text: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a YAML text by name."""
    return {obj["metadata"]["name"]: obj for obj in yaml.safe_load_all(text)}


def test_example_adds_and_leaves() -> None:
    """Two workloads with sidecar, the third as it was; the image and one's flags are the overlay's."""
    made = by_name(kustomize(KUSTOMIZE / "example"))
    sent = {
        obj["metadata"]["name"]: obj
        for obj in yaml.safe_load_all((KUSTOMIZE / "example/vllm.yaml").read_text())
    }
    assert made.keys() == sent.keys() == {"vllm", "vllm-prefill", "router"}
    assert [one for obj in made.values() for version in KUBE_VERSIONS for one in problems(obj, version)] == []
    image = f"registry.example.com/team/vllm-specdec-exporter:{__version__}"
    assert made["router"] == sent["router"]
    assert pod_spec(made["vllm"])["initContainers"] == [{**sidecar(), "image": image}]
    first, second = pod_spec(made["vllm-prefill"])["initContainers"]
    flags = [
        "--startup.on-error=wait",
        "--vllm.url=http://127.0.0.1:8200",
        '--spec.config={"method": "eagle3", "num_speculative_tokens": 3}',
    ]
    assert first == {**sidecar(), "image": image, "args": flags}
    assert second["name"] == "download"


def test_readme_is_executed(tmp_path: Path) -> None:
    """The kustomization in the README, with the workloads of the example, builds and adds the sidecar."""
    text = (KUSTOMIZE / "README.md").read_text()
    (kustomization,) = re.findall(r"```yaml\n# kustomization.yaml\n(.*?)```", text, flags=re.DOTALL)
    shutil.copytree(KUSTOMIZE / "component", tmp_path / "vllm-specdec-exporter" / "component")
    (tmp_path / "kustomization.yaml").write_text(kustomization)
    shutil.copy(KUSTOMIZE / "example" / "vllm.yaml", tmp_path)
    made = by_name(kustomize(tmp_path))
    (added,) = pod_spec(made["vllm"])["initContainers"]
    assert added["args"][:2] == ["--startup.on-error=wait", "--vllm.url=http://127.0.0.1:8000"]
    assert added["args"][2].startswith("--spec.config={")
    assert added["image"] != sidecar()["image"]


def test_versions_in_the_readme_are_those_tried() -> None:
    """The README names the version of kubectl that these tests run."""
    locked = (Path(__file__).parent / "package.json").read_text()
    minor = re.search(r"kubectl-v(\d+)", locked)
    assert minor is not None
    assert f"1.{minor[1]}" in (KUSTOMIZE / "README.md").read_text()
