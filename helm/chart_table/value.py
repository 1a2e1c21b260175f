"""One value of the chart, and the fragments of JSON schema that values are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Schema = Mapping[str, Any]

BOOLEAN: Schema = {"type": "boolean"}
TEXT: Schema = {"type": "string"}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
COUNT: Schema = {"type": "integer", "minimum": 0}
#: What Kubernetes takes as it is; its own API says what is wrong with it.
OBJECT: Schema = {"type": "object"}
OBJECTS: Schema = {"type": "array", "items": OBJECT}
TEXTS: Schema = {"type": "array", "items": TEXT}
#: Labels and annotations. A null leaves one out.
TEXT_MAP: Schema = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
#: A container's `env`; a number has to be quoted, as Kubernetes wants it.
ENV: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string", "minLength": 1}, "value": TEXT, "valueFrom": OBJECT},
        "additionalProperties": False,
    },
}
#: As Kubernetes has it for labels.
SELECTOR: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "matchLabels": TEXT_MAP,
        "matchExpressions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["key", "operator"],
                "additionalProperties": False,
                "properties": {
                    "key": TEXT,
                    "operator": {"enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                    "values": TEXTS,
                },
            },
        },
    },
}
#: Pull secrets, by name or as Kubernetes has them.
PULL_SECRETS: Schema = {"type": "array", "items": {"type": ["object", "string"]}}
#: Of Prometheus; empty for the default of whoever reads it.
DURATION: Schema = {
    "type": "string",
    "pattern": r"^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
}
#: Of Go, as the Grafana operator has it: no days.
GO_DURATION: Schema = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h))*$"}
#: An address to put in front of paths: nothing that YAML or a template would read otherwise.
ADDRESS: Schema = {"type": "string", "pattern": r"^$|^https?://[^\s\"'\\{}$#]+$"}
#: What `--vllm.url` takes: a server, a socket, or a name whose addresses are servers.
SERVER: Schema = {
    "type": "string",
    "pattern": r"^(unix:/\S+|(dns\+)?https?://[^\s/?#]+([/?][^\s#]*)?)$",
}
#: A name of an object in Kubernetes, or empty.
NAME: Schema = {"type": "string", "pattern": r"^$|^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "maxLength": 253}
#: A namespace, or empty for the release's.
NAMESPACE: Schema = {"type": "string", "pattern": r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}


def choice(*names: str) -> Schema:
    """Return the schema of one of these words."""
    return {"type": "string", "enum": list(names)}


def switches(names: Iterable[str]) -> Schema:
    """Return the schema of a map from these names to true or false."""
    return {"type": "object", "additionalProperties": False, "properties": dict.fromkeys(names, BOOLEAN)}


@dataclass(frozen=True, slots=True)
class Value:
    """One value.

    Attributes:
        path: where it stands, its levels separated by dots.
        default: what holds unless it is set.
        schema: what it may be.
        about: what it does, in a sentence or two.
    """

    path: str
    default: Any
    schema: Schema
    about: str


@dataclass(frozen=True, slots=True)
class Section:
    """Values that belong together.

    Attributes:
        title: its heading.
        about: what they are for.
        values: in the order of values.yaml.
    """

    title: str
    about: str
    values: tuple[Value, ...]
