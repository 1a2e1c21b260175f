"""Whether an API server would take an object, by strict schemas of Kubernetes, the
operator and ours.
"""

import atexit
import functools
import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry, Resource

from support.repository import ROOT, Json, data_of

from .api_rules import rule_problems
from .npm_packages import NpmError, node_modules

#: The versions that the chart is for.
KUBE_VERSIONS = tuple(f"1.{minor}" for minor in range(29, 38))
CRDS = ROOT / "tests/data/crds"
_CORE = resources.files("kubernetes_validate") / "kubernetes-json-schema"
_SCRIPT = Path(__file__).with_name("operator_schemas.mjs")


def problems(obj: Json, kube_version: str = KUBE_VERSIONS[-1]) -> list[str]:
    """Return what an API server of that version would refuse.

    Custom resources have one schema for all.
    """
    return list(_problems(json.dumps(obj), kube_version))


@functools.lru_cache(maxsize=4096)
def _problems(text: str, kube_version: str) -> tuple[str, ...]:
    obj = json.loads(text)
    if _is_core(obj):
        schema_problems = _core_problems(obj, kube_version)
    elif is_operators(obj):
        schema_problems = _operator_problems(obj)
    else:
        schema_problems = _custom_problems(obj)
    return (*schema_problems, *rule_problems(obj))


def problems_everywhere(objects: Iterable[Json]) -> list[str]:
    """Return the problems of all objects in all versions of Kubernetes that have their
    API; one must.
    """
    listed = []
    for obj in objects:
        versions = [
            version
            for version in KUBE_VERSIONS
            if _is_core(obj) and _file(obj, version).is_file()
        ]
        # Without one, the newest says what is wrong.
        for version in versions or KUBE_VERSIONS[-1:]:
            listed += [
                f"{title(obj)}, Kubernetes {version}: {problem}"
                for problem in problems(obj, version)
            ]
    return listed


def title(obj: Json) -> str:
    """Return a name for messages: kind and name."""
    return f"{obj.get('kind')} {(obj.get('metadata') or {}).get('name')}"


def validated(validator: jsonschema.Draft202012Validator, obj: Json) -> list[str]:
    return sorted(
        f"/{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}"
        for error in validator.iter_errors(obj)
    )


# --- Kubernetes' own


def _is_core(obj: Json) -> bool:
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    return "." not in group or group.endswith(".k8s.io")


def _core_problems(obj: Json, kube_version: str) -> list[str]:
    if not _file(obj, kube_version).is_file():
        kind = f"{obj.get('apiVersion')} {obj.get('kind')}"
        return [f"Kubernetes {kube_version} has no {kind}"]
    return validated(_core_validator(_file(obj, kube_version).name, kube_version), obj)


def _folder(kube_version: str) -> Any:
    return _CORE / f"v{kube_version}.0-local-strict"


def _file(obj: Json, kube_version: str) -> Any:
    # rbac.authorization.k8s.io/v1 -> rbac-v1
    api = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", str(obj.get("apiVersion")))
    return _folder(kube_version) / f"{str(obj.get('kind')).lower()}-{api}.json"


@functools.cache
def _definitions(kube_version: str) -> Registry[Any]:
    contents = json.loads((_folder(kube_version) / "_definitions.json").read_text())
    return Resource.from_contents(contents) @ Registry()


@functools.cache
def _core_validator(name: str, kube_version: str) -> jsonschema.Draft202012Validator:
    contents = json.loads((_folder(kube_version) / name).read_text())
    registry = Resource.from_contents(contents) @ _definitions(kube_version)
    return jsonschema.Draft202012Validator(contents, registry=registry)


# --- the Prometheus operator's


def is_operators(obj: Json) -> bool:
    """Whether an object is of the Prometheus operator's APIs, whose schemas need
    Node.
    """
    return str(obj.get("apiVersion", "")).startswith("monitoring.coreos.com/")


def _operator_problems(obj: Json) -> list[str]:
    node = _node()
    node.stdin.write(json.dumps([obj]) + "\n")
    node.stdin.flush()
    line = node.stdout.readline()
    assert line, f"node ended with exit code {node.wait(10)}: its error stands above"
    return list(json.loads(line)[0])


@functools.cache
def _node() -> subprocess.Popen[str]:
    node_modules()
    program = shutil.which("node") or shutil.which("nodejs")
    if program is None:
        raise NpmError("node is missing: install the Debian package nodejs")
    process = subprocess.Popen(
        (program, str(_SCRIPT)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_SCRIPT.parent,
    )
    # The end of its input is the end of the script.
    atexit.register(process.communicate, timeout=10)
    return process


# --- of others


def _custom_problems(obj: Json) -> list[str]:
    kind = str(obj.get("apiVersion")), str(obj.get("kind"))
    validator = _custom_validators().get(kind)
    if validator is None:
        return [f"no schema of {' '.join(kind)} in tests/data/crds/"]
    return validated(validator, obj)


@functools.cache
def _custom_validators() -> dict[tuple[str, str], jsonschema.Draft202012Validator]:
    validators = {}
    for path in CRDS.glob("*.json"):
        schema = data_of(path)
        properties = schema["properties"]
        kind = properties["apiVersion"]["const"], properties["kind"]["const"]
        validators[kind] = jsonschema.Draft202012Validator(schema)
    return validators
