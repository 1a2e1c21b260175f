"""YAML: reading with limits on the size, and errors that quote nothing of the text."""

from __future__ import annotations

import re
from typing import Any

import yaml

MAX_SIZE = 1_000_000  # nodes and characters with every alias expanded; a configuration has some thousands
_MAX_BITS = 1000  # a larger integer cannot be converted to a float
#: Surrogates, as in ``"\ud83d\ude00"``; a single one cannot be encoded.
_SURROGATES = re.compile("[\\ud800-\\udfff]")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


class YAMLTextError(ValueError):
    """A text that is not YAML, or exceeds a limit. The message is one line."""


class StrictCharacters:
    """Mix-in for PyYAML's loaders: joins surrogate pairs, and raises `YAMLError` for invalid characters."""

    def get_single_node(self) -> Any:
        """Return the nodes of the document."""
        try:
            return super().get_single_node()  # type: ignore[misc]
        except (ValueError, OverflowError) as error:  # "\UFFFFFFFF", a version of thousands of digits
            mark = self.get_mark()  # type: ignore[attr-defined]
            raise yaml.scanner.ScannerError(
                problem="found a number out of range", problem_mark=mark
            ) from error

    def compose_scalar_node(self, anchor: Any) -> Any:
        """Return the node of a scalar, with surrogate pairs joined."""
        node = super().compose_scalar_node(anchor)  # type: ignore[misc]
        if _SURROGATES.search(node.value):
            try:  # JSON escapes characters above U+FFFF as surrogate pairs
                node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError as error:
                raise yaml.composer.ComposerError(
                    problem="found a lone surrogate", problem_mark=node.start_mark
                ) from error
        return node


class _Loader(StrictCharacters, yaml.SafeLoader):
    """The safe loader; every error in the conversion of a value is a `YAMLError`."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
            raise yaml.constructor.ConstructorError(
                problem="found a value that is invalid for its type", problem_mark=node.start_mark
            ) from error
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise yaml.constructor.ConstructorError(
                problem="found a number with too many digits", problem_mark=node.start_mark
            )
        return value


def read_yaml(text: str | bytes) -> Any:
    """Return the document of a YAML text, `None` for an empty one; YAMLTextError also beyond `MAX_SIZE`."""
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _measure(node, {})
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError) as error:
        raise YAMLTextError(reason(error)) from None  # the cause quotes the text, which may be secret


def reason(error: BaseException) -> str:
    """Return an error of PyYAML as one line with its position, without quotes of the text."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())  # an invalid character, as its number
    problem = _QUOTED.sub(_hide_quote, error.problem or error.context or "it cannot be read")
    mark = error.problem_mark or error.context_mark
    return problem if mark is None else f"{problem} in line {mark.line + 1}, column {mark.column + 1}"


def _hide_quote(match: re.Match[str]) -> str:
    """Keep quoted YAML syntax; replace quotes of the text."""
    inner = match[0][1:-1]
    return match[0] if len(inner) <= 1 or inner.startswith("<") else "…"


def _measure(node: Any, known: dict[int, int | None]) -> int:
    """Return the size of a node, aliases expanded; YAMLError if that is too large or recursive."""
    if id(node) in known:
        size = known[id(node)]
        if size is None:
            raise yaml.composer.ComposerError(problem="found a recursive alias", problem_mark=node.start_mark)
        return size
    known[id(node)] = None
    size = 1
    if isinstance(node, yaml.ScalarNode):
        size += len(node.value)
    elif isinstance(node, yaml.MappingNode):
        size += sum(_measure(key, known) + _measure(value, known) for key, value in node.value)
    else:
        size += sum(_measure(item, known) for item in node.value)
    if size > MAX_SIZE:
        raise yaml.composer.ComposerError(
            problem=f"found more than {MAX_SIZE} nodes and characters, with aliases expanded",
            problem_mark=node.start_mark,
        )
    known[id(node)] = size
    return size
