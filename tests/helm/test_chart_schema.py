"""values.yaml, its schema and the README: nothing unknown or of the wrong type passes,
at any level.
"""

import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from support.repository import data_of
from vllm_specdec_exporter.config.values import parse_servers
from vllm_specdec_exporter.settings.option_table import OPTIONS

from .charts import RenderError, refusal, render, render_files, render_helm3
from .value_cases import (
    CASES,
    DEFAULTS,
    EVERYTHING_ALONE,
    EVERYTHING_BESIDE,
    LEAVES,
    OF_HELM,
    SCHEMA,
    flipped,
    levels,
    merged,
    nested,
    value_at,
    without,
)


def test_the_defaults_fit_and_are_complete() -> None:
    """values.yaml has every value of the schema, which is of draft 7, and no other;
    every one fits.
    """
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert list(jsonschema.Draft7Validator(SCHEMA).iter_errors(DEFAULTS)) == []
    optional = {
        ("exporter", "settings"),
        ("exporter", "thresholds"),
        ("prometheusRule", "disabled"),
    }
    for path, level in levels():
        if path not in optional:
            properties = {
                name
                for name, schema in level["properties"].items()
                if "$comment" not in schema
            }
            assert properties - OF_HELM <= value_at(DEFAULTS, path).keys(), path


def test_everything_is_off_by_default() -> None:
    """A release without values installs nothing; what needs CRDs that may be missing
    must be asked for.
    """
    assert render({}) == []
    switches = [path for path in LEAVES if path[-1] == "enabled"]
    assert [value_at(DEFAULTS, path) for path in switches] == [False] * len(switches)


@pytest.mark.parametrize(
    "helm", [render, pytest.param(render_helm3, marks=pytest.mark.full)]
)
def test_an_unknown_key_is_refused_at_every_level(helm: Callable[..., object]) -> None:
    """A typing error must not be a setting that silently does nothing."""
    paths = [path for path, _ in levels()]
    message = refusal(
        merged(*(nested((*path, "unheardOf"), 1) for path in paths)), helm
    )
    # Helm 4 says `at '/tap/tls'`, Helm 3 `tap.tls`, and `(root)`.
    pointers = re.findall(
        r"- (?:at ')?/?([^':]*)'?: (?i:additional propert).*unheardOf", message
    )
    named = [pointer.replace("/", ".").replace("(root)", "") for pointer in pointers]
    assert sorted(named) == sorted(map(".".join, paths))


def test_a_wrong_type_is_refused_for_every_value() -> None:
    """The message names each value by its path; each has a description."""
    free_keys = {"thresholds", "groups", "boards", "disabled", "livenessProbe"}
    values = {}
    for path, schema in LEAVES.items():
        assert schema.get("description") or path[1] in free_keys, path
        validator = jsonschema.Draft7Validator(schema)
        wrong = next(
            nonsense
            for nonsense in ("\n \n", 1.5, True, [[]], {"a": []})
            if not validator.is_valid(nonsense)
        )
        values = merged(values, nested(path, wrong))
    message = refusal(values)
    assert [path for path in LEAVES if f"at '/{'/'.join(path)}" not in message] == []


#: Options that have a value of their own, or that the chart decides.
ELSEWHERE = tuple(
    option.name
    for option in OPTIONS
    if option.name.startswith(("tap.", "push."))
    or option.name
    in {
        "vllm.url",
        "spec.config",
        "threshold",
        "web.listen-address",
        "web.config.file",
        "startup.on-error",
    }
)

NO_SERVERS = (
    "dns:vllm",
    "http://a b",
    "vllm",
    "unix:run/vllm.sock",
    "http://a#b",
    "dnssrv+http://x:80",
    "srv+http://x",
)
#: Values of the right type that cannot work.
NONSENSE = data_of("tests/helm/nonsense.yml")


@pytest.mark.parametrize(("path", "value"), NONSENSE)
def test_nonsense_is_refused_by_name(path: str, value: object) -> None:
    """With the value's path."""
    message = refusal(nested(tuple(path.split(".")), value))
    assert f"/{path.replace('.', '/')}" in message


def test_all_nonsense_is_refused_in_one_message() -> None:
    many = {"vllmUrls": list(NO_SERVERS), "settings": dict.fromkeys(ELSEWHERE, "x")}
    message = refusal({"exporter": many})
    named = [f"/exporter/vllmUrls/{n}'" for n in range(len(NO_SERVERS))]
    named += [f"'{name}'" for name in ELSEWHERE]
    assert [name for name in named if name not in message] == []


_SERVERS = jsonschema.Draft7Validator(
    SCHEMA["properties"]["exporter"]["properties"]["vllmUrls"]
)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000",
        "https://u:p@vllm/own/metrics?a=b",
        "http://[::1]:8000",
        "http://a?b=c",
        "unix:/run/vllm.sock:/metrics",
        "dns+http://vllm:8000",
        "vllm:8000",
        "dns+vllm:8000/own/metrics",
    ],
)
def test_what_the_exporter_takes_as_a_server_is_taken(url: str) -> None:
    """By the schema as by the flag."""
    assert _SERVERS.is_valid([url])
    assert parse_servers(url)


@pytest.mark.parametrize("url", NO_SERVERS)
def test_what_the_exporter_takes_as_no_server_is_not_taken(url: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_servers(url)


def test_every_option_of_the_exporter_has_a_place() -> None:
    """Among the settings, or as a value of its own, of which the chart always passes on
    one default.
    """
    settings = SCHEMA["properties"]["exporter"]["properties"]["settings"]["properties"]
    defaults = {option.name: option.default for option in OPTIONS}
    assert sorted([*settings, *ELSEWHERE]) == sorted(defaults)
    assert defaults["tap.drain-timeout"] == DEFAULTS["tap"]["drainTimeout"]


GROUPS_AND_BOARDS = {("groups",), ("boards",)}


@pytest.mark.full
@pytest.mark.timeout(600)
def test_every_value_is_set_by_a_named_set_and_does_something() -> None:
    """In one set at least, the texts are others (or refused) without it, or with the
    switch turned.
    """
    # Their texts take long.
    off = merged(
        *(nested(path, False) for path in LEAVES if path[1:2] in GROUPS_AND_BOARDS)
    )
    idle = []
    # Passed on alike, whatever the name; or each has a test of its own.
    others_do = {"settings", "thresholds", "groups", "boards", "disabled"}
    for path, schema in LEAVES.items():
        if others_do & set(path[1:2]):
            continue
        others = {name: inner for name, inner in off.items() if name != path[0]}
        # Sets that have the part first: the search ends at the first difference.
        cases = sorted(CASES, key=lambda case: path[0] not in case.values)
        bases = [merged(case.values, others) for case in cases]
        if "boolean" in schema.get("type", ()):
            pairs = ((base, flipped(base, path)) for base in bases)
        else:
            pairs = (
                (base, without(base, path))
                for base in bases
                if value_at(base, path) is not None
            )
        if all(outcome(unchanged) == outcome(changed) for unchanged, changed in pairs):
            idle.append(path)
    assert idle == []


def outcome(values: Any) -> object:
    """The objects' texts, or the refusal."""
    try:
        files = render_files(values)
    except RenderError as error:
        return str(error)
    return {name: text for name, text in files.items() if name != "templates/NOTES.txt"}


@pytest.mark.parametrize(
    "values", [EVERYTHING_BESIDE, EVERYTHING_ALONE], ids=["beside", "alone"]
)
def test_it_works_as_a_dependency(values: dict[str, Any]) -> None:
    """Helm hands `global` and the condition's `enabled` to a subchart; neither changes
    anything.
    """
    as_dependency = merged(values, {"global": {"a": 1}, "enabled": True})
    assert render(as_dependency) == render(values)
