"""Grafana's own types as an oracle: what in a dashboard does Grafana not know?

The types are those of Grafana's Foundation SDK. Its decoder reads what it knows and drops the rest, so what
is lost between reading and writing is unknown to Grafana. Of links, mappings, overrides and enumerations it
takes whatever comes; `misfits` goes on where it stops, along its type hints.
"""

from __future__ import annotations

import enum
import json
import re
import types
import typing
from functools import cache
from typing import TYPE_CHECKING, Any

from grafana_foundation_sdk.cog import plugins, runtime
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as sdk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

plugins.register_default_plugins()

#: What Grafana reads and its types do not name: end of the path, and where Grafana reads it.
UNTYPED: Mapping[str, str] = {
    "__inputs": "an import (public/app/features/manage-dashboards/state/reducers.ts)",
    "__requires": "grafana.com",
    "templating.list[].filters": "ad hoc filters (AdHocVariableModel)",
    "fieldConfig.defaults.fieldMinMax": "limits of a gauge cell, since 10.2 (FieldConfig of @grafana/data)",
    "templating.list[].definition": "the query of a variable as its list shows it (QueryVariableModel)",
    "annotations.list[].step": "Prometheus's annotations (AnnotationSupport of its data source)",
    "annotations.list[].tagKeys": "likewise",
    "annotations.list[].textFormat": "likewise",
    "annotations.list[].titleFormat": "likewise",
}


def misfits(document: Mapping[str, Any]) -> list[str]:
    """Return what of a dashboard Grafana does not know, or would read as something else."""
    found: list[str] = []
    read = _deepened(sdk.Dashboard.from_json(dict(document)), sdk.Dashboard, "", found)
    found += _lost(document, _plain(read), "")
    for outer in document.get("panels", ()):
        for panel in (outer, *outer.get("panels", ())):
            found += _override_misfits(panel)
    return found


def _override_misfits(panel: Mapping[str, Any]) -> Iterator[str]:
    """Say which properties of overrides are none of the field options of their panel."""
    for at, override in enumerate(panel.get("fieldConfig", {}).get("overrides", ())):
        for prop in override["properties"]:
            field: Any = prop.get("value")
            for key in reversed(prop["id"].split(".")):
                field = {key: field}
            alone = {"type": panel["type"], "fieldConfig": {"defaults": field, "overrides": []}}
            found: list[str] = []
            read = _deepened(sdk.Panel.from_json(alone), sdk.Panel, "", found)
            found += _lost(alone, _plain(read), "")
            yield from (f"panel {panel.get('id')}, override {at}: {words}" for words in found)


def _deepened(value: Any, hint: Any, path: str, found: list[str]) -> Any:
    """Return a value with all below it decoded that the decoder left as it was; complain where it misfits."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hasattr(value, "to_json"):
        return _deepened_object(value, path, found)
    if origin in (typing.Union, types.UnionType):
        return _deepened_union(value, inner, path, found)
    if origin is list and isinstance(value, list):
        return [_deepened(item, inner[0], f"{path}[{at}]", found) for at, item in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {key: _deepened(item, inner[1], f"{path}.{key}", found) for key, item in value.items()}
    if hasattr(hint, "from_json") and isinstance(value, dict):
        return _deepened_object(hint.from_json(value), path, found)
    if not _fits(value, hint, origin, inner):
        found.append(f"{path}: {value!r} is no {getattr(hint, '__name__', hint)}")
    return value


def _deepened_object(value: Any, path: str, found: list[str]) -> Any:
    if type(value).__name__ == "UnknownDataquery":
        found.append(f"{path}: a query of a data source without a type")
        return value
    for name, hint in _hints(type(value)).items():
        if (inner := getattr(value, name, None)) is not None:
            setattr(value, name, _deepened(inner, hint, f"{path}.{_camel(name)}".lstrip("."), found))
    if isinstance(value, sdk.Panel):
        found += _plugin_misfits(value, path)
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the types of a class's attributes, which are its arguments."""
    return typing.get_type_hints(kind.__init__)


def _plugin_misfits(panel: sdk.Panel, path: str) -> Iterator[str]:
    """Say whether a panel is of a type that Grafana has, and has field options of a type that has any."""
    plugin = runtime.panelcfg_config(panel.type_val)
    if plugin is None:
        yield f"{path}: Grafana has no panel of type {panel.type_val}"
    elif (
        plugin.field_config_from_json_hook is None
        and panel.field_config
        and panel.field_config.defaults.custom
    ):
        yield f"{path}.fieldConfig.defaults.custom: no such options in a panel of type {panel.type_val}"


def _deepened_union(value: Any, choices: tuple[Any, ...], path: str, found: list[str]) -> Any:
    """Take the first of the choices that fits without loss, or complain about the first that there is."""
    if value is None and type(None) in choices:
        return None
    choices = tuple(choice for choice in choices if choice is not type(None))
    given, tried = _plain(value), list[tuple[list[str], Any]]()
    for choice in choices:
        words: list[str] = []
        try:
            read = _deepened(value, choice, path, words)
        except (AttributeError, KeyError, TypeError) as error:
            tried.append(([f"{path}: {error}"], value))
            continue
        words += _lost(given, _plain(read), path)
        tried.append((words, read))
    words, read = min(tried, key=lambda item: len(item[0]))
    found += words
    return read


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    return json.loads(json.dumps(value, cls=JSONEncoder))


def _camel(name: str) -> str:
    """Return the key in JSON of an attribute."""
    first, *others = name.removesuffix("_val").split("_")
    return first + "".join(other.title() for other in others)


def _fits(value: Any, hint: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    """Return whether a plain value is one of a type hint's."""
    if hint in (object, Any):
        return True
    if origin is typing.Literal:
        return value in inner
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return value in {item.value for item in hint}
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) else False


def _lost(given: Any, kept: Any, path: str) -> list[str]:
    """Return what is not as it was; keys that were added are Grafana's defaults, and all right."""
    if isinstance(given, dict) and isinstance(kept, dict):
        found = []
        for key, value in given.items():
            place = f"{path}.{key}".lstrip(".")
            if re.sub(r"\d+", "", place) in UNTYPED or (value is None and key not in kept):
                continue
            found += _lost(value, kept[key], place) if key in kept else [f"{place}: unknown to Grafana"]
        return found
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [
            words
            for at, (one, other) in enumerate(zip(given, kept, strict=True))
            for words in _lost(one, other, f"{path}[{at}]")
        ]
    return [] if given == kept else [f"{path}: {given!r} would be read as {kept!r}"]
