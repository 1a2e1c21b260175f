"""What Prometheus would discover of a pod, and the scrape configurations that operators
write.
"""

import re
from collections.abc import Mapping

from support.repository import Json

from .stacks import Pod

NAMESPACE = "llm"
_META = "__meta_kubernetes_"


def discovered(pod: Pod, address: str) -> list[Json]:
    """Return the targets of a pod as Prometheus' role `pod` lists them, in the form of
    file_sd.

    One for each declared port of each container, init containers last; one without port
    for a container that declares none.
    """
    common = {
        f"{_META}namespace": NAMESPACE,
        f"{_META}pod_name": pod.name,
        f"{_META}pod_ip": address,
        f"{_META}pod_phase": "Running",
        f"{_META}pod_ready": "true",
        f"{_META}pod_node_name": "node-1",
        **_texts("label", pod.labels),
        **_texts("annotation", pod.annotations),
    }
    targets = []
    for kind, is_init in (("containers", "false"), ("initContainers", "true")):
        for container in pod.spec.get(kind) or ():
            labels = common | {
                f"{_META}pod_container_name": container["name"],
                f"{_META}pod_container_image": container["image"],
                f"{_META}pod_container_init": is_init,
            }
            ports = container.get("ports") or ()
            if not ports:
                targets.append({"targets": [address], "labels": labels})
            for port in ports:
                number = port["containerPort"]
                port_labels = labels | {
                    f"{_META}pod_container_port_number": str(number),
                    f"{_META}pod_container_port_name": port.get("name", ""),
                    f"{_META}pod_container_port_protocol": port.get("protocol", "TCP"),
                }
                targets.append(
                    {"targets": [f"{address}:{number}"], "labels": port_labels}
                )
    return targets


def _texts(kind: str, texts: Mapping[str, str]) -> dict[str, str]:
    labels = {}
    for name, value in texts.items():
        labels[f"{_META}pod_{kind}_{_safe(name)}"] = value
        labels[f"{_META}pod_{kind}present_{_safe(name)}"] = "true"
    return labels


def _safe(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


# --- scrape configurations, as the operators write them


def pod_monitor(obj: Json) -> list[Json]:
    """What the Prometheus operator makes of a PodMonitor."""
    name = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
    return _of_operator("podMonitor", name, obj["spec"], "relabelings")


def vm_pod_scrape(obj: Json) -> list[Json]:
    """What the VictoriaMetrics operator makes of a VMPodScrape."""
    name = f"monitoring/{obj['metadata']['name']}"
    return _of_operator("podScrape", name, obj["spec"], "relabelConfigs")


def _of_operator(kind: str, name: str, spec: Json, relabelling: str) -> list[Json]:
    """Return a configuration for each endpoint; the two operators differ in names
    alone.
    """
    labels = spec["selector"].get("matchLabels") or {}
    assert not spec["selector"].keys() - {"matchLabels"}, f"not understood: {spec}"
    selected = [_keep(f"pod_label_{_safe(key)}", labels[key]) for key in labels]
    renamed = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    jobs = []
    for number, endpoint in enumerate(spec["podMetricsEndpoints"]):
        added = [
            {renamed.get(key, key): value for key, value in rule.items()}
            for rule in endpoint.get(relabelling) or ()
        ]
        rules = [
            {
                "source_labels": [f"{_META}pod_phase"],
                "regex": "(Failed|Succeeded)",
                "action": "drop",
            },
            *selected,
            _keep("pod_container_port_name", endpoint["port"]),
            _copied("namespace", "namespace"),
            _copied("pod_container_name", "container"),
            _copied("pod_name", "pod"),
            {"target_label": "job", "replacement": name},
            {"target_label": "endpoint", "replacement": endpoint["port"]},
            *added,
        ]
        jobs.append(
            {
                "job_name": f"{kind}/{name}/{number}",
                "kubernetes_sd_configs": [{"role": "pod"}],
                "relabel_configs": rules,
            }
        )
    return jobs


def _copied(label: str, target: str) -> Json:
    return {"source_labels": [_META + label], "target_label": target}


def _keep(label: str, value: str) -> Json:
    return {"source_labels": [_META + label], "regex": value, "action": "keep"}
