"""Prometheus exposition text: pick the sample lines of interest and read only those.

A vLLM answer is 55 KB to 390 KB long and holds under a hundred lines that matter here, so nothing else is
looked at. Both formats, the classic text and OpenMetrics, write a sample the same way::

    name{label="value",...} value [timestamp] [# exemplar]

and samples are found by *name*: families and types are not consulted, because one server prints a counter
as ``x_total`` of type counter, another as ``x_total`` in a family ``x``, and a third spells the family
``vllm:x`` and the sample ``vllm_x``.

Pure: bytes in, `SampleLine` objects out. What cannot be read raises `MalformedExposition`, and is never
skipped.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\.)*)"\s*(?:,|$)')
# Possessive: a run of characters is one step, and a line that does not match is given up at once.
_REST = re.compile(
    rb'(?:[ \t]*(\{(?:[^"}\n]++|"(?:[^"\\\n]++|\\.)*+")*+\})[ \t]*|[ \t]+)([^ \t\r]++)(?:[ \t].*)?\r?'
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"\\": "\\", '"': '"', "n": "\n"}
_SPACE = re.compile(r"\s*")

#: More is not believed, nor worth the time: 64 engines with K=16 make 2,000 lines of 200 bytes.
MAX_LINES = 20_000
MAX_LINE = 16 * 1024

_SHOWN = 120  # how much of an offending line an error quotes


class MalformedExposition(ValueError):  # noqa: N818 - it names the fault, as the metric's reason does
    """The text breaks the exposition format, or a value in it is not what its type allows."""


class SampleLine(NamedTuple):
    """One sample line: the sample's name, its labels as `parse_labels` gives them, and its value."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Selection:
    """The sample names that somebody wants, compiled for one pass over a body."""

    def __init__(self, names: Iterable[str]) -> None:
        alternatives = _prefix_tree([name.encode() for name in sorted(names)])
        self._pattern = re.compile(rb"\n[ \t]*+(" + alternatives + rb")(?=[ \t{\r\n]|\Z)([^\n]*)")

    def lines(self, body: bytes) -> Iterator[SampleLine]:
        """Yield the wanted samples of `body` in their order.

        Raises:
            MalformedExposition: a wanted line cannot be read, or the text ends within a line.
        """
        if body and not body.endswith((b"\n", b"\n# EOF")):  # OpenMetrics may end without a line feed
            last = body[-_SHOWN:].rpartition(b"\n")[2]
            msg = f"the text ends within a line: {_quote(last)}"
            raise MalformedExposition(msg)
        for number, match in enumerate(self._pattern.finditer(b"\n" + body)):
            name, rest = match.groups()
            if number >= MAX_LINES or len(rest) > MAX_LINE:
                msg = f"more than {MAX_LINES} lines of interest, or one of more than {MAX_LINE} bytes"
                raise MalformedExposition(msg)
            parts = _REST.fullmatch(rest)
            if parts is None:
                msg = f"not a sample line: {_quote(name + rest)}"
                raise MalformedExposition(msg)
            block, value = parts.groups()
            yield SampleLine(
                name.decode(),
                parse_labels(block[1:-1]) if block else (),
                _parse_value(value, name + rest),
            )


def _prefix_tree(words: list[bytes]) -> bytes:
    """Return a pattern for the sorted `words` that reads a common prefix once.

    Most lines share `vllm:` with the wanted ones; trying every name on each would cost five times as much.
    """
    branches = []
    for first, group in groupby(words, key=lambda word: word[:1]):
        tails = [word[1:] for word in group]
        branches.append(re.escape(first) + (_prefix_tree(tails) if any(tails) else b""))
    return branches[0] if len(branches) == 1 else b"(?:" + b"|".join(reversed(branches)) + b")"


@lru_cache(maxsize=1024)
def parse_labels(block: bytes) -> tuple[tuple[str, str], ...]:
    r"""Return the label pairs of the text between ``{`` and ``}``, sorted by name.

    Escapes (``\\``, ``\"``, ``\n``) are resolved. The same few blocks recur on every poll, hence the
    bounded cache.

    Raises:
        MalformedExposition: not UTF-8, not ``name="value"`` pairs, or a name that occurs twice.
    """
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        msg = f"labels are not UTF-8: {_quote(block)}"
        raise MalformedExposition(msg) from error
    pairs: dict[str, str] = {}
    position, end = 0, len(text)
    while (position := _SPACE.match(text, position).end()) < end:  # type: ignore[union-attr]
        match = _LABEL.match(text, position)
        if match is None or match[1] in pairs:
            msg = f"not a list of labels: {_quote(block)}"
            raise MalformedExposition(msg)
        pairs[match[1]] = _unescape(match[2])
        position = match.end()
    return tuple(sorted(pairs.items()))


def _unescape(value: str) -> str:
    if "\\" not in value:
        return value
    # An unknown escape is kept as written, as Prometheus itself does in label values.
    return _ESCAPE.sub(lambda m: _ESCAPES.get(m[1], m[0]), value)


def _parse_value(value: bytes, line: bytes) -> float:
    # float() also takes digit separators, which the format does not know.
    if b"_" not in value:
        try:
            return float(value)
        except ValueError:
            pass
    msg = f"not a number: {_quote(value)} in {_quote(line)}"
    raise MalformedExposition(msg)


def _quote(raw: bytes) -> str:
    text = raw.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
