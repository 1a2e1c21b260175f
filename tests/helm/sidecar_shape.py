"""What must hold for the sidecar wherever it stands; for tests of the chart, of recipes and of the injection.

`sidecar_faults(pod)` says what would endanger vLLM. The container's name and port name are all that it
goes by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .api_rules import containers_of
from .quantities import qos_class

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "specdec-exporter"
PORT_NAME = "specdec-metrics"
TAP = "tap"


def sidecar_of(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sidecar of a pod's spec."""
    found = [container for container in containers_of(pod) if container.get("name") == NAME]
    assert len(found) == 1, f"{len(found)} containers are called {NAME}"
    return found[0]


def sidecar_faults(pod: Mapping[str, Any], *, native: bool = True) -> list[str]:
    """Return what is wrong with the sidecar of a pod's spec.

    Args:
        pod: the spec of the pod, with the sidecar.
        native: whether it must stand under initContainers with `restartPolicy: Always`.
    """
    container = sidecar_of(pod)
    others = [one for one in containers_of(pod) if one is not container]
    found = container_faults(container)
    if native and (
        container not in (pod.get("initContainers") or ()) or container.get("restartPolicy") != "Always"
    ):
        found.append("it is no native sidecar: a Job would never end, and vLLM would not start behind it")
    taken = {port["containerPort"] for one in others for port in one.get("ports") or ()}
    found += [
        f"port {port['containerPort']} is another container's"
        for port in container["ports"]
        if port["containerPort"] in taken
    ]
    without = {
        key: [one for one in pod.get(key) or () if one is not container]
        for key in ("initContainers", "containers")
    }
    if qos_class(without) == "Guaranteed" and qos_class(pod) != "Guaranteed":
        found.append("it makes a Guaranteed pod Burstable")
    return found


def container_faults(container: Mapping[str, Any], port_name: str = PORT_NAME) -> list[str]:
    """Return what is wrong with the container by itself."""
    found = [
        f"{probe} decides over the whole pod"
        for probe in ("readinessProbe", "startupProbe")
        if container.get(probe)
    ]
    port, *others = container["ports"]
    if port.get("name") != port_name or port.get("protocol", "TCP") != "TCP":
        found.append(f"the port is {port}")
    if [other.get("name") for other in others] not in ([], [TAP]):
        found.append(f"another port than the tap's: {others}")
    found += _probe_faults(container.get("livenessProbe") or {}, port["containerPort"])
    security = container.get("securityContext") or {}
    wanted = {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
    }
    found += [
        f"securityContext.{name} is {security.get(name)}"
        for name, value in wanted.items()
        if security.get(name) is not value
    ]
    if security.get("capabilities") != {"drop": ["ALL"]}:
        found.append("it keeps capabilities")
    if not security.get("runAsUser"):
        found.append("it may run as root: an image's user by name cannot be checked")
    if (security.get("seccompProfile") or {}).get("type") != "RuntimeDefault":
        found.append("it has no seccomp profile")
    if qos_class({"containers": [container]}) != "Guaranteed":
        found.append("its requests are not its limits")
    if container.get("lifecycle") or container.get("command"):
        found.append("it has a hook, or another command than the image's")
    return found


def _probe_faults(probe: Mapping[str, Any], port: int) -> list[str]:
    ways = {name: probe[name] for name in ("httpGet", "tcpSocket", "exec", "grpc") if name in probe}
    if len(ways) != 1 or not ways.keys() <= {"httpGet", "tcpSocket"}:
        return [f"livenessProbe: {sorted(ways)}"]
    (way,) = ways.values()
    found = (
        []
        if way.get("port") == port
        else [f"livenessProbe asks {way.get('port')!r}: the number {port} works in every version"]
    )
    if "httpGet" in ways and way.get("path") != "/-/healthy":
        found.append(f"livenessProbe asks for {way.get('path')}, which may depend on vLLM")
    if probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3) < 30:
        found.append("livenessProbe has less patience than half a minute")
    return found
