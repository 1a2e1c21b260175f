"""Answers of one server, of which each has the lines of the one before with other
values.

`Selection.lines` looks at each line of a text for the names that count. That is most of
the time of reading: 130 µs of 170 for 55 KB, at every poll, for the same 23 lines of
640. So this module remembers those lines up to their values, and looks for them alone.
It returns what `Selection.lines` returns, or leaves the text to it.

That no other line counts is known without reading them: a text without its digits and
points, its *skeleton*, is that of the earlier one. In the skeleton of each text with
selected lines, these lines have selected names without digits and points, and the
characters that end a name are there. If the earlier skeleton has no more such lines
than were selected, there are no more in any text with the same skeleton. Skeletons are
compared by their hash, which has a secret key of the process.
"""

from __future__ import annotations

from msgspec import Struct

from .text import (
    MAX_LINE,
    LongLabels,
    SampleLine,
    Selection,
    check_end,
)

#: What values consist of, mostly. An exponent comes and goes rarely, and then a text is
#: read as a new one.
_VARYING = b"0123456789."
#: Bytes of the lines without their values that are remembered of a server: 100 lines of
#: a label block that is long. Larger answers are read slowly.
_MAX_REMEMBERED = 32 * 1024
#: Most bytes of a value: longer ones are no numbers that a server prints.
_MAX_VALUE = 64
#: Remembering takes as long as reading. So after each failure in a row it is tried less
#: often, at last with every 64th text.
_MOST_FAILURES = 6


class _Remembered(Struct, frozen=True):
    """The selected lines of a text up to their values."""

    selection: Selection
    skeleton: int  # its hash
    starts: tuple[bytes, ...]  # from the line feed before a line to its value
    lines: tuple[SampleLine, ...]
    #: Where the lines began in the last text. Mostly they are there again, or all as
    #: far behind as the line before.
    places: list[int]


class RecurringText:
    """Reads one text of a server after the other.

    Attributes:
        recurs: whether the last text had the lines of the one before it, but for their
            values.
    """

    def __init__(self) -> None:
        self.recurs = False
        self._remembered: _Remembered | None = None
        #: How often in a row a text had other lines, or ones that are not remembered.
        self._failures = 0
        self._left_out = 0  # texts that are still to be left out

    def read(self, selection: Selection, body: bytes) -> tuple[SampleLine, ...]:
        """Return the selected lines of the next text, or raise MalformedExposition."""
        check_end(body)
        known = self._remembered
        self._remembered = None
        self.recurs = False
        if self._left_out:
            self._left_out -= 1
            return tuple(selection.lines(body))
        text = b"\n" + body
        skeleton = text.translate(None, _VARYING)
        if known and known.selection is selection and known.skeleton == hash(skeleton):
            recurring = _with_values(known, text)
            if recurring is not None:
                self._remembered = known
                self.recurs = True
                self._failures = 0
                return recurring
        lines = tuple(selection.lines(body))
        if known is None:
            self._remembered = _remember(selection, body, skeleton, lines)
        if self._remembered is None:
            self._left_out = 2**self._failures - 1
            self._failures = min(self._failures + 1, _MOST_FAILURES)
        return lines


def _with_values(known: _Remembered, text: bytes) -> tuple[SampleLine, ...] | None:
    """Return the remembered lines with the values in a text of the same skeleton;
    ``None`` if it has other lines, or a value that is not plain.
    """
    lines = []
    position = 0
    moved = 0
    for number, (start, line) in enumerate(zip(known.starts, known.lines, strict=True)):
        found = known.places[number] + moved
        if found < position or not text.startswith(start, found):
            found = text.find(start, position)
            if found < 0:
                return None
            moved = found - known.places[number]
        known.places[number] = found
        begin = found + len(start)
        position = text.find(b"\n", begin, begin + _MAX_VALUE)
        if position < 0:
            return None
        value = text[begin:position]
        # `float` accepts both, the format does not, or has a timestamp behind.
        if b"_" in value or value.strip() != value:
            return None
        try:
            lines.append(SampleLine(line.name, line.labels, float(value)))
        except ValueError:
            return None
    return tuple(lines)


def _remember(
    selection: Selection, body: bytes, skeleton: bytes, lines: tuple[SampleLine, ...]
) -> _Remembered | None:
    """Return what is remembered of a text with these lines; ``None`` if they are too
    long, or not the only ones that its skeleton can have.
    """
    if any(isinstance(line.labels, LongLabels) for line in lines):
        return None
    starts = tuple(selection.starts(body))
    longest = max(map(len, starts), default=MAX_LINE)
    if longest + _MAX_VALUE > MAX_LINE or sum(map(len, starts)) > _MAX_REMEMBERED:
        return None
    if len(selection.without(_VARYING).findall(skeleton)) != len(starts):
        return None
    return _Remembered(
        selection=selection,
        skeleton=hash(skeleton),
        starts=starts,
        lines=lines,
        places=[0] * len(starts),
    )
