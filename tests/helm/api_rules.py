"""What the API server checks beyond the schemas: names, labels, ports, mounts,
selectors, sizes.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain
from typing import Any

from support.repository import Json

from .quantities import quantity

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_SUBDOMAIN = rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*"
_QUALIFIED = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = rf"(?:{_LABEL}(?:\.{_LABEL})*/)?{_QUALIFIED}"
#: At most 15 characters, at least one of them a letter, and no two hyphens in sequence.
_PORT_NAME = r"(?=.{1,15}\Z)(?=.*[a-z])(?!.*--)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
#: Names of objects. Those of a Service began with a letter always before Kubernetes
#: 1.34.
_NAMES = {"Service": rf"(?=[a-z]){_LABEL}", "Namespace": _LABEL}
_MIB = 1024 * 1024


def rule_problems(obj: Json) -> list[str]:
    """Return what the API server would refuse in an object that fits its schema."""
    kind = obj.get("kind")
    metadata = obj.get("metadata") or {}
    problems = _mismatches(
        "metadata.name", [metadata.get("name")], _NAMES.get(str(kind), _SUBDOMAIN)
    )
    problems += _metadata_problems("metadata", metadata)
    if kind in {"ConfigMap", "Secret"}:
        data = (obj.get("data") or {}) | (obj.get("stringData") or {})
        problems += _mismatches("data", data, r"[-._a-zA-Z0-9]{1,253}")
        if sum(len(str(value).encode()) for value in data.values()) > _MIB:
            problems.append("data: more than 1 MiB")
    # Knative has a Service too, whose ports are not these.
    if kind == "Service" and obj.get("apiVersion") == "v1":
        ports = (obj.get("spec") or {}).get("ports") or []
        problems += _twice("spec.ports: the name", (port.get("name") for port in ports))
        problems += _twice("spec.ports: the port", (port.get("port") for port in ports))
    spec = pod_spec(obj)
    if spec is not None:
        problems += _pod_problems(spec)
    return [*problems, *_template_problems(obj)]


def pod_spec(obj: Json) -> Json | None:
    """Return the spec of the pods that an object is or makes; None where it makes
    none.
    """
    match obj:
        case {"kind": "Pod", "spec": spec}:
            return spec
        case {
            "kind": "Deployment" | "StatefulSet" | "DaemonSet" | "Job",
            "spec": {"template": template},
        }:
            return template.get("spec")
    return None


def containers_of(spec: Json) -> list[Json]:
    """Return all containers of a pod, init containers first."""
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _mismatches(where: str, texts: Iterable[Any], form: str) -> list[str]:
    return [
        f"{where}: {text!r} is malformed"
        for text in texts
        if not re.fullmatch(form, str(text))
    ]


def _twice(subject: str, names: Iterable[Any]) -> list[str]:
    return [
        f"{subject} {name!r} stands twice"
        for name, count in Counter(names).items()
        if count > 1
    ]


def _metadata_problems(where: str, metadata: Json) -> list[str]:
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    texts = [*labels.values(), *annotations.values()]
    problems = [
        f"{where}: {text!r} is not text" for text in texts if not isinstance(text, str)
    ]
    problems += _mismatches(
        f"{where}.namespace", filter(None, [metadata.get("namespace")]), _LABEL
    )
    problems += _mismatches(f"{where}.labels, a key", labels, _KEY)
    problems += _mismatches(
        f"{where}.labels, a value", labels.values(), f"(?:{_QUALIFIED})?"
    )
    problems += _mismatches(f"{where}.annotations, a key", annotations, _KEY)
    size = sum(len(f"{key}{value}".encode()) for key, value in annotations.items())
    if size > _MIB // 4:
        problems.append(f"{where}.annotations: more than 256 KiB")
    return problems


def _template_problems(obj: Json) -> Iterator[str]:
    if obj.get("kind") == "Pod" or pod_spec(obj) is None:
        return
    metadata = obj["spec"]["template"].get("metadata") or {}
    yield from _metadata_problems("spec.template.metadata", metadata)
    wanted = (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    if obj["kind"] != "Job" and not wanted:
        yield "spec.selector: empty"
    if not wanted.items() <= (metadata.get("labels") or {}).items():
        yield f"spec.selector: {wanted} is not among the labels of the template"


def _pod_problems(spec: Json) -> Iterator[str]:
    containers = containers_of(spec)
    volumes = [volume["name"] for volume in spec.get("volumes") or ()]
    yield from _twice(
        "the container name", (container["name"] for container in containers)
    )
    yield from _twice("the volume name", volumes)
    ports = chain.from_iterable(
        container.get("ports") or () for container in containers
    )
    yield from _twice(
        "the port name", (port["name"] for port in ports if "name" in port)
    )
    if not spec.get("containers"):
        yield "no containers"
    for container in containers:
        for problem in _container_problems(container, volumes):
            yield f"{container['name']}: {problem}"


def _container_problems(container: Json, volumes: list[str]) -> Iterator[str]:
    yield from _mismatches("the name", [container["name"]], _LABEL)
    yield from _mismatches("the image", [container.get("image")], r"\S+")
    ports = container.get("ports") or ()
    mounts = container.get("volumeMounts") or ()
    yield from _mismatches(
        "the port name", (port["name"] for port in ports if "name" in port), _PORT_NAME
    )
    for port in ports:
        if not 0 < int(port["containerPort"]) < 65536:
            yield f"the port {port}"
    yield from _twice("the mountPath", (mount["mountPath"] for mount in mounts))
    for mount in mounts:
        if mount["name"] not in volumes:
            yield f"there is no volume to mount: {mount}"
    resources = container.get("resources") or {}
    try:
        requests = _amounts(resources.get("requests"))
        limits = _amounts(resources.get("limits"))
    except ValueError as error:
        yield f"resources: {error}"
        return
    for name in requests.keys() & limits.keys():
        if requests[name] > limits[name]:
            yield f"resources: the request of {name} is above its limit"


def _amounts(texts: Json | None) -> dict[str, Fraction]:
    return {name: quantity(text) for name, text in (texts or {}).items()}
