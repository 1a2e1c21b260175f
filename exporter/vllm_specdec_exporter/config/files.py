"""Files: written whole or not at all, and told from what they were."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import yaml

from .options import ConfigError


def write(path: Path, body: bytes) -> None:
    """Write a file in one step: a reader sees the old one or the new one, never a part.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(body)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def try_to_write(path: Path) -> None:
    """Find out whether `write` could write this file, and leave nothing behind.

    Raises:
        OSError: it could not.
    """
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(number)
    Path(temporary).unlink()


def stamp(path: str) -> tuple[int, ...]:
    """Return what is another after a file was written or exchanged; empty for none, or for no path."""
    if not path:
        return ()
    try:
        found = Path(path).stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


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


def read_file(file: str, flag: str = "--config.file") -> object:
    """Return the document in a YAML file, `None` for no file.

    Raises:
        ConfigError: it cannot be read, or is no YAML; the message names `flag`.
    """
    if not file:
        return None
    try:
        return read_yaml(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{flag} {json.dumps(file)}: cannot be read: {error.strerror}"
        raise ConfigError(msg) from error
    except UnicodeDecodeError as error:
        msg = f"{flag} {json.dumps(file)}: not YAML: not UTF-8"
        raise ConfigError(msg) from error
    except ValueError as error:
        msg = f"{flag} {json.dumps(file)}: not YAML: {error}"
        raise ConfigError(msg) from error
