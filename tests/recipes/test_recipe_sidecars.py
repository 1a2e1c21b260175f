"""Every recipe puts the one and same sidecar beside vLLM, where it can do no harm."""

import itertools
import json
import re
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
    Pod,
    load,
    production_stack,
    refusals,
    stack,
    vllm_stack,
    workload,
)
from recipes.table import RECIPES, Recipe
from support.repository import Json, text_of

pytestmark = pytest.mark.full

each = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.path)


def test_every_file_that_leads_to_pods_is_tested() -> None:
    """A recipe that has a sidecar, and is in no list, fails here."""
    files = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.yaml")}
    with_sidecar = {
        file for file in files if f"name: {NAME}\n" in text_of(EXAMPLES / file)
    }
    listed = {recipe.path for recipe in RECIPES}
    assert with_sidecar - {"production-stack/kustomization.yaml"} <= listed
    assert listed <= files


@each
def test_stack_and_api_server_take_the_recipe(recipe: Recipe) -> None:
    """Nothing in it is unknown to its stack; it begins with what to change."""
    documents = load(recipe.path)
    if recipe.stack:
        assert [refusals(recipe.stack, document) for document in documents] == [[]]
    if recipe.pods is workload:
        assert problems_everywhere(documents) == []
    lines = text_of(EXAMPLES / recipe.path).splitlines()
    head = list(itertools.takewhile(lambda line: line.startswith("#"), lines))
    assert any(line.startswith("# Change: ") for line in head)
    assert 3 <= len(head) <= 10


@each
def test_its_pods_have_the_charts_sidecar(recipe: Recipe) -> None:
    """Nothing but args, and what is declared, differs from the chart's; nothing of it
    clashes or decides.

    The API server takes the pods, whose class of service is the one without the
    sidecar.
    """
    pods = recipe.pods(load(recipe.path))
    assert problems_everywhere(pod.manifest() for pod in pods) == []
    assert any(pod.serves for pod in pods)
    for pod in pods:
        others = [each for each in containers_of(pod.spec) if each["name"] != NAME]
        # Where there is no API server, it would report a server that is down for ever.
        assert len(containers_of(pod.spec)) - len(others) == int(pod.serves), pod.name
        if not pod.serves:
            continue
        sidecar = sidecar_of(pod)
        expected = chart_sidecar()
        differs = {
            key
            for key in {*expected, *sidecar} - {"args"}
            if expected.get(key) != sidecar.get(key)
        }
        assert differs == recipe.differs, pod.name
        # Where its restart would be everybody's, it has no liveness probe at all.
        assert ("livenessProbe" in sidecar) != ("livenessProbe" in differs), pod.name
        mounted = {mount["name"] for mount in sidecar.get("volumeMounts") or ()}
        for container in others:
            of_vllm = {mount["name"] for mount in container.get("volumeMounts") or ()}
            assert not of_vllm & mounted, pod.name
            ports = [port["containerPort"] for port in container.get("ports") or ()]
            assert 9850 not in ports, pod.name
        assert_quality_is_kept(pod, others, recipe)
        assert_native(pod, recipe)
        assert_flags(pod, others, recipe)


def assert_quality_is_kept(pod: Pod, others: list[Json], recipe: Recipe) -> None:
    """A pod has the class that it has without the sidecar; and Guaranteed, if all else
    in it is.
    """
    bare = qos_class({"containers": others})
    assert (qos_class(pod.spec), bare) == (recipe.quality, recipe.quality)
    limits = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    limited = [sidecar_of(pod), *(container | limits for container in others)]
    assert qos_class({"containers": limited}) == "Guaranteed"


def assert_native(pod: Pod, recipe: Recipe) -> None:
    """It is among the init containers and always restarts; none of the recipe's own
    stands behind it.
    """
    init = [container["name"] for container in pod.spec["initContainers"]]
    assert sidecar_of(pod)["restartPolicy"] == "Always"
    appended = stack(recipe.stack).get("appended", ()) if recipe.stack else ()
    names = {container["name"] for container in appended}
    assert set(init[init.index(NAME) + 1 :]) <= names


def assert_flags(pod: Pod, others: list[Json], recipe: Recipe) -> None:
    """It polls the loopback, on all ports of vLLM, and has the speculative config that
    vLLM has.
    """
    args = sidecar_of(pod)["args"]
    serve = loaded(args)
    urls = [target.url.removesuffix("/metrics") for target in serve.upstream.targets]
    assert tuple(urls) == recipe.upstream
    flag = "--spec.config="
    (text,) = [argument for argument in args if argument.startswith(flag)]
    config = json.loads(text.removeprefix(flag))
    assert serve.settings.speculation.method == config["method"]
    written = re.findall(r"\{\"method\".*?\}", text_of(EXAMPLES / recipe.path))
    assert list(map(json.loads, written)) == [config] * max(1, len(written))
    listening = set()
    for container in others:
        if container not in pod.spec["containers"]:
            continue
        name = container["name"]
        text = json.dumps(container)
        assert "speculative" in text, name
        assert config.get("model", "") in text, name
        # A gated model is not loaded without a token.
        assert "meta-llama/" not in text or "HF_TOKEN" in text, name
        command = " ".join([*container.get("command", ()), *container.get("args", ())])
        ports = [port["containerPort"] for port in container.get("ports") or ()]
        match = re.search(r"--port[= ](\d+)", command)
        port = int(match[1]) if match else ports[0]
        assert not ports or port in ports, name
        listening.add(port)
    assert {urlsplit(url).port for url in urls} == listening


TAPPED = "deployment-with-tap.yaml"


def test_the_tap_is_in_front_of_the_vllm_that_is_polled() -> None:
    """Clients come to the tap's port; it relays to vLLM's own, where probes and polls
    go on asking.
    """
    deployment, service = load(TAPPED)
    (pod,) = workload([deployment, service])
    sidecar = sidecar_of(pod)
    (vllm,) = pod.spec["containers"]
    chart = rendered_policy.sidecar({**IMAGE, "tap": {"enabled": True}})
    assert sidecar["ports"] == chart["ports"]
    for name, amount in sidecar["resources"]["limits"].items():
        # As the chart advises.
        assert quantity(amount) > quantity(chart["resources"]["limits"][name]), name
    tap = loaded(sidecar["args"]).tap
    assert tap.upstream.address == ("127.0.0.1", 8000, False)
    assert service["spec"]["selector"].items() <= pod.labels.items()
    assert [port["targetPort"] for port in service["spec"]["ports"]] == [tap.listen[1]]
    probes = [probe for name, probe in vllm.items() if name.endswith("Probe")]
    assert {probe["httpGet"]["port"] for probe in probes} == {8000}
    assert "--per-request-spec-decode-metrics=detailed" in vllm["args"]


def test_the_tap_is_all_that_its_recipe_adds() -> None:
    """It is the plain Deployment but for the tap, the Service, and what vLLM has to
    tell.
    """
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


def test_the_admission_policy_adds_what_kustomize_adds() -> None:
    """The pods ask for the sidecar by label and annotations too: the policy gives them
    the same one.
    """
    (values,) = load("production-stack/values.yaml")
    (kustomized,) = production_stack([values])
    engine, router = (
        {"apiVersion": "v1", "kind": "Pod", **deployment["spec"]["template"]}
        for deployment in vllm_stack(values)
    )
    policy = rendered_policy.policy(IMAGE)
    admitted = admit(policy, engine)
    assert admitted["spec"]["initContainers"] == [sidecar_of(kustomized)]
    assert admit(policy, router)["spec"] == router["spec"]
