"""Whatever the values: an API server takes what the chart renders, and nothing of it
endangers vLLM.
"""

import json
from collections.abc import Mapping
from typing import Any

import helm_python
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.repository import Json
from vllm_specdec_exporter.cli import main

from .api_rules import containers_of, pod_spec
from .charts import (
    CHART,
    SIDECAR_PORT,
    RenderError,
    named_templates,
    render,
    render_files,
    render_helm3,
)
from .manifest_schemas import is_operators, problems, problems_everywhere, title
from .quantities import qos_class
from .value_cases import (
    CASES,
    DEFAULTS,
    IMAGE,
    LEAVES,
    LOOKS_LIKE_ANOTHER_TYPE,
    SCHEMA,
    ValueCase,
    flipped,
    merged,
    nested,
    value_at,
    without,
)

Objects = list[Json]

CLUSTER_WIDE = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
#: No role, binding or service account: the exporter never accesses the API server.
KINDS = CLUSTER_WIDE | {
    "ConfigMap",
    "PodMonitor",
    "ServiceMonitor",
    "PrometheusRule",
    "GrafanaDashboard",
    "AlertmanagerConfig",
    "Deployment",
    "Service",
    "NetworkPolicy",
    "Pod",
}
#: Labels of every object.
LABELS = {
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/part-of",
    "helm.sh/chart",
}
#: Of Deployments: it cannot change, so it has nothing that does.
SELECTOR = {"app.kubernetes.io/name", "app.kubernetes.io/instance"}
#: Security context of every container.
SECURITY: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def rendered(case: ValueCase) -> Objects:
    return render(case.values, release=case.release, namespace=case.namespace)


def by_identity(objects: Objects) -> dict[tuple[str, ...], Json]:
    """Return objects by what makes them the same object."""
    return {
        (
            obj["apiVersion"],
            obj["kind"],
            obj["metadata"].get("namespace", ""),
            obj["metadata"]["name"],
        ): obj
        for obj in objects
    }


def assert_sound(case: ValueCase) -> None:
    """What must hold for every rendering; the operator's schemas, which need Node, are
    left out.
    """
    objects = rendered(case)
    for obj in objects:
        if not is_operators(obj):
            assert problems(obj) == [], title(obj)
    assert len(by_identity(objects)) == len(objects), (
        "two objects of one name overwrite each other"
    )
    if "extraManifests" in case.values:
        return  # these are the user's
    for obj in objects:
        assert_metadata(obj, case)
        assert not has_null(obj), title(obj)
        # `kubectl apply` and Argo CD write the whole object into an annotation of
        # itself.
        assert len(json.dumps(obj).encode()) < 262_144, title(obj)
        spec = pod_spec(obj)
        if spec is not None:
            assert spec["automountServiceAccountToken"] is False, title(obj)
            assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), title(obj)
            assert "hostPath" not in str(spec.get("volumes")), title(obj)
            for container in containers_of(spec):
                assert_container(container)
    by_kind = {
        obj["kind"]: obj
        for obj in objects
        if not obj["metadata"]["name"].endswith("-vllm")
    }
    assert_standalone(by_kind)
    assert_ports(by_kind, case)
    assert_policies(objects, case)
    assert_notes(objects, case)


def has_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(has_null, value.values()))
    if isinstance(value, list):
        return any(map(has_null, value))
    return value is None


def assert_metadata(obj: Json, case: ValueCase) -> None:
    """Labels, name and namespace; those of the user are on everything."""
    metadata = obj["metadata"]
    labels = obj["metadata"]["labels"]
    assert obj["kind"] in KINDS
    assert ("namespace" in metadata) != (obj["kind"] in CLUSTER_WIDE)
    assert len(metadata["name"]) <= 63
    assert labels.keys() >= LABELS
    fixed = {
        "app.kubernetes.io/instance": case.release,
        "app.kubernetes.io/managed-by": "Helm",
        "app.kubernetes.io/part-of": "vllm-specdec-exporter",
    }
    assert labels.items() >= fixed.items()
    own_labels = {
        name: value
        for name, value in case.values.get("commonLabels", {}).items()
        if name not in LABELS
    }
    # Of a label that the dashboards have too, theirs holds.
    board_labels = case.values.get("dashboards", {}).get("labels", {})
    if not own_labels.keys() & board_labels.keys():
        assert labels.items() >= own_labels.items()
    tenant = ""
    if obj["apiVersion"] == "monitoring.coreos.com/v1":
        tenant = case.values.get("prometheusLabels", {}).get("tenant", "")
    assert labels.get("tenant", "") == tenant
    annotations = case.values.get("commonAnnotations", {})
    assert metadata.get("annotations", {}).items() >= annotations.items()


def assert_container(container: Json, port_name: str = "metrics") -> None:
    """No privileges, and no reason to be restarted or evicted because of vLLM."""
    security = container["securityContext"]
    assert security.items() >= SECURITY.items()
    assert security["runAsUser"] > 0, "an image's user by name cannot be checked"
    assert not {"lifecycle", "command", "startupProbe"} & set(container)
    if "ports" not in container:
        return
    port, *others = container["ports"]
    assert port["name"] == port_name
    assert [port["name"] for port in others] in ([], ["tap"])
    probe = container["livenessProbe"]
    assert probe.get("httpGet", {}).get("path", "/-/healthy") == "/-/healthy", (
        "others may depend on vLLM"
    )
    # The number works in every version, also for a sidecar.
    assert (probe.get("httpGet") or probe["tcpSocket"])["port"] == port["containerPort"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 30


def assert_standalone(objects: Mapping[str, Json]) -> None:
    """Service and ServiceMonitor find the Deployment's pod (or Service), and never the
    test's pod.
    """
    if "Deployment" not in objects:
        assert not objects.keys() & {"Service", "ServiceMonitor", "Pod"}
        return
    deployment = objects["Deployment"]["spec"]
    service = objects["Service"]
    pod = deployment["template"]["metadata"]["labels"]
    selector = service["spec"]["selector"]
    assert set(deployment["selector"]["matchLabels"]) == SELECTOR
    assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(pod), (
        "an upgrade would restart the pod"
    )
    assert selector.items() <= pod.items()
    for spread in deployment["template"]["spec"].get("topologySpreadConstraints", []):
        assert spread["labelSelector"] == deployment["selector"], spread
    assert not selector.items() <= objects["Pod"]["metadata"]["labels"].items()
    if "ServiceMonitor" in objects:
        spec = objects["ServiceMonitor"]["spec"]
        assert (
            spec["selector"]["matchLabels"].items()
            <= service["metadata"]["labels"].items()
        )
        assert spec["namespaceSelector"] == {
            "matchNames": [service["metadata"]["namespace"]]
        }
        assert [endpoint["port"] for endpoint in spec["endpoints"]] == [
            service["spec"]["ports"][0]["name"]
        ]


def assert_ports(objects: Mapping[str, Json], case: ValueCase) -> None:
    """Objects refer to the container's port: by name in monitors, by number elsewhere;
    never to the tap's.
    """
    values = merged(DEFAULTS, case.values)
    port = values["exporter"]["port"]
    taps = [values["tap"]["port"]] * values["tap"]["enabled"]
    if monitor := objects.get("PodMonitor"):
        assert [
            endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]
        ] == [SIDECAR_PORT]
    if service := objects.get("Service"):
        metrics, *others = service["spec"]["ports"]
        assert metrics["targetPort"] == port
        assert [(port["name"], port["targetPort"]) for port in others] == [
            ("tap", number) for number in taps
        ]
    if policy := objects.get("NetworkPolicy"):
        ingress = policy["spec"]["ingress"]
        assert ingress[0]["ports"] == opened(port)
        clients = values["networkPolicy"]["tapFrom"] or None
        wanted = list(map(opened, taps))
        assert [
            rule.get("from") for rule in ingress if rule.get("ports") in wanted
        ] == [clients] * len(taps)
    if deployment := objects.get("Deployment"):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        # Not the sidecars' name: a PodMonitor would find it too, and count everything
        # twice.
        named = [
            (entry["name"], entry["containerPort"]) for entry in container["ports"]
        ]
        assert named == [("metrics", port), *(("tap", number) for number in taps)]
        ready = container["readinessProbe"]
        assert (ready.get("httpGet") or ready["tcpSocket"])["port"] == port


def opened(*ports: int) -> list[Json]:
    """Return the ports of a rule of ingress."""
    return [{"port": port, "protocol": "TCP"} for port in ports]


def assert_policies(objects: Objects, case: ValueCase) -> None:
    """A policy that selects pods of vLLM has only ingress, and keeps the named ports
    open to all.
    """
    for obj in objects:
        if obj["kind"] != "NetworkPolicy":
            continue
        spec = obj["spec"]
        # Else it selects every pod of the namespace.
        assert spec["podSelector"], title(obj)
        selected = spec["podSelector"].get("matchLabels", {})
        if "app.kubernetes.io/instance" not in selected:
            kept = case.values["networkPolicy"]["sidecar"]["keepOpen"]
            assert spec["policyTypes"] == ["Ingress"], title(obj)
            assert {"ports": opened(*kept)} in spec["ingress"], title(obj)


def assert_notes(objects: Objects, case: ValueCase) -> None:
    """Text for people: no trace of a template, and the objects that others must find by
    name.
    """
    files = render_files(case.values, release=case.release, namespace=case.namespace)
    text = files["templates/NOTES.txt"]
    for trace in ("<no value>", "map[", "{{", "}}", "%!", "\n\n\n\n"):
        assert trace not in text or trace in str(case.values), trace
    for obj in objects:
        metadata = obj["metadata"]
        if obj["kind"] in MONITORS and not metadata["name"].endswith("-vllm"):
            named = f"{obj['kind']} {metadata.get('namespace')}/{metadata['name']}"
            assert named in text, named


MONITORS = {"PodMonitor", "ServiceMonitor", "AlertmanagerConfig"}

# --- values that people set

EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
#: Flags with files that a Secret would bring.
FROM_SECRETS = ("--web.config.file=", "--push.bearer-token-file=")
_ONE = {"limits": {"cpu": "1", "memory": "1Gi"}}


@EACH
def test_a_named_set_renders_soundly(
    case: ValueCase, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sidecar is native and harmless, and the exporter accepts its flags."""
    assert_sound(case)
    sidecar, _ = named_templates(merged(IMAGE, case.values))
    assert sidecar["restartPolicy"] == "Always"
    assert "readinessProbe" not in sidecar
    assert_container(sidecar, SIDECAR_PORT)
    pod = {"initContainers": [sidecar], "containers": [{"resources": _ONE}]}
    burstable = case.values.get("exporter", {}).get("allowBurstable")
    wanted = "Guaranteed"
    if burstable:
        wanted = "Burstable"
    assert qos_class(pod) == wanted
    args = [
        argument
        for argument in sidecar["args"]
        if not argument.startswith(FROM_SECRETS)
    ]
    assert main([*args, "--config.check"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", ["everything-beside", "everything-alone", "ci-bundle"])
def test_helms_linter_finds_nothing(name: str) -> None:
    """Not even a warning."""
    (values,) = (dict(case.values) for case in CASES if case.name == name)
    report = helm_python.lint(CHART, values, strict=True, kube_version="v1.36.0")
    # Severity 1 is advice, such as to give the chart an icon.
    assert [message for message in report["messages"] if message["severity"] >= 2] == []
    assert report["errors"] == []


@pytest.mark.full
@EACH
def test_every_kubernetes_the_operator_and_helm_3_agree(case: ValueCase) -> None:
    """Their schemas accept the objects; Helm 3 renders the same ones, sorted by
    kind.
    """
    assert problems_everywhere(rendered(case)) == []
    old = render_helm3(case.values, release=case.release, namespace=case.namespace)
    assert by_identity(old) == by_identity(rendered(case))


# --- changes of them at random

#: Anything that people could type: no control characters, which YAML cannot hold.
TEXT = st.text(
    st.characters(
        exclude_categories=("Cs", "Cc", "Cn"),
        exclude_characters="\x85\u2028\u2029\ufeff",
    ),
    max_size=20,
)
MISTAKEN = st.sampled_from(LOOKS_LIKE_ANOTHER_TYPE)
SWITCHES = sorted(
    path for path, schema in LEAVES.items() if "boolean" in schema.get("type", ())
)
LABEL = st.from_regex(
    r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?)?", fullmatch=True
)
#: Values that Kubernetes validates, or nobody: the schema leaves them open.
OPEN: dict[str, st.SearchStrategy[Any]] = {
    "nameOverride": MISTAKEN,
    "commonLabels": st.dictionaries(
        st.sampled_from(["common", "example.com/b"]), LABEL
    ),
    "commonAnnotations": st.dictionaries(
        st.sampled_from(["common", "example.com/b"]), TEXT
    ),
    "image.tag": MISTAKEN,
    "imagePullSecrets": st.lists(st.fixed_dictionaries({"name": MISTAKEN}), max_size=2),
    "exporter.specConfig": st.one_of(
        TEXT.map(lambda text: json.dumps({"model": text})),
        st.dictionaries(TEXT, st.one_of(TEXT, st.integers())),
    ),
    "exporter.extraEnv": st.lists(
        st.fixed_dictionaries({"name": st.just("A"), "value": TEXT}), max_size=1
    ),
    "webConfig.key": MISTAKEN,
    "dashboards.folder": TEXT,
    "dashboards.labelValue": LABEL,
    "prometheusRule.extraLabels": st.dictionaries(st.just("team"), TEXT),
    "prometheusRule.extraAnnotations": st.dictionaries(st.just("note"), TEXT),
    "podMonitor.relabelings": TEXT.filter(bool).map(
        lambda text: [{"targetLabel": "a", "replacement": text}]
    ),
}
CONSTRAINED = sorted(
    path
    for path, schema in LEAVES.items()
    if {"enum", "pattern", "minimum"} & set(schema) and ".".join(path) not in OPEN
)
RELEASE = st.one_of(
    MISTAKEN, st.from_regex(r"[a-z]([-a-z0-9.]{0,51}[a-z0-9])?", fullmatch=True)
)


def constrained(schema: Json) -> st.SearchStrategy[Any]:
    """Values that fit a schema with bounds, choices or a pattern."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "pattern" in schema:
        text = st.from_regex(schema["pattern"], fullmatch=True)
        fits = jsonschema.Draft7Validator(schema).is_valid
        return text.filter(
            lambda text: text.isprintable() and len(text) <= 99 and fits(text)
        )
    return st.integers(schema["minimum"], min(schema.get("maximum", 2**31), 2**31))


@st.composite
def changed(draw: st.DrawFn) -> ValueCase:
    """A named set with some switches turned, values left out, and values replaced."""
    case = draw(st.sampled_from(CASES))
    values = merged(case.values)
    for path in draw(st.sets(st.sampled_from(SWITCHES), max_size=3)):
        values = flipped(values, path)
    present = [path for path in sorted(LEAVES) if value_at(values, path) is not None]
    if present:
        for path in draw(st.sets(st.sampled_from(present), max_size=2)):
            values = without(values, path)
    for name in draw(st.sets(st.sampled_from(sorted(OPEN)), max_size=4)):
        path = tuple(name.split("."))
        values = merged(values, nested(path, None), nested(path, draw(OPEN[name])))
    for path in draw(st.sets(st.sampled_from(CONSTRAINED), max_size=2)):
        values = merged(values, nested(path, draw(constrained(LEAVES[path]))))
    return ValueCase(case.name, values, draw(RELEASE), draw(MISTAKEN))


def refused(case: ValueCase) -> bool:
    """Whether the chart refuses values that the schema accepts: only with a message of
    its own.
    """
    schema = jsonschema.Draft7Validator(SCHEMA)
    assert list(schema.iter_errors(merged(DEFAULTS, case.values))) == []
    try:
        rendered(case)
    except RenderError as error:
        if not error.refusal:
            raise
        return True
    return False


CHANGED = settings(suppress_health_check=list(HealthCheck))


@pytest.mark.full  # the operator's schemas need Node
@CHANGED
@given(changed())
def test_changed_values_are_refused_or_render_soundly(case: ValueCase) -> None:
    """Never an error of a template, nor an object that is refused or endangers vLLM;
    the operator's too.
    """
    if not refused(case):
        assert_sound(case)
        for obj in filter(is_operators, rendered(case)):
            assert problems(obj) == [], (title(obj), json.dumps(case.values))
