"""Files: atomic writing, detection of changes, and reading of YAML."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Any

import yaml

from .options import ConfigError


def write(path: Path, body: bytes, mode: int = 0o644) -> None:
    """Write a file atomically: a reader sees the old content or the new one, never a part.

    Raises:
        OSError: it cannot be written; an existing file is unchanged.
    """
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(body)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def try_to_write(path: Path) -> None:
    """Test whether `write` can write this file, without changing it.

    Raises:
        OSError: it cannot.
    """
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(number)
    Path(temporary).unlink()


def stamp(path: str) -> tuple[int, ...]:
    """Return a value that changes when the file is written or replaced; empty for no file or no path."""
    if not path:
        return ()
    try:
        found = Path(path).stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


#: Limit of a file, in bytes.
MAX_BYTES = 4 << 20


def read_regular(path: str) -> tuple[bytes | None, str]:
    """Return the content of a regular file, or `None` and the error. Devices and pipes could block."""
    try:
        with open(path, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None, "not a regular file"
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        return None, f"cannot be read: {getattr(error, 'strerror', None) or error}"
    if len(content) > MAX_BYTES:
        return None, f"larger than {MAX_BYTES >> 20} MiB"
    return content, ""


def _open(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a pipe waits for its writer.
    return os.open(path, flags | os.O_NONBLOCK)


#: Maximum number of nodes and characters of a document, with every alias expanded.
MAX_SIZE = 1_000_000

#: A larger integer cannot be converted to a float.
_MAX_BITS = 1000

#: Surrogates, as in ``"\ud83d\ude00"``; a single one cannot be encoded.
_SURROGATES = re.compile("[\\ud800-\\udfff]")

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


class YAMLFileError(ValueError):
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
            found = super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
            raise yaml.constructor.ConstructorError(
                problem="found a value that is invalid for its type", problem_mark=node.start_mark
            ) from error
        if isinstance(found, int) and found.bit_length() > _MAX_BITS:
            raise yaml.constructor.ConstructorError(
                problem="found a number with too many digits", problem_mark=node.start_mark
            )
        return found


def read_yaml(text: str | bytes) -> Any:
    """Return the document of a YAML text, `None` for an empty one.

    Raises:
        YAMLFileError: not YAML, or larger than `MAX_SIZE`.
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
        raise YAMLFileError(reason(error)) from None  # the cause quotes the text, which may be secret


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
    """Return the size of a node with aliases expanded.

    Raises:
        yaml.YAMLError: larger than `MAX_SIZE`, or recursive.
    """
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


def read_file(file: str, flag: str = "--config.file") -> object:
    """Return the document in a YAML file, `None` for an empty path.

    Raises:
        ConfigError: it cannot be read, or is not YAML; the message names `flag`.
    """
    if not file:
        return None
    cause: Exception | None = None
    content, problem = read_regular(file)
    if content is not None:
        try:
            return read_yaml(content.decode())
        except UnicodeDecodeError as error:
            cause, problem = error, "not YAML: not UTF-8"
        except YAMLFileError as error:
            cause, problem = error, f"not YAML: {error}"
    raise ConfigError(f"{flag} {json.dumps(file)}: {problem}") from cause
