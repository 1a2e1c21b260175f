"""What the API server checks beyond the schemas: names, labels, ports, mounts, selectors, sizes."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from .quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
#: Before Kubernetes 1.34 always, and later unless the feature gate RelaxedServiceNameValidation is on.
_SERVICE = r"[a-z](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(?:\.{_LABEL})*"
_QUALIFIED = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_MIB = 1024 * 1024


#: Where an object holds the spec of a pod.
_POD_SPECS = {
    "Pod": ("spec",),
    "PodTemplate": ("template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    **dict.fromkeys(
        ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job"),
        ("spec", "template", "spec"),
    ),
}


def rule_problems(obj: Mapping[str, Any]) -> list[str]:
    """Return what the API server would refuse in an object that fits its schema."""
    metadata = obj.get("metadata") or {}
    found = [
        *_name_problems(obj),
        *metadata_problems(metadata),
        *_data_problems(obj),
        *_service_problems(obj),
    ]
    spec = pod_spec(obj)
    if spec is not None:
        found += pod_problems(spec)
    return [*found, *_selector_problems(obj)]


def pod_spec(obj: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the spec of the pods that an object is or makes; None where it makes none."""
    path = _POD_SPECS.get(str(obj.get("kind")))
    if path is None:
        return None
    found: Any = obj
    for part in path:
        found = (found or {}).get(part)
    return found if isinstance(found, dict) else None


def containers_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all containers of a pod, init containers first."""
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


# --- metadata


def _name_problems(obj: Mapping[str, Any]) -> Iterator[str]:
    name = str((obj.get("metadata") or {}).get("name") or "")
    if obj.get("kind") == "Service":
        if not re.fullmatch(_SERVICE, name) or len(name) > 63:
            yield f"metadata.name: {name!r} is no name of a Service: a DNS label that begins with a letter"
    elif obj.get("kind") == "Namespace":
        if not re.fullmatch(_LABEL, name) or len(name) > 63:
            yield f"metadata.name: {name!r} is no DNS label of at most 63 characters"
    elif not re.fullmatch(_SUBDOMAIN, name) or len(name) > 253:
        yield f"metadata.name: {name!r} is no DNS subdomain of at most 253 characters"


def metadata_problems(metadata: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with labels, annotations and namespace."""
    namespace = metadata.get("namespace")
    found = []
    if namespace is not None and (not re.fullmatch(_LABEL, str(namespace)) or len(namespace) > 63):
        found.append(f"metadata.namespace: {namespace!r} is no DNS label")
    found += label_problems("metadata.labels", metadata.get("labels"))
    annotations = metadata.get("annotations") or {}
    for key, value in annotations.items():
        if not _is_key(key):
            found.append(f"metadata.annotations: {key!r} is no key")
        if not isinstance(value, str):
            found.append(f"metadata.annotations: {key} is {value!r}, and not text")
    if sum(len(f"{key}{value}".encode()) for key, value in annotations.items()) > _MIB // 4:
        found.append("metadata.annotations: more than 256 KiB")
    return found


def label_problems(where: str, labels: Mapping[str, Any] | None) -> list[str]:
    """Return what is wrong with labels, or with a selector's matchLabels."""
    found = [f"{where}: {key!r} is no key" for key in labels or {} if not _is_key(key)]
    for key, value in (labels or {}).items():
        if not isinstance(value, str) or not (value == "" or re.fullmatch(_QUALIFIED, value)):
            found.append(f"{where}: {key} has {value!r}, which is no label value")
    return found


def _is_key(key: str) -> bool:
    prefix, _, name = key.rpartition("/")
    well_prefixed = "/" not in key or (re.fullmatch(_SUBDOMAIN, prefix) is not None and len(prefix) <= 253)
    return well_prefixed and re.fullmatch(_QUALIFIED, name) is not None


# --- data, services, selectors


def _data_problems(obj: Mapping[str, Any]) -> Iterator[str]:
    if obj.get("kind") not in {"ConfigMap", "Secret"}:
        return
    data = {**(obj.get("data") or {}), **(obj.get("binaryData") or {}), **(obj.get("stringData") or {})}
    for key in data:
        if not re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key) or key in {".", ".."}:
            yield f"data: {key!r} is no key"
    if sum(len(str(value).encode()) for value in data.values()) > _MIB:
        yield "data: more than 1 MiB"


def _service_problems(obj: Mapping[str, Any]) -> Iterator[str]:
    if obj.get("kind") != "Service" or obj.get("apiVersion") != "v1":
        return
    ports = (obj.get("spec") or {}).get("ports") or []
    if len(ports) > 1:
        yield from _twice("spec.ports: the name", (port.get("name") for port in ports))
    yield from _twice(
        "spec.ports: the port", ((port.get("port"), port.get("protocol", "TCP")) for port in ports)
    )


def _selector_problems(obj: Mapping[str, Any]) -> Iterator[str]:
    spec = obj.get("spec")
    template = (spec or {}).get("template") if isinstance(spec, dict) else None
    if not isinstance(template, dict) or obj.get("kind") not in _POD_SPECS:
        return
    metadata = template.get("metadata") or {}
    yield from (f"spec.template.{problem}" for problem in metadata_problems(metadata))
    selector = spec.get("selector") or {}
    if obj.get("kind") != "Job" and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield "spec.selector: empty"
    labels = metadata.get("labels") or {}
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            yield f"spec.selector: {key}={value} is not among the labels of the template"


# --- pods


def pod_problems(spec: Mapping[str, Any]) -> list[str]:
    """Return what the API server would refuse in a pod's spec that fits its schema."""
    containers = containers_of(spec)
    volumes = [volume.get("name") for volume in spec.get("volumes") or ()]
    found = [
        *_twice("the container name", (container.get("name") for container in containers)),
        *_twice("the volume name", volumes),
        *_twice("the port name", _port_names(containers)),
    ]
    if not spec.get("containers"):
        found.append("no containers")
    found += [
        f"{container.get('name')}: restartPolicy is for init containers"
        for container in spec.get("containers") or ()
        if container.get("restartPolicy")
    ]
    for container in spec.get("initContainers") or ():
        probes = {"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} & set(container)
        if probes and container.get("restartPolicy") != "Always":
            found.append(
                f"{container.get('name')}: {', '.join(sorted(probes))} on an init container that ends"
            )
    for container in containers:
        found += [
            f"{container.get('name')}: {problem}"
            for problem in (*_container_problems(container), *_mount_problems(container, volumes))
        ]
    return found


def _port_names(containers: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        port["name"] for container in containers for port in container.get("ports") or () if port.get("name")
    ]


def _container_problems(container: Mapping[str, Any]) -> Iterator[str]:
    if not re.fullmatch(_LABEL, str(container.get("name"))) or len(str(container.get("name"))) > 63:
        yield "the name is no DNS label"
    image = str(container.get("image") or "")
    if not image or image != image.strip() or " " in image:
        yield f"image {image!r}"
    for port in container.get("ports") or ():
        name = port.get("name")
        if name is not None and not _is_port_name(name):
            yield f"the port name {name!r} is not of at most 15 characters a-z, 0-9 and -, with a letter"
        if not 0 < int(port.get("containerPort", 0)) < 65536:
            yield f"containerPort {port.get('containerPort')}"
    yield from _resource_problems(container.get("resources") or {})


def _is_port_name(name: str) -> bool:
    well_formed = re.fullmatch(_LABEL, name) is not None and "--" not in name
    return well_formed and len(name) <= 15 and re.search("[a-z]", name) is not None


def _resource_problems(resources: Mapping[str, Any]) -> Iterator[str]:
    amounts = {}
    for kind in ("requests", "limits"):
        for name, text in (resources.get(kind) or {}).items():
            try:
                amounts[kind, name] = quantity(text)
            except ValueError as error:
                yield f"resources.{kind}.{name}: {error}"
    for (kind, name), amount in amounts.items():
        if kind == "requests" and amount > amounts.get(("limits", name), amount):
            yield f"resources: the request of {name} is above its limit"


def _mount_problems(container: Mapping[str, Any], volumes: list[Any]) -> Iterator[str]:
    mounts = container.get("volumeMounts") or []
    yield from _twice("the mountPath", (mount.get("mountPath") for mount in mounts))
    for mount in mounts:
        if mount.get("name") not in volumes:
            yield f"there is no volume {mount.get('name')!r} to mount"


def _twice(what: str, names: Iterable[Any]) -> list[str]:
    return [f"{what} {name!r} stands twice" for name, count in Counter(names).items() if count > 1]
