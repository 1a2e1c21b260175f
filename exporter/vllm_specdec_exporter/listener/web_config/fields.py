"""Fields of the web configuration file, with errors that name the field."""

import json
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, cast

import yaml

from ...config.spelling import hint
from ...config.yaml_text import Strict, YAMLTextError, read_yaml

#: Settings of Prometheus' exporter-toolkit that are not supported, by path.
_REFUSED = frozenset(
    {
        "http_server_config",
        "rate_limit",
        "tls_server_config.cipher_suites",
        "tls_server_config.client_allowed_sans",
        "tls_server_config.curve_preferences",
        "tls_server_config.max_version",
        "tls_server_config.prefer_server_cipher_suites",
    }
)
#: Settings of the format that hold what belongs into a file.
_INLINE = frozenset({"cert", "key", "client_ca"})


class WebConfigError(ValueError):
    """A web configuration that cannot be used. The message is one line."""


def mapping(
    value: object, where: str, allowed: Collection[str] | None = None
) -> Mapping[str, object]:
    """Return a section, empty if it is missing; WebConfigError for anything else, and
    for settings that are not `allowed`.

    `where` is its path, for errors, empty for the whole file.
    """
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        raise WebConfigError(
            f"{where or 'the file'}: settings are expected, one `name: value` a line"
        )
    if allowed is not None:
        for name in value:
            if name not in allowed:
                raise _unknown(name, where, allowed)
    return cast("Mapping[str, object]", value)


def _unknown(name: str, where: str, allowed: Collection[str]) -> WebConfigError:
    prefix = f"{where}." if where else ""
    path = prefix + (name if name.isprintable() else quote(name))
    if path in _REFUSED:
        why = "not supported; a reverse proxy such as nginx or Envoy does that"
    elif where and name in _INLINE:
        why = f"not supported; put it into a file, and set its path as {name}_file"
    else:
        alike = hint(name, allowed) or f"; known: {', '.join(allowed)}"
        why = f"no such setting{alike}"
    return WebConfigError(f"{path}: {why}")


def text_of(section: Mapping[str, object], key: str, where: str) -> str:
    """Return the string of a field, empty if it is missing."""
    value = section.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WebConfigError(f"{where}.{key}: a string is expected")
    return value


def not_allowed(where: str, text: str, allowed: Iterable[str]) -> WebConfigError:
    """Return the error for a value that is not one of those allowed."""
    return WebConfigError(f"{where}: {quote(text)}: allowed: {', '.join(allowed)}")


def quote(text: str) -> str:
    """Return a string in quotes for errors."""
    return json.dumps(text)


#: Null values of YAML, if not in quotes.
_NULLS = frozenset({"~", "null", "Null", "NULL"})


class _Loader(Strict, yaml.BaseLoader):
    """Loads all scalars as strings, because users may be called 0123 or null; null as a
    value is an empty string.
    """

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        for _, value in node.value:
            _blank(value)
        return super().construct_mapping(node, deep)

    def construct_document(self, node: Any) -> Any:
        _blank(node)
        return super().construct_document(node)


def _blank(node: Any) -> None:
    is_plain = isinstance(node, yaml.ScalarNode) and node.style is None
    if is_plain and node.value in _NULLS:
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
