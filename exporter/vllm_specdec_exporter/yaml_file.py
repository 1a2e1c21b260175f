"""YAML files as people write them: the document, or why it cannot be used. Pure.

PyYAML's own errors quote the lines around the place, in which a password may stand, and some of its errors
are no `YAMLError` at all: ``!!bool maybe`` is a KeyError. Here every error names the line and the column,
and quotes nothing of the text.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

#: Nodes and characters that a document may have, those that its aliases repeat counted each time.
MAX_SIZE = 1_000_000

#: An integer of more bits cannot become a number with a point.
_MAX_BITS = 1000

#: Halves of characters, as in ``"\ud83d\ude00"``; no encoding can write one alone.
_HALVES = re.compile("[\\ud800-\\udfff]")

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


class YAMLFileError(ValueError):
    """A text that is no YAML, or no YAML that anybody means. The message is one line."""


class WholeTexts:
    """What PyYAML's loaders lack: a text has whole characters, and an escape of none is a `YAMLError`.

    It stands before a loader among the bases of a class.
    """

    def get_single_node(self) -> Any:
        """Return the nodes of the document."""
        try:
            return super().get_single_node()  # type: ignore[misc]
        except (ValueError, OverflowError) as error:  # "\UFFFFFFFF", a version of thousands of digits
            mark = self.get_mark()  # type: ignore[attr-defined]
            raise yaml.scanner.ScannerError(
                problem="found a number out of its range", problem_mark=mark
            ) from error

    def compose_scalar_node(self, anchor: Any) -> Any:
        """Return the node of a text, whose halves are put together."""
        node = super().compose_scalar_node(anchor)  # type: ignore[misc]
        if _HALVES.search(node.value):
            try:  # JSON writes a character beyond the first 65,536 in two halves
                node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError as error:
                raise yaml.composer.ComposerError(
                    problem="found half a character", problem_mark=node.start_mark
                ) from error
        return node


class _Loader(WholeTexts, yaml.SafeLoader):
    """The safe loader; what it cannot make of a value is always a `YAMLError`."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            found = super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
            raise yaml.constructor.ConstructorError(
                problem="found a value that is not of its type", problem_mark=node.start_mark
            ) from error
        if isinstance(found, int) and found.bit_length() > _MAX_BITS:
            raise yaml.constructor.ConstructorError(
                problem="found a number of too many digits", problem_mark=node.start_mark
            )
        return found


def read_yaml(text: str | bytes) -> Any:
    """Return the document of a YAML text, `None` for an empty one.

    Raises:
        YAMLFileError: it is not YAML, or its aliases make too much of it.
    """
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
        raise YAMLFileError(reason(error)) from None  # its context would quote the text


def reason(error: BaseException) -> str:
    """Return what an error of PyYAML says in one line, without anything of the text but its places."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())  # characters that YAML does not allow: by their numbers
    problem = _QUOTED.sub(_unless_of_the_syntax, error.problem or error.context or "it cannot be read")
    mark = error.problem_mark or error.context_mark
    return problem if mark is None else f"{problem} in line {mark.line + 1}, column {mark.column + 1}"


def _unless_of_the_syntax(match: re.Match[str]) -> str:
    inner = match[0][1:-1]
    return match[0] if len(inner) <= 1 or inner.startswith("<") else "…"


def _measure(node: Any, known: dict[int, int | None]) -> int:
    """Return the size of a node with all that it repeats.

    Raises:
        yaml.YAMLError: more than `MAX_SIZE`, or without end.
    """
    if id(node) in known:
        size = known[id(node)]
        if size is None:
            raise yaml.composer.ComposerError(
                problem="found an alias of what it is a part of", problem_mark=node.start_mark
            )
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
            problem=f"found more than {MAX_SIZE} nodes and characters, aliases counted each time",
            problem_mark=node.start_mark,
        )
    known[id(node)] = size
    return size
