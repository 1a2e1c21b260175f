"""values.yaml, its schema and the README: nothing unknown or of the wrong type passes, at any level."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

from vllm_specdec_exporter.serve.option_table import OPTIONS

from .charts import CHART, ROOT, RenderError, render, render_helm3
from .value_cases import CASES, EVERYTHING_ALONE, EVERYTHING_BESIDE, flipped, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))

#: What Helm itself hands to a chart that is another's dependency.
OF_HELM = {"global", "enabled"}


def levels(
    schema: dict[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every level of values that the chart itself defines, the root first."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        if "properties" in inner:
            yield from levels(inner, (*path, name))


def leaves(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every value that has a type of its own, by path."""
    for name, inner in schema.get("properties", {}).items():
        if "properties" in inner:
            yield from leaves(inner, (*path, name))
        elif name not in OF_HELM or path:
            yield "\0".join((*path, name)), inner


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The value at a path; names may have dots."""
    return {path[0]: nested(path[1:], value) if path[1:] else value}


LEVELS = [path for path, _ in levels(SCHEMA)]
#: Values that a template reads by name; names of options and thresholds are passed on alike.
SINGLE = [
    path
    for path, _ in leaves(SCHEMA)
    if not path.startswith(("exporter\0settings\0", "exporter\0thresholds\0"))
]


def test_the_generated_files_are_current() -> None:
    """`python helm/generate.py --check` says so: values, schema, README, copies of rules and dashboards."""
    done = subprocess.run(
        (sys.executable, ROOT / "helm" / "generate.py", "--check"), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_is_a_schema() -> None:
    """Draft 7, which both Helms read."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"


def test_the_defaults_fit_and_are_complete() -> None:
    """values.yaml has every value of the schema and no other, and every one fits."""
    assert list(jsonschema.Draft7Validator(SCHEMA).iter_errors(VALUES)) == []
    missing = []
    for path, level in levels(SCHEMA):
        here: Any = VALUES
        for name in path:
            here = here[name]
        optional = {"exporter\0settings", "exporter\0thresholds", "prometheusRule\0disabled"}
        if "\0".join(path) not in optional:
            missing += [(*path, name) for name in set(level["properties"]) - OF_HELM - set(here)]
    assert missing == []


def test_everything_is_off_by_default() -> None:
    """A release without values installs nothing; what needs CRDs that may be missing must be asked for."""
    assert render({}) == []
    switches = [path for path, schema in leaves(SCHEMA) if path.endswith("\0enabled")]
    assert len(switches) >= 11
    for path in switches:
        here: Any = VALUES
        for name in path.split("\0"):
            here = here[name]
        assert here is False, path


def refusal(values: dict[str, Any], helm: Callable[..., object] = render) -> str:
    """What Helm says of values that it must refuse."""
    with pytest.raises(RenderError) as refused:
        helm(values)
    return str(refused.value)


@pytest.mark.parametrize("helm", [render, pytest.param(render_helm3, marks=pytest.mark.full)])
def test_an_unknown_key_is_refused_at_every_level(helm: Callable[..., object]) -> None:
    """A typing error must not be a setting that silently does nothing."""
    said = refusal(merged(*(nested((*path, "unheardOf"), 1) for path in LEVELS)), helm)
    # Helm 4 says `at '/tap/tls'`, Helm 3 `tap.tls`, and `(root)`.
    places = re.findall(r"- (?:at ')?([^':]*)'?: (?i:additional propert).*unheardOf", said)
    found = [place.lstrip("/").replace("/", ".").replace("(root)", "") for place in places]
    assert sorted(found) == sorted(".".join(path) for path in LEVELS)


def test_a_wrong_type_is_refused_for_every_value() -> None:
    """The message names each value by its path; each has a description."""
    own = {"thresholds", "groups", "boards", "disabled", "livenessProbe"}
    values: dict[str, Any] = {}
    for path, schema in leaves(SCHEMA):
        names = tuple(path.split("\0"))
        assert schema.get("description") or names[1] in own, path
        validator = jsonschema.Draft7Validator(schema)
        wrong = [value for value in ("\n \n", 1.5, True, [[]], {"a": []}) if not validator.is_valid(value)]
        assert wrong, f"nothing is wrong for {path}"
        values = merged(values, nested(names, wrong[0]))
    said = refusal(values)
    assert [path for path, _ in leaves(SCHEMA) if f"at '/{path.replace(chr(0), '/')}" not in said] == []


#: Options that have a value of their own, or that the chart decides.
ELSEWHERE = (
    *("vllm.url", "spec.config", "threshold", "web.listen-address", "web.config.file", "startup.on-error"),
    *("tap.listen-address", "tap.upstream", "tap.ask-for-usage", "tap.drain-timeout"),
    *("tap.cert-file", "tap.key-file", "push.bearer-token-file"),
)

#: Values of the right type that cannot work.
NONSENSE: tuple[tuple[str, Any], ...] = (
    ("image.digest", "sha256:abc"),
    ("image.pullPolicy", "Sometimes"),
    ("exporter.port", 0),
    ("exporter.port", 65536),
    ("exporter.vllmUrls", []),
    ("exporter.thresholds", {"no_such_threshold": 1}),
    ("exporter.settings", {"no.such.setting": 1}),
    ("podMonitor.interval", "15"),
    ("podMonitor.interval", "1.5s"),
    ("podMonitor.namespace", "Not A Name"),
    ("prometheusRule.disabled", {"VLLMSpecDecodeHarmfull": True}),
    ("prometheusRule.groups", {"harmfull": False}),
    ("prometheusRule.grafanaUrl", "javascript:alert(1)"),
    ("prometheusRule.grafanaUrl", "https://x/{{ y }}"),
    ("dashboards.boards", {"payof": False}),
    ("alertmanagerConfig.receivers", {"pager": {}}),
    ("injection.failurePolicy", "Maybe"),
    ("networkPolicy.sidecar.keepOpen", ["http"]),
    ("webConfig.mountPath", "etc"),
    *(("exporter.settings", {name: "x"}) for name in ELSEWHERE),
    ("tap.port", 0),
    ("tap.upstream", "127.0.0.1:8000"),
    ("tap.upstream", "http://127.0.0.1:8000/v1"),
    ("tap.upstream", "http://u:p@127.0.0.1:8000"),
    ("tap.upstream", "unix:run/vllm.sock"),
    ("tap.drainTimeout", "30"),
    ("tap.tls.existingSecret", "Not A Name"),
    ("push.key", ""),
)


def test_nonsense_is_refused_by_name() -> None:
    """With the value's path."""
    for path, value in NONSENSE:
        assert f"/{path.replace('.', '/')}" in refusal(nested(tuple(path.split(".")), value))


def test_every_option_of_the_exporter_has_a_place() -> None:
    """Among the settings, or as a value of its own."""
    settings = SCHEMA["properties"]["exporter"]["properties"]["settings"]["properties"]
    assert sorted([*settings, *ELSEWHERE]) == sorted(option.name for option in OPTIONS)


def test_what_the_tap_is_always_told_is_the_exporters_default() -> None:
    """The chart decides nothing for it: the defaults are one."""
    defaults = {one.name: one.default for one in OPTIONS}
    assert defaults["tap.ask-for-usage"] == str(VALUES["tap"]["askForUsage"]).lower()
    assert defaults["tap.drain-timeout"] == VALUES["tap"]["drainTimeout"]


def test_the_named_values_reach_every_value() -> None:
    """Each value is set by one of the sets; the test below and random values turn the switches."""
    reached: set[str] = set()
    for case in CASES:
        reached |= set(paths_of(case.values))
    missed = [
        path.replace("\0", ".")
        for path, schema in leaves(SCHEMA)
        if schema.get("type") != "boolean"
        and not any(one == path or one.startswith(f"{path}\0") for one in reached)
        and path.split("\0")[-2:-1] not in (["settings"], ["thresholds"], ["livenessProbe"])
    ]
    assert missed == []


@pytest.mark.full
@pytest.mark.timeout(300)
def test_every_value_does_something() -> None:
    """In one set at least, the objects are others (or refused) without it, or with the switch turned."""
    schemas = dict(leaves(SCHEMA))
    bases = sorted((case.values for case in CASES), key=lambda values: len(render(values)))
    idle = []
    for path in SINGLE:
        names = path.split("\0")
        having = [base for base in bases if names[0] in base]
        if schemas[path].get("type") == "boolean":
            pairs = ((base, flipped(base, VALUES, ".".join(names))) for base in [*having, *bases])
        else:
            pairs = ((base, without(base, names)) for base in having if path in paths_of(base))
        if all(outcome(before) == outcome(after) for before, after in pairs):
            idle.append(".".join(names))
    assert idle == []


def outcome(values: Any) -> Any:
    """The objects, or the refusal."""
    try:
        return render(values)
    except RenderError as error:
        return str(error)


def without(values: Any, names: list[str]) -> dict[str, Any]:
    """Values without the one at a path."""
    if len(names) == 1:
        return {name: inner for name, inner in values.items() if name != names[0]}
    return {name: without(inner, names[1:]) if name == names[0] else inner for name, inner in values.items()}


def paths_of(values: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The path of everything in values."""
    yield "\0".join(path)
    if isinstance(values, dict):
        for name, inner in values.items():
            yield from paths_of(inner, (*path, name))


def test_it_works_as_a_dependency() -> None:
    """Helm hands `global` and the condition's `enabled` to a subchart; neither changes anything."""
    for values in (EVERYTHING_BESIDE, EVERYTHING_ALONE):
        assert render(merged(values, {"global": {"a": 1}, "enabled": True})) == render(values)


#: What the chart's own table has; what lies within a value, such as one switch of many, may be missing.
OWN = [(*path, name) for path, level in levels(SCHEMA) for name in level.get("required", ())]


def test_everything_of_the_table_is_required() -> None:
    """A null deletes a default, and would fail in some template with a message of Go's: it is named here."""
    assert {path[0] for path in OWN} == set(SCHEMA["properties"]) - OF_HELM
    named: set[tuple[str, ...]] = set()
    for depth in {len(path) for path in OWN}:
        said = refusal(merged(*(nested(path, None) for path in OWN if len(path) == depth)))
        for where, missing in re.findall(r"at '(.*)': missing propert(?:y|ies) (.*)", said):
            named |= {(*where.split("/")[1:], name) for name in re.findall(r"'(\w+)'", missing)}
    assert set(OWN) <= named
