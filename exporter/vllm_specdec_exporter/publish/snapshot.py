"""The snapshot: the latest result as JSON, filtered, and back again.

The JSON has the shape of `result.ExporterResult`. ``null`` stands for what does not exist or cannot be
known; what a filter leaves out is not there at all.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, fields, replace
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..measures.measures import LIFETIME
from ..observe.result import ExporterResult
from ..requests.result import GroupResult, ModelRequests, TenantResult
from .metrics import METRICS
from .metrics.metric import PREFIX, Metric, Scope

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ..requests.result import RequestsResult

#: Keys that tell what an object is; no filter leaves them out.
_IDENTITY = frozenset(
    {"version", "timestamp_seconds", "targets", "target", "up", "failure", "engines"}
    | {"model_name", "engine", "windows", "window"}
)

#: What is known of single requests: the lists in it, what they hold, and what metrics hang on these.
_OF_REQUESTS: dict[str, tuple[type[GroupResult | TenantResult | ModelRequests], tuple[Scope, ...]]] = {
    "groups": (GroupResult, (Scope.GROUP,)),
    "tenants": (TenantResult, (Scope.TENANT,)),
    "models": (ModelRequests, (Scope.MODEL, Scope.RECENT)),
}


class FilterError(ValueError):
    """A filter that cannot be applied. The message says what is allowed."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What to keep of a snapshot; an empty value keeps everything.

    What is known of single requests belongs to a model, and to a window of its own: `engine` and `window`
    leave it as it is.

    Attributes:
        model_name: engines and requests with this label.
        engine: engines with this label.
        window: the window of this name, of every engine.
        metrics: these metrics, by name with or without the prefix.
    """

    model_name: str = ""
    engine: str = ""
    window: str = ""
    metrics: tuple[str, ...] = ()


def parse_filter(query: Iterable[tuple[str, str]], windows: Sequence[str]) -> Filter:
    """Return the filter that a query string asks for; ``metric`` may be repeated or hold commas.

    Args:
        query: names and values.
        windows: the names of the windows in force.

    Raises:
        FilterError: an unknown parameter, window or metric, or a parameter given twice.
    """
    single: dict[str, str] = {}
    metrics: list[str] = []
    for name, value in query:
        if name == "metric":
            metrics += [part.strip().removeprefix(PREFIX) for part in value.split(",") if part.strip()]
        elif name not in ("model_name", "engine", "window"):
            msg = f"unknown parameter {name!r}; allowed: model_name, engine, window, metric"
            raise FilterError(msg)
        elif name in single:
            msg = f"parameter {name} given twice"
            raise FilterError(msg)
        else:
            single[name] = value
    known = {row.name for row in METRICS}
    for metric in metrics:
        if metric not in known:
            msg = f"unknown metric {metric!r}; known: {', '.join(sorted(known))}"
            raise FilterError(msg)
    window = single.get("window", "")
    if window not in ("", LIFETIME, *windows):
        msg = f"unknown window {window!r}; known: {', '.join(windows)}"
        raise FilterError(msg)
    return Filter(**single, metrics=tuple(metrics))


def encode(result: ExporterResult, wanted: Filter | None = None) -> bytes:
    """Return the snapshot as JSON."""
    wanted = wanted or Filter()
    document = msgspec.to_builtins(_select(result, wanted))
    if wanted.metrics:
        chosen = [row for row in METRICS if row.name in wanted.metrics]
        document = _thin(document, chosen)
    return msgspec.json.encode(document)


def decode(body: bytes) -> ExporterResult:
    """Return the result that `encode` wrote; what was filtered out has its default.

    Raises:
        ValueError: not a snapshot.
    """
    return msgspec.json.decode(body, type=ExporterResult)


def schema() -> dict[str, Any]:
    """Return the JSON schema of a snapshot, with the descriptions that the types' docstrings give."""
    document = msgspec.json.schema(ExporterResult)
    for name, definition in document["$defs"].items():
        described = _attributes(definition.get("description", ""))
        definition["description"] = definition.get("description", name).split("\n", 1)[0]
        for field, value in definition.get("properties", {}).items():
            if field in described:
                value["description"] = described[field]
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Snapshot of vllm-specdec-exporter",
        **document,
    }
    return cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(document)))  # as JSON has it


def _select(result: ExporterResult, wanted: Filter) -> ExporterResult:
    """Drop the engines and windows that the filter does not want."""
    if not (wanted.model_name or wanted.engine or wanted.window):
        return result
    targets = []
    for target in result.targets:
        engines = [
            replace(
                engine,
                windows=tuple(m for m in engine.windows if wanted.window in ("", m.window)),
            )
            for engine in target.engines
            if wanted.model_name in ("", engine.model_name) and wanted.engine in ("", engine.engine)
        ]
        targets.append(replace(target, engines=tuple(engines)))
    requests = result.requests
    if requests is not None and wanted.model_name:
        requests = _of_model(requests, wanted.model_name)
    return replace(result, targets=tuple(targets), requests=requests)


def _of_model(requests: RequestsResult, model: str) -> RequestsResult:
    """Drop what is known of the requests of other models."""
    return replace(
        requests,
        groups=tuple(group for group in requests.groups if group.model_name == model),
        tenants=tuple(tenant for tenant in requests.tenants if tenant.model_name == model),
        models=tuple(found for found in requests.models if found.model_name == model),
    )


def _thin(document: Mapping[str, Any], chosen: list[Metric]) -> dict[str, Any]:
    """Keep identities and the fields behind the chosen metrics."""

    def keep(
        thing: Mapping[str, Any], *scopes: Scope, identity: Collection[str] = _IDENTITY
    ) -> dict[str, Any]:
        kept = {key: value for key, value in thing.items() if key in identity}
        for row in chosen:
            if row.scope in scopes:
                _copy(thing, kept, row.field.split("."))
        return kept

    def wants(*scopes: Scope) -> bool:
        return any(row.scope in scopes for row in chosen)

    result = keep(document, Scope.EXPORTER)
    result["targets"] = [keep(target, Scope.TARGET) for target in document["targets"]]
    for target in result["targets"]:
        target["engines"] = [keep(engine, Scope.ENGINE) for engine in target["engines"]]
        for engine in target["engines"]:
            windows = [keep(window, Scope.WINDOW) for window in engine["windows"]]
            engine["windows"] = windows if wants(Scope.WINDOW) else []
    requests = document["requests"]
    scopes = [Scope.REQUESTS, *(scope for _, own in _OF_REQUESTS.values() for scope in own)]
    if requests is not None and wants(*scopes):
        result["requests"] = keep(requests, Scope.REQUESTS)
        for name, (kind, own) in _OF_REQUESTS.items():
            if wants(*own):
                result["requests"][name] = [
                    keep(thing, *own, identity=_required(kind)) for thing in requests[name]
                ]
    return result


def _required(kind: type[GroupResult | TenantResult | ModelRequests]) -> frozenset[str]:
    """Return the fields that an object of this kind cannot be without; its identity is among them."""
    return frozenset(
        item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING
    )


def _copy(source: Mapping[str, Any], target: dict[str, Any], path: list[str]) -> None:
    # The reason belongs to a state, and the criteria to a level: the object is kept whole.
    if len(path) == 1 or path[0] in ("activity", "quality", "payoff", "advice"):
        target[path[0]] = source[path[0]]
    else:
        target.setdefault(path[0], {})[path[1]] = source[path[0]][path[1]]


_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8,}.*)*)", re.MULTILINE)


def _attributes(docstring: str) -> dict[str, str]:
    """Return what the ``Attributes:`` section of a docstring says of each attribute."""
    _, _, section = cleandoc(docstring).partition("Attributes:\n")
    return {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(section)}
