"""The part of an API server that admits pods under a MutatingAdmissionPolicy, with a
real CEL evaluator.

What Kubernetes adds to CEL is here as its sources have it; what an API server would
refuse raises an error.
"""

import copy
import functools
from collections.abc import Mapping
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import CELJSONEncoder

from .cel_literals import literal_faults


class JSONPatch(celtypes.MessageType):
    """The type of that name; refuses what the API server's refuses."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        assert set(map(str, fields)) <= {"op", "path", "from", "value"}, fields
        required = [fields.get(celtypes.StringType(name)) for name in ("op", "path")]
        assert all(isinstance(text, celtypes.StringType) for text in required), fields
        super().__init__(fields)


_ENVIRONMENT = celpy.Environment(annotations={"JSONPatch": JSONPatch})


_FUNCTIONS = {
    "split": lambda text, separator: celtypes.ListType(
        map(celtypes.StringType, text.split(separator))
    ),
    "trim": lambda text: celtypes.StringType(text.strip()),
}


class _Variables(celtypes.MapType):
    """`variables`: each is evaluated when asked for, and may ask for those before
    it.
    """

    def __init__(
        self, expressions: Mapping[str, str], scope: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self._expressions = dict(expressions)
        self._scope = scope

    def __getitem__(self, name: Any) -> Any:
        names = list(self._expressions)
        earlier = {
            key: self._expressions[key] for key in names[: names.index(str(name))]
        }
        scope = {**self._scope, "variables": _Variables(earlier, self._scope)}
        return _evaluate(self._expressions[str(name)], scope)

    get = __getitem__


def _evaluate(expression: str, scope: Mapping[str, Any]) -> Any:
    return _program(expression).evaluate(dict(scope))


@functools.lru_cache(maxsize=1000)
def _program(expression: str) -> celpy.Runner:
    tree = _ENVIRONMENT.compile(expression)
    assert literal_faults(tree) == [], expression
    return _ENVIRONMENT.program(tree, functions=_FUNCTIONS)


def unmet_condition(policy: Mapping[str, Any], pod: Mapping[str, Any]) -> str | None:
    """Return the name of the first condition that the pod does not meet."""
    scope = {"object": celpy.json_to_cel(pod)}
    for condition in policy["spec"]["matchConditions"]:
        met = _evaluate(condition["expression"], scope)
        assert isinstance(met, celtypes.BoolType), condition
        if not met:
            return str(condition["name"])
    return None


def patch(policy: Mapping[str, Any], pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the JSON patch of the policy's only mutation."""
    spec = policy["spec"]
    (mutation,) = spec["mutations"]
    scope = {"object": celpy.json_to_cel(pod)}
    expressions = {
        variable["name"]: variable["expression"] for variable in spec["variables"]
    }
    scope["variables"] = _Variables(expressions, scope)
    operations = _evaluate(mutation["jsonPatch"]["expression"], scope)
    assert all(isinstance(operation, JSONPatch) for operation in operations), operations
    return [CELJSONEncoder.to_python(operation) for operation in operations]


def admit(
    policy: Mapping[str, Any],
    pod: Mapping[str, Any],
    *,
    namespace_labels: Mapping[str, str] | None = None,
    request: tuple[str, str, str, str] = ("", "v1", "pods", "CREATE"),
) -> dict[str, Any]:
    """Return a pod as it is after the policy: selectors, conditions, mutation.

    A request has API group, version, resource and operation. Without labels the
    namespace is `default`.
    """
    admitted = copy.deepcopy(dict(pod))
    constraints = policy["spec"]["matchConstraints"]
    labels = namespace_labels or {"kubernetes.io/metadata.name": "default"}
    asked = (
        any(_covers(rule, request) for rule in constraints["resourceRules"])
        and _selects(constraints["namespaceSelector"], labels)
        and _selects(
            constraints["objectSelector"], pod.get("metadata", {}).get("labels") or {}
        )
    )
    if asked and unmet_condition(policy, admitted) is None:
        for operation in patch(policy, admitted):
            _apply(operation, admitted)
    return admitted


def _covers(rule: Mapping[str, Any], request: tuple[str, str, str, str]) -> bool:
    keys = ("apiGroups", "apiVersions", "resources", "operations")
    return all(
        asked in rule[key] or "*" in rule[key]
        for key, asked in zip(keys, request, strict=True)
    )


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects something with these labels; an empty one selects
    everything.
    """
    for expression in selector.get("matchExpressions") or ():
        wanted = {"In": True, "NotIn": False}[expression["operator"]]
        if (labels.get(expression["key"]) in expression["values"]) != wanted:
            return False
    exact = (selector.get("matchLabels") or {}).items()
    return exact <= labels.items()


def _apply(operation: Mapping[str, Any], document: Any) -> None:
    """Carry out an RFC 6902 "add" in place; its path has to exist."""
    assert operation["op"] == "add", operation
    *parents, last = (
        part.replace("~1", "/").replace("~0", "~")
        for part in operation["path"].split("/")[1:]
    )
    target = functools.reduce(lambda inside, part: inside[part], parents, document)
    if not isinstance(target, list):
        target[last] = operation["value"]
    elif last == "-":
        target.append(operation["value"])
    else:
        target.insert(int(last), operation["value"])
