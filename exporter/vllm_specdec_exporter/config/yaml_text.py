"""YAML: reading with errors that quote nothing of the text, in which there may be
secrets.
"""

import re
from typing import Any

import yaml

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_INTEGER = "tag:yaml.org,2002:int"
#: Of keys that would get the name `None`, or `True` for a word such as `on`.
_NO_NAMES = frozenset({"tag:yaml.org,2002:null", "tag:yaml.org,2002:bool"})
#: Limit of its characters: one of 309 digits cannot be converted to a float.
_MAX_INTEGER = 200


class YAMLTextError(ValueError):
    """A text that is not YAML, or not accepted here. The message is one line."""


class Strict:
    """Mix-in for PyYAML's loaders: no aliases, no key twice in a mapping or that is no
    name, no half characters.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return the next node. An alias could make a short text large."""
        if self.check_event(yaml.AliasEvent):  # type: ignore[attr-defined]
            raise _refusal("an alias", self.peek_event())  # type: ignore[attr-defined]
        return super().compose_node(parent, index)  # type: ignore[misc]

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Return the node of a mapping."""
        node = super().compose_mapping_node(anchor)  # type: ignore[misc]
        keys = set()
        for key, _ in node.value:
            if key.tag in _NO_NAMES:
                raise _refusal(
                    "a key that means null, true or false without quotes", key
                )
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                raise _refusal("a key for the second time", key)
            keys.add(str(key.value))
        return node

    def compose_scalar_node(self, anchor: Any) -> Any:
        """Return the node of a scalar, with surrogate pairs joined: JSON writes some
        characters as pairs.
        """
        node = super().compose_scalar_node(anchor)  # type: ignore[misc]
        if node.tag == _INTEGER and len(node.value) > _MAX_INTEGER:
            raise _refusal("a number with too many digits", node)
        try:
            node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise _refusal("a lone surrogate", node) from error
        return node


class _Loader(Strict, yaml.SafeLoader):
    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (
            ValueError,
            LookupError,
            AttributeError,
            TypeError,
            OverflowError,
        ) as error:
            raise _refusal("a value that is invalid for its type", node) from error


def _refusal(what: str, where: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=f"found {what}", problem_mark=where.start_mark)


def read_yaml(text: str | bytes, loader: type = _Loader) -> Any:
    """Return the only document of a YAML text, `None` for an empty one; raise
    YAMLTextError.
    """
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - the loaders construct no Python objects
    except RecursionError:
        reason = "nested too deeply"
    except yaml.MarkedYAMLError as error:
        problem = error.problem or error.context or "it cannot be read"
        reason = _QUOTED.sub(_hide_quote, problem)
        mark = error.problem_mark or error.context_mark
        if mark:
            reason += f" in line {mark.line + 1}, column {mark.column + 1}"
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())  # an invalid character, as its number
    except (ValueError, OverflowError):
        reason = "found a number out of range"
    raise YAMLTextError(reason)  # without a cause, which quotes the text


def _hide_quote(match: re.Match[str]) -> str:
    """Keep quoted YAML syntax; replace quotes of the text."""
    inner = match[0][1:-1]
    if len(inner) <= 1 or inner.startswith("<"):
        return match[0]
    return "…"
