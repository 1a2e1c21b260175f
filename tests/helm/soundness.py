"""What must hold for every rendering, whatever the values: `faults` says what does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .api_rules import containers_of, pod_spec
from .charts import render, render_files
from .manifest_schemas import problems, title
from .operator_schemas import GROUP
from .sidecar_shape import PORT_NAME, container_faults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .value_cases import ValueCase

Objects = list[dict[str, Any]]

CLUSTER_WIDE = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
#: No role, binding or service account: the exporter never talks to the API server.
OURS = {
    *(
        "ConfigMap",
        "PodMonitor",
        "ServiceMonitor",
        "PrometheusRule",
        "GrafanaDashboard",
        "AlertmanagerConfig",
    ),
    *("Deployment", "Service", "NetworkPolicy", "Pod"),
    *CLUSTER_WIDE,
}
#: What every object of ours is labelled with.
LABELS = {
    *("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version"),
    *("app.kubernetes.io/managed-by", "app.kubernetes.io/part-of", "helm.sh/chart"),
}
#: Of Deployments: it cannot change, so it has nothing that does.
SELECTOR = {"app.kubernetes.io/name", "app.kubernetes.io/instance"}


def rendered(case: ValueCase) -> Objects:
    """Return the objects of a set of values."""
    return render(case.values, release=case.release, namespace=case.namespace)


def operators(obj: Mapping[str, Any]) -> bool:
    """Whether an object is the Prometheus operator's, whose schemas need Node."""
    return str(obj["apiVersion"]).startswith(f"{GROUP}/")


def by_identity(objects: Objects) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return objects by what makes them the same object."""
    return {
        (obj["apiVersion"], obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj
        for obj in objects
    }


def faults(case: ValueCase) -> list[str]:
    """Return what is wrong with the rendering of a set of values; the operator's schemas are not asked."""
    objects = rendered(case)
    found = [
        f"{title(obj)}: {problem}"
        for obj in objects
        if not operators(obj)
        for problem in problems(obj, "1.37")
    ]
    if len(by_identity(objects)) != len(objects):
        found.append("two objects of one name overwrite each other")
    ours = [obj for obj in objects if obj not in of_the_user(case)]
    for obj in ours:
        found += [f"{title(obj)}: {fault}" for fault in (*_metadata(obj, case), *_pods(obj, case))]
        found += [f"{title(obj)}: null at {path}" for path in nulls(obj)]
    by_kind = {obj["kind"]: obj for obj in ours if not obj["metadata"]["name"].endswith("-vllm")}
    return [*found, *_selectors(by_kind), *_ports(ours, case), *_policies(ours, case), *_notes(ours, case)]


def of_the_user(case: ValueCase) -> Objects:
    """Return the objects that the values bring as they are."""
    if "extraManifests" not in case.values:
        return []
    return render({"extraManifests": case.values["extraManifests"]}, release=case.release)


def nulls(value: object, path: str = "") -> list[str]:
    """Return the paths of all nulls."""
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in nulls(inner, f"{path}/{key}")]
    if isinstance(value, list):
        return [found for index, inner in enumerate(value) for found in nulls(inner, f"{path}/{index}")]
    return [path] if value is None else []


def _metadata(obj: Mapping[str, Any], case: ValueCase) -> Iterator[str]:
    metadata, labels = obj["metadata"], obj["metadata"]["labels"]
    if obj["kind"] not in OURS:
        yield "not among the kinds that the chart may make"
    if ("namespace" in metadata) == (obj["kind"] in CLUSTER_WIDE):
        yield f"the namespace is {metadata.get('namespace')}"
    if len(metadata["name"]) > 63:
        yield "the name has more than 63 characters"
    if not labels.keys() >= LABELS or labels["app.kubernetes.io/instance"] != case.release:
        yield f"the labels are {labels}"
    if labels["app.kubernetes.io/managed-by"] != "Helm":
        yield "not managed by Helm"
    if labels["app.kubernetes.io/part-of"] != "vllm-specdec-exporter":
        yield f"part of {labels['app.kubernetes.io/part-of']}"


def _pods(obj: dict[str, Any], case: ValueCase) -> Iterator[str]:
    """No service-account token, no host access, and what Pod Security's `restricted` asks for."""
    spec = pod_spec(obj)
    if spec is None:
        return
    if spec["automountServiceAccountToken"] is not False:
        yield "it holds a token"
    if {"hostNetwork", "hostPID", "hostIPC"} & set(spec):
        yield "it shares the host's namespaces"
    if any("hostPath" in volume for volume in spec.get("volumes", ())):
        yield "it mounts a path of the host"
    burstable = case.values.get("exporter", {}).get("allowBurstable")
    for container in containers_of(spec):
        security = container["securityContext"]
        wanted = {
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        if not security.items() >= wanted.items():
            yield f"the container {container['name']} has {security}"
        if "ports" in container:
            # Its readiness is its own pod's affair.
            wrong = set(container_faults({**container, "readinessProbe": None}, port_name="metrics"))
            yield from wrong - ({"its requests are not its limits"} if burstable else set())


def _selectors(objects: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Service and ServiceMonitor find the Deployment's pod (or Service), and never the test's pod."""
    if "Deployment" not in objects:
        if objects.keys() & {"Service", "ServiceMonitor", "Pod"}:
            yield "a Service, ServiceMonitor or Pod without a Deployment"
        return
    deployment, service = objects["Deployment"]["spec"], objects["Service"]
    pod = deployment["template"]["metadata"]["labels"]
    if set(deployment["selector"]["matchLabels"]) != SELECTOR:
        yield f"the Deployment's selector could change: {deployment['selector']}"
    if {"helm.sh/chart", "app.kubernetes.io/version"} & set(pod):
        yield "an upgrade would restart the pod for its labels"
    selector = service["spec"]["selector"]
    if not selector.items() <= pod.items():
        yield "the Service does not select the Deployment's pod"
    if selector.items() <= objects["Pod"]["metadata"]["labels"].items():
        yield "the Service selects the test's pod"
    if "ServiceMonitor" not in objects:
        return
    spec = objects["ServiceMonitor"]["spec"]
    if not spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items():
        yield "the ServiceMonitor does not select the Service"
    if spec["namespaceSelector"] != {"matchNames": [service["metadata"]["namespace"]]}:
        yield "the ServiceMonitor looks into other namespaces"
    if [one["port"] for one in spec["endpoints"]] != [one["name"] for one in service["spec"]["ports"]][:1]:
        yield "the ServiceMonitor scrapes another port than the Service's first"


def _ports(objects: Objects, case: ValueCase) -> Iterator[str]:
    """What others name is the container's port: by name in monitors, by number elsewhere; never the tap's."""
    port = case.values.get("exporter", {}).get("port", 9850)
    tap = case.values.get("tap", {})
    taps = [tap.get("port", 9852)] if tap.get("enabled") else []
    for obj in objects:
        spec, found, wanted = obj.get("spec", {}), {}, {}
        match obj["kind"]:
            case "PodMonitor" if not obj["metadata"]["name"].endswith("-vllm"):
                found["scraped"] = [one["port"] for one in spec["podMetricsEndpoints"]]
                wanted["scraped"] = [PORT_NAME]
            case "Service":
                found["targets"] = [one["targetPort"] for one in spec["ports"]]
                found["names"] = [one["name"] for one in spec["ports"]][1:]
                wanted = {"targets": [port, *taps], "names": ["tap"] * len(taps)}
            case "NetworkPolicy":
                found["metrics"] = spec["ingress"][0]["ports"]
                tap_ports = [opened(one) for one in taps]
                found["tap"] = [one.get("from") for one in spec["ingress"] if one.get("ports") in tap_ports]
                clients = case.values["networkPolicy"].get("tapFrom") or None
                wanted = {"metrics": opened(port), "tap": [clients] * len(taps)}
            case "Deployment":
                (container,) = spec["template"]["spec"]["containers"]
                found["named"] = [(one["name"], one["containerPort"]) for one in container["ports"]]
                # Not the sidecars' name: a PodMonitor would find it too, and count everything twice.
                wanted["named"] = [("metrics", port), *(("tap", one) for one in taps)]
                for probe in ("livenessProbe", "readinessProbe"):
                    found[probe] = [one["port"] for one in container[probe].values() if isinstance(one, dict)]
                    wanted[probe] = [port]
        if found != wanted:
            yield f"{title(obj)}: the ports are {found}, not {wanted}"


def opened(*ports: int) -> list[dict[str, Any]]:
    """Return the ports of a rule of ingress."""
    return [{"port": port, "protocol": "TCP"} for port in ports]


def _policies(objects: Objects, case: ValueCase) -> Iterator[str]:
    """What selects pods of vLLM has only ingress, and keeps the named ports open to all."""
    for obj in objects:
        if obj["kind"] != "NetworkPolicy":
            continue
        spec = obj["spec"]
        if not spec["podSelector"]:
            yield "a policy selects every pod of the namespace"
        if "app.kubernetes.io/instance" in spec["podSelector"].get("matchLabels", {}):
            continue  # our own pod
        kept = case.values["networkPolicy"]["sidecar"]["keepOpen"]
        if spec["policyTypes"] != ["Ingress"] or {"ports": opened(*kept)} not in spec["ingress"]:
            yield f"vLLM is cut off: {spec}"


def _notes(objects: Objects, case: ValueCase) -> Iterator[str]:
    """Text for people: no trace of a template, no screen of empty lines, and only objects that exist."""
    files = render_files(case.values, release=case.release, namespace=case.namespace)
    text = files["templates/NOTES.txt"]
    for trace in ("<no value>", "map[", "{{", "}}", "%!", "\n\n\n\n"):
        if trace in text and trace not in str(case.values):
            yield f"the notes have {trace!r}"
    for obj in objects:
        metadata = obj["metadata"]
        named = f"{obj['kind']} {metadata.get('namespace')}/{metadata['name']}"
        told = obj["kind"] in {"PodMonitor", "ServiceMonitor", "AlertmanagerConfig"}
        if told and not named.endswith("-vllm") and named not in text:
            yield f"the notes do not name {named}"
