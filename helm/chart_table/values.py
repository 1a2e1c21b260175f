"""Every value of the chart, in the order of values.yaml."""

from __future__ import annotations

from .requests import PUSH, TAP
from .sidecar import CONTAINER, INJECTION, STANDALONE
from .telling import ALERTMANAGER, DASHBOARDS, MONITORS, RULES
from .value import BOOLEAN, NAME, NAMESPACE, OBJECTS, PORT, SELECTOR, TEXT_MAP, Section, Value

NAMES = Section(
    "Names",
    "What the objects are called. All stand in the release's namespace unless told otherwise.",
    (
        Value(
            "nameOverride",
            "",
            NAME,
            "Instead of the chart's name in names and labels. Not to be changed later: the standalone Deployment is found by it.",
        ),
        Value(
            "fullnameOverride", "", NAME, "Instead of release and chart name; at most 44 characters are used."
        ),
        Value("namespaceOverride", "", NAMESPACE, "Instead of the release's namespace."),
        Value("commonLabels", {}, TEXT_MAP, "Labels for every object."),
        Value("commonAnnotations", {}, TEXT_MAP, "Annotations for every object."),
    ),
)

NETWORK = Section(
    "Network policy",
    "Who may scrape. For the standalone exporter it only concerns that pod. A policy for pods with sidecars also decides "
    "what else reaches vLLM, because pods that a policy selects are closed but for what policies open.",
    (
        Value("networkPolicy.enabled", False, BOOLEAN, "Whether there is one."),
        Value(
            "networkPolicy.ingressFrom",
            [],
            OBJECTS,
            "Peers that may scrape, and push, as in a NetworkPolicy's `from`; empty for all. "
            "Example: `[{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]`.",
        ),
        Value(
            "networkPolicy.tapFrom",
            [],
            OBJECTS,
            "Peers that may reach vLLM through the tap, where `tap` is enabled; empty for all.",
        ),
        Value(
            "networkPolicy.egress.enabled",
            False,
            BOOLEAN,
            "Whether the standalone exporter may only reach DNS and vLLM.",
        ),
        Value(
            "networkPolicy.egress.ports",
            [8000],
            {"type": "array", "items": PORT, "minItems": 1},
            "vLLM's ports.",
        ),
        Value(
            "networkPolicy.egress.to",
            [],
            OBJECTS,
            "vLLM's pods, as in a NetworkPolicy's `to`; empty for all.",
        ),
        Value(
            "networkPolicy.sidecar.podSelector",
            {},
            SELECTOR,
            "Pods with sidecars, as in a NetworkPolicy; empty for no such policy.",
        ),
        Value("networkPolicy.sidecar.namespace", "", NAMESPACE, "Their namespace."),
        Value(
            "networkPolicy.sidecar.keepOpen",
            [],
            {"type": "array", "items": PORT},
            "Ports of these pods that stay open to everybody: vLLM's, and those of its other containers.",
        ),
    ),
)

EXTRA = Section(
    "Anything else",
    "",
    (
        Value(
            "extraManifests",
            [],
            {"type": "array", "items": {"type": ["object", "string"], "required": ["apiVersion", "kind"]}},
            "Further objects, or text that is YAML of some; templates in them are evaluated.",
        ),
    ),
)

SECTIONS = (
    MONITORS,
    RULES,
    DASHBOARDS,
    CONTAINER,
    STANDALONE,
    INJECTION,
    ALERTMANAGER,
    TAP,
    PUSH,
    NETWORK,
    NAMES,
    EXTRA,
)
#: The values that matter first, in this order.
FIRST = (
    "podMonitor.enabled",
    "podMonitor.labels",
    "prometheusRule.enabled",
    "dashboards.enabled",
    "image.registry",
    "image.repository",
    "exporter.specConfig",
    "exporter.vllmUrls",
    "standalone.enabled",
    "injection.enabled",
)
