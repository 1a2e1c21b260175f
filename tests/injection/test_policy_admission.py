"""What the policy makes of pods: its CEL is evaluated, and its JSON patch applied."""

import re
from typing import Any

import pytest
import yaml

from helm.manifest_schemas import problems_everywhere
from helm.quantities import qos_class
from helm.value_cases import CASES
from injection.pods import INJECTED, REFUSED, VLLM, pod
from injection.policy_server import admit, patch, unmet_condition
from injection.rendered_policy import injection, policy, sidecar, volumes
from support.repository import ROOT
from vllm_specdec_exporter.cli import main

pytestmark = pytest.mark.full

WEB = {"webConfig": {"existingSecret": "web", "tls": True}}
TAP = {"tap": {"enabled": True}}
PUSH = {"push": {"existingSecret": "gateway"}}
NAMED = {case.name: case.values for case in CASES}
#: Each pod with all that the chart has for pods, and a plain pod with other values.
PAIRS = [
    *((name, "everything-beside") for name in INJECTED),
    ("bare", "injection"),
    ("bare", "container-injection"),
    ("bare", "container-otherwise-injection"),
    ("bare", "tap-injection"),
]


@pytest.mark.parametrize(("name", "case"), PAIRS)
def test_pod_gets_the_chart_s_sidecar(name: str, case: str) -> None:
    """The last init container is what the named template renders; all else of the pod
    stays as it was.

    The second time, by reinvocation, the policy does not match; nor would its patch add
    anything.
    """
    sent = INJECTED[name]
    values = NAMED[case]
    made = policy(values)
    admitted = admit(made, sent)
    *others, added = admitted["spec"]["initContainers"]
    assert added == sidecar(values)
    assert others == sent["spec"].get("initContainers", [])
    mounted = sent["spec"].get("volumes", [])
    assert admitted["spec"].get("volumes", []) == [*mounted, *volumes(values)]
    for key in set(sent["spec"]) - {"initContainers", "volumes", "imagePullSecrets"}:
        assert admitted["spec"][key] == sent["spec"][key], key
    assert admitted["metadata"] == sent["metadata"]
    assert problems_everywhere([admitted]) == []
    is_guaranteed = qos_class(sent["spec"]) == "Guaranteed"
    if is_guaranteed and "allowBurstable" not in values.get("exporter", {}):
        assert qos_class(admitted["spec"]) == "Guaranteed"
    assert unmet_condition(made, admitted) == "no-sidecar-yet"
    assert patch(made, admitted) == []


def test_a_guaranteed_pod_is_among_the_pods() -> None:
    """Else nothing shows that a sidecar keeps the quality of service."""
    assert qos_class(INJECTED["deployment"]["spec"]) == "Guaranteed"


def test_the_policy_never_holds_pods_up() -> None:
    """A policy that fails lets pods start, unless told otherwise; it runs again after
    other mutations.
    """
    made, binding = injection(
        {"webConfig": {"existingSecret": "web"}, "imagePullSecrets": [{"name": "pull"}]}
    )
    spec = made["spec"]
    assert binding["spec"] == {"policyName": made["metadata"]["name"]}
    assert spec["failurePolicy"] == "Ignore"
    assert spec["reinvocationPolicy"] == "IfNeeded"
    closed = policy({"injection": {"failurePolicy": "Fail"}})
    assert closed["spec"]["failurePolicy"] == "Fail"
    # Variables are CEL identifiers, conditions are qualified names; none twice.
    for entries, form in (
        (spec["variables"], r"[A-Za-z_][A-Za-z0-9_]*"),
        (spec["matchConditions"], r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"),
    ):
        names = [entry["name"] for entry in entries]
        assert [name for name in names if not re.fullmatch(form, name)] == []
        assert len(set(names)) == len(names), names


def test_labels_are_selected_as_given() -> None:
    """Every label of injection.labels is required, the default one as well unless it is
    removed.
    """
    labels = {"serve": "llm", "vllm-specdec-exporter/inject": None}
    constraints = policy({"injection": {"labels": labels}})["spec"]["matchConstraints"]
    assert constraints["objectSelector"] == {"matchLabels": {"serve": "llm"}}


def test_pod_that_does_not_qualify_stays_as_it_is() -> None:
    """Each condition refuses what it is there for, and no other refuses it first."""
    for name, (condition, sent) in REFUSED.items():
        assert unmet_condition(policy(), sent) == condition, name
        assert admit(policy(), sent) == sent, name
    _, group = REFUSED["group"]
    assert admit(policy({"exporter": {"livenessProbe": None}}), group) != group


def test_pod_that_does_not_ask_stays_as_it_is() -> None:
    """Only the label with its value is a request, of a pod that is created, and not of
    the system's own.
    """
    for labels in (
        {},
        None,
        {"vllm-specdec-exporter/inject": "disabled"},
        {"inject": "enabled"},
    ):
        sent = pod(metadata={"labels": labels})
        assert admit(policy(), sent) == sent, labels
    for namespace in ("kube-system", "kube-public", "kube-node-lease"):
        labels = {"kubernetes.io/metadata.name": namespace}
        assert admit(policy(), pod(), namespace_labels=labels) == pod(), namespace
    for request in (
        ("apps", "v1", "pods", "CREATE"),
        ("", "v1", "pods", "UPDATE"),
        ("", "v1", "podtemplates", "CREATE"),
    ):
        assert admit(policy(), pod(), request=request) == pod(), request


def test_namespaces_that_the_user_selects() -> None:
    """Pods elsewhere stay as they are; the cluster's own namespaces stay out whatever
    the selector says.
    """
    selector = {
        "matchLabels": {"team": "llm"},
        "matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}],
    }
    made = policy({"injection": {"namespaceSelector": selector}})
    for name, labels, injected in (
        ("chat", {}, False),
        ("chat", {"team": "llm", "env": "test"}, False),
        ("chat", {"team": "llm", "env": "prod"}, True),
        ("kube-system", {"team": "llm", "env": "prod"}, False),
    ):
        admitted = admit(
            made,
            pod(),
            namespace_labels={"kubernetes.io/metadata.name": name, **labels},
        )
        assert (admitted != pod()) == injected, (name, labels)


FLAGS = {
    "exporter": {
        "specConfig": '{"method": "ngram"}',
        "extraArgs": ["--log.format=json"],
    }
}
URL = "vllm-specdec-exporter/vllm-url"
SPEC = "vllm-specdec-exporter/spec-config"
TRICKY = '{"method": "eagle3", "model": "a\\\\b\\"c<>&é😀", "n": 3}'
WAIT = "--startup.on-error=wait"
DEFAULT = "--vllm.url=http://127.0.0.1:8000"
NGRAM = '--spec.config={"method": "ngram"}'
JSON = "--log.format=json"
ANNOTATED = {
    "none": ({}, [WAIT, DEFAULT, NGRAM, JSON]),
    "url": (
        {URL: "http://127.0.0.1:8200"},
        [WAIT, NGRAM, JSON, "--vllm.url=http://127.0.0.1:8200"],
    ),
    "urls": (
        {URL: " http://127.0.0.1:8200,,unix:/run/vllm.sock , "},
        [
            WAIT,
            NGRAM,
            JSON,
            "--vllm.url=http://127.0.0.1:8200",
            "--vllm.url=unix:/run/vllm.sock",
        ],
    ),
    "spec-config": ({SPEC: TRICKY}, [WAIT, DEFAULT, JSON, f"--spec.config={TRICKY}"]),
    "both": (
        {SPEC: "{}", URL: "https://127.0.0.1:8000/metrics"},
        [WAIT, JSON, "--vllm.url=https://127.0.0.1:8000/metrics", "--spec.config={}"],
    ),
    "blank": ({SPEC: "  ", URL: " , "}, [WAIT, DEFAULT, NGRAM, JSON]),
}


@pytest.mark.parametrize(("annotations", "args"), ANNOTATED.values(), ids=ANNOTATED)
def test_annotations_change_the_flags_of_their_pod(
    annotations: dict[str, str], args: list[str]
) -> None:
    """They stand in for the chart's flags of the same name; its other flags stay."""
    admitted = admit(policy(FLAGS), pod(metadata={"annotations": annotations}))
    (added,) = admitted["spec"]["initContainers"]
    assert added == {**sidecar(FLAGS), "args": args}
    assert main([*args, "--config.check"]) == 0


def asking(for_tap: str) -> dict[str, Any]:
    """Return a pod that says by annotation whether it wants the tap."""
    return pod(metadata={"annotations": {"vllm-specdec-exporter/tap": for_tap}})


@pytest.mark.parametrize("values", [{}, WEB, {**WEB, **PUSH}], ids=["", "web", "push"])
def test_a_pod_may_ask_for_the_tap(values: dict[str, Any]) -> None:
    """Where the chart has it off: it gets what `tap.enabled` gives."""
    admitted = admit(policy(values), asking("true"))["spec"]
    assert admitted["initContainers"] == [sidecar({**values, **TAP})]
    assert admitted.get("volumes", []) == volumes({**values, **TAP})
    port = {"name": "tap", "containerPort": 9852, "protocol": "TCP"}
    assert port in admitted["initContainers"][0]["ports"]


@pytest.mark.parametrize("text", ["false", "", "True", "yes"])
def test_a_pod_may_do_without_the_tap(text: str) -> None:
    """Where the chart has it on: no flag, port, mount or volume of it is left.

    Only `true` asks for it.
    """
    admitted = admit(policy({**TAP, **PUSH}), asking(text))
    assert admitted == admit(policy(PUSH), asking(text))
    assert "tap" not in str(admitted["spec"])


def with_port(port: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod in which another container has a port."""
    return {"containers": [VLLM, {"name": "a", "image": "x", "ports": [port]}]}


@pytest.mark.parametrize(
    "port", [{"containerPort": 9852}, {"name": "tap", "containerPort": 1}]
)
def test_the_port_of_the_tap_must_be_free(port: dict[str, Any]) -> None:
    """A pod that has one gets no tap with it, by the chart or by its annotation."""
    spec = with_port(port)
    asks = {**asking("true"), "spec": spec}
    declines = {**asking("false"), "spec": spec}
    assert unmet_condition(policy(TAP), pod(**spec)) == "port-tap-is-free"
    assert unmet_condition(policy(), pod(**spec)) is None
    assert unmet_condition(policy(), asks) == "port-tap-is-free"
    assert unmet_condition(policy(TAP), declines) is None


def test_the_port_of_the_exporter_must_be_free() -> None:
    """That of the chart's values, and not the default."""
    made = policy({"exporter": {"port": 9999}})
    taken = pod(**with_port({"containerPort": 9999}))
    assert unmet_condition(made, taken) == "port-specdec-metrics-is-free"
    assert unmet_condition(made, pod(**with_port({"containerPort": 9850}))) is None


def test_volume_of_that_name_is_taken_as_it_is() -> None:
    """So a namespace whose Secret has another name can bring its own volume."""
    volume = {"name": "specdec-web-config", "secret": {"secretName": "mine"}}
    assert admit(policy(WEB), pod(volumes=[volume]))["spec"]["volumes"] == [volume]


def test_pull_secrets_are_added_once() -> None:
    """To those that the pod has, or as its first."""
    made = policy({"imagePullSecrets": [{"name": "pull"}, {"name": "theirs"}]})
    for present, names in (([], ["pull", "theirs"]), (["theirs"], ["theirs", "pull"])):
        secrets = [{"name": name} for name in present]
        admitted = admit(made, pod(imagePullSecrets=secrets))["spec"]
        pulled = [secret["name"] for secret in admitted["imagePullSecrets"]]
        assert pulled == names, present


def test_the_page_s_example_gets_the_sidecar_with_its_flags() -> None:
    """Its values switch the policy on; a label on the Deployment alone, not on its
    pods, does nothing.
    """
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    section = page.partition("## Injection without a webhook server")[2]
    blocks = re.findall(
        r"```yaml\n(.*?)```", section.partition("\n## ")[0], flags=re.DOTALL
    )
    values, deployment = map(yaml.safe_load, blocks)
    assert values["injection"]["enabled"] is True
    template = deployment["spec"]["template"]
    (added,) = admit(policy(values), template)["spec"]["initContainers"]
    assert added["args"] == [
        WAIT,
        "--tap.listen-address=:9852",
        "--tap.drain-timeout=25s",
        DEFAULT,
        '--spec.config={"method": "eagle3", "num_speculative_tokens": 3}',
    ]
    assert [port["name"] for port in added["ports"]] == ["specdec-metrics", "tap"]
    del template["metadata"]["labels"]["vllm-specdec-exporter/inject"]
    assert admit(policy(values), template) == template
