"""The snapshot: the latest result as JSON, its filter, its decoder and its JSON schema.

The JSON has the structure of `observe.result.ExporterResult`. ``null`` marks a value
that does not exist or is unknown; filtered fields are absent.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from inspect import cleandoc
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..judgement.messages import encode_message
from ..measures.measures import LIFETIME
from ..observe.result import EngineResult, ExporterResult
from ..per_request.summary import (
    GroupResult,
    ModelRequests,
    RequestsResult,
    TenantResult,
)
from .metrics import METRICS, PREFIX, MetricScope
from .terminal import escape_controls

_Json = Mapping[str, Any]
#: The dotted paths of the fields to keep, by the object that has them.
_Fields = Mapping[MetricScope, list[str]]
_OfModel = TypeVar("_OfModel", GroupResult, TenantResult, ModelRequests)

#: Keys that identify an object, have no default, or say whether there is data. No
#: filter removes them.
_IDENTITY = frozenset(
    {
        "version",
        "timestamp_seconds",
        "targets",
        "target",
        "up",
        "failure",
        "engines",
        "model_name",
        "engine",
        "windows",
        "window",
        "temperature",
        "request_type",
        "tenant",
    }
)
#: Parts of which a metric is one field, but which mean little in parts: a state with
#: its reason, a level with its criteria, the tap.
_WHOLE = frozenset({"activity", "quality", "payoff", "advice", "tap"})


class FilterError(ValueError):
    """A filter that cannot be applied. The message lists the allowed values."""


class Filter(Struct, frozen=True):
    """The parts of a snapshot to keep; an empty value keeps everything.

    `engine` and `window` do not apply to single requests, which belong to a model and
    have their own window.
    """

    model_name: str = ""  # engines and requests with this label
    engine: str = ""  # engines with this label
    window: str = ""  # the window of this name, of every engine
    metrics: tuple[str, ...] = ()  # these metrics, by name with or without the prefix


def parse_filter(query: Iterable[tuple[str, str]], windows: Sequence[str]) -> Filter:
    """Return the filter of a query string. ``metric`` may be repeated or hold a list
    with commas.

    Raises FilterError for an unknown parameter, window or metric, and for a parameter
    given twice.
    """
    single: dict[str, str] = {}
    metrics: list[str] = []
    for name, value in query:
        if name == "metric":
            metrics += filter(None, map(str.strip, value.split(",")))
        elif name not in ("model_name", "engine", "window"):
            raise FilterError(
                f"unknown parameter {name!r}; allowed: model_name, engine, window, "
                "metric"
            )
        elif name in single:
            raise FilterError(f"parameter {name} given twice")
        else:
            single[name] = value
    allowed = sorted(row.name for row in METRICS)
    names = []
    for metric in metrics:
        name = metric.removeprefix(PREFIX)
        if name not in allowed:
            raise FilterError(f"unknown metric {name!r}; known: {', '.join(allowed)}")
        names.append(name)
    window = single.get("window", "")
    if window not in ("", LIFETIME, *windows):
        raise FilterError(f"unknown window {window!r}; known: {', '.join(windows)}")
    return Filter(**single, metrics=tuple(names))


def encode(result: ExporterResult, wanted: Filter | None = None) -> bytes:
    """Return the snapshot as JSON."""
    wanted = wanted or Filter()
    # Selected before it is converted, so that what is left out costs nothing.
    selected = _select(result, wanted)
    document = msgspec.to_builtins(selected, enc_hook=encode_message)
    if wanted.metrics:
        document = _keep_metrics(document, wanted.metrics)
    return escape_controls(msgspec.json.encode(document).decode()).encode()


def decode(body: bytes) -> ExporterResult:
    """Return the result that `encode` wrote, or raise ValueError; filtered fields have
    their defaults.
    """
    return msgspec.json.decode(body, type=ExporterResult)


def schema() -> dict[str, Any]:
    """Return the JSON schema of a snapshot, with descriptions from the docstrings of
    the types.
    """
    document = msgspec.json.schema(ExporterResult)
    for name, definition in document["$defs"].items():
        described = attribute_docs(definition.get("description", ""))
        summary = definition.get("description", name).partition("\n\n")[0]
        definition["description"] = " ".join(summary.split())
        for field, value in definition.get("properties", {}).items():
            if field in described:
                value["description"] = described[field]
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Snapshot of vllm-specdec-exporter",
        **document,
    }
    # tuples as lists
    return cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(document)))


_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8,}.*)*)", re.MULTILINE)


def attribute_docs(docstring: str) -> dict[str, str]:
    """Return the texts of the ``Attributes:`` section of a docstring, by attribute."""
    _, _, section = cleandoc(docstring).partition("Attributes:\n")
    return {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(section)}


def _select(result: ExporterResult, wanted: Filter) -> ExporterResult:
    if not (wanted.model_name or wanted.engine or wanted.window):
        return result
    targets = tuple(
        replace(target, engines=_select_engines(target.engines, wanted))
        for target in result.targets
    )
    requests = result.requests
    if requests is not None and wanted.model_name:
        requests = _select_model(requests, wanted.model_name)
    return replace(result, targets=targets, requests=requests)


def _select_engines(
    engines: Iterable[EngineResult], wanted: Filter
) -> tuple[EngineResult, ...]:
    selected = []
    for engine in engines:
        if wanted.model_name not in ("", engine.model_name):
            continue
        if wanted.engine not in ("", engine.engine):
            continue
        windows = engine.windows
        if wanted.window:
            windows = tuple(w for w in windows if w.window == wanted.window)
        selected.append(msgspec.structs.replace(engine, windows=windows))
    return tuple(selected)


def _select_model(requests: RequestsResult, model_name: str) -> RequestsResult:
    def of_model(items: Iterable[_OfModel]) -> tuple[_OfModel, ...]:
        return tuple(item for item in items if item.model_name == model_name)

    return replace(
        requests,
        groups=of_model(requests.groups),
        tenants=of_model(requests.tenants),
        models=of_model(requests.models),
    )


def _keep_metrics(document: _Json, names: Collection[str]) -> dict[str, Any]:
    """Return the identities and the fields of the metrics with these names."""
    fields: defaultdict[MetricScope, list[str]] = defaultdict(list)
    for row in METRICS:
        if row.name in names:
            fields[row.scope].append(row.field)
    result = _keep(document, fields[MetricScope.EXPORTER])
    result["targets"] = []
    for target in document["targets"]:
        kept = _keep(target, fields[MetricScope.TARGET])
        kept["engines"] = [_keep_engine(item, fields) for item in target["engines"]]
        result["targets"].append(kept)
    if document["requests"] is not None:
        result |= _keep_requests(document["requests"], fields)
    return result


def _keep_engine(engine: _Json, fields: _Fields) -> dict[str, Any]:
    kept = _keep(engine, fields[MetricScope.ENGINE])
    # Windows are part of the identity, but empty ones would say nothing.
    kept["windows"] = []
    if fields[MetricScope.WINDOW]:
        kept["windows"] = _keep_all(engine["windows"], fields[MetricScope.WINDOW])
    return kept


def _keep_requests(requests: _Json, fields: _Fields) -> dict[str, Any]:
    """Return the key of single requests, unless nothing of them is kept."""
    lists = {
        "groups": fields[MetricScope.GROUP],
        "tenants": fields[MetricScope.TENANT],
        "models": fields[MetricScope.MODEL] + fields[MetricScope.RECENT],
    }
    if not any((fields[MetricScope.REQUESTS], *lists.values())):
        return {}
    kept = _keep(requests, fields[MetricScope.REQUESTS])
    for name, item_fields in lists.items():
        if item_fields:
            kept[name] = _keep_all(requests[name], item_fields)
    return {"requests": kept}


def _keep_all(items: Iterable[_Json], fields: Sequence[str]) -> list[dict[str, Any]]:
    return [_keep(item, fields) for item in items]


def _keep(item: _Json, fields: Iterable[str]) -> dict[str, Any]:
    """Return the identity of an object, and these fields of it."""
    kept = {key: value for key, value in item.items() if key in _IDENTITY}
    for field in fields:
        part, *path = field.split(".")
        if not path or part in _WHOLE:
            kept[part] = item[part]
        else:
            kept.setdefault(part, {})[path[0]] = item[part][path[0]]
    return kept
