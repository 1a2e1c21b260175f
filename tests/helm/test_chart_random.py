"""Random values that the schema allows: refused with a message of ours, or rendered into sound objects."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from .charts import CHART, RenderError
from .manifest_schemas import problems, title
from .soundness import faults, operators, rendered
from .value_cases import (
    BASIC_AUTH,
    BEARER,
    DIGEST,
    EVERYTHING_ALONE,
    EVERYTHING_BESIDE,
    IMAGE,
    LOOKS_LIKE_ANOTHER_TYPE,
    RECEIVERS,
    SERVERS,
    VLLM_PODS,
    ValueCase,
    at,
    merged,
    on,
)

DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))

#: Anything that people could type: no control characters, which YAML cannot hold.
TEXT = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Cn"), exclude_characters="\x85\u2028\u2029\ufeff"),
    max_size=20,
)
LABEL_NAME = st.from_regex(
    r"([a-z]{1,5}\.example\.com/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?", fullmatch=True
)
LABEL_VALUE = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?)?", fullmatch=True)
LABELS = st.dictionaries(LABEL_NAME, LABEL_VALUE, max_size=3)
ANNOTATIONS = st.dictionaries(LABEL_NAME, TEXT, max_size=3)
RELEASE = st.one_of(
    st.from_regex(r"([a-z]|[a-z][-a-z0-9.]{0,50}[a-z0-9]|[0-9]{1,3})", fullmatch=True),
    st.sampled_from([*LOOKS_LIKE_ANOTHER_TYPE, f"{'a-' * 26}a", "my-vllm-specdec-exporter", "team.specdec"]),
)
NAMESPACE = st.one_of(
    st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True),
    st.sampled_from(LOOKS_LIKE_ANOTHER_TYPE),
)
NAMES = st.from_regex(r"([a-z0-9]([-a-z0-9.]{0,40}[a-z0-9])?)?", fullmatch=True)
SELECTOR = st.sampled_from([{}, VLLM_PODS, {"matchExpressions": [{"key": "a", "operator": "Exists"}]}])
RELABELINGS = st.lists(
    st.fixed_dictionaries({"targetLabel": st.sampled_from(["a", "b_c"]), "replacement": TEXT.filter(bool)}),
    max_size=2,
)

#: What Kubernetes judges by itself: the schema leaves it open, so samples that Kubernetes takes.
OPEN: dict[str, st.SearchStrategy[Any]] = {
    "nameOverride": st.one_of(NAMES, st.sampled_from([*LOOKS_LIKE_ANOTHER_TYPE, "n" * 63])),
    # Of a Service, too.
    "fullnameOverride": st.one_of(NAMES, st.sampled_from(["null", "true", "f" * 63, "specdec.v1"])).filter(
        lambda name: not name[:1].isdigit()
    ),
    "commonLabels": LABELS,
    "commonAnnotations": ANNOTATIONS,
    "image.registry": st.sampled_from(["", "registry.example.com", "r:5000/", "a/b"]),
    "image.repository": st.sampled_from(["", "vllm-specdec-exporter", "a/b"]),
    "image.tag": st.from_regex(r"([A-Za-z0-9_][A-Za-z0-9._-]{0,20})?", fullmatch=True),
    "image.digest": st.sampled_from(["", DIGEST]),
    "imagePullSecrets": st.lists(st.fixed_dictionaries({"name": st.sampled_from(["a", "123"])}), max_size=2),
    "exporter.specConfig": st.one_of(
        TEXT, st.dictionaries(TEXT, st.one_of(TEXT, st.integers(), st.booleans()), max_size=3)
    ),
    "exporter.extraEnv": st.lists(st.fixed_dictionaries({"name": st.just("A"), "value": TEXT}), max_size=1),
    "exporter.extraEnvFrom": st.lists(st.just({"secretRef": {"name": "s"}}), max_size=1),
    "exporter.extraVolumes": st.just([{"name": "v", "emptyDir": {}}]),
    "exporter.extraVolumeMounts": st.lists(st.just({"name": "v", "mountPath": "/v"}), max_size=1),
    "exporter.resources": st.sampled_from(
        [
            {},
            {"limits": {"cpu": 1}},
            {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": 1, "memory": "1Gi"}},
        ]
    ),
    "exporter.securityContext": st.sampled_from([{}, {"runAsUser": 1000660000}]),
    "webConfig.key": st.sampled_from(["web-config.yml", "1e3"]),
    "webConfig.mountPath": st.sampled_from(["/etc/web", "/1"]),
    "networkPolicy.tapFrom": st.sampled_from([[], [{"podSelector": VLLM_PODS}]]),
    "podMonitor.labels": LABELS,
    "dashboards.label": LABEL_NAME,
    "dashboards.labelValue": LABEL_VALUE,
    "dashboards.folderAnnotation": st.one_of(st.just(""), LABEL_NAME),
    "dashboards.grafanaDashboard.instanceSelector": SELECTOR,
    "prometheusRule.extraGroups": st.sampled_from(
        [[], [{"name": "own", "rules": [{"record": "a:b", "expr": "1"}]}]]
    ),
    "injection.labels": st.dictionaries(LABEL_NAME, LABEL_VALUE, min_size=1, max_size=2),
    "injection.namespaceSelector": SELECTOR,
    "standalone.podSecurityContext": st.sampled_from([{}, {"fsGroup": 1}]),
    "standalone.tolerations": st.sampled_from([[], [{"operator": "Exists"}]]),
    "standalone.affinity": st.just({}),
    "networkPolicy.ingressFrom": st.sampled_from([[], [{"podSelector": VLLM_PODS}]]),
    "networkPolicy.egress.to": st.sampled_from([[], [{"podSelector": {}}]]),
    "networkPolicy.sidecar.podSelector": SELECTOR,
    "extraManifests": st.just([]),
    "vllmPodMonitor.port": st.from_regex(r"[a-z]([-a-z0-9]{0,13}[a-z0-9])?", fullmatch=True),
}
#: The same, by the last part of the path.
OPEN_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "labels": LABELS,
    "podLabels": LABELS,
    "nodeSelector": LABELS,
    "annotations": ANNOTATIONS,
    "podAnnotations": ANNOTATIONS,
    "extraLabels": st.dictionaries(st.sampled_from(["team", "a_b"]), TEXT, max_size=2),
    "extraAnnotations": st.dictionaries(st.sampled_from(["note", "a_b"]), TEXT, max_size=2),
    "selector": SELECTOR,
    "namespaceSelector": st.sampled_from([{"any": True}, {"matchNames": ["a"]}]),
    "tlsConfig": st.sampled_from([{}, {"insecureSkipVerify": True}]),
    "basicAuth": st.sampled_from([{}, BASIC_AUTH["basicAuth"]]),
    "authorization": st.sampled_from([{}, BEARER["authorization"]]),
    "relabelings": RELABELINGS,
    "metricRelabelings": RELABELINGS,
    "podTargetLabels": st.lists(st.sampled_from(["app", "team"]), max_size=2, unique=True),
}


def values_of(schema: dict[str, Any], path: str = "") -> st.SearchStrategy[Any]:
    """Values for a part of the schema: by its own words where it has them, else from the samples above."""
    name = path.rpartition(".")[2]
    if path in OPEN:
        return OPEN[path]
    if name in OPEN_BY_NAME:
        return OPEN_BY_NAME[name]
    if path.startswith("alertmanagerConfig.receivers."):
        return st.sampled_from([{}, RECEIVERS[name]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "properties" in schema:
        inner = {
            key: values_of(one, f"{path}.{key}".lstrip("."))
            for key, one in schema["properties"].items()
            if path or key not in {"global", "enabled"}  # Helm's
        }
        return st.fixed_dictionaries({}, optional=inner)
    if isinstance(schema.get("type"), list):
        return st.one_of(*(values_of({"type": one}, path) for one in schema["type"] if one != "object"))
    if "anyOf" in schema:
        return st.one_of(*(values_of(one, path) for one in schema["anyOf"]))
    return scalars_of(schema, path)


def scalars_of(schema: dict[str, Any], path: str) -> st.SearchStrategy[Any]:
    """Values for a part of the schema that has no parts of its own."""
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum"), min(schema.get("maximum", 2**31), 2**31))
        case "number":
            return st.one_of(st.integers(0, 10**9), st.floats(0, 1e9))
        case "array":
            return st.lists(
                values_of(schema["items"], f"{path}[]"), min_size=schema.get("minItems", 0), max_size=3
            )
        case "string" if "pattern" in schema:
            text = st.from_regex(schema["pattern"], fullmatch=True)
            return text.filter(lambda one: one.isprintable() and len(one) <= schema.get("maxLength", 99))
        case "string":
            return TEXT.filter(lambda one: len(one) >= schema.get("minLength", 0))
    msg = f"{path}: no samples for {schema}"
    raise AssertionError(msg)


#: Parts that are switched on, besides what is random: most of the chart, most of the time.
PARTS = st.sets(
    st.sampled_from(
        [
            *("podMonitor", "vllmPodMonitor", "serviceMonitor", "prometheusRule", "alertmanagerConfig"),
            *("dashboards", "dashboards.grafanaDashboard", "injection", "standalone", "networkPolicy", "tap"),
        ]
    )
)


def settled(values: dict[str, Any], parts: set[str]) -> dict[str, Any]:
    """Values with parts on, and without the contradictions that random values nearly always have."""
    alone = "standalone" in parts or "serviceMonitor" in parts
    dropped = {"injection"} if alone else {"standalone", "serviceMonitor"}
    values = merged(values, on(*(parts - dropped)), IMAGE, {part: {"enabled": False} for part in dropped})
    if alone:
        values = merged(values, on("standalone"), at(exporter__vllmUrls=SERVERS))
    for monitor in ("podMonitor", "serviceMonitor"):
        values = merged(values, {monitor: {"interval": "1m", "scheme": "https"}})
        values[monitor].pop("scrapeTimeout", None)
        if values[monitor].get("basicAuth"):
            values[monitor].pop("authorization", None)
    values = merged(values, at(webConfig__existingSecret="web", prometheusRule__groups__recording=True))
    values = merged(values, at(vllmPodMonitor__selector=VLLM_PODS, podMonitor__selector=VLLM_PODS))
    values = merged(values, at(alertmanagerConfig__receivers__page=RECEIVERS["page"]))
    values = merged(values, at(networkPolicy__sidecar={"podSelector": VLLM_PODS, "keepOpen": [8000]}))
    upstream = at(tap__upstream="http://vllm-0:8000", tap__port=9852, standalone__service__tapPort=8000)
    values = merged(values, upstream, at(exporter__port=9850, standalone__service__port=9850))
    dashboards = values.setdefault("dashboards", {})
    dashboards.pop("labels", None)
    if dashboards.get("grafanaDashboard", {}).get("enabled"):
        dashboards["enabled"] = True
    values["exporter"] = {**values.get("exporter", {}), "allowBurstable": True}
    return values


@st.composite
def cases(draw: st.DrawFn) -> ValueCase:
    """Values that the schema allows: most of them settled, some as they come."""
    values, parts = draw(values_of(SCHEMA)), draw(PARTS)
    name = draw(st.sampled_from(["settled"] * 5 + ["unsettled"]))
    given_values = settled(values, parts) if name == "settled" else merged(values, on(*parts))
    given_values = merged(given_values, at(exporter__extraVolumes=[{"name": "v", "emptyDir": {}}]))
    release = draw(RELEASE)
    if given_values.get("standalone", {}).get("enabled") and release[0].isdigit():
        release = f"r{release}"[:53]  # the name of a Service begins with it
    return ValueCase(name, given_values, release, draw(NAMESPACE))


def refused(case: ValueCase) -> bool:
    """Whether the chart refuses values that the schema takes: with a message of ours, and none if settled."""
    assert list(jsonschema.Draft7Validator(SCHEMA).iter_errors(merged(DEFAULTS, case.values))) == []
    try:
        rendered(case)
    except RenderError as error:
        if not error.refusal or case.name == "settled":
            msg = f"{error}\n{json.dumps(case.values)}"
            raise AssertionError(msg) from error
        return True
    return False


# Drawing values for the whole schema takes hypothesis long.
LARGE = settings(suppress_health_check=list(HealthCheck))


@LARGE
# Everything that the chart has is among what is tried, whatever is drawn.
@example(ValueCase("settled", EVERYTHING_BESIDE))
@example(ValueCase("settled", EVERYTHING_ALONE))
@given(cases())
def test_random_values_are_refused_or_render_soundly(case: ValueCase) -> None:
    """Never an error of a template, never an object that an API server refuses or that endangers vLLM."""
    assert refused(case) or faults(case) == [], json.dumps(case.values)


@pytest.mark.full
@LARGE
@given(cases())
def test_the_operator_takes_what_random_values_render(case: ValueCase) -> None:
    """By its own schemas."""
    if not refused(case):
        found = [(title(obj), one) for obj in filter(operators, rendered(case)) for one in problems(obj)]
        assert found == [], json.dumps(case.values)
