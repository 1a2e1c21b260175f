"""Every recipe puts the one and same sidecar beside vLLM, where it can do no harm."""

from __future__ import annotations

import copy
import itertools
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from helm.api_rules import containers_of
from helm.manifest_schemas import problems_everywhere
from helm.quantities import qos_class, quantity
from injection import rendered_policy
from injection.policy_server import admit
from recipes.sidecar import IMAGE, NAME, chart_sidecar, loaded, sidecar_of
from recipes.stacks import (
    EXAMPLES,
    STACKS,
    Pod,
    load,
    production_stack,
    refusals,
    stack,
    vllm_stack,
    workload,
)
from recipes.table import RECIPES, Recipe
from vllm_specdec_exporter import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.full

each = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.path)


def serving(recipe: Recipe) -> list[Pod]:
    """Return the pods that have vLLM's API server; each recipe has one."""
    pods = [pod for pod in recipe.pods(load(recipe.path)) if pod.serves]
    assert pods
    return pods


def test_every_file_that_leads_to_pods_is_tested() -> None:
    """A recipe that has a sidecar, and is in no list, fails here."""
    files = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.yaml")}
    with_sidecar = {file for file in files if f"name: {NAME}\n" in (EXAMPLES / file).read_text()}
    listed = {recipe.path for recipe in RECIPES}
    assert with_sidecar - {"production-stack/kustomization.yaml"} <= listed
    assert listed <= files


@each
def test_stack_and_api_server_take_the_recipe(recipe: Recipe) -> None:
    """Nothing in it is unknown to its stack; its pods are valid in Kubernetes 1.29 to 1.37."""
    if recipe.stack:
        assert [refusals(recipe.stack, document) for document in load(recipe.path)] == [[]]
    else:
        assert problems_everywhere(load(recipe.path)) == []
    assert problems_everywhere(pod.manifest() for pod in recipe.pods(load(recipe.path))) == []


def test_what_a_stack_accepts_is_strict_and_has_a_source() -> None:
    """Facts name project, version and commit, and refuse keys that nobody has looked up."""
    names = {path.stem for path in STACKS.glob("*.yaml")}
    assert names == {recipe.stack for recipe in RECIPES} - {""}
    for name in names:
        source = stack(name)["source"]
        assert re.fullmatch(r"[0-9a-f]{40}", source["commit"]), name
        assert all(source[part] for part in ("project", "version", "facts")), name
        assert refusals(name, {"made-up": 1}), name


@each
def test_the_sidecar_is_the_charts_and_does_no_harm(recipe: Recipe) -> None:
    """Nothing but args, and what is declared, differs from the chart's; nothing of it clashes or decides."""
    for pod in recipe.pods(load(recipe.path)):
        names = [container["name"] for container in containers_of(pod.spec)]
        # Where there is no API server, it would report a server that is down for ever.
        assert names.count(NAME) == int(pod.serves), pod.name
        if not pod.serves:
            continue
        expected, found = chart_sidecar(), sidecar_of(pod)
        differs = {key for key in {*expected, *found} if expected.get(key) != found.get(key)}
        assert differs - {"args"} == recipe.differs
        assert found["image"] == f"registry.example.com/vllm-specdec-exporter:{__version__}"
        assert not {"readinessProbe", "startupProbe", "lifecycle"} & set(found)
        # Where its restart would be everybody's, it has no liveness probe at all.
        assert ("livenessProbe" in found) == ("livenessProbe" not in recipe.differs)
        others = [container for container in containers_of(pod.spec) if container["name"] != NAME]
        ports = [port for container in others for port in container.get("ports") or ()]
        assert "specdec-metrics" not in {port.get("name") for port in ports}
        assert 9850 not in {port["containerPort"] for port in ports}
        mounted = {mount["name"] for mount in found.get("volumeMounts") or ()}
        assert not mounted & {mount["name"] for other in others for mount in other.get("volumeMounts") or ()}


@each
def test_the_sidecar_is_native_and_behind_what_must_run_first(recipe: Recipe) -> None:
    """It is among the init containers and always restarts; none of the recipe's own stands behind it."""
    for pod in serving(recipe):
        init = [container["name"] for container in pod.spec.get("initContainers") or ()]
        assert (NAME in init) == recipe.native
        if not recipe.native:
            assert "ordinary container" in (EXAMPLES / recipe.path).read_text().split("\nimage:")[0]
            continue
        assert sidecar_of(pod)["restartPolicy"] == "Always"
        appended = stack(recipe.stack).get("appended", ()) if recipe.stack else ()
        assert set(init[init.index(NAME) + 1 :]) <= {container["name"] for container in appended}


@each
def test_the_sidecar_polls_vllm_on_the_port_it_has(recipe: Recipe) -> None:
    """--vllm.url names the loopback and the ports that vLLM's containers listen on, and all of them."""
    for pod in serving(recipe):
        settings = loaded(sidecar_of(pod)["args"])
        urls = [target.url.removesuffix("/metrics") for target in settings.upstream.targets]
        assert tuple(urls) == recipe.upstream
        assert {urlsplit(url).port for url in urls} == set(listening(pod))


def listening(pod: Pod) -> Iterator[int]:
    """Yield the ports that vLLM listens on, by its command line, else by the port declared."""
    for container in pod.spec["containers"]:
        if container["name"] == NAME:
            continue
        command = " ".join([*container.get("command", ()), *container.get("args", ())])
        told = re.search(r"--port[= ](\d+)", command)
        ports = [port["containerPort"] for port in container.get("ports") or ()]
        assert told is None or not ports or int(told[1]) in ports
        yield int(told[1]) if told else ports[0]


@each
def test_the_exporter_knows_the_speculative_config(recipe: Recipe) -> None:
    """--spec.config is what vLLM is given: without it speedup is a guess, and a guess does not page."""
    text = (EXAMPLES / recipe.path).read_text()
    for pod in serving(recipe):
        args = sidecar_of(pod)["args"]
        (told,) = [argument.split("=", 1)[1] for argument in args if argument.startswith("--spec.config=")]
        assert loaded(args).settings.speculation.method == json.loads(told)["method"]
        others = [json.loads(found) for found in re.findall(r"\{\"method\".*?\}", text)]
        assert others
        assert all(other == json.loads(told) for other in others)
        if recipe.path != "kserve/llminferenceserviceconfig.yaml":
            given = [c for c in pod.spec["containers"] if c["name"] != NAME]
            assert all("speculative-config" in json.dumps(container) for container in given), (
                "vLLM is given none"
            )


def without_sidecar(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod's spec without the sidecar."""
    found = copy.deepcopy(dict(spec))
    for kind in ("initContainers", "containers"):
        found[kind] = [container for container in found.get(kind) or () if container["name"] != NAME]
    return found


@each
def test_the_quality_of_service_is_kept(recipe: Recipe) -> None:
    """A pod is in the class it would be in without us; and Guaranteed, if all else in it is."""
    for pod in recipe.pods(load(recipe.path)):
        if pod.name == "llama" and recipe.path.endswith("config.yaml"):
            assert qos_class(without_sidecar(pod.spec)) == "BestEffort"  # KServe's container has no resources
        else:
            assert qos_class(pod.spec) == qos_class(without_sidecar(pod.spec)) == recipe.quality
        guaranteed = copy.deepcopy(dict(pod.spec))
        for container in containers_of(guaranteed):
            if container["name"] != NAME:
                container["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}}
        assert qos_class(guaranteed) == "Guaranteed"


def test_a_recipe_says_what_it_is() -> None:
    """It begins with a comment: what it does, what to change, what it was checked with."""
    for recipe in RECIPES:
        head = list(itertools.takewhile(lambda line: line.startswith("#"), lines(recipe)))
        assert any(line.startswith("# Change: ") for line in head), recipe.path
        assert any(line.startswith(("# Checked ", "# Rendered ")) for line in head), recipe.path
        assert 3 <= len(head) <= 10, recipe.path


def lines(recipe: Recipe) -> list[str]:
    return (EXAMPLES / recipe.path).read_text().splitlines()


TAPPED = "deployment-with-tap.yaml"


def test_the_tap_is_in_front_of_the_vllm_that_is_polled() -> None:
    """Clients come to the tap's port; it relays to vLLM's own, where probes and polls go on asking."""
    deployment, service = load(TAPPED)
    (pod,) = workload([deployment, service])
    sidecar, (vllm,) = sidecar_of(pod), pod.spec["containers"]
    tap = loaded(sidecar["args"]).tap
    assert tap is not None
    assert tap.upstream.address == ("127.0.0.1", 8000, False)
    assert service["spec"]["selector"].items() <= pod.labels.items()
    assert [port["targetPort"] for port in service["spec"]["ports"]] == [tap.listen[1]]
    probes = [probe for name, probe in vllm.items() if name.endswith("Probe")]
    assert {probe["httpGet"]["port"] for probe in probes} == {8000}
    assert "--per-request-spec-decode-metrics=detailed" in vllm["args"]


def test_the_sidecar_with_the_tap_is_the_charts_with_the_tap() -> None:
    """Its port is the chart's, and it has more of everything than the sidecar without."""
    (pod,) = workload(load(TAPPED))
    found, expected = sidecar_of(pod), rendered_policy.sidecar({**IMAGE, "tap": {"enabled": True}})
    assert found["ports"] == expected["ports"]
    assert {key for key in expected if found[key] != expected[key]} == {"args", "resources"}
    assert "--tap.listen-address=:9852" in {*found["args"]} & {*expected["args"]}
    for name, amount in found["resources"]["limits"].items():
        assert quantity(amount) > quantity(expected["resources"]["limits"][name])


def test_the_tap_is_all_that_its_recipe_adds() -> None:
    """It is the plain Deployment but for the tap, the Service, and what vLLM has to tell."""
    (plain,) = load("deployment.yaml")
    deployment, _ = load(TAPPED)
    for container in containers_of(deployment["spec"]["template"]["spec"]):
        container["args"] = [
            argument
            for argument in container["args"]
            if not argument.startswith(("--tap.", "--per-request-spec-decode-metrics"))
        ]
        if container["name"] == NAME:
            container |= {key: chart_sidecar()[key] for key in ("ports", "resources")}
    assert deployment == plain


def test_recipes_name_no_registry_but_the_example() -> None:
    """Images are Docker Hub's short names, or of registry.example.com."""
    for path in EXAMPLES.rglob("*"):
        if path.is_file():
            hosts = re.findall(
                r"(?:image|repository): ([a-z0-9.-]+\.[a-z]+(?::\d+)?)/", path.read_text(encoding="utf-8")
            )
            assert set(hosts) <= {"registry.example.com"}, path


def test_the_admission_policy_adds_what_kustomize_adds() -> None:
    """The pods ask for the sidecar by label and annotations too: the policy gives them the same one."""
    (values,) = load("production-stack/values.yaml")
    (kustomized,) = production_stack([values])
    (engine, router) = (deployment["spec"]["template"] for deployment in vllm_stack(values))
    policy = rendered_policy.policy(IMAGE)
    admitted = admit(policy, {"apiVersion": "v1", "kind": "Pod", **engine})
    assert admitted["spec"]["initContainers"] == [sidecar_of(kustomized)]
    assert admit(policy, {"apiVersion": "v1", "kind": "Pod", **router})["spec"] == router["spec"]
