"""Values of the container, and of the two ways in which the chart itself can run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.serve.option_table import OPTIONS

from .value import (
    BOOLEAN,
    COUNT,
    ENV,
    NAME,
    OBJECT,
    OBJECTS,
    PORT,
    PULL_SECRETS,
    SELECTOR,
    SERVER,
    TEXT,
    TEXT_MAP,
    TEXTS,
    Section,
    Value,
    choice,
)

if TYPE_CHECKING:
    from .value import Schema

#: Options of the exporter that have a value of their own here.
_ELSEWHERE = {
    "vllm.url",
    "spec.config",
    "threshold",
    "web.listen-address",
    "web.config.file",
    "startup.on-error",
}
#: The same, by how their names begin.
_ELSEWHERE_ALL = ("tap.", "push.")

#: By `make generate` from release/publish.toml; empty while that has placeholders.
_PUBLISHED_REGISTRY = ""
_PUBLISHED_REPOSITORY = ""

#: Of an exporter without the tap, as `make bench` holds it: "below 46 MiB".
_MEMORY = next(
    goal["limit"]
    for goal in json.loads((Path(__file__).parents[2] / "bench/results.json").read_text("utf-8"))["start"][
        "goals"
    ]
    if goal["what"] == "resident memory, windows full"
)
_SCALAR = {"type": ["string", "number", "boolean"]}


def _settings() -> Schema:
    """Return the schema of `exporter.settings`: the exporter's own options, so that a wrong name is refused."""
    properties: dict[str, Any] = {}
    for option in OPTIONS:
        if option.name in _ELSEWHERE or option.name.startswith(_ELSEWHERE_ALL):
            continue
        many = {"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR}]}
        properties[option.name] = (many if option.repeatable else _SCALAR) | {"description": option.help}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _thresholds() -> Schema:
    # As text too: `--set` hands decimals over as text.
    number = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?$"}]}
    properties = {name: number for name, _ in Thresholds().items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


CONTAINER = Section(
    "The container",
    "The exporter, as a sidecar or on its own. Needed where the chart renders a container: `injection`, `standalone`, and the "
    "named template `vllm-specdec-exporter.sidecar`.",
    (
        Value(
            "image.registry",
            _PUBLISHED_REGISTRY,
            {
                "type": "string",
                "pattern": r"^$|^[a-zA-Z0-9]([-.a-zA-Z0-9]*[a-zA-Z0-9])?(:[0-9]+)?(/[a-z0-9._-]+)*/?$",
            },
            "Registry that your nodes pull from: host and path, without a scheme. `global.imageRegistry` overrides it.",
        ),
        Value(
            "image.repository",
            _PUBLISHED_REPOSITORY,
            {
                "type": "string",
                "pattern": "^$|^[a-z0-9][a-z0-9._/:-]*$",
                "not": {"pattern": "(^https?:|@|:[^/]*$)"},
            },
            "Image name. Required where a container is rendered.",
        ),
        Value(
            "image.tag",
            "",
            {"type": "string", "pattern": "^$|^[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}$"},
            "Empty for the version of this chart's exporter.",
        ),
        Value(
            "image.digest",
            "",
            {"type": "string", "pattern": "^$|^sha256:[0-9a-f]{64}$"},
            "`sha256:...`. A sidecar whose image cannot be pulled keeps vLLM from starting: pin what you have tried.",
        ),
        Value("image.pullPolicy", "IfNotPresent", choice("Always", "IfNotPresent", "Never"), "When to pull."),
        Value(
            "imagePullSecrets",
            [],
            PULL_SECRETS,
            "Names, or as in a pod. For the standalone pod, and for pods that get the sidecar injected. A sidecar of your own uses those of its pod.",
        ),
        Value(
            "exporter.vllmUrls",
            ["http://127.0.0.1:8000"],
            {"type": "array", "items": SERVER, "minItems": 1},
            "Servers to poll (`--vllm.url`). A sidecar polls the vLLM of its pod. `standalone` can take a headless Service: "
            "`dns+http://vllm.default.svc:8000` is every address of the name.",
        ),
        Value(
            "exporter.specConfig",
            {},
            {"type": ["object", "string"]},
            "What vLLM was given as `--speculative-config`, as map or JSON text. Without it speedup is a guess, and a "
            "guess does not page.",
        ),
        Value(
            "exporter.thresholds",
            {},
            _thresholds(),
            "Thresholds to change, name: number. Judgement, alert rules and dashboards all follow.",
        ),
        Value(
            "exporter.settings",
            {},
            _settings(),
            "Any other setting of the exporter by its flag's name, such as `poll.interval: 10s`; a list for those that "
            "can be repeated.",
        ),
        Value("exporter.port", 9850, PORT, "Port of the exporter."),
        Value("exporter.extraArgs", [], TEXTS, "Further arguments, as they are."),
        Value("exporter.extraEnv", [], ENV, "Environment variables, as in a container's `env`."),
        Value("exporter.extraEnvFrom", [], OBJECTS, "As in a container's `envFrom`."),
        Value("exporter.extraVolumeMounts", [], OBJECTS, "Such as a CA or token for `vllm.ca-file`."),
        Value(
            "exporter.extraVolumes",
            [],
            OBJECTS,
            "Their volumes. A pod of yours needs them as well. What they refer to must be in the namespace of the pod.",
        ),
        Value(
            "exporter.resources",
            {"requests": {"cpu": "200m", "memory": "128Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}},
            OBJECT,
            f"It stays {_MEMORY} and 1 % of a core; requests equal limits, so that a Guaranteed pod stays Guaranteed. "
            "With the tap it needs more: see [what it costs](../../docs/requests.md).",
        ),
        Value("exporter.allowBurstable", False, BOOLEAN, "Allow requests that differ from limits."),
        Value(
            "exporter.securityContext",
            {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "privileged": False,
                "readOnlyRootFilesystem": True,
                "runAsGroup": 65532,
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            OBJECT,
            "It needs no privilege, no writable disk and no user of its own.",
        ),
        Value(
            "exporter.livenessProbe",
            {"initialDelaySeconds": 10, "periodSeconds": 30, "timeoutSeconds": 5, "failureThreshold": 5},
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    name: {"type": "integer", "minimum": least}
                    for name, least in {
                        "initialDelaySeconds": 0,
                        "periodSeconds": 1,
                        "timeoutSeconds": 1,
                        "failureThreshold": 1,
                    }.items()
                },
            },
            "Patience of the liveness probe, which restarts the exporter alone and never depends on vLLM; null for none.",
        ),
        Value(
            "webConfig.existingSecret",
            "",
            NAME,
            "Secret with a [web configuration](../../docs/web-configuration.md) (TLS, client certificates, passwords) "
            "and what it refers to. It must be in the namespace of the pod; until it is there, the sidecar stands by.",
        ),
        Value(
            "webConfig.key",
            "web-config.yml",
            {"type": "string", "minLength": 1},
            "Its key with the configuration.",
        ),
        Value(
            "webConfig.mountPath",
            "/etc/vllm-specdec-exporter/web",
            {"type": "string", "pattern": "^/[^ ]*[^/ ]$"},
            "Where the container sees it.",
        ),
        Value(
            "webConfig.tls",
            False,
            BOOLEAN,
            "Whether that configuration has TLS: probes and monitors speak https.",
        ),
        Value(
            "webConfig.clientCertificates",
            False,
            BOOLEAN,
            "Whether it demands client certificates: probes only look whether the port is open.",
        ),
    ),
)

INJECTION = Section(
    "Injection",
    "A MutatingAdmissionPolicy that adds the sidecar to labelled pods as they are created, without a webhook server.",
    (
        Value("injection.enabled", False, BOOLEAN, "The policy that adds the sidecar to labelled pods."),
        Value(
            "injection.apiVersion",
            "",
            choice("", "v1", "v1beta1"),
            "Empty for what the cluster has. `v1`: Kubernetes 1.36 and later. `v1beta1`: 1.34 and 1.35 where API and "
            "feature gate MutatingAdmissionPolicy are switched on.",
        ),
        Value(
            "injection.labels",
            {"vllm-specdec-exporter/inject": "enabled"},
            {**TEXT_MAP, "minProperties": 1},
            "Labels that a pod must have, all of them. They belong on the pod template, not on the Deployment.",
        ),
        Value(
            "injection.namespaceSelector",
            {},
            SELECTOR,
            "Namespaces whose pods are looked at; empty for all but kube-system, kube-public and kube-node-lease.",
        ),
        Value(
            "injection.failurePolicy",
            "Ignore",
            choice("Ignore", "Fail"),
            "Where the policy cannot be evaluated: `Ignore` starts the pod without sidecar, `Fail` refuses it.",
        ),
    ),
)

STANDALONE = Section(
    "Standalone",
    "One exporter of its own that polls several servers, for people who may not touch vLLM's pods.",
    (
        Value("standalone.enabled", False, BOOLEAN, "One exporter in a Deployment of its own."),
        Value("standalone.labels", {}, TEXT_MAP, "Labels of the Deployment."),
        Value("standalone.annotations", {}, TEXT_MAP, "Annotations of the Deployment."),
        Value("standalone.podLabels", {}, TEXT_MAP, "Labels of its pod."),
        Value("standalone.podAnnotations", {}, TEXT_MAP, "Annotations of its pod."),
        Value(
            "standalone.podSecurityContext",
            {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            OBJECT,
            "Of the pod; that of the container is `exporter.securityContext`.",
        ),
        Value(
            "standalone.serviceAccountName",
            "",
            NAME,
            "Empty for the default; no token is mounted either way.",
        ),
        Value("standalone.priorityClassName", "", NAME, "Priority class."),
        Value("standalone.nodeSelector", {}, TEXT_MAP, "Nodes to run on."),
        Value("standalone.tolerations", [], OBJECTS, "Taints to tolerate."),
        Value("standalone.affinity", {}, OBJECT, "Affinity."),
        Value("standalone.topologySpreadConstraints", [], OBJECTS, "Spread over nodes."),
        Value("standalone.dnsPolicy", "", TEXT, "Empty for the default."),
        Value("standalone.dnsConfig", {}, OBJECT, "Resolver settings."),
        Value("standalone.hostAliases", [], OBJECTS, "Lines for /etc/hosts."),
        Value("standalone.runtimeClassName", "", NAME, "Runtime class."),
        Value("standalone.revisionHistoryLimit", 3, COUNT, "Old ReplicaSets to keep."),
        Value(
            "standalone.service.type",
            "ClusterIP",
            choice("ClusterIP", "NodePort", "LoadBalancer"),
            "Kind of Service.",
        ),
        Value("standalone.service.port", 9850, PORT, "Port of the Service."),
        Value("standalone.service.tapPort", 9852, PORT, "Port of the Service for clients, with `tap`."),
        Value("standalone.service.labels", {}, TEXT_MAP, "Labels of the Service."),
        Value("standalone.service.annotations", {}, TEXT_MAP, "Annotations of the Service."),
    ),
)
