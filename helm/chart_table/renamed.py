"""Values of other charts that people type from habit: refused with the name that this chart has for them."""

from __future__ import annotations

from typing import Any

_POD = (
    *("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints", "priorityClassName"),
    *("podAnnotations", "podLabels", "podSecurityContext", "serviceAccountName", "runtimeClassName"),
    *("dnsConfig", "dnsPolicy", "hostAliases", "revisionHistoryLimit", "service"),
)
_CONTAINER = (
    *("extraArgs", "extraEnv", "extraEnvFrom", "extraVolumes", "extraVolumeMounts"),
    *("livenessProbe", "resources", "securityContext"),
)
_MONITOR = (
    *("authorization", "basicAuth", "honorLabels", "jobLabel", "labelLimit"),
    *("podTargetLabels", "relabelings", "sampleLimit", "scrapeTimeout", "targetLabels"),
)
_ONE = "leave it out: the standalone exporter is one pod, made anew by Recreate, because two would count every engine twice (standalone.enabled)"
_ACCOUNT = "the exporter never calls the API server, and mounts no token: name an account that exists in standalone.serviceAccountName"
_OWN = "this PodMonitor is as plain as it can be: write your own into extraManifests"
_JOB = "keep the job: rules and dashboards select it. Other labels: {}.relabelings"

#: What to do instead, by path.
RENAMED: dict[str, str] = {
    **{name: f"use standalone.{name}" for name in _POD},
    **{name: f"use exporter.{name}" for name in _CONTAINER},
    **{f"standalone.{name}": f"use exporter.{name}" for name in _CONTAINER},
    "args": "use exporter.extraArgs",
    "env": "use exporter.extraEnv",
    "envFrom": "use exporter.extraEnvFrom",
    "containerSecurityContext": "use exporter.securityContext",
    "config": "use exporter.settings",
    "additionalLabels": "use commonLabels",
    "customLabels": "use commonLabels",
    "extraObjects": "use extraManifests",
    "extraDeploy": "use extraManifests",
    "prometheus": "use podMonitor.enabled for sidecars, serviceMonitor.enabled for the standalone exporter",
    "defaultRules": "use prometheusRule.enabled",
    "grafana": "use dashboards.enabled",
    "enableFeatures": "set it where Prometheus is installed (kube-prometheus-stack: prometheus.prometheusSpec); the exporter's own settings are exporter.settings",
    "serviceAccount": _ACCOUNT,
    "rbac": _ACCOUNT,
    **dict.fromkeys(("replicas", "replicaCount", "strategy", "podDisruptionBudget"), _ONE),
    "standalone.serviceAccount": _ACCOUNT,
    **{
        f"standalone.{name}": _ONE for name in ("replicas", "replicaCount", "strategy", "podDisruptionBudget")
    },
    "image.pullSecrets": "use imagePullSecrets",
    "image.name": "use image.repository",
    "image.sha": "use image.digest",
    **{
        f"{part}.additionalLabels": f"use {part}.labels"
        for part in (
            *("podMonitor", "serviceMonitor", "vllmPodMonitor"),
            *("prometheusRule", "dashboards", "alertmanagerConfig"),
        )
    },
    **{f"{part}.jobLabel": _JOB.format(part) for part in ("podMonitor", "serviceMonitor")},
    **{f"{part}.targetLabels": f"use {part}.podTargetLabels" for part in ("podMonitor", "serviceMonitor")},
    **{f"vllmPodMonitor.{name}": _OWN for name in _MONITOR},
    "prometheusRule.additionalGroups": "use prometheusRule.extraGroups",
    "prometheusRule.rules": "use prometheusRule.extraGroups",
    "prometheusRule.additionalRuleLabels": "use prometheusRule.extraLabels",
    "prometheusRule.additionalRuleAnnotations": "use prometheusRule.extraAnnotations",
}


def refused(path: str) -> dict[str, Any]:
    """Return the schema of such a value: anything, so that the template can say what to do instead."""
    return {"$comment": "refused", "description": f"Not a value of this chart: {RENAMED[path]}."}
