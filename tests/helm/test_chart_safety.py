"""Nothing of ours endangers vLLM, over the whole matrix: probes, resources, privileges, names, policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from vllm_specdec_exporter.cli import main

from .api_rules import containers_of, pod_spec
from .charts import CHART, render
from .kubernetes_yaml import documents
from .manifest_schemas import problems, title
from .quantities import qos_class
from .sidecar_shape import NAME, PORT_NAME, container_faults, sidecar_faults
from .value_cases import (
    EACH,
    EVERYTHING_ALONE,
    IMAGE,
    SIDECAR,
    STANDALONE,
    TAP,
    TAP_ALONE,
    ValueCase,
    at,
    merged,
)

if TYPE_CHECKING:
    from pathlib import Path

#: Flags with files that a Secret would bring.
FROM_SECRETS = ("--web.config.file=", "--tap.cert-file=", "--tap.key-file=", "--push.bearer-token-file=")

#: The pod of a chart of somebody's own that has ours as a dependency.
PARENT = """
{{- $specdec := index .Values "vllm-specdec-exporter" }}
apiVersion: v1
kind: Pod
metadata:
  name: vllm
spec:
  automountServiceAccountToken: false
  initContainers:
    - {{- include "vllm-specdec-exporter.sidecar" (dict "Values" $specdec) | nindent 6 }}
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.8.5
      ports: [{name: http, containerPort: 8000}]
      resources: {requests: {cpu: "8", memory: 64Gi}, limits: {cpu: "8", memory: 64Gi}}
  {{- with include "vllm-specdec-exporter.volumes" (dict "Values" $specdec) }}
  volumes:
    {{- . | nindent 4 }}
  {{- end }}
"""


def rendered(case: ValueCase) -> list[dict[str, Any]]:
    return render(case.values, release=case.release, namespace=case.namespace)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chart whose pod has the sidecar out of the named template, and nothing else of ours."""
    chart = tmp_path_factory.mktemp("parent") / "vllm"
    (chart / "templates").mkdir(parents=True)
    (chart / "charts").mkdir()
    (chart / "charts" / CHART.name).symlink_to(CHART)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: vllm\nversion: 1.0.0\n")
    (chart / "templates" / "pod.yaml").write_text(PARENT)
    return chart


def burstable(case: ValueCase) -> bool:
    return bool(case.values.get("exporter", {}).get("allowBurstable"))


def under(parent: Path, values: Any) -> dict[str, Any]:
    """The spec of the parent's pod with these values for our chart, all parts of it off."""
    off = {
        part: {"enabled": False}
        for part, inner in values.items()
        if isinstance(inner, dict) and "enabled" in inner and part != "tap"  # of the container
    }
    off = merged(
        IMAGE, values, off, {"dashboards": {"grafanaDashboard": {"enabled": False}}, "extraManifests": []}
    )
    (pod,) = render({CHART.name: off}, chart=parent)
    assert problems(pod) == []
    return pod["spec"]


def the_sidecar_is_harmless(parent: Path, case: ValueCase) -> None:
    """Out of the named template, in a Guaranteed pod of somebody's own: see `sidecar_faults`."""
    pod = under(parent, case.values)
    expected = (
        ["its requests are not its limits", "it makes a Guaranteed pod Burstable"] if burstable(case) else []
    )
    assert sidecar_faults(pod) == expected
    assert qos_class(pod) == ("Burstable" if burstable(case) else "Guaranteed")


def test_the_sidecar_is_the_one_that_is_documented(parent: Path) -> None:
    """With defaults, field for field; the tag is the exporter's version."""
    from vllm_specdec_exporter import __version__

    (container,) = under(parent, IMAGE)["initContainers"]
    assert (
        container
        == documents(f"""
name: specdec-exporter
image: registry.example.com/vllm-specdec-exporter:{__version__}
imagePullPolicy: IfNotPresent
restartPolicy: Always
args: ["--startup.on-error=wait", "--vllm.url=http://127.0.0.1:8000"]
ports: [{{name: specdec-metrics, containerPort: 9850, protocol: TCP}}]
livenessProbe:
  httpGet: {{path: /-/healthy, port: 9850, scheme: HTTP}}
  initialDelaySeconds: 10
  periodSeconds: 30
  timeoutSeconds: 5
  failureThreshold: 5
resources: {{requests: {{cpu: 200m, memory: 128Mi}}, limits: {{cpu: 200m, memory: 128Mi}}}}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {{drop: [ALL]}}
  privileged: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {{type: RuntimeDefault}}
terminationMessagePolicy: FallbackToLogsOnError
""")[0]
    )


def the_exporter_understands_its_flags(
    parent: Path, case: ValueCase, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program itself checks what the chart makes of the values; files that a Secret would bring apart."""
    (container,) = under(parent, case.values)["initContainers"]
    args = [one for one in container["args"] if not one.startswith(FROM_SECRETS)]
    if "specification-as-text" in case.name:
        assert main([*args, "--config.check"]) == 2
        assert "spec.config" in capsys.readouterr().err
        return
    assert main([*args, "--config.check"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ['{"method": "ngram",  "prompt_lookup_max": 4}', "{}", "a: 'b' \"c\" {{ d }} #e"]
)
def test_a_specification_as_text_arrives_word_for_word(parent: Path, text: str) -> None:
    """As it was given to vLLM."""
    (container,) = under(parent, at(exporter__specConfig=text))["initContainers"]
    assert container["args"][2] == f"--spec.config={text}"


def test_values_arrive_as_flags(parent: Path) -> None:
    """Whatever quotes, braces or spaces they have; a list of settings is repeated."""
    exporter = {
        "vllmUrls": ["http://a:1", "http://b:2"],
        "specConfig": {"method": "eagle3", "model": 'x"y', "num_speculative_tokens": 3},
        "thresholds": {"minimum_drafts": 1000000},
        "settings": {"poll.interval": "2s"},
        "port": 9999,
        "extraArgs": ["--log.level=debug"],
    }
    (container,) = under(parent, {"exporter": exporter, "webConfig": {"existingSecret": "web"}})[
        "initContainers"
    ]
    assert container["args"] == [
        "--startup.on-error=wait",
        "--vllm.url=http://a:1",
        "--vllm.url=http://b:2",
        '--spec.config={"method":"eagle3","model":"x\\"y","num_speculative_tokens":3}',
        "--threshold=minimum_drafts=1000000",
        "--poll.interval=2s",
        "--web.listen-address=:9999",
        "--web.config.file=/etc/vllm-specdec-exporter/web/web-config.yml",
        "--log.level=debug",
    ]


def test_the_tap_and_push_arrive_as_flags(parent: Path) -> None:
    """Their Secrets are mounted where the flags say; one that is missing does not hold the pod back."""
    tap = {
        "enabled": True,
        "port": 8080,
        "upstream": "http://127.0.0.1:8001",
        "askForUsage": True,
        "drainTimeout": "1m",
        "tls": {"existingSecret": "certificate"},
    }
    pod = under(parent, {"tap": tap, "push": {"existingSecret": "gateway"}})
    (container,) = pod["initContainers"]
    assert container["args"][2:] == [
        "--tap.listen-address=:8080",
        "--tap.upstream=http://127.0.0.1:8001",
        "--tap.ask-for-usage=true",
        "--tap.drain-timeout=1m",
        "--tap.cert-file=/etc/vllm-specdec-exporter/tap/tls.crt",
        "--tap.key-file=/etc/vllm-specdec-exporter/tap/tls.key",
        "--push.bearer-token-file=/etc/vllm-specdec-exporter/push/token",
    ]
    assert container["ports"][1] == {"name": "tap", "containerPort": 8080, "protocol": "TCP"}
    assert {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]} == {
        "/etc/vllm-specdec-exporter/tap": "specdec-tap-tls",
        "/etc/vllm-specdec-exporter/push": "specdec-push",
    }
    assert all(mount["readOnly"] is True for mount in container["volumeMounts"])
    assert {volume["name"]: volume["secret"] for volume in pod["volumes"]} == {
        "specdec-tap-tls": {"secretName": "certificate", "optional": True},
        "specdec-push": {"secretName": "gateway", "optional": True},
    }


def test_the_tap_changes_nothing_else_of_the_sidecar(parent: Path) -> None:
    """No probe asks it, and nothing waits for it: flags and a port are all that there is of it."""
    without, with_tap = (under(parent, values)["initContainers"][0] for values in ({}, TAP))
    assert with_tap["args"][: len(without["args"])] == without["args"]
    assert all(flag.startswith("--tap.") for flag in with_tap["args"][len(without["args"]) :])
    assert with_tap["ports"][:1] == without["ports"]
    assert {**with_tap, "args": None, "ports": None} == {**without, "args": None, "ports": None}


@pytest.mark.parametrize(
    ("drain", "seconds"), [("25s", 35), ("1500ms", 12), ("0s", 10), ("2m", 130), ("1ms", 11)]
)
def test_the_standalone_pod_may_take_its_time_to_end(drain: str, seconds: int) -> None:
    """As long as the tap may wait for open connections; ten seconds without it."""
    (pod,) = (
        pod_spec(obj)
        for obj in render(merged(STANDALONE, TAP_ALONE, at(tap__drainTimeout=drain)))
        if obj["kind"] == "Deployment"
    )
    assert pod is not None
    assert pod["terminationGracePeriodSeconds"] == seconds
    (pod,) = (pod_spec(obj) for obj in render(STANDALONE) if obj["kind"] == "Deployment")
    assert pod is not None
    assert pod["terminationGracePeriodSeconds"] == 10


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({"repository": "a/b"}, "a/b:{version}"),
        ({"repository": "b", "registry": "r.example.com:5000/"}, "r.example.com:5000/b:{version}"),
        ({"repository": "b", "tag": "1"}, "b:1"),
        ({"repository": "b", "digest": f"sha256:{'a' * 64}"}, f"b@sha256:{'a' * 64}"),
        ({"repository": "b", "tag": "1", "digest": f"sha256:{'a' * 64}"}, f"b:1@sha256:{'a' * 64}"),
    ],
)
def test_the_image_is_named_in_full(parent: Path, image: dict[str, str], expected: str) -> None:
    """A digest pins it; a tag beside it is for people."""
    from vllm_specdec_exporter import __version__

    (container,) = under(parent, {"image": {"registry": "", **image}})["initContainers"]
    assert container["image"] == expected.format(version=__version__)


def pods_of_ours_hold_no_token_and_run_restricted(case: ValueCase) -> None:
    """No service-account token, no host access, and what Pod Security's `restricted` asks for."""
    for obj in rendered(case):
        spec = pod_spec(obj)
        if spec is None:
            continue
        assert spec["automountServiceAccountToken"] is False, title(obj)
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), title(obj)
        assert all("hostPath" not in volume for volume in spec.get("volumes", ())), title(obj)
        for container in containers_of(spec):
            if "ports" in container:
                # Its readiness is its own pod's affair.
                faults = container_faults({**container, "readinessProbe": None}, port_name="metrics")
                assert faults == (["its requests are not its limits"] if burstable(case) else []), title(obj)
            security = container["securityContext"]
            assert security["runAsNonRoot"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}


def nothing_asks_for_rights(case: ValueCase) -> None:
    """No role, binding or service account: the exporter never talks to the API server."""
    allowed = {
        *(
            "ConfigMap",
            "PodMonitor",
            "ServiceMonitor",
            "PrometheusRule",
            "GrafanaDashboard",
            "AlertmanagerConfig",
        ),
        *("Deployment", "Service", "NetworkPolicy", "Pod"),
        *("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
    }
    kinds = {obj["kind"] for obj in rendered(case)}
    assert kinds <= (allowed | {"Secret"} if case.name == "extra-manifests" else allowed)


def names_and_labels(case: ValueCase) -> None:
    """At most 63 characters, recommended labels on everything, and commonLabels and commonAnnotations too."""
    if case.name == "extra-manifests":
        return
    for obj in rendered(case):
        metadata = obj["metadata"]
        assert len(metadata["name"]) <= 63, title(obj)
        labels = metadata["labels"]
        assert labels["app.kubernetes.io/instance"] == case.release
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/part-of"] == "vllm-specdec-exporter"
        assert {"app.kubernetes.io/name", "app.kubernetes.io/version", "helm.sh/chart"} <= set(labels)
        own = {name: value for name, value in case.values.get("commonLabels", {}).items() if "/" not in name}
        assert labels.items() >= own.items()
        annotations = case.values.get("commonAnnotations") or {}
        assert (metadata.get("annotations") or {}).items() >= annotations.items()


def selectors_survive_upgrades(case: ValueCase) -> None:
    """A Deployment's selector cannot change: it has name and release, and nothing else."""
    for obj in rendered(case):
        if obj["kind"] == "Deployment":
            assert set(obj["spec"]["selector"]["matchLabels"]) == {
                "app.kubernetes.io/name",
                "app.kubernetes.io/instance",
            }
            assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(
                obj["spec"]["template"]["metadata"]["labels"]
            )


def selectors_select_the_exporter_and_nothing_else(case: ValueCase) -> None:
    """Service, ServiceMonitor and policy find the Deployment's pod (or Service), and never the test's pod."""
    objects = {
        obj["kind"]: obj
        for obj in rendered(case)
        if obj["kind"] in {"Deployment", "Service", "ServiceMonitor", "Pod"}
    }
    if "Deployment" not in objects:
        assert not objects
        return
    pod = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selector = objects["Service"]["spec"]["selector"]
    assert selector.items() <= pod.items()
    assert not selector.items() <= objects["Pod"]["metadata"]["labels"].items()
    if "ServiceMonitor" in objects:
        spec = objects["ServiceMonitor"]["spec"]
        assert spec["selector"]["matchLabels"].items() <= objects["Service"]["metadata"]["labels"].items()
        assert spec["namespaceSelector"] == {"matchNames": [objects["Service"]["metadata"]["namespace"]]}
        scraped = [endpoint["port"] for endpoint in spec["endpoints"]]
        assert scraped == [port["name"] for port in objects["Service"]["spec"]["ports"]][:1]


def ports_agree(case: ValueCase) -> None:
    """What others name is the container's port: by name in monitors, by number elsewhere; never the tap's."""
    port = case.values.get("exporter", {}).get("port", 9850)
    tap = case.values.get("tap", {})
    taps = [tap.get("port", 9852)] if tap.get("enabled") else []
    for obj in rendered(case):
        if obj["kind"] == "PodMonitor" and not obj["metadata"]["name"].endswith("-vllm"):
            assert [endpoint["port"] for endpoint in obj["spec"]["podMetricsEndpoints"]] == [PORT_NAME]
        if obj["kind"] == "Service":
            assert [one["targetPort"] for one in obj["spec"]["ports"]] == [port, *taps]
            assert [one["name"] for one in obj["spec"]["ports"]][1:] == ["tap"] * len(taps)
        if obj["kind"] == "NetworkPolicy":
            assert obj["spec"]["ingress"][0]["ports"] == [{"port": port, "protocol": "TCP"}]
            opened = [rule for rule in obj["spec"]["ingress"] if rule.get("ports") in tap_rules(taps)]
            clients = case.values["networkPolicy"].get("tapFrom")
            assert [rule.get("from") for rule in opened] == [clients] * len(taps)
        if obj["kind"] == "Deployment":
            (container,) = obj["spec"]["template"]["spec"]["containers"]
            # Not the sidecars' name: a PodMonitor would find it too, and count everything twice.
            named = [(one["name"], one["containerPort"]) for one in container["ports"]]
            assert named == [("metrics", port), *(("tap", one) for one in taps)]
            for probe in ("livenessProbe", "readinessProbe"):
                (way,) = (way for way in container[probe].values() if isinstance(way, dict))
                assert way["port"] == port


def tap_rules(ports: list[int]) -> list[list[dict[str, Any]]]:
    """The ports that a rule of ingress for the tap has."""
    return [[{"port": port, "protocol": "TCP"}] for port in ports]


def policies_never_cut_vllm_off(case: ValueCase) -> None:
    """What selects pods of vLLM has only ingress, and keeps the named ports open to all."""
    for obj in rendered(case):
        if obj["kind"] != "NetworkPolicy":
            continue
        spec = obj["spec"]
        assert spec["podSelector"], "selects every pod of the namespace"
        if "app.kubernetes.io/instance" in spec["podSelector"].get("matchLabels", {}):
            continue  # our own pod
        assert spec["policyTypes"] == ["Ingress"]
        kept = case.values["networkPolicy"]["sidecar"]["keepOpen"]
        assert {"ports": [{"port": port, "protocol": "TCP"} for port in kept]} in spec["ingress"]


def test_the_standalone_exporter_is_one_and_its_probes_need_no_vllm() -> None:
    """Two would count every engine twice; its own readiness gates nobody else."""
    (deployment,) = (obj for obj in render(STANDALONE) if obj["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["name"] != NAME
    assert "restartPolicy" not in container
    # A sidecar waits with its errors; a pod of its own may fail visibly.
    assert not [one for one in container["args"] if one.startswith("--startup.on-error")]
    assert container["readinessProbe"]["httpGet"]["path"] == "/-/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/-/healthy"


@pytest.mark.parametrize(
    ("web", "scheme", "way"),
    [
        ({}, "http", "httpGet"),
        ({"existingSecret": "web"}, "http", "httpGet"),
        ({"existingSecret": "web", "tls": True}, "https", "tcpSocket"),
        ({"existingSecret": "web", "tls": True, "clientCertificates": True}, "https", "tcpSocket"),
    ],
)
def test_tls_changes_probes_and_monitors_together(web: dict[str, Any], scheme: str, way: str) -> None:
    """With TLS the kubelet only looks whether the port is open.

    It has no client certificate, and must not restart an exporter that stands by for want of a usable one.
    """
    objects = {
        obj["kind"]: obj
        for obj in render(
            merged(
                EVERYTHING_ALONE,
                {"webConfig": {"existingSecret": "", "tls": False, **web}, "push": {"existingSecret": ""}},
            )
        )
    }
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    for probe in ("livenessProbe", "readinessProbe"):
        assert way in container[probe]
        assert container[probe].get("httpGet", {}).get("scheme", "HTTP") == "HTTP"
    assert objects["ServiceMonitor"]["spec"]["endpoints"][0]["scheme"] == scheme
    volumes = objects["Deployment"]["spec"]["template"]["spec"].get("volumes", [])
    assert volumes == (
        [{"name": "specdec-web-config", "secret": {"secretName": "web", "optional": True}}] if web else []
    )


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_monitors_set_the_job_that_rules_look_for(kind: str) -> None:
    """Whatever the release is called; relabelings of the user's come behind it."""
    own = [{"targetLabel": "x", "replacement": "y", "action": "replace"}]
    values = (
        merged(SIDECAR, at(podMonitor__relabelings=own))
        if kind == "PodMonitor"
        else merged(EVERYTHING_ALONE, at(serviceMonitor__relabelings=own))
    )
    (monitor,) = (
        obj
        for obj in render(values, release="other")
        if obj["kind"] == kind and not obj["metadata"]["name"].endswith("-vllm")
    )
    (endpoint,) = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
    assert endpoint["relabelings"] == [
        {"targetLabel": "job", "replacement": "vllm-specdec-exporter", "action": "replace"},
        *own,
    ]


def test_a_pod_monitor_takes_every_pod_with_the_port() -> None:
    """In all namespaces: the port's name is what picks them."""
    (monitor,) = render(SIDECAR)
    assert monitor["spec"]["selector"] == {}
    assert monitor["spec"]["namespaceSelector"] == {"any": True}


@EACH
def test_the_rendering_endangers_nothing(
    parent: Path, case: ValueCase, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of the checks above, whose name says what is wrong."""
    the_sidecar_is_harmless(parent, case)
    the_exporter_understands_its_flags(parent, case, capsys)
    pods_of_ours_hold_no_token_and_run_restricted(case)
    nothing_asks_for_rights(case)
    names_and_labels(case)
    selectors_survive_upgrades(case)
    selectors_select_the_exporter_and_nothing_else(case)
    ports_agree(case)
    policies_never_cut_vllm_off(case)
