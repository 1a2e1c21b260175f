"""Reading of the web configuration file:

YAML, fields and files, with errors that name the field.
"""

import json
from collections.abc import Collection, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from ...config.values import nearest
from ...config.yaml_text import Strict, YAMLTextError, read_yaml

#: The booleans of YAML 1.1.
_BOOLEANS = {
    "true": True,
    "yes": True,
    "on": True,
    "false": False,
    "no": False,
    "off": False,
}


class WebConfigError(ValueError):
    """A web configuration that cannot be used. The message is one line."""


def mapping(
    value: object,
    where: str,
    known: Collection[str] | None,
    inline: Mapping[str, str] | None = None,
) -> Mapping[str, object]:
    """Return a section, empty if it is missing; WebConfigError for anything else, and
    unknown settings.

    `where` is its path, for errors; `known` the allowed settings, ``None`` for any;
    `inline` has settings of the format that are not supported, and which to use
    instead.
    """
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        raise WebConfigError(
            f"{where}: settings are expected, one `name: value` a line"
        )
    prefix = "" if where == "the file" else f"{where}."
    for name in value:
        shown = f"{prefix}{name if str(name).isprintable() else quote(str(name))}"
        if inline and name in inline:
            raise WebConfigError(
                f"{shown}: not supported inline; put it into a file, and set its "
                f"path as {inline[name]}"
            )
        if not prefix and name == "rate_limit":
            raise WebConfigError(
                f"{shown}: not supported; responses are cheap and never wait for vLLM"
            )
        if known is not None and name not in known:
            near = nearest(name, known)
            if near:
                hint = f"did you mean {near}?"
            else:
                hint = f"known: {', '.join(known)}"
            raise WebConfigError(f"{shown}: no such setting; {hint}")
    return cast("Mapping[str, object]", value)


def text_of(section: Mapping[str, object], where: str, key: str = "") -> str:
    """Return the string of a field, empty if it is missing.

    `key` defaults to the last part of `where`.
    """
    value = section.get(key or where.rpartition(".")[2])
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WebConfigError(f"{where}: a string is expected")
    return value


def list_of(section: Mapping[str, object], where: str) -> list[str]:
    """Return the strings of a list, empty if it is missing."""
    value = section.get(where.rpartition(".")[2])
    if value is None or value == "":
        return []
    if not isinstance(value, list) or not all(
        isinstance(item, str) and item for item in value
    ):
        raise WebConfigError(f"{where}: a list of strings is expected")
    return value


def boolean_of(section: Mapping[str, object], where: str, *, default: bool) -> bool:
    """Return the boolean of a field."""
    text = text_of(section, where)
    if not text:
        return default
    if text.lower() not in _BOOLEANS:
        raise not_allowed(where, text, ("true", "false"))
    return _BOOLEANS[text.lower()]


def path_of(section: Mapping[str, object], key: str, folder: str) -> str:
    """Return the path of a field, relative to `folder`; empty if it is missing."""
    text = text_of(section, key)
    if text:
        return str(Path(folder, text))
    return ""


def not_allowed(where: str, text: str, allowed: Iterable[str]) -> WebConfigError:
    """Return the error for a value that is not one of those allowed."""
    return WebConfigError(f"{where}: {quote(text)}: allowed: {', '.join(allowed)}")


def quote(text: str) -> str:
    """Return a string in quotes for errors."""
    return json.dumps(text)


#: Null values of YAML, if not in quotes.
_NULLS = frozenset({"~", "null", "Null", "NULL"})


class _Loader(Strict, yaml.BaseLoader):
    """Loads all scalars as strings, null as an empty string."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        for _, value in node.value:
            _blank(value)  # not the key: a user may be called null
        return super().construct_mapping(node, deep)

    def construct_document(self, node: Any) -> Any:
        _blank(node)
        return super().construct_document(node)


def _blank(node: Any) -> None:
    if (
        isinstance(node, yaml.ScalarNode)
        and node.style is None
        and node.value in _NULLS
    ):
        node.value = ""


def parse_yaml(text: bytes) -> object:
    """Return a YAML document as mappings, lists and strings; WebConfigError for any
    other text.
    """
    try:
        return read_yaml(text.decode("utf-8"), _Loader)
    except UnicodeDecodeError as error:
        raise WebConfigError("not YAML: not UTF-8") from error
    except YAMLTextError as error:
        raise WebConfigError(f"not YAML: {error}") from error
