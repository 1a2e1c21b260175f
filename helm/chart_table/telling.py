"""Values of what is told: monitors, rules, dashboards, Alertmanager."""

from __future__ import annotations

from pathlib import Path

import yaml

from .value import (
    ADDRESS,
    BOOLEAN,
    COUNT,
    DURATION,
    GO_DURATION,
    NAMESPACE,
    OBJECT,
    OBJECTS,
    SELECTOR,
    TEXT,
    TEXT_MAP,
    TEXTS,
    Section,
    Value,
    choice,
    switches,
)

#: By `make generate` from release/publish.toml; empty while that has placeholders.
_PUBLISHED_RUNBOOKS = ""

_ROOT = Path(__file__).parents[2]
_RULES = {
    path.stem: yaml.safe_load(path.read_text("utf-8"))
    for path in sorted((_ROOT / "alerts/rules").glob("*.yml"))
}
#: The groups of rules, by file.
GROUPS = tuple(_RULES)
#: Every alert.
ALERTS = tuple(
    sorted(
        {
            rule["alert"]
            for file in _RULES.values()
            for group in file["groups"]
            for rule in group["rules"]
            if "alert" in rule
        }
    )
)
#: The dashboards, without what their uids have in common.
BOARDS = tuple(
    sorted(path.stem.removeprefix("vllm-specdec-") for path in (_ROOT / "dashboards/json").glob("*.json"))
)
#: Receivers that the routes know.
RECEIVERS = ("page", "ticket", "hints", "actions", "watchdog")


def _monitor(name: str) -> tuple[Value, ...]:
    """Return the values that PodMonitor and ServiceMonitor have in common."""
    return (
        Value(f"{name}.namespace", "", NAMESPACE, "Empty for the release's."),
        Value(
            f"{name}.labels",
            {},
            TEXT_MAP,
            "Labels by which your Prometheus finds it. kube-prometheus-stack looks for `release: <its release name>`.",
        ),
        Value(f"{name}.annotations", {}, TEXT_MAP, "Annotations."),
        Value(
            f"{name}.interval",
            "15s",
            DURATION,
            "Time between scrapes; the rules want at most 1m. Empty for Prometheus's.",
        ),
        Value(f"{name}.scrapeTimeout", "10s", DURATION, "How long a scrape may take; at most the interval."),
        Value(f"{name}.scheme", "", choice("", "http", "https"), "Empty: by `webConfig`."),
        Value(
            f"{name}.honorLabels",
            False,
            BOOLEAN,
            "Keep labels of the exporter that clash. It has none that do.",
        ),
        Value(
            f"{name}.tlsConfig", {}, OBJECT, "As in the operator's API: whom to trust, client certificate."
        ),
        Value(f"{name}.basicAuth", {}, OBJECT, "As in the operator's API: Secrets with user and password."),
        Value(f"{name}.authorization", {}, OBJECT, "As in the operator's API."),
        Value(f"{name}.relabelings", [], OBJECTS, "Behind the one that sets the job."),
        Value(f"{name}.metricRelabelings", [], OBJECTS, "For series that you do not want."),
        Value(f"{name}.podTargetLabels", [], TEXTS, "Labels of the pod to put on every series."),
        Value(f"{name}.sampleLimit", 0, COUNT, "Refuse scrapes with more samples; 0 for no limit."),
        Value(f"{name}.labelLimit", 0, COUNT, "Refuse scrapes with more labels on a series; 0 for no limit."),
    )


MONITORS = Section(
    "Monitors",
    "What tells the Prometheus operator to scrape. They need its custom resource definitions.",
    (
        Value("podMonitor.enabled", False, BOOLEAN, "A PodMonitor for sidecars."),
        *_monitor("podMonitor"),
        Value(
            "podMonitor.selector",
            {},
            SELECTOR,
            "Pods to look at. Empty for all: the port's name `specdec-metrics` picks the sidecars.",
        ),
        Value(
            "podMonitor.namespaceSelector",
            {"any": True},
            OBJECT,
            "Namespaces to look at: `{any: true}` or `{matchNames: [...]}`.",
        ),
        Value(
            "vllmPodMonitor.enabled",
            False,
            BOOLEAN,
            "A PodMonitor for vLLM itself, where nothing scrapes it yet: alerts and panels on latency, errors and "
            "preemptions need vLLM's own series.",
        ),
        Value("vllmPodMonitor.namespace", "", NAMESPACE, "Empty for the release's."),
        Value("vllmPodMonitor.labels", {}, TEXT_MAP, "As `podMonitor.labels`."),
        Value("vllmPodMonitor.annotations", {}, TEXT_MAP, "Annotations."),
        Value("vllmPodMonitor.selector", {}, SELECTOR, "The pods of vLLM; required."),
        Value("vllmPodMonitor.namespaceSelector", {"any": True}, OBJECT, "Namespaces to look at."),
        Value(
            "vllmPodMonitor.port",
            "http",
            {"type": ["string", "integer"], "minLength": 1, "maxLength": 15, "minimum": 1, "maximum": 65535},
            "vLLM's port: its name, or its number where it has none (`portNumber` of the operator's API).",
        ),
        Value("vllmPodMonitor.interval", "15s", DURATION, "Time between scrapes."),
        Value("vllmPodMonitor.scheme", "http", choice("http", "https"), "https where vLLM has certificates."),
        Value("vllmPodMonitor.tlsConfig", {}, OBJECT, "As in the operator's API."),
        Value("vllmPodMonitor.metricRelabelings", [], OBJECTS, "For series that you do not want."),
        Value("serviceMonitor.enabled", False, BOOLEAN, "A ServiceMonitor for the standalone exporter."),
        *_monitor("serviceMonitor"),
    ),
)

RULES = Section(
    "Rules",
    "[Recording rules and alerts](../../docs/reference/alerts.md) as PrometheusRule. Their thresholds are series of the exporter: change "
    "them by `exporter.thresholds`.",
    (
        Value("prometheusRule.enabled", False, BOOLEAN, "Recording rules and alerts."),
        Value("prometheusRule.namespace", "", NAMESPACE, "Empty for the release's."),
        Value(
            "prometheusRule.labels",
            {},
            TEXT_MAP,
            "Labels by which your Prometheus finds them. kube-prometheus-stack looks for `release: <its release name>`.",
        ),
        Value("prometheusRule.annotations", {}, TEXT_MAP, "Annotations of the objects."),
        Value(
            "prometheusRule.groups",
            dict.fromkeys(GROUPS, True),
            switches(GROUPS),
            "Switches for whole files of rules.",
        ),
        Value(
            "prometheusRule.disabled",
            {},
            switches(ALERTS),
            "Alerts to leave out, such as `VLLMSpecDecodeKChangeAdvised: true`.",
        ),
        Value(
            "prometheusRule.runbookUrl",
            _PUBLISHED_RUNBOOKS,
            ADDRESS,
            "Where you serve `alerts/runbooks/`. Empty: alerts link to none.",
        ),
        Value("prometheusRule.grafanaUrl", "", ADDRESS, "Your Grafana. Empty: alerts link to no dashboard."),
        Value(
            "prometheusRule.extraLabels", {}, TEXT_MAP, "Labels for every alert, such as `team: inference`."
        ),
        Value("prometheusRule.extraAnnotations", {}, TEXT_MAP, "Annotations for every alert."),
        Value("prometheusRule.extraGroups", [], OBJECTS, "Groups of rules of your own."),
    ),
)

DASHBOARDS = Section(
    "Dashboards",
    "[Four Grafana dashboards](../../docs/dashboards.md) as ConfigMaps, for the sidecar of Grafana's chart or for Grafana's operator.",
    (
        Value("dashboards.enabled", False, BOOLEAN, "Grafana dashboards as ConfigMaps."),
        Value("dashboards.namespace", "", NAMESPACE, "Empty for the release's."),
        Value("dashboards.boards", dict.fromkeys(BOARDS, True), switches(BOARDS), "Switches for each."),
        Value(
            "dashboards.label",
            "grafana_dashboard",
            {"type": "string", "minLength": 1},
            "Label that Grafana's sidecar looks for.",
        ),
        Value("dashboards.labelValue", "1", TEXT, "Its value."),
        Value("dashboards.labels", {}, TEXT_MAP, "Further labels."),
        Value("dashboards.annotations", {}, TEXT_MAP, "Annotations."),
        Value("dashboards.folder", "vLLM speculative decoding", TEXT, "Folder in Grafana; empty for none."),
        Value(
            "dashboards.folderAnnotation",
            "grafana_folder",
            TEXT,
            "Annotation that names the folder (`sidecar.dashboards.folderAnnotation` of Grafana's chart).",
        ),
        Value(
            "dashboards.grafanaDashboard.enabled",
            False,
            BOOLEAN,
            "GrafanaDashboard resources for Grafana's operator.",
        ),
        Value(
            "dashboards.grafanaDashboard.instanceSelector",
            {"matchLabels": {"dashboards": "grafana"}},
            OBJECT,
            "Which Grafanas.",
        ),
        Value(
            "dashboards.grafanaDashboard.allowCrossNamespaceImport",
            True,
            BOOLEAN,
            "Also Grafanas of other namespaces.",
        ),
        Value(
            "dashboards.grafanaDashboard.resyncPeriod",
            "",
            GO_DURATION,
            "How often they are looked at; empty for the operator's.",
        ),
    ),
)

ALERTMANAGER = Section(
    "Alertmanager",
    "[Routes and inhibition](../../alerts/ALERTMANAGER.md) as AlertmanagerConfig, for the Prometheus operator.",
    (
        Value("alertmanagerConfig.enabled", False, BOOLEAN, "Whether to install it."),
        Value("alertmanagerConfig.namespace", "", NAMESPACE, "Empty for the release's."),
        Value("alertmanagerConfig.labels", {}, TEXT_MAP, "Labels by which your Alertmanager finds it."),
        Value("alertmanagerConfig.annotations", {}, TEXT_MAP, "Annotations."),
        *(
            Value(f"alertmanagerConfig.receivers.{name}", {}, OBJECT, about)
            for name, about in {
                "page": "Who is woken: a receiver of the operator's API without its name. Empty: nobody.",
                "ticket": "Who gets tickets.",
                "hints": "Who gets the digest of hints.",
                "actions": "What acts on decisions, such as the command `act`.",
                "watchdog": "What raises an alarm when it is no longer called.",
            }.items()
        ),
    ),
)
