"""The part of an API server that admits pods under a MutatingAdmissionPolicy, with a real CEL evaluator.

What Kubernetes adds to CEL is here as its sources have it: the type JSONPatch (apiserver/pkg/cel/mutation),
`split` and `trim` (cel-go's string extension), variables that are evaluated when they are asked for, and the
rule that a literal's values have one type, which this CEL evaluator does not check itself (`literal_faults`).
"""

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import celpy
from celpy import celtypes

from .cel_literals import literal_faults
from .label_selectors import selects

_PATCH_FIELDS = {"op", "path", "from", "value"}


class PolicyError(Exception):
    """An expression does not compile, or fails on this pod."""


class JSONPatch(celtypes.MessageType):
    """The type of that name; refuses what the API server's refuses."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        unknown = set(map(str, fields)) - _PATCH_FIELDS
        if unknown:
            msg = f"unexpected JSONPatch field: {sorted(unknown)}"
            raise PolicyError(msg)
        for name in ("op", "path"):
            if not isinstance(fields.get(celtypes.StringType(name)), celtypes.StringType):
                msg = f"JSONPatch needs a string as {name}"
                raise PolicyError(msg)
        super().__init__(fields)


_ENVIRONMENT = celpy.Environment(annotations={"JSONPatch": JSONPatch})


def _split(text: celtypes.StringType, separator: celtypes.StringType) -> celtypes.ListType:
    return celtypes.ListType([celtypes.StringType(part) for part in text.split(separator)])


def _trim(text: celtypes.StringType) -> celtypes.StringType:
    return celtypes.StringType(text.strip())


_FUNCTIONS: dict[str, Callable[..., Any]] = {"split": _split, "trim": _trim}


class _Variables(celtypes.MapType):
    """`variables`: each is evaluated when asked for, and may ask for those before it."""

    def __init__(self, expressions: Mapping[str, str], scope: Mapping[str, Any]) -> None:
        super().__init__()
        self._expressions = dict(expressions)
        self._scope = scope

    def __getitem__(self, name: Any) -> Any:
        if str(name) not in self._expressions:
            msg = f"no such variable: {name}"
            raise PolicyError(msg)
        names = list(self._expressions)
        earlier = {key: self._expressions[key] for key in names[: names.index(str(name))]}
        scope = {**self._scope, "variables": _Variables(earlier, self._scope)}
        return evaluate(self._expressions[str(name)], scope)

    get = __getitem__


def evaluate(expression: str, scope: Mapping[str, Any]) -> Any:
    """Return what an expression gives.

    Raises:
        PolicyError: it does not compile, breaks the API server's rule for literals, or fails on these values.
    """
    try:
        return _program(expression).evaluate(dict(scope))
    except celpy.CELEvalError as error:
        msg = f"{error}\n{expression}"
        raise PolicyError(msg) from error


@functools.lru_cache(maxsize=1000)
def _program(expression: str) -> celpy.Runner:
    try:
        tree = _ENVIRONMENT.compile(expression)
    except celpy.CELParseError as error:
        msg = f"{error}\n{expression}"
        raise PolicyError(msg) from error
    faults = literal_faults(tree)
    if faults:
        raise PolicyError("; ".join(faults))
    return _ENVIRONMENT.program(tree, functions=_FUNCTIONS)


def unmet_condition(policy: Mapping[str, Any], pod: Mapping[str, Any]) -> str | None:
    """Return the name of the first condition that the pod does not meet.

    Raises:
        PolicyError: a condition cannot be evaluated on this pod.
    """
    scope = {"object": celpy.json_to_cel(pod)}
    for condition in policy["spec"]["matchConditions"]:
        met = evaluate(condition["expression"], scope)
        if not isinstance(met, celtypes.BoolType):
            msg = f"{condition['name']} gives {met!r}, not a bool"
            raise PolicyError(msg)
        if not met:
            return str(condition["name"])
    return None


def patch(policy: Mapping[str, Any], pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the JSON patch of the policy's only mutation.

    Raises:
        PolicyError: the expressions do not give one.
    """
    spec = policy["spec"]
    (mutation,) = spec["mutations"]
    scope: dict[str, Any] = {"object": celpy.json_to_cel(pod)}
    expressions = {variable["name"]: variable["expression"] for variable in spec["variables"]}
    scope["variables"] = _Variables(expressions, scope)
    operations = evaluate(mutation["jsonPatch"]["expression"], scope)
    if not all(isinstance(operation, JSONPatch) for operation in operations):
        msg = f"not a list of JSONPatch: {operations!r}"
        raise PolicyError(msg)
    return [plain(operation) for operation in operations]


def admit(
    policy: Mapping[str, Any],
    pod: Mapping[str, Any],
    *,
    namespace_labels: Mapping[str, str] | None = None,
    request: tuple[str, str, str, str] = ("", "v1", "pods", "CREATE"),
) -> dict[str, Any]:
    """Return a pod as it is after the policy: selectors, conditions, mutation.

    Args:
        policy: as rendered.
        pod: as sent.
        namespace_labels: of its namespace; `default`'s if not told.
        request: API group, version, resource and operation.

    Raises:
        PolicyError: what failurePolicy is for.
    """
    admitted = copy.deepcopy(dict(pod))
    constraints = policy["spec"]["matchConstraints"]
    labels = namespace_labels or {"kubernetes.io/metadata.name": "default"}
    asked = (
        any(_covers(rule, request) for rule in constraints["resourceRules"])
        and selects(constraints["namespaceSelector"], labels)
        and selects(constraints["objectSelector"], pod.get("metadata", {}).get("labels") or {})
    )
    if not asked or unmet_condition(policy, admitted) is not None:
        return admitted
    for operation in patch(policy, admitted):
        apply(operation, admitted)
    return admitted


def _covers(rule: Mapping[str, Any], request: tuple[str, str, str, str]) -> bool:
    keys = ("apiGroups", "apiVersions", "resources", "operations")
    return all(asked in rule[key] or "*" in rule[key] for key, asked in zip(keys, request, strict=True))


def apply(operation: Mapping[str, Any], document: Any) -> None:
    """Carry out an RFC 6902 "add" in place.

    Raises:
        PolicyError: another operation, or a path that does not exist.
    """
    if operation["op"] != "add":
        msg = f"not an add: {operation}"
        raise PolicyError(msg)
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
    target = document
    for part in parents:
        if part not in target:
            msg = f"missing path {operation['path']}"
            raise PolicyError(msg)
        target = target[part]
    if isinstance(target, list):
        target.insert(len(target) if last == "-" else int(last), operation["value"])
    else:
        target[last] = operation["value"]


def plain(value: Any) -> Any:
    """Return a CEL value as JSON has it; the kinds of numbers stay apart."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, celtypes.BoolType):  # an int as well
        return bool(value)
    for python in (str, int, float):
        if isinstance(value, python):
            return python(value)
    msg = f"no JSON for {type(value)}"
    raise PolicyError(msg)
