"""What users of charts type from habit works, or is refused with the name that this chart has for it."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from .charts import CHART, RenderError, helm3, named_templates, render, render_helm3
from .manifest_schemas import problems
from .value_cases import (
    EVERYTHING_ALONE,
    EVERYTHING_BESIDE,
    IMAGE,
    INJECTION,
    LEAVES,
    RULES,
    STANDALONE,
    VLLM_PODS,
    at,
    merged,
    nested,
    on,
)

BASE = merged(STANDALONE, on("serviceMonitor"))
POD = ("Deployment", "spec", "template", "spec")
NODES = {"nodeAffinity": {}}
SPREAD = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
DROP = [{"sourceLabels": ["a"], "action": "drop"}]
GROUP = [{"name": "own", "rules": [{"record": "own:up:sum", "expr": "sum(up)"}]}]
EXTRA = [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own"}}]
NAME = "dns+http://vllm-pods.default.svc:8000"
LABEL = {"team": "inference"}

#: Values, where they are seen in an object of a kind (a list's first entry by 0), and what is seen there.
WORK: tuple[tuple[dict[str, Any], tuple[Any, ...], Any], ...] = (
    (at(namespaceOverride="own"), ("Service", "metadata", "namespace"), "own"),
    (at(namespaceOverride="own"), ("ServiceMonitor", "spec", "namespaceSelector", "matchNames", 0), "own"),
    (at(fullnameOverride="own"), ("Service", "metadata", "name"), "own"),
    (at(commonLabels=LABEL), ("Service", "metadata", "labels", "team"), "inference"),
    (at(imagePullSecrets=["a", {"name": "b"}]), (*POD, "imagePullSecrets"), [{"name": "a"}, {"name": "b"}]),
    (at(global__imagePullSecrets=[{"name": "g"}]), (*POD, "imagePullSecrets", 0, "name"), "g"),
    *(
        (nested(("standalone", name), value), (*POD, name), value)
        for name, value in {
            "affinity": NODES,
            "nodeSelector": {"a": "b"},
            "tolerations": [{"operator": "Exists"}],
            "topologySpreadConstraints": SPREAD,
            "priorityClassName": "high",
            "runtimeClassName": "gvisor",
            "serviceAccountName": "mine",
            "dnsPolicy": "None",
            "dnsConfig": {"nameservers": ["10.0.0.10"]},
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["vllm"]}],
        }.items()
    ),
    (at(exporter__vllmUrls=[NAME]), (*POD, "containers", 0, "args", 0), f"--vllm.url={NAME}"),
    (at(standalone__revisionHistoryLimit=0), ("Deployment", "spec", "revisionHistoryLimit"), 0),
    (at(standalone__podLabels=LABEL), (*POD[:-1], "metadata", "labels", "team"), "inference"),
    (at(standalone__podAnnotations=LABEL), (*POD[:-1], "metadata", "annotations"), LABEL),
    (at(serviceMonitor__labels=LABEL), ("ServiceMonitor", "metadata", "labels", "team"), "inference"),
    *(
        (nested(("serviceMonitor", name), value), ("ServiceMonitor", "spec", "endpoints", 0, *where), seen)
        for name, value, where, seen in (
            ("interval", "30s", ("interval",), "30s"),
            ("scrapeTimeout", "5s", ("scrapeTimeout",), "5s"),
            ("metricRelabelings", DROP, ("metricRelabelings",), DROP),
            ("relabelings", DROP, ("relabelings", 1), DROP[0]),
            ("interval", None, ("interval",), None),
        )
    ),
    (at(serviceMonitor__sampleLimit=9), ("ServiceMonitor", "spec", "sampleLimit"), 9),
    (merged(RULES, at(prometheusRule__extraGroups=GROUP)), ("PrometheusRule", "spec", "groups"), GROUP),
    (at(extraManifests=EXTRA), ("Secret", "metadata", "name"), "own"),
    (
        merged(on("vllmPodMonitor"), at(vllmPodMonitor__selector=VLLM_PODS, vllmPodMonitor__port=8200)),
        ("PodMonitor", "spec", "podMetricsEndpoints", 0, "portNumber"),
        8200,
    ),
    *(
        (at(exporter__resources=amounts), (*POD, "containers", 0, "resources"), amounts)
        for cpus, memories in ((("200m", 0.2), ("128Mi", "134217728")), ((1, "1000m"), ("1Gi", "1024Mi")))
        for amounts in [
            {
                "requests": {"cpu": cpus[0], "memory": memories[0]},
                "limits": {"cpu": cpus[1], "memory": memories[1]},
            }
        ]
    ),
)


def seen(objects: list[dict[str, Any]], place: tuple[Any, ...]) -> list[Any]:
    """Return what stands at a place of each object of its kind; None where nothing does."""
    found: list[Any] = [obj for obj in objects if obj["kind"] == place[0]]
    for step in place[1:]:
        found = [(one[step] if isinstance(step, int) else one.get(step)) if one else None for one in found]
    return found


@pytest.mark.full  # the operator's schemas need Node
@pytest.mark.parametrize("helm", [render, render_helm3])
def test_what_users_of_charts_type_works(helm: Callable[..., list[dict[str, Any]]]) -> None:
    """It stands where Kubernetes and the operators look for it, and their schemas take the objects."""
    for values, place, wanted in WORK:
        objects = helm(merged(BASE, values))
        assert wanted in seen(objects, place), (values, place)
        assert [found for obj in objects if (found := problems(obj, "1.36"))] == [], values


#: Paths as in kube-state-metrics, the exporters of prometheus-community, and kube-prometheus-stack.
REFUSED = {
    "podMonitor.additionalLabels": "podMonitor.labels",
    "serviceMonitor.additionalLabels": "serviceMonitor.labels",
    "prometheusRule.additionalLabels": "prometheusRule.labels",
    "prometheusRule.additionalGroups": "prometheusRule.extraGroups",
    "prometheusRule.rules": "prometheusRule.extraGroups",
    "serviceMonitor.targetLabels": "serviceMonitor.podTargetLabels",
    "podMonitor.targetLabels": "podMonitor.podTargetLabels",
    "vllmPodMonitor.relabelings": "extraManifests",
    "vllmPodMonitor.scrapeTimeout": "extraManifests",
    "vllmPodMonitor.sampleLimit": "extraManifests",
    "alertmanagerConfig.additionalLabels": "alertmanagerConfig.labels",
    "serviceMonitor.jobLabel": "serviceMonitor.relabelings",
    "extraObjects": "extraManifests",
    "extraDeploy": "extraManifests",
    "affinity": "standalone.affinity",
    "podAnnotations": "standalone.podAnnotations",
    "podLabels": "standalone.podLabels",
    "priorityClassName": "standalone.priorityClassName",
    "topologySpreadConstraints": "standalone.topologySpreadConstraints",
    "dnsConfig": "standalone.dnsConfig",
    "hostAliases": "standalone.hostAliases",
    "runtimeClassName": "standalone.runtimeClassName",
    "revisionHistoryLimit": "standalone.revisionHistoryLimit",
    "strategy": "standalone",
    "replicaCount": "standalone",
    "podDisruptionBudget": "standalone",
    "standalone.podDisruptionBudget": "standalone",
    "serviceAccount.annotations": "standalone.serviceAccountName",
    "resources": "exporter.resources",
    "securityContext": "exporter.securityContext",
    "env": "exporter.extraEnv",
    "image.sha": "image.digest",
    "enableFeatures": "exporter.settings",
}


def test_other_charts_names_are_refused_with_ours() -> None:
    """One sentence with the path as it was typed."""
    for path, instead in REFUSED.items():
        with pytest.raises(RenderError) as refused:
            render(merged(BASE, nested(tuple(path.split(".")), {"a": "b"})))
        typed = path.removesuffix(".annotations")
        assert refused.value.refusal.startswith(f"{typed}: "), path
        assert instead in refused.value.refusal, path


@pytest.mark.full  # the operator's schemas need Node
def test_null_leaves_any_value_out() -> None:
    """Of every part at once: it renders, or is refused with a message of the chart's own."""
    parts = sorted({path[0] for path in LEAVES})
    for base in (EVERYTHING_BESIDE, EVERYTHING_ALONE):
        for part in parts:
            nulls = [nested(path, None) for path in LEAVES if path[0] == part and path[-1] != "enabled"]
            try:
                objects = render(merged(base, *nulls))
            except RenderError as error:
                if not error.refusal:
                    raise
            else:
                found = [(obj["kind"], problem) for obj in objects if (problem := problems(obj, "1.36"))]
                assert found == [], part


def test_null_leaves_out_what_kubernetes_would_get() -> None:
    """No liveness probe for groups of pods, no user on OpenShift; empty text where Helm 3.6 ignores null."""
    for user in (None, ""):
        values = at(exporter__livenessProbe=None, exporter__securityContext__runAsUser=user)
        unset = at(exporter__settings={"log.level": None}, exporter__thresholds={"minimum_drafts": None})
        container, _ = named_templates(merged(IMAGE, values, unset))
        assert not [flag for flag in container["args"] if "null" in flag or "nil" in flag]
        assert "livenessProbe" not in container
        assert "runAsUser" not in container["securityContext"]
        assert container["securityContext"]["runAsNonRoot"] is True


def test_pods_of_a_leaderworkerset_are_left_alone_while_there_is_a_liveness_probe() -> None:
    """A restart of any container makes their whole group anew."""
    for probe, conditions in (({}, 1), (None, 0)):
        objects = render(merged(INJECTION, at(exporter__livenessProbe=probe)))
        (names,) = (
            [one["name"] for one in obj["spec"]["matchConditions"]]
            for obj in objects
            if obj["kind"] == "MutatingAdmissionPolicy"
        )
        assert names.count("not-in-a-leaderworkerset") == conditions


def test_the_registry_of_a_parent_chart_is_used() -> None:
    """`global.imageRegistry` overrides the chart's own, as in other charts."""
    container, _ = named_templates(merged(IMAGE, nested(("global", "imageRegistry"), "mirror.test/team")))
    assert container["image"].startswith(f"mirror.test/team/{IMAGE['image']['repository']}:")


@pytest.mark.full
def test_the_policy_has_the_version_that_the_cluster_has() -> None:
    """By Helm 3, which can be given a cluster's versions; without one it is refused."""
    api = "admissionregistration.k8s.io"
    for kubernetes, extra, wanted in (
        ("1.36.2", (), "v1"),
        ("1.35.0", ("--api-versions", f"{api}/v1beta1/MutatingAdmissionPolicy"), "v1beta1"),
        ("1.35.0", ("--set", "injection.apiVersion=v1beta1"), "v1beta1"),
        ("1.35.0", (), ""),
    ):
        command = (
            helm3(),
            "template",
            "specdec",
            CHART,
            "--kube-version",
            kubernetes,
            "--values",
            "-",
            *extra,
        )
        done = subprocess.run(command, input=json.dumps(INJECTION), capture_output=True, text=True)
        if wanted:
            versions = {obj["apiVersion"] for obj in yaml.safe_load_all(done.stdout) if obj}
            assert versions == {f"{api}/{wanted}"}, done.stderr
        else:
            assert "injection.enabled needs MutatingAdmissionPolicy" in done.stderr


def test_values_and_readme_are_short_files() -> None:
    """At the top of the values are the ten that matter first."""
    values, readme = ((CHART / name).read_text("utf-8").splitlines() for name in ("values.yaml", "README.md"))
    assert len(values) <= 250
    assert len(readme) <= 250
    first = [line.split(":")[0].removeprefix("#   ") for line in values if line.startswith("#   ")]
    assert len(first) == 10
    assert {tuple(path.split(".")) for path in first} <= LEAVES.keys()
