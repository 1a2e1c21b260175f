"""Whether an API server would take an object, for all tests of the chart and of recipes.

Kubernetes' own APIs come from strict schemas of each release, the Prometheus operator's from its package, the
others from small strict schemas in tests/data/crds/.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jsonschema

from .api_rules import rule_problems
from .kubernetes_schemas import KUBE_VERSIONS, core_problems, is_core, versions_with
from .operator_schemas import is_operators, operator_problems

CRDS = Path(__file__).parents[1] / "data" / "crds"


def problems(obj: Mapping[str, Any], kube_version: str = KUBE_VERSIONS[-1]) -> list[str]:
    """Return what an API server of that version would refuse. Custom resources have one schema for all."""
    return list(_problems(json.dumps(obj), kube_version))


@functools.lru_cache(maxsize=4096)
def _problems(text: str, kube_version: str) -> tuple[str, ...]:
    obj = json.loads(text)
    if is_core(obj):
        found = core_problems(obj, kube_version)
    elif is_operators(obj):
        found = operator_problems(obj)
    else:
        found = _custom_problems(obj)
    return (*found, *rule_problems(obj))


def problems_everywhere(objects: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the problems of all objects in all versions of Kubernetes that have their API.

    An object whose API no version has is a problem.
    """
    found = []
    for obj in objects:
        versions = versions_with(obj) if is_core(obj) else KUBE_VERSIONS[-1:]
        for version in versions or KUBE_VERSIONS[-1:]:
            found += [f"{title(obj)}, Kubernetes {version}: {problem}" for problem in problems(obj, version)]
    return found


def title(obj: Mapping[str, Any]) -> str:
    """Return a name for messages: kind and name."""
    return f"{obj.get('kind')} {(obj.get('metadata') or {}).get('name')}"


def _custom_problems(obj: Mapping[str, Any]) -> list[str]:
    schema = _custom_schemas().get((str(obj.get("apiVersion")), str(obj.get("kind"))))
    if schema is None:
        return [f"no schema of {obj.get('apiVersion')} {obj.get('kind')} in tests/data/crds/"]
    errors = jsonschema.Draft202012Validator(schema).iter_errors(obj)
    return sorted(
        f"/{'/'.join(str(part) for part in error.absolute_path)}: {error.message[:300]}" for error in errors
    )


@functools.cache
def _custom_schemas() -> dict[tuple[str, str], dict[str, Any]]:
    schemas = {}
    for path in sorted(CRDS.glob("*.json")):
        schema = json.loads(path.read_text())
        properties = schema["properties"]
        schemas[properties["apiVersion"]["const"], properties["kind"]["const"]] = schema
    return schemas
