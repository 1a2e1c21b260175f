"""The snapshot: the latest result as JSON, its filter, its decoder and its JSON schema.

The JSON has the structure of `observe.result.ExporterResult`. ``null`` marks a value
that does not exist or is unknown; filtered fields are absent.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import cleandoc
from itertools import chain
from typing import Any, cast

import msgspec

from ..judgement.messages import encode_message
from ..measures.measures import LIFETIME
from ..observe.result import ExporterResult
from .metrics import METRICS, PREFIX, Metric, Scope
from .wording import escape_controls

#: Keys that identify an object, have no default, or say whether there is data. No
#: filter removes them.
_IDENTITY = frozenset(
    {"version", "timestamp_seconds", "targets", "target", "up", "failure", "engines"}
    | {
        "model_name",
        "engine",
        "windows",
        "window",
        "temperature",
        "request_type",
        "tenant",
    }
)

#: Lists in `requests`, and the scopes of the metrics of their items.
_REQUEST_LISTS = {
    "groups": (Scope.GROUP,),
    "tenants": (Scope.TENANT,),
    "models": (Scope.MODEL, Scope.RECENT),
}


class FilterError(ValueError):
    """A filter that cannot be applied. The message lists the allowed values."""


@dataclass(frozen=True, slots=True)
class Filter:
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
            metrics += [
                part.strip().removeprefix(PREFIX)
                for part in value.split(",")
                if part.strip()
            ]
        elif name not in ("model_name", "engine", "window"):
            raise FilterError(
                f"unknown parameter {name!r}; allowed: model_name, engine, window, "
                "metric"
            )
        elif name in single:
            raise FilterError(f"parameter {name} given twice")
        else:
            single[name] = value
    known = {row.name for row in METRICS}
    for metric in metrics:
        if metric not in known:
            raise FilterError(
                f"unknown metric {metric!r}; known: {', '.join(sorted(known))}"
            )
    window = single.get("window", "")
    if window not in ("", LIFETIME, *windows):
        raise FilterError(f"unknown window {window!r}; known: {', '.join(windows)}")
    return Filter(**single, metrics=tuple(metrics))


def encode(result: ExporterResult, wanted: Filter | None = None) -> bytes:
    """Return the snapshot as JSON."""
    wanted = wanted or Filter()
    document = msgspec.to_builtins(_select(result, wanted), enc_hook=encode_message)
    if wanted.metrics:
        document = _keep_metrics(
            document, [row for row in METRICS if row.name in wanted.metrics]
        )
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
    targets = []
    for target in result.targets:
        engines = [
            msgspec.structs.replace(
                engine,
                windows=tuple(
                    w for w in engine.windows if wanted.window in ("", w.window)
                ),
            )
            for engine in target.engines
            if wanted.model_name in ("", engine.model_name)
            and wanted.engine in ("", engine.engine)
        ]
        targets.append(replace(target, engines=tuple(engines)))
    requests = result.requests
    if requests is not None and wanted.model_name:
        own: dict[str, Any] = {
            name: tuple(
                item
                for item in getattr(requests, name)
                if item.model_name == wanted.model_name
            )
            for name in _REQUEST_LISTS
        }
        requests = replace(requests, **own)
    return replace(result, targets=tuple(targets), requests=requests)


def _keep_metrics(document: Mapping[str, Any], chosen: list[Metric]) -> dict[str, Any]:
    """Return the identities and the fields of the chosen metrics."""

    def keep(thing: Mapping[str, Any], *scopes: Scope) -> dict[str, Any]:
        kept = {key: value for key, value in thing.items() if key in _IDENTITY}
        for row in chosen:
            if row.scope not in scopes:
                continue
            part, *rest = row.field.split(".")
            # Kept whole: a judgement (a state with its reason, a level with its
            # criteria), and the tap.
            if rest and part not in ("activity", "quality", "payoff", "advice", "tap"):
                kept.setdefault(part, {})[rest[0]] = thing[part][rest[0]]
            else:
                kept[part] = thing[part]
        return kept

    def has_any(*scopes: Scope) -> bool:
        return any(row.scope in scopes for row in chosen)

    result = keep(document, Scope.EXPORTER)
    result["targets"] = [keep(target, Scope.TARGET) for target in document["targets"]]
    for target in result["targets"]:
        target["engines"] = [keep(engine, Scope.ENGINE) for engine in target["engines"]]
        for engine in target["engines"]:
            windows = [keep(window, Scope.WINDOW) for window in engine["windows"]]
            engine["windows"] = windows if has_any(Scope.WINDOW) else []
    requests = document["requests"]
    if requests is not None and has_any(
        Scope.REQUESTS, *chain.from_iterable(_REQUEST_LISTS.values())
    ):
        result["requests"] = keep(requests, Scope.REQUESTS)
        for name, scopes in _REQUEST_LISTS.items():
            if has_any(*scopes):
                result["requests"][name] = [
                    keep(thing, *scopes) for thing in requests[name]
                ]
    return result
