"""Values that people set, by name: each must render into objects that an API server
takes.

The files of the chart's ci/ folder are among them, as chart-testing has it.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from support import published
from support.repository import Json, data_of

from .charts import CHART, NAMESPACE, RELEASE

IMAGE = {"image": published.IMAGE}
SPEC_CONFIG = {
    "exporter": {"specConfig": {"method": "eagle3", "num_speculative_tokens": 3}}
}
SERVERS = ["http://vllm-0.vllm.chat:8000", "http://vllm-1.vllm.chat:8000"]
#: Files of rules, without their ending.
RULE_GROUPS = {path.stem for path in (CHART / "files/rules").glob("*.yml")}
#: What Kubernetes takes as a name, and a YAML reader as a number or a switch.
LOOKS_LIKE_ANOTHER_TYPE = ("1e3", "123", "true", "null", "0x1f", "no")


@dataclass(frozen=True)
class ValueCase:
    """Values for a release, by a unique name in kebab-case."""

    name: str
    values: Json = field(default_factory=dict)
    release: str = RELEASE
    namespace: str = NAMESPACE


def merged(*values: Json) -> Json:
    """Return values over values, as several `--values` files."""
    result = {}
    for part in values:
        for key, value in part.items():
            if isinstance(value, dict) and isinstance(result.get(key), dict):
                result[key] = merged(result[key], value)
            else:
                result[key] = deepcopy(value)
    return result


def nested(path: tuple[str, ...], value: Any) -> Json:
    """Return values with one at a path; its names may have dots."""
    return {path[0]: nested(path[1:], value) if path[1:] else value}


def on(*parts: str) -> Json:
    """Return values with parts switched on ("dashboards.grafanaDashboard")."""
    return merged(*(nested((*part.split("."), "enabled"), True) for part in parts))


def at(**paths: Any) -> Json:
    """Return values by their paths, with `__` for a dot: `at(image__tag="1")`."""
    return merged(
        *(nested(tuple(path.split("__")), value) for path, value in paths.items())
    )


RECEIVER = {
    "slackConfigs": [{"channel": "#specdec", "apiURL": {"name": "slack", "key": "url"}}]
}
RECEIVERS = {
    "page": {
        "pagerdutyConfigs": [
            {"routingKey": {"name": "pagerduty", "key": "routing-key"}}
        ]
    },
    "ticket": RECEIVER,
    "hints": {"emailConfigs": [{"to": "inference@example.com"}]},
    "actions": {"webhookConfigs": [{"url": "http://specdec-act.monitoring:9851/"}]},
    "watchdog": {"webhookConfigs": [{"url": "https://watchdog.example.com/"}]},
}
VLLM_PODS = {"matchLabels": {"app": "vllm"}}

SIDECAR = merged(IMAGE, SPEC_CONFIG, on("podMonitor"))
STANDALONE = merged(
    IMAGE, SPEC_CONFIG, on("standalone"), at(exporter__vllmUrls=SERVERS)
)
INJECTION = merged(IMAGE, SPEC_CONFIG, on("injection"))
RULES = on("prometheusRule")
DASHBOARDS = on("dashboards")
ALERTMANAGER = merged(
    on("alertmanagerConfig"), at(alertmanagerConfig__receivers=RECEIVERS)
)
WEB_CONFIG = at(webConfig__existingSecret="specdec-web", webConfig__tls=True)
TAP = on("tap")
#: In front of one of the two servers of `STANDALONE`.
TAP_ALONE = merged(TAP, at(tap__upstream="http://vllm-0.vllm.chat:8000"))
PUSH = at(push__existingSecret="specdec-push")
SIDECAR_POLICY = merged(
    on("networkPolicy"),
    at(networkPolicy__sidecar={"podSelector": VLLM_PODS, "keepOpen": [8000, 5557]}),
)
_BUNDLE = (
    RULES,
    DASHBOARDS,
    on("dashboards.grafanaDashboard"),
    ALERTMANAGER,
    WEB_CONFIG,
    PUSH,
)
_MONITORED = merged(on("vllmPodMonitor"), at(vllmPodMonitor__selector=VLLM_PODS))
EVERYTHING_BESIDE = merged(
    SIDECAR,
    INJECTION,
    *_BUNDLE,
    TAP,
    SIDECAR_POLICY,
    _MONITORED,
    at(prometheusRule__grafanaUrl="https://grafana.example.org"),
    at(prometheusRule__runbookUrl="https://runbooks.example.org/specdec"),
)
EVERYTHING_ALONE = merged(
    STANDALONE,
    *_BUNDLE,
    TAP_ALONE,
    _MONITORED,
    on("serviceMonitor", "networkPolicy", "networkPolicy.egress"),
    at(serviceMonitor__labels={"release": "kps"}),
)


#: Parts of the named sets, as people write them.
_PARTS = data_of(CHART.parents[1] / "tests/helm/value_parts.yml")


def _named() -> dict[str, dict[str, Any]]:
    """Return the named values but for those that need another release."""
    part = _PARTS
    servers = at(exporter__vllmUrls=[f"http://10.0.0.{n}:8000" for n in range(200)])
    alone = merged(STANDALONE, TAP_ALONE)
    grafana = on("dashboards.grafanaDashboard")
    little = merged(
        grafana,
        on("alertmanagerConfig"),
        at(dashboards__folder="", dashboards__boards={"requests": False}),
        at(alertmanagerConfig__receivers__page=RECEIVERS["page"]),
        at(prometheusRule__groups=dict.fromkeys(RULE_GROUPS, False)),
    )
    policies = at(networkPolicy__sidecar__namespace="chat")
    sets = {
        "defaults": ({},),
        "sidecar": (SIDECAR,),
        "standalone": (STANDALONE,),
        "injection": (INJECTION,),
        "injection-beta": (INJECTION, at(injection__apiVersion="v1beta1")),
        "injection-in-full": (INJECTION, part["injection"]),
        "everything-beside": (EVERYTHING_BESIDE,),
        "everything-alone": (EVERYTHING_ALONE,),
        "long-fullname-alone": (EVERYTHING_ALONE, at(fullnameOverride="f" * 63)),
        "spread-over-namespaces": (EVERYTHING_BESIDE, part["spread"]),
        "placed": (alone, servers, part["placed"]),
        "monitors-beside": (SIDECAR, part["monitors-beside"]),
        "monitors-alone": (EVERYTHING_ALONE, part["monitors-alone"]),
        "passwords": (STANDALONE, part["passwords"]),
        "bundle": (RULES, DASHBOARDS, ALERTMANAGER, part["bundle"]),
        "little-of-the-bundle": (RULES, DASHBOARDS, little),
        "extra-manifests": (part["extra-manifests"],),
        "policy-sidecar": (SIDECAR, TAP, SIDECAR_POLICY, part["policy"], policies),
        "policy-standalone": (alone, part["policy"], part["policy-standalone"]),
        "policy-both": (alone, SIDECAR_POLICY),
    }
    for name in ("container", "container-otherwise", "tap"):
        sets[f"{name}-standalone"] = (STANDALONE, part[name])
        sets[f"{name}-injection"] = (INJECTION, part[name])
    for path in sorted((CHART / "ci").glob("*-values.yaml")):
        sets[f"ci-{path.name.removesuffix('-values.yaml')}"] = (data_of(path) or {},)
    return {name: merged(*values) for name, values in sets.items()}


_LABELLED = _PARTS["labelled"]
CASES = (
    *starmap(ValueCase, _named().items()),
    ValueCase(
        "long-names-beside",
        merged(EVERYTHING_BESIDE, _LABELLED, at(nameOverride="n" * 63)),
        # 53 characters: the most that Helm takes as the name of a release.
        release="r" * 53,
    ),
    ValueCase(
        "labelled-alone",
        merged(EVERYTHING_ALONE, _LABELLED),
        release="my-vllm-specdec-exporter",
    ),
)

SCHEMA = data_of(CHART / "values.schema.json")
DEFAULTS = data_of(CHART / "values.yaml")
Path = tuple[str, ...]


#: What Helm itself adds to the values of a dependency.
OF_HELM = {"global", "enabled"}


def _is_level(path: Path, name: str, schema: Json) -> bool:
    """Whether it holds values; a selector of Kubernetes is one value."""
    of_helm = not path and name in OF_HELM
    return (
        "properties" in schema
        and "matchLabels" not in schema["properties"]
        and not of_helm
    )


def levels(schema: Json = SCHEMA, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Every level of values that the chart itself defines, the root first."""
    yield path, dict(schema)
    for name, inner in schema["properties"].items():
        if _is_level(path, name, inner):
            yield from levels(inner, (*path, name))


#: The schema of every value that is no level, by path.
LEAVES: dict[Path, Json] = {}
#: Paths of what the chart cannot do without: levels, and values that have no empty one.
REQUIRED: set[Path] = set()
#: What to do instead of each name of other charts, as the schema says.
REMEDIES: dict[Path, str] = {}
for _path, _level in levels():
    REQUIRED.update((*_path, name) for name in _level.get("required", ()))
    for _name, _inner in _level["properties"].items():
        if "$comment" in _inner:
            about = _inner["description"].removeprefix("No value of this chart: ")
            REMEDIES[*_path, _name] = about
        elif not _is_level(_path, _name, _inner) and (_path or _name not in OF_HELM):
            LEAVES[*_path, _name] = _inner

#: The paths of all values and levels as people write them.
PATHS = {".".join(path[:depth]) for path in LEAVES for depth in range(1, len(path) + 1)}


def value_at(values: Any, path: Path) -> Any:
    """Return the value at a path; None if there is none."""
    for name in path:
        if not isinstance(values, dict):
            return None
        values = values.get(name)
    return values


def without(values: Json, path: Path) -> Json:
    """Return values without the one at a path."""
    complete = merged(values)
    value_at(complete, path[:-1]).pop(path[-1])
    return complete


def flipped(values: Json, path: Path) -> Json:
    """Return values with one switch the other way."""
    return merged(values, nested(path, not value_at(merged(DEFAULTS, values), path)))
