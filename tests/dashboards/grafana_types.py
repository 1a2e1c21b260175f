"""Grafana's own types as an oracle: what in a dashboard does Grafana not know?

The types are those of Grafana's Foundation SDK. Its decoder reads what it knows and
drops the rest, so what is lost between reading and writing is unknown to Grafana.
Overrides are read as the defaults of a panel of their own.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from grafana_foundation_sdk.cog import plugins, runtime
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as sdk

plugins.register_default_plugins()

#: What Grafana reads and its types do not name: end of the path, and where Grafana
#: reads it.
UNTYPED: Mapping[str, str] = {
    "__inputs": "an import (public/app/features/manage-dashboards/state/reducers.ts)",
    "__requires": "grafana.com",
    "templating.list[].definition": (
        "the query of a variable as its list shows it (QueryVariableModel)"
    ),
    "templating.list[].filters": "ad hoc filters (AdHocVariableModel)",
    "annotations.list[].step": (
        "Prometheus's annotations (AnnotationSupport of its data source)"
    ),
    "annotations.list[].tagKeys": "likewise",
    "annotations.list[].textFormat": "likewise",
    "annotations.list[].titleFormat": "likewise",
}


def misfits(document: Mapping[str, Any]) -> list[str]:
    """Return what of a dashboard Grafana does not know, or would read as something
    else.
    """
    misread = list(_lost(document, _read(sdk.Dashboard, document), ""))
    for outer in document.get("panels", ()):
        for panel in (outer, *outer.get("panels", ())):
            if (
                runtime.panelcfg_config(panel["type"]) is None
                and panel["type"] != "row"
            ):
                misread.append(f"Grafana has no panel of type {panel['type']}")
            for alone in _overridden(panel):
                misread += _lost(alone, _read(sdk.Panel, alone), "")
    return misread


def _overridden(panel: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a panel for each property of an override, which has it for all fields."""
    for override in panel.get("fieldConfig", {}).get("overrides", ()):
        for prop in override["properties"]:
            field: Any = prop.get("value")
            for key in reversed(prop["id"].split(".")):
                field = {key: field}
            yield {
                "type": panel["type"],
                "fieldConfig": {"defaults": field, "overrides": []},
            }


def _read(kind: Any, document: Mapping[str, Any]) -> Any:
    """Return JSON as Grafana would write what it has read."""
    return json.loads(json.dumps(kind.from_json(dict(document)), cls=JSONEncoder))


def _lost(written: Any, kept: Any, path: str) -> Iterator[str]:
    """Yield what is not as it was; keys that were added are Grafana's defaults."""
    if isinstance(written, dict) and isinstance(kept, dict):
        for key, value in written.items():
            inner_path = f"{path}.{key}".lstrip(".")
            if re.sub(r"\d+", "", inner_path) in UNTYPED or (
                value is None and key not in kept
            ):
                continue
            if key in kept:
                yield from _lost(value, kept[key], inner_path)
            else:
                yield f"{inner_path}: unknown to Grafana"
    elif (
        isinstance(written, list)
        and isinstance(kept, list)
        and len(written) == len(kept)
    ):
        for at, (item, kept_item) in enumerate(zip(written, kept, strict=True)):
            yield from _lost(item, kept_item, f"{path}[{at}]")
    elif written != kept:
        yield f"{path}: {written!r} would be read as {kept!r}"
