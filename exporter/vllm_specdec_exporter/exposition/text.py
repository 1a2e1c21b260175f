"""Parser of Prometheus text and OpenMetrics that reads only the samples with given
names.

A vLLM response has 55 KB to 390 KB, and fewer than a hundred lines in it matter. Both
formats write a sample as::

    name{label="value",...} value [timestamp] [# exemplar]

Samples are selected by *name*. HELP and TYPE lines are ignored, because servers differ
in them: one prints a counter as ``x_total`` of type counter, another as ``x_total`` in
a family ``x``, a third the sample ``vllm_x`` in a family ``vllm:x``.

A selected line that cannot be parsed raises `MalformedExposition`; none is skipped.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from itertools import groupby
from typing import NamedTuple

_LABEL = re.compile(
    r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\.)*)"\s*(?:,|$)'
)
#: Label block and value of a sample line. Possessive quantifiers: no backtracking on
#: other lines.
_REST = (
    rb'(?:[ \t]*(\{(?:[^"}\n]++|"(?:[^"\\\n]++|\\.)*+")*+\})[ \t]*|[ \t]+)([^ '
    rb"\t\r\n]++)(?:[ \t].*+|\r)?(?!.)"
)
_END_OF_NAME = rb"(?=[ \t{\r\n]|\Z)"
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"\\": "\\", '"': '"', "n": "\n"}
_SPACE = re.compile(r"\s*")
#: Limits of the selected lines; 64 engines with K=16 have 2,000 lines of 200 bytes.
MAX_LINES = 20_000
MAX_LINE = 16 * 1024  # bytes, of a label block mostly
MAX_TEXT = 5 * 1024 * 1024  # bytes of all of them: so many lines have 250 each
#: Labels of a line and of all lines. Each becomes three objects, 30 times the bytes of
#: a label without a value; the most that a server prints is ten.
MAX_LABELS = 64
MAX_ALL_LABELS = 5 * MAX_LINES
#: Bytes of a label block that is remembered, and how many are: 0.5 MiB of text.
_REMEMBERED_BLOCK = 512
_REMEMBERED_BLOCKS = 1024
#: Bytes that are searched at a time. The regular expression keeps the interpreter, so
#: that no other thread runs: 5 ms for this much, 0.3 s for a whole response.
_PIECE = 256 * 1024

#: Characters of a malformed line in an error, which is one line itself.
_MAX_QUOTED = 120


#: Named like its value of the label `reason`, not with the suffix Error.
class MalformedExposition(ValueError):  # noqa: N818
    """The text violates the exposition format, or a value is invalid for its type."""


Labels = tuple[tuple[str, str], ...]  # pairs of name and value, sorted by name


class LongLabels(tuple[tuple[str, str], ...]):
    """Labels of so long a text that nothing made of them may be remembered."""

    __slots__ = ()


class SampleLine(NamedTuple):
    """One sample: its name, its labels as returned by `parse_labels`, and its value."""

    name: str
    labels: Labels
    value: float


class Selection:
    """A set of sample names, compiled for one pass over a body."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {name.encode(): name for name in names}
        self._without: dict[bytes, re.Pattern[bytes]] = {}

    @cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        # Compiled at the first use: a start takes an eighth less without, and most
        # processes never use the one with latencies.
        return re.compile(
            rb"\n[ \t]*+("
            + _prefix_tree(sorted(self._names))
            + rb")"
            + _END_OF_NAME
            + rb"(?:"
            + _REST
            + rb"|(.*))"
        )

    def lines(self, body: bytes) -> Iterator[SampleLine]:
        """Yield the selected samples of `body` in their order, or raise
        MalformedExposition.
        """
        check_end(body)
        text_bytes = 0
        label_count = 0
        for number, match in enumerate(self._matches(body)):
            name, block, value, malformed = match.groups()
            line_bytes = match.end() - match.start()
            text_bytes += line_bytes
            if number >= MAX_LINES or line_bytes > MAX_LINE or text_bytes > MAX_TEXT:
                raise MalformedExposition(
                    f"more than {MAX_LINES} selected lines or {MAX_TEXT} bytes of "
                    f"them, or one of more than {MAX_LINE} bytes"
                )
            if malformed is not None:
                raise MalformedExposition(
                    f"not a sample line: {_quote(name + malformed)}"
                )
            labels = parse_labels(block[1:-1]) if block else ()
            label_count += len(labels)
            if label_count > MAX_ALL_LABELS:
                raise MalformedExposition(
                    f"more than {MAX_ALL_LABELS} labels in the selected lines"
                )
            yield SampleLine(self._names[name], labels, _parse_value(value, match))

    def starts(self, body: bytes) -> list[bytes]:
        """Return the selected lines of `body`, each from the line feed before it up to
        where its value begins; none if there are malformed ones.
        """
        starts = []
        for match in self._matches(body):
            if match[4] is not None:
                return []
            starts.append(match[0][: match.start(3) - match.start()])
        return starts

    def without(self, characters: bytes) -> re.Pattern[bytes]:
        """Return a pattern that finds each selected line in a text without these
        characters, and perhaps others.
        """
        # Kept, because compiling takes as long as fifty polls.
        pattern = self._without.get(characters)
        if pattern is None:
            pattern = self._make_without(characters)
            self._without[characters] = pattern
        return pattern

    def _make_without(self, characters: bytes) -> re.Pattern[bytes]:
        names = {name.translate(None, characters) for name in self._names}
        if names == self._names.keys():
            # It finds them too, and compiling another takes a tenth of a start.
            return self._pattern
        tree = _prefix_tree(sorted(names))
        return re.compile(rb"\n[ \t]*+" + tree + _END_OF_NAME)

    def _matches(self, body: bytes) -> Iterator[re.Match[bytes]]:
        for piece in pieces(body):
            yield from self._pattern.finditer(piece)


def check_end(body: bytes) -> None:
    """Raise MalformedExposition if a text ends within a line."""
    # OpenMetrics may end without a line feed
    if body and not body.endswith((b"\n", b"\n# EOF")):
        last = body[-_MAX_QUOTED:].rpartition(b"\n")[2]
        raise MalformedExposition(f"the text ends within a line: {_quote(last)}")


def pieces(body: bytes) -> Iterator[bytes]:
    """Yield the lines of `body` in pieces that begin with a line feed.

    Of a line longer than a piece only the beginning is in it, which is too long for a
    selected line.
    """
    start = 0
    lead = b"\n"
    while len(body) - start > _PIECE:
        end = body.rfind(b"\n", start + 1, start + _PIECE)
        next_start = end
        if end < 0:
            next_start = body.find(b"\n", start + _PIECE)
            if next_start < 0:
                next_start = len(body)
            end = min(next_start, start + 2 * MAX_LINE)
        yield lead + body[start:end]
        start = next_start
        lead = b""
    yield lead + body[start:]


def _prefix_tree(words: list[bytes]) -> bytes:
    """Return a pattern of the sorted `words` that matches a common prefix once.

    Most lines begin with `vllm:`; a plain alternation of the names takes five times as
    long.
    """
    branches: list[bytes] = []
    for first, group in groupby(words, key=lambda word: word[:1]):
        tails = [word[1:] for word in group]
        branches.append(re.escape(first) + (_prefix_tree(tails) if any(tails) else b""))
    if len(branches) == 1:
        return branches[0]
    return b"(?:" + b"|".join(reversed(branches)) + b")"


def parse_labels(block: bytes) -> Labels:
    """Return the label pairs of the text between ``{`` and ``}``, sorted by name, with
    escapes resolved.

    Short blocks are remembered, because every poll returns the same ones. Raises
    MalformedExposition for anything else, and for more than `MAX_LABELS` labels.
    """
    if len(block) <= _REMEMBERED_BLOCK:
        return _remembered_labels(block)
    return LongLabels(_read_labels(block))


def _read_labels(block: bytes) -> Labels:
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedExposition(f"labels are not UTF-8: {_quote(block)}") from error
    pairs: dict[str, str] = {}
    position = 0
    end = len(text)
    while (position := _SPACE.match(text, position).end()) < end:  # type: ignore[union-attr]
        match = _LABEL.match(text, position)
        if match is None or match[1] in pairs:
            raise MalformedExposition(f"not a list of labels: {_quote(block)}")
        if len(pairs) == MAX_LABELS:
            raise MalformedExposition(
                f"more than {MAX_LABELS} labels in a line: {_quote(block)}"
            )
        # Unknown escapes stay as they are, as in Prometheus.
        pairs[match[1]] = _ESCAPE.sub(lambda m: _ESCAPES.get(m[1], m[0]), match[2])
        position = match.end()
    return tuple(sorted(pairs.items()))


_remembered_labels = lru_cache(maxsize=_REMEMBERED_BLOCKS)(_read_labels)


def _parse_value(value: bytes, line: re.Match[bytes]) -> float:
    # float() also accepts digit separators, which the format does not have.
    if b"_" not in value:
        try:
            return float(value)
        except ValueError:
            pass
    raise MalformedExposition(
        f"not a number: {_quote(value)} in {_quote(line[0].strip())}"
    )


def _quote(raw: bytes) -> str:
    text = raw.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + "…")
