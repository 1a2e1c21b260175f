"""Kubernetes' own objects against the strict schemas of its releases, which refuse unknown fields."""

import functools
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

import jsonschema
from referencing import Registry, Resource

#: The versions that the chart is for.
KUBE_VERSIONS = tuple(f"1.{minor}" for minor in range(29, 38))

_SCHEMAS = resources.files("kubernetes_validate") / "kubernetes-json-schema"


def is_core(obj: Mapping[str, Any]) -> bool:
    """Whether an object is of one of Kubernetes' own APIs, by its group."""
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    return "." not in group or group.endswith(".k8s.io")


def versions_with(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the versions of Kubernetes that have the object's API."""
    return tuple(version for version in KUBE_VERSIONS if _file(obj, version).is_file())


def core_problems(obj: Mapping[str, Any], kube_version: str) -> list[str]:
    """Return what a version of Kubernetes refuses in one of its own objects, with the paths."""
    if not _file(obj, kube_version).is_file():
        return [f"Kubernetes {kube_version} has no {obj.get('apiVersion')} {obj.get('kind')}"]
    validator = _validator(_file(obj, kube_version).name, kube_version)
    return sorted(f"{_path(error)}: {error.message[:300]}" for error in validator.iter_errors(obj))


def _path(error: jsonschema.ValidationError) -> str:
    return "/" + "/".join(str(part) for part in error.absolute_path)


def _folder(kube_version: str) -> Any:
    return _SCHEMAS / f"v{kube_version}.0-local-strict"


def _file(obj: Mapping[str, Any], kube_version: str) -> Any:
    # rbac.authorization.k8s.io/v1 -> rbac-v1
    api = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", str(obj.get("apiVersion")))
    return _folder(kube_version) / f"{str(obj.get('kind')).lower()}-{api}.json"


@functools.cache
def _definitions(kube_version: str) -> Registry[Any]:
    contents = json.loads((_folder(kube_version) / "_definitions.json").read_text())
    resource = Resource.from_contents(contents)
    return resource @ Registry()


@functools.cache
def _validator(name: str, kube_version: str) -> jsonschema.Draft202012Validator:
    contents = json.loads((_folder(kube_version) / name).read_text())
    resource = Resource.from_contents(contents)
    return jsonschema.Draft202012Validator(contents, registry=resource @ _definitions(kube_version))
