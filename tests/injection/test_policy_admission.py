"""What the policy makes of pods: its CEL is evaluated, and its JSON patch applied."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from helm.kubernetes_schemas import KUBE_VERSIONS
from helm.manifest_schemas import problems
from helm.quantities import qos_class
from injection.pods import INJECTED, REFUSED, VLLM, pod
from injection.policy_server import PolicyError, admit, patch, unmet_condition
from injection.rendered_policy import policy, sidecar, volumes
from vllm_specdec_exporter.cli import main

pytestmark = pytest.mark.full

WEB = {"webConfig": {"existingSecret": "web", "tls": True}}
TAP = {"tap": {"enabled": True, "tls": {"existingSecret": "certificate"}}}
PUSH = {"push": {"existingSecret": "gateway"}}
CHARTS: dict[str, dict[str, Any]] = {
    "default": {},
    "web-config": WEB,
    "client-certificates": {"webConfig": {"existingSecret": "web", "tls": True, "clientCertificates": True}},
    "digest": {"image": {"digest": f"sha256:{'0123456789abcdef' * 4}"}},
    "port": {"exporter": {"port": 9999}},
    "tap": {"tap": {"enabled": True}},
    "tap-over-tls": {**TAP, **PUSH},
    "everything": {
        **WEB,
        "imagePullSecrets": [{"name": "pull"}, {"name": "theirs"}],
        "exporter": {
            "vllmUrls": ["http://127.0.0.1:8000", "http://127.0.0.1:8001"],
            "specConfig": {"method": "eagle3", "num_speculative_tokens": 3},
            "extraArgs": ["--log.format=json"],
            "extraEnv": [
                {"name": "A", "value": "1"},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
            "extraEnvFrom": [{"configMapRef": {"name": "specdec", "optional": True}}],
            "extraVolumeMounts": [{"name": "profiles", "mountPath": "/etc/profiles", "readOnly": True}],
            "extraVolumes": [
                {"name": "profiles", "configMap": {"name": "profiles", "defaultMode": 292}},
                {"name": "scratch", "emptyDir": {}},
            ],
        },
    },
}


@pytest.mark.parametrize("values", CHARTS.values(), ids=CHARTS)
@pytest.mark.parametrize("sent", INJECTED.values(), ids=INJECTED)
def test_pod_gets_the_chart_s_sidecar(sent: dict[str, Any], values: dict[str, Any]) -> None:
    """The last init container is what the named template renders; all else of the pod stays as it was."""
    admitted = admit(policy(values), sent)
    *others, added = admitted["spec"]["initContainers"]
    assert added == sidecar(values)
    assert others == sent["spec"].get("initContainers", [])
    for key in set(sent["spec"]) - {"initContainers", "volumes", "imagePullSecrets"}:
        assert admitted["spec"][key] == sent["spec"][key]
    assert admitted["metadata"] == sent["metadata"]
    assert admitted["spec"].get("volumes", []) == [*sent["spec"].get("volumes", []), *volumes(values)]


@pytest.mark.parametrize("kube_version", KUBE_VERSIONS)
@pytest.mark.parametrize("name", INJECTED)
def test_result_is_valid(name: str, kube_version: str) -> None:
    """The pod passes the strict schema, so no field of the patch is unknown or of another type."""
    assert problems(admit(policy(CHARTS["everything"]), INJECTED[name]), kube_version) == []


@pytest.mark.parametrize("values", CHARTS.values(), ids=CHARTS)
@pytest.mark.parametrize("sent", INJECTED.values(), ids=INJECTED)
def test_second_time_changes_nothing(sent: dict[str, Any], values: dict[str, Any]) -> None:
    """Asked again, as reinvocation does, the policy does not match; nor would its patch add anything."""
    made = policy(values)
    once = admit(made, sent)
    assert admit(made, once) == once
    assert unmet_condition(made, once) == "no-sidecar-yet"
    assert patch(made, once) == []


@pytest.mark.parametrize(("condition", "sent"), REFUSED.values(), ids=REFUSED)
def test_pod_that_does_not_qualify_stays_as_it_is(condition: str, sent: dict[str, Any]) -> None:
    """Each condition refuses what it is there for, and no other refuses it first."""
    assert unmet_condition(policy(), sent) == condition
    assert admit(policy(), sent) == sent


@pytest.mark.parametrize(
    "labels", [{}, None, {"vllm-specdec-exporter/inject": "disabled"}, {"inject": "enabled"}], ids=str
)
def test_pod_that_does_not_ask_stays_as_it_is(labels: dict[str, str] | None) -> None:
    """Only the label with its value is a request."""
    sent = pod(metadata={"labels": labels} if labels is not None else {"labels": None})
    assert admit(policy(), sent) == sent


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease"])
def test_system_namespaces_are_left_alone(namespace: str) -> None:
    """Also with the label."""
    labels = {"kubernetes.io/metadata.name": namespace}
    assert admit(policy(), pod(), namespace_labels=labels) == pod()


def test_namespaces_that_the_user_selects() -> None:
    """Pods elsewhere stay as they are."""
    made = policy({"injection": {"namespaceSelector": {"matchLabels": {"team": "llm"}}}})
    name = {"kubernetes.io/metadata.name": "chat"}
    assert admit(made, pod(), namespace_labels=name) == pod()
    assert admit(made, pod(), namespace_labels={**name, "team": "llm"}) != pod()


@pytest.mark.parametrize(
    "request_",
    [("apps", "v1", "pods", "CREATE"), ("", "v1", "pods", "UPDATE"), ("", "v1", "podtemplates", "CREATE")],
)
def test_nothing_but_new_pods(request_: tuple[str, str, str, str]) -> None:
    """Not other groups, not updates, not other resources."""
    assert admit(policy(), pod(), request=request_) == pod()


FLAGS = {"exporter": {"specConfig": '{"method": "ngram"}', "extraArgs": ["--log.format=json"]}}
URL, SPEC = "vllm-specdec-exporter/vllm-url", "vllm-specdec-exporter/spec-config"
TRICKY = '{"method": "eagle3", "model": "a\\\\b\\"c<>&é😀", "n": 3}'
WAIT, DEFAULT, NGRAM, JSON = (
    "--startup.on-error=wait",
    "--vllm.url=http://127.0.0.1:8000",
    '--spec.config={"method": "ngram"}',
    "--log.format=json",
)
ANNOTATED: dict[str, tuple[dict[str, str], list[str]]] = {
    "none": ({}, [WAIT, DEFAULT, NGRAM, JSON]),
    "url": ({URL: "http://127.0.0.1:8200"}, [WAIT, NGRAM, JSON, "--vllm.url=http://127.0.0.1:8200"]),
    "urls": (
        {URL: " http://127.0.0.1:8200,,unix:/run/vllm.sock , "},
        [WAIT, NGRAM, JSON, "--vllm.url=http://127.0.0.1:8200", "--vllm.url=unix:/run/vllm.sock"],
    ),
    "spec-config": ({SPEC: TRICKY}, [WAIT, DEFAULT, JSON, f"--spec.config={TRICKY}"]),
    "both": (
        {SPEC: "{}", URL: "https://127.0.0.1:8000/metrics"},
        [WAIT, JSON, "--vllm.url=https://127.0.0.1:8000/metrics", "--spec.config={}"],
    ),
    "blank": ({SPEC: "  ", URL: " , "}, [WAIT, DEFAULT, NGRAM, JSON]),
}


@pytest.mark.parametrize(("annotations", "args"), ANNOTATED.values(), ids=ANNOTATED)
def test_annotations_change_the_flags_of_their_pod(annotations: dict[str, str], args: list[str]) -> None:
    """They stand in for the chart's flags of the same name; its other flags stay."""
    admitted = admit(policy(FLAGS), pod(metadata={"annotations": annotations}))
    (added,) = admitted["spec"]["initContainers"]
    assert added["args"] == args
    assert {**added, "args": None} == {**sidecar(FLAGS), "args": None}


def test_flags_of_annotations_are_the_exporter_s() -> None:
    """The exporter takes what the annotations are turned into."""
    annotations = {URL: "http://127.0.0.1:8200, http://127.0.0.1:8201", SPEC: '{"method": "eagle3"}'}
    admitted = admit(policy(), pod(metadata={"annotations": annotations}))
    assert main([*admitted["spec"]["initContainers"][0]["args"], "--config.check"]) == 0


def asking(for_tap: str) -> dict[str, Any]:
    """Return a pod that says by annotation whether it wants the tap."""
    return pod(metadata={"annotations": {"vllm-specdec-exporter/tap": for_tap}})


@pytest.mark.parametrize("values", [{}, WEB, {**WEB, **PUSH}], ids=["bare", "web-config", "and-push"])
def test_a_pod_may_ask_for_the_tap(values: dict[str, Any]) -> None:
    """Where the chart has it off: it gets what `tap.enabled` gives, certificate and volume with it."""
    tls = {"tls": {"existingSecret": "certificate"}}
    admitted = admit(policy({**values, "tap": tls}), asking("true"))["spec"]
    assert admitted["initContainers"] == [sidecar({**values, **TAP})]
    assert admitted["volumes"] == volumes({**values, **TAP})
    assert {"name": "tap", "containerPort": 9852, "protocol": "TCP"} in admitted["initContainers"][0]["ports"]


@pytest.mark.parametrize("said", ["false", "", "True", "yes"])
def test_a_pod_may_do_without_the_tap(said: str) -> None:
    """Where the chart has it on: no flag, port, mount or volume of it is left. Only `true` asks for it."""
    assert admit(policy({**TAP, **PUSH}), asking(said)) == admit(policy(PUSH), asking(said))
    assert "tap" not in str(admit(policy({**TAP, **PUSH}), asking(said))["spec"])


def test_the_exporter_takes_the_flags_of_the_tap() -> None:
    """As the policy puts them together."""
    args = admit(policy(), asking("true"))["spec"]["initContainers"][0]["args"]
    assert "--tap.listen-address=:9852" in args
    assert main([*args, "--config.check"]) == 0


@pytest.mark.parametrize("taken", [{"containerPort": 9852}, {"name": "tap", "containerPort": 1}], ids=str)
def test_the_taps_port_must_be_free_where_there_is_one(taken: dict[str, Any]) -> None:
    """A pod that has the port gets no sidecar with a tap, and one without as before."""
    containers = [VLLM, {"name": "a", "image": "x", "ports": [taken]}]
    assert unmet_condition(policy(TAP), pod(containers=containers)) == "port-tap-is-free"
    assert unmet_condition(policy(), pod(containers=containers)) is None
    wanted = {**asking("true"), "spec": {"containers": containers}}
    assert unmet_condition(policy(), wanted) == "port-tap-is-free"
    assert unmet_condition(policy(TAP), {**asking("false"), "spec": {"containers": containers}}) is None


def test_volume_of_that_name_is_taken_as_it_is() -> None:
    """So a namespace whose Secret has another name can bring its own volume."""
    own = {"name": "specdec-web-config", "secret": {"secretName": "mine"}}
    assert admit(policy(WEB), pod(volumes=[own]))["spec"]["volumes"] == [own]


def test_pull_secrets_are_added_once() -> None:
    """To those that the pod has, or as its first."""
    made = policy({"imagePullSecrets": [{"name": "pull"}, {"name": "theirs"}]})
    assert admit(made, pod())["spec"]["imagePullSecrets"] == [{"name": "pull"}, {"name": "theirs"}]
    admitted = admit(made, pod(imagePullSecrets=[{"name": "theirs"}]))
    assert admitted["spec"]["imagePullSecrets"] == [{"name": "theirs"}, {"name": "pull"}]


@pytest.mark.parametrize("name", ["bare", "init-container", "job", "deployment"])
def test_guaranteed_pod_stays_guaranteed(name: str) -> None:
    """A pod that lost this class would lose its exclusive CPUs."""
    assert qos_class(INJECTED[name]["spec"]) == "Guaranteed"
    assert qos_class(admit(policy(), INJECTED[name])["spec"]) == "Guaranteed"


def test_nothing_gates_the_pod() -> None:
    """No readiness and no startup probe, and a restart policy that makes it a native sidecar."""
    (added,) = admit(policy(), pod())["spec"]["initContainers"]
    assert added["restartPolicy"] == "Always"
    assert not {"readinessProbe", "startupProbe"} & set(added)


def test_another_port_of_the_exporter_is_the_one_that_must_be_free() -> None:
    """The condition goes by the sidecar's port, not by a number of its own."""
    made = policy({"exporter": {"port": 9999}})
    taken = pod(containers=[VLLM, {"name": "a", "image": "x", "ports": [{"containerPort": 9999}]}])
    free = pod(containers=[VLLM, {"name": "a", "image": "x", "ports": [{"containerPort": 9850}]}])
    assert unmet_condition(made, taken) == "port-specdec-metrics-is-free"
    assert unmet_condition(made, free) is None


def test_policy_server_tells_broken_expressions() -> None:
    """What the API server would refuse or fail on is an error here as well."""
    good = policy()
    for broken in (
        '[JSONPatch{op: "add", path: "/x", valu: 1}]',
        '[JSONPatch{op: 1, path: "/x", value: 1}]',
        '[JSONPatch{op: "add", path: "/x", value: {"a": 1, "b": "c"}}]',
        '[JSONPatch{op: "add", path: "/x", value: object.spec.absent}]',
        '[JSONPatch{op: "add", path: "/x", value: variables.absent}]',
        '["add"]',
        "[JSONPatch{",
    ):
        wrong = copy.deepcopy(good)
        wrong["spec"]["mutations"][0]["jsonPatch"]["expression"] = broken
        with pytest.raises(PolicyError):
            patch(wrong, pod())
