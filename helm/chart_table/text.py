"""From the table to text: the schema of the values, and the tables of the README."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import jsonschema

from .table import Schema, Section, schema_of


def schema(
    sections: Sequence[Section], special: Mapping[str, Schema], hints: Mapping[str, str]
) -> str:
    """Return values.schema.json: what is not in the table is refused.

    Helm removes a value that is null. What has no empty value is required, so that its
    null is refused.

    Args:
        sections: the table.
        special: schemas by path.
        hints: names of other charts, which the templates refuse with a better message.
    """
    root = _level()
    for value in chain.from_iterable(section.values for section in sections):
        *levels, name = value.path.split(".")
        parent = root
        for level in levels:
            _require(parent, level)
            parent = parent["properties"].setdefault(level, _level())
        value_schema = schema_of(value, special)
        if not jsonschema.Draft7Validator(value_schema).is_valid(type(value.default)()):
            _require(parent, name)
        parent["properties"][name] = {**value_schema, "description": value.about}
    for path, instead in hints.items():
        *levels, name = path.split(".")
        parent = root
        for level in levels:
            parent = parent["properties"][level]
        parent["properties"][name] = {
            "$comment": "refused",
            "description": f"No value of this chart: {instead}.",
        }
    # Helm hands both to every chart that is another's dependency.
    root["properties"]["global"] = {
        "type": "object",
        "description": (
            "Of the parent chart: `imageRegistry` and `imagePullSecrets` are used."
        ),
        "properties": {
            "imageRegistry": {"type": "string"},
            "imagePullSecrets": {"type": "array"},
        },
    }
    root["properties"]["enabled"] = {
        "type": "boolean",
        "description": "For a parent chart's dependency condition; not used.",
    }
    # Draft 7 is the newest that every Helm 3 validates with.
    document = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of vllm-specdec-exporter",
        **root,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _level() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _require(level: dict[str, Any], name: str) -> None:
    required = level.setdefault("required", [])
    if name not in required:
        required.append(name)


def tables(sections: Sequence[Section]) -> Iterator[str]:
    """Yield the lines of the README's reference: a table for each section, with equal
    values in one row.
    """
    for section in sections:
        yield f"### {section.title}"
        if section.about:
            yield section.about
            yield ""
        yield "| value | default | meaning |"
        yield "|---|---|---|"
        rows: dict[tuple[str, str, str], list[str]] = {}
        for value in section.values:
            # Values of several parts share a row if they are alike, such as `labels`.
            key = value.path.partition(".")[2], _short(value.default), value.about
            rows.setdefault(key, []).append(f"`{value.path}`")
        for (_, default, about), names in rows.items():
            yield f"| {', '.join(names)} | `{default}` | {about} |"
        yield ""


def _short(default: Any) -> str:
    return json.dumps(default, ensure_ascii=False).replace("|", "\\|")
