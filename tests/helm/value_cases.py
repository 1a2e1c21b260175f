"""The matrix: values that people set, by name. Every case must render into objects that an API server takes.

The files of the chart's ci/ folder are cases as well, as chart-testing has it.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from .charts import CHART, NAMESPACE, RELEASE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

IMAGE = {"image": {"registry": "registry.example.com", "repository": "vllm-specdec-exporter"}}
SPEC_CONFIG = {"exporter": {"specConfig": {"method": "eagle3", "num_speculative_tokens": 3}}}
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
SERVERS = ["http://vllm-0.vllm.chat:8000", "http://vllm-1.vllm.chat:8000"]
#: Files of rules, without their ending.
RULE_GROUPS = {path.stem for path in (CHART / "files" / "rules").glob("*.yml")}
#: What Kubernetes takes as a name, and a YAML reader as a number or a switch.
LOOKS_LIKE_ANOTHER_TYPE = ("1e3", "123", "true", "null", "0x1f", "no")


@dataclass(frozen=True)
class ValueCase:
    """Values for a release.

    Attributes:
        name: in kebab-case; unique.
        values: what is set.
        release: the release's name.
        namespace: the release's namespace.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    release: str = RELEASE
    namespace: str = NAMESPACE


def merged(*values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values over values, as several `--values` files."""
    result: dict[str, Any] = {}
    for one in values:
        for key, value in one.items():
            if isinstance(value, dict) and isinstance(result.get(key), dict):
                result[key] = merged(result[key], value)
            else:
                result[key] = deepcopy(value)
    return result


def on(*parts: str, **values: Any) -> dict[str, Any]:
    """Return values with parts switched on ("dashboards.grafanaDashboard"), merged with others."""
    return merged(*(_at(f"{part}.enabled", True) for part in parts), values)


def _at(path: str, value: Any) -> dict[str, Any]:
    first, _, rest = path.partition(".")
    return {first: _at(rest, value) if rest else value}


def at(**paths: Any) -> dict[str, Any]:
    """Return values by their paths, with `__` for a dot: `at(image__tag="1")`."""
    return merged(*(_at(path.replace("__", "."), value) for path, value in paths.items()))


RECEIVER = {"slackConfigs": [{"channel": "#specdec", "apiURL": {"name": "slack", "key": "url"}}]}
RECEIVERS = {
    "page": {"pagerdutyConfigs": [{"routingKey": {"name": "pagerduty", "key": "routing-key"}}]},
    "ticket": RECEIVER,
    "hints": {"emailConfigs": [{"to": "inference@example.com"}]},
    "actions": {"webhookConfigs": [{"url": "http://specdec-act.monitoring:9851/"}]},
    "watchdog": {"webhookConfigs": [{"url": "https://watchdog.example.com/"}]},
}
BASIC_AUTH = {"basicAuth": {"username": {"name": "s", "key": "u"}, "password": {"name": "s", "key": "p"}}}
BEARER = {"authorization": {"type": "Bearer", "credentials": {"name": "s", "key": "t"}}}
VLLM_PODS = {"matchLabels": {"app": "vllm"}}

SIDECAR = merged(IMAGE, SPEC_CONFIG, on("podMonitor"))
STANDALONE = merged(IMAGE, SPEC_CONFIG, on("standalone"), at(exporter__vllmUrls=SERVERS))
INJECTION = merged(IMAGE, SPEC_CONFIG, on("injection"))
RULES = on("prometheusRule")
DASHBOARDS = on("dashboards")
ALERTMANAGER = merged(on("alertmanagerConfig"), at(alertmanagerConfig__receivers=RECEIVERS))
WEB_CONFIG = at(webConfig__existingSecret="specdec-web", webConfig__tls=True)
TAP = on("tap")
#: In front of one of the two servers of `STANDALONE`.
TAP_ALONE = merged(TAP, at(tap__upstream="http://vllm-0.vllm.chat:8000"))
PUSH = at(push__existingSecret="specdec-push")
SIDECAR_POLICY = merged(
    on("networkPolicy"), at(networkPolicy__sidecar={"podSelector": VLLM_PODS, "keepOpen": [8000]})
)
EVERYTHING_BESIDE = merged(
    SIDECAR,
    INJECTION,
    RULES,
    DASHBOARDS,
    ALERTMANAGER,
    WEB_CONFIG,
    TAP,
    PUSH,
    SIDECAR_POLICY,
    on("dashboards.grafanaDashboard", "vllmPodMonitor"),
    at(vllmPodMonitor__selector=VLLM_PODS, prometheusRule__grafanaUrl="https://grafana.example.org"),
    at(prometheusRule__runbookUrl="https://runbooks.example.org/specdec"),
)
EVERYTHING_ALONE = merged(
    STANDALONE,
    RULES,
    DASHBOARDS,
    ALERTMANAGER,
    WEB_CONFIG,
    TAP_ALONE,
    PUSH,
    on(
        "serviceMonitor",
        "networkPolicy",
        "networkPolicy.egress",
        "dashboards.grafanaDashboard",
        "vllmPodMonitor",
    ),
    at(vllmPodMonitor__selector=VLLM_PODS, serviceMonitor__labels={"release": "kps"}),
)


def _hand_written() -> Iterator[ValueCase]:
    yield ValueCase("defaults")
    yield ValueCase("sidecar", SIDECAR)
    yield ValueCase("standalone", STANDALONE)
    yield ValueCase("injection", INJECTION)
    yield ValueCase("injection-beta", merged(INJECTION, at(injection__apiVersion="v1beta1")))
    yield ValueCase("rules", RULES)
    yield ValueCase("dashboards", DASHBOARDS)
    yield ValueCase("alertmanager", ALERTMANAGER)
    yield ValueCase("everything-beside", EVERYTHING_BESIDE)
    yield ValueCase("everything-alone", EVERYTHING_ALONE)
    yield from _names()
    yield from _containers()
    yield from _requests()
    yield from _monitors()
    yield from _bundle()
    yield from _policies()


def _names() -> Iterator[ValueCase]:
    for name, values in (("beside", EVERYTHING_BESIDE), ("alone", EVERYTHING_ALONE)):
        yield ValueCase(f"long-release-{name}", values, release="a" * 53)
        yield ValueCase(f"long-release-of-dashes-{name}", values, release=f"{'a-' * 26}a")
        yield ValueCase(f"long-names-{name}", merged(values, {"nameOverride": "n" * 63}), release="r" * 53)
        yield ValueCase(f"long-fullname-{name}", merged(values, {"fullnameOverride": "f" * 63}))
        yield ValueCase(f"contained-{name}", values, release="my-vllm-specdec-exporter")
        for word in LOOKS_LIKE_ANOTHER_TYPE:
            names = {"nameOverride": word, "fullnameOverride": word if word[0].isalpha() else f"x{word}"}
            yield ValueCase(f"typed-{word}-{name}", merged(values, names), release=word, namespace=word)
        yield ValueCase(f"dotted-{name}", merged(values, {"fullnameOverride": "specdec.v1"}))
        yield ValueCase(f"dotted-release-{name}", values, release="team.specdec")
    yield ValueCase("other-namespace", EVERYTHING_BESIDE, namespace="chat")
    spread = {
        f"{part}__namespace": f"of-{part.lower()}"
        for part in ("podMonitor", "vllmPodMonitor", "prometheusRule", "dashboards", "alertmanagerConfig")
    }
    yield ValueCase("spread-over-namespaces", merged(EVERYTHING_BESIDE, at(**spread)))
    labelled = {
        "commonLabels": {"team": "inference", "cost-centre": "1", "app.kubernetes.io/name": "overridden"},
        "commonAnnotations": {"example.com/note": 'a "quoted": {{ text }}\nof two lines', "empty": ""},
    }
    yield ValueCase("labelled-beside", merged(EVERYTHING_BESIDE, labelled))
    yield ValueCase("labelled-alone", merged(EVERYTHING_ALONE, labelled))


def _containers() -> Iterator[ValueCase]:
    pinned = at(image__digest=DIGEST)
    extras = {
        "extraArgs": ["--log.level=debug", '--vllm.header=X: "{{ y }}" # z'],
        "extraEnv": [
            {"name": "A", "value": "1"},
            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "extraEnvFrom": [{"secretRef": {"name": "more", "optional": True}}],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca", "readOnly": True}],
    }
    openshift = at(exporter__securityContext={"runAsUser": 1000660000, "runAsGroup": 1000660000})
    text = 'a "quoted" $(HOME) {{ .Values }} text: #1'
    for name, values in (("standalone", STANDALONE), ("injection", INJECTION)):
        yield ValueCase(f"digest-{name}", merged(values, pinned))
        yield ValueCase(f"digest-and-tag-{name}", merged(values, pinned, at(image__tag="1.2.3")))
        yield ValueCase(f"no-registry-{name}", merged(values, at(image__registry="")))
        yield ValueCase(f"numeric-tag-{name}", merged(values, at(image__tag="20261121")))
        yield ValueCase(f"extras-{name}", merged(values, {"exporter": extras}))
        yield ValueCase(f"large-user-{name}", merged(values, openshift))
        yield ValueCase(f"other-port-{name}", merged(values, at(exporter__port=65535)))
        yield ValueCase(f"web-config-{name}", merged(values, WEB_CONFIG))
        elsewhere = at(webConfig__mountPath="/web", webConfig__key="other.yml", image__pullPolicy="Always")
        yield ValueCase(f"web-config-elsewhere-{name}", merged(values, WEB_CONFIG, elsewhere))
        yield ValueCase(f"web-password-{name}", merged(values, at(webConfig__existingSecret="web")))
        yield ValueCase(
            f"client-certificates-{name}", merged(values, WEB_CONFIG, at(webConfig__clientCertificates=True))
        )
        yield ValueCase(f"specification-as-text-{name}", merged(values, at(exporter__specConfig=text)))
        yield ValueCase(
            f"thresholds-{name}", merged(values, at(exporter__thresholds={"minimum_drafts": 1000000}))
        )
        settings = {"poll.interval": "2s", "log.level": "debug"}
        yield ValueCase(f"settings-{name}", merged(values, at(exporter__settings=settings)))
        burstable = at(exporter__resources={"limits": {"cpu": "1"}}, exporter__allowBurstable=True)
        yield ValueCase(f"burstable-{name}", merged(values, burstable))
        patience = {"initialDelaySeconds": 1, "periodSeconds": 60, "timeoutSeconds": 9, "failureThreshold": 9}
        yield ValueCase(f"patience-{name}", merged(values, at(exporter__livenessProbe=patience)))
        limits_alone = {"exporter": {"resources": {"requests": None}}}
        yield ValueCase(f"limits-alone-{name}", merged(values, limits_alone))
        yield ValueCase(f"pull-secrets-{name}", merged(values, {"imagePullSecrets": [{"name": "pull"}]}))
    placed = {
        "labels": {"a": "b"},
        "annotations": {"c": "1"},
        "podSecurityContext": {"fsGroup": 65532},
        "podLabels": {"sidecar.istio.io/inject": "false"},
        "podAnnotations": {"prometheus.io/scrape": "false"},
        "serviceAccountName": "123",
        "priorityClassName": "456",
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
                }
            }
        },
        "service": {"type": "NodePort", "port": 80, "labels": {"a": "b"}, "annotations": {"c": "d"}},
    }
    yield ValueCase("placed", merged(STANDALONE, {"standalone": placed}))
    yield ValueCase(
        "many-targets",
        merged(STANDALONE, at(exporter__vllmUrls=[f"http://10.0.0.{n}:8000" for n in range(200)])),
    )


def _requests() -> Iterator[ValueCase]:
    certificate = {"existingSecret": "specdec-tap", "certKey": "chain.pem", "keyKey": "key.pem"}
    for name, values, tap in (("standalone", STANDALONE, TAP_ALONE), ("injection", INJECTION, TAP)):
        yield ValueCase(f"tap-{name}", merged(values, tap))
        yield ValueCase(f"tap-over-tls-{name}", merged(values, tap, at(tap__tls=certificate)))
        full = {
            "port": 80,
            "upstream": "https://vllm.chat:8443",
            "askForUsage": True,
            "drainTimeout": "1500ms",
        }
        yield ValueCase(f"tap-in-full-{name}", merged(values, tap, {"tap": full}))
        yield ValueCase(f"tap-and-web-config-{name}", merged(values, tap, WEB_CONFIG))
        yield ValueCase(f"certificate-without-tap-{name}", merged(values, at(tap__tls=certificate)))
        yield ValueCase(f"push-{name}", merged(values, PUSH))
        yield ValueCase(f"push-by-another-key-{name}", merged(values, PUSH, at(push__key="bearer")))
    ports = at(standalone__service={"port": 80, "tapPort": 8000})
    yield ValueCase("tap-at-vllms-port", merged(STANDALONE, TAP_ALONE, ports))


def _monitors() -> Iterator[ValueCase]:
    full = {
        "labels": {"release": "kps"},
        "annotations": {"a": "1"},
        "interval": "1m30s",
        "scrapeTimeout": "1m",
        "honorLabels": True,
        "relabelings": [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}],
        "metricRelabelings": [{"sourceLabels": ["__name__"], "regex": "python_.*", "action": "drop"}],
        "podTargetLabels": ["app"],
        "sampleLimit": 1000000,
        "labelLimit": 30,
    }
    yield ValueCase("pod-monitor-in-full", merged(SIDECAR, {"podMonitor": full}))
    yield ValueCase("service-monitor-in-full", merged(EVERYTHING_ALONE, {"serviceMonitor": full}))
    trusted = {"tlsConfig": {"ca": {"configMap": {"name": "ca", "key": "ca.crt"}}, "serverName": "specdec"}}
    yield ValueCase("trusted", merged(SIDECAR, WEB_CONFIG, {"podMonitor": trusted}))
    unsafe = {"scheme": "https", "tlsConfig": {"insecureSkipVerify": True}, "namespace": "monitors"}
    yield ValueCase(
        "https-service-monitor",
        merged(EVERYTHING_ALONE, at(webConfig__tls=False), {"serviceMonitor": unsafe}),
    )
    yield ValueCase("https-pod-monitor", merged(SIDECAR, {"podMonitor": unsafe}))
    for password in (BASIC_AUTH, BEARER):
        name = next(iter(password)).lower()
        where = {"namespaceSelector": {"any": False, "matchNames": ["chat"]}}
        yield ValueCase(f"{name}-pod-monitor", merged(SIDECAR, {"podMonitor": {**password, **where}}))
        yield ValueCase(f"{name}-service-monitor", merged(EVERYTHING_ALONE, {"serviceMonitor": password}))
    of_vllm = {
        **{name: full[name] for name in ("labels", "annotations", "interval", "metricRelabelings")},
        "selector": VLLM_PODS,
        "namespaceSelector": {"matchNames": ["chat"]},
        "port": "8000",
        "scheme": "https",
        "tlsConfig": {"insecureSkipVerify": True},
    }
    yield ValueCase("vllm-pod-monitor-in-full", merged(on("vllmPodMonitor"), {"vllmPodMonitor": of_vllm}))
    yield ValueCase("no-interval", merged(SIDECAR, at(podMonitor__interval="", podMonitor__scrapeTimeout="")))
    narrow = {"selector": VLLM_PODS, "namespaceSelector": {"matchNames": ["chat"]}}
    yield ValueCase("narrow", merged(SIDECAR, {"podMonitor": narrow}))
    yield ValueCase(
        "both-monitors",
        merged(EVERYTHING_ALONE, SIDECAR, {"exporter": {"vllmUrls": SERVERS}}, {"podMonitor": narrow}),
    )


def _bundle() -> Iterator[ValueCase]:
    for group in sorted(RULE_GROUPS - {"recording"}):
        yield ValueCase(f"without-{group}", merged(RULES, {"prometheusRule": {"groups": {group: False}}}))
    described = {
        "labels": {"release": "kps"},
        "annotations": {"a": "true"},
        "extraLabels": {"team": "inference", "number": "1e3"},
        "extraAnnotations": {"note": 'a "quoted": text\nof two lines'},
        "disabled": {
            "VLLMSpecDecodeRaiseK": True,
            "VLLMSpecDecodeLowerK": True,
            "VLLMSpecDecodeWatchdog": False,
        },
        "runbookUrl": "https://runbooks.example.org/specdec/",
        "grafanaUrl": "https://grafana.example.org/sub/",
        "extraGroups": [{"name": "own", "rules": [{"record": "own:up:sum", "expr": "sum(up)"}]}],
    }
    yield ValueCase("rules-in-full", merged(RULES, {"prometheusRule": described}))
    off = dict.fromkeys(RULE_GROUPS, False)
    yield ValueCase("no-rules-at-all", merged(RULES, {"prometheusRule": {"groups": off}}))
    boards = {
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "label": "example.com/dashboard",
        "folderAnnotation": "example.com/folder",
        "grafanaDashboard": {"instanceSelector": {"matchLabels": {"a": "b"}}, "resyncPeriod": "10m30s"},
        "folder": 'of "ours": {{ x }}',
        "labelValue": "true",
    }
    yield ValueCase(
        "dashboards-in-full", merged(DASHBOARDS, {"dashboards": boards}, on("dashboards.grafanaDashboard"))
    )
    yield ValueCase(
        "dashboards-without-folder",
        merged(
            DASHBOARDS,
            at(dashboards__folder="", dashboards__boards={"cost": False}),
            on("dashboards.grafanaDashboard"),
        ),
    )
    found = at(alertmanagerConfig__labels={"release": "kps"}, alertmanagerConfig__annotations={"a": "1"})
    yield ValueCase("alertmanager-in-full", merged(ALERTMANAGER, found))
    yield ValueCase(
        "only-a-pager",
        merged(on("alertmanagerConfig"), at(alertmanagerConfig__receivers__page=RECEIVERS["page"])),
    )
    extra = [
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name | quote }}\n",
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "{{ .Release.Name }}-extra"}},
    ]
    yield ValueCase("extra-manifests", {"extraManifests": extra})


def _policies() -> Iterator[ValueCase]:
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    policy = at(networkPolicy__ingressFrom=peers)
    yield ValueCase(
        "policy-sidecar",
        merged(SIDECAR, SIDECAR_POLICY, policy, at(networkPolicy__sidecar__namespace="chat")),
    )
    egress = {
        "enabled": True,
        "ports": [8000, 8200],
        "to": [{"podSelector": VLLM_PODS, "namespaceSelector": {}}],
    }
    yield ValueCase(
        "policy-standalone", merged(STANDALONE, on("networkPolicy"), policy, at(networkPolicy__egress=egress))
    )
    yield ValueCase("policy-both", merged(STANDALONE, SIDECAR_POLICY, policy))
    clients = at(networkPolicy__tapFrom=[{"podSelector": {"matchLabels": {"app": "gateway"}}}])
    yield ValueCase("policy-tap-sidecar", merged(SIDECAR, TAP, SIDECAR_POLICY, policy, clients))
    yield ValueCase(
        "policy-tap-standalone", merged(STANDALONE, TAP_ALONE, on("networkPolicy"), policy, clients)
    )
    yield ValueCase("policy-tap-of-everybody", merged(STANDALONE, TAP_ALONE, SIDECAR_POLICY, policy))
    chosen = {
        "labels": {"a": "b", "c": "true"},
        "namespaceSelector": {"matchLabels": {"d": "e"}},
        "failurePolicy": "Fail",
    }
    yield ValueCase("injection-in-full", merged(INJECTION, {"injection": chosen}))


def _files() -> Iterator[ValueCase]:
    for path in sorted((CHART / "ci").glob("*-values.yaml")):
        yield ValueCase(
            f"ci-{path.name.removesuffix('-values.yaml')}", yaml.safe_load(path.read_text("utf-8")) or {}
        )


CASES = (*_hand_written(), *_files())
assert len({case.name for case in CASES}) == len(CASES)
#: What `make test` renders: a case of every kind of use; `make test-all` renders all.
_FIRST = {"sidecar", "injection", "everything-beside", "everything-alone"}
EACH = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case.name in _FIRST else pytest.mark.full)
        for case in CASES
    ],
)


def switch_paths() -> list[str]:
    """Return the path of every value that the schema has as true or false."""
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    return sorted(_booleans(schema, ()))


def _booleans(schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    if schema.get("type") == "boolean":
        yield ".".join(path)
    for name, inner in (schema.get("properties") or {}).items():
        yield from _booleans(inner, (*path, name))


def flipped(values: Mapping[str, Any], defaults: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return values with one switch the other way."""
    before: Any = merged(defaults, values)
    for name in path.split("."):
        before = before.get(name, False) if isinstance(before, dict) else False
    return merged(values, _at(path, not before))


def value_paths() -> set[str]:
    """Return the path of every value in the schema, levels included."""
    return set(_paths(json.loads((CHART / "values.schema.json").read_text("utf-8")), ()))


def _paths(schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for name, inner in (schema.get("properties") or {}).items():
        yield ".".join((*path, name))
        yield from _paths(inner, (*path, name))
