"""Terminal text: emphasis, paragraphs, tables, and the formats of numbers. Pure."""

import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from ..judgement.findings import Finding, Severity

#: Returns a text, emphasised in a style.
Paint = Callable[[str, str], str]
#: Terminal colours and emphasis: parameters of the escape sequence.
BOLD = "1"
RED = "31"
YELLOW = "33"
GREEN = "32"
DASH = "–"
#: Columns of a terminal report. Narrower terminals wrap it themselves.
WIDTH = 100
#: An option with JSON, which is pasted in one piece.
_PASTE = re.compile(r"--[\w-]+ '\{.*\}'")
#: Width of a column that is shortened: less would say nothing.
_MIN_COLUMN = 8
_GLUE = "\0"  # replaces spaces at which a line must not be broken


def painter(*, colour: bool) -> Paint:
    """Return a function that emphasises text; without `colour` it does nothing."""

    def paint(text: str, style: str) -> str:
        if colour:
            return f"\x1b[{style}m{text}\x1b[0m"
        return text

    return paint


def printable(text: str) -> str:
    """Return text with unprintable characters replaced: they could control a terminal
    or break a line.
    """
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


#: Control characters that JSON may have, also those that change lines or the direction
#: of a text.
_CONTROL = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escape_controls(json_text: str) -> str:
    """Return JSON with escaped control characters, for terminals; its readers get the
    same texts.
    """
    # Nearly always, and much faster than the search.
    if json_text.isascii() and "\x7f" not in json_text:
        return json_text
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", json_text)


def wrap(text: str, indent: str, hang: int) -> list[str]:
    """Return text as lines of a terminal: the first indented by `indent`, the others by
    `hang` blanks.
    """
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def paragraph(text: str, hang: int, indent: str = "") -> list[str]:
    """Return text from outside as lines of a terminal, as `wrap` does. A flag to paste
    stays in one line.

    Unprintable characters are replaced. `hang` blanks come before all lines but the
    first, which has `indent`.
    """
    glued = _PASTE.sub(lambda match: match[0].replace(" ", _GLUE), printable(text))
    return [
        line.replace(_GLUE, " ") for line in wrap(glued, indent or " " * hang, hang)
    ]


def emphasised(lines: list[str], text: str, paint: Paint, style: str) -> list[str]:
    """Return lines with `text` emphasised in the first."""
    return [lines[0].replace(text, paint(text, style), 1), *lines[1:]]


def finding_lines(
    finding: Finding, indent: str, hang: int, paint: Paint
) -> Iterator[str]:
    """Yield a finding, its first line emphasised, and its remedy."""
    style = RED if finding.severity is Severity.PROBLEM else YELLOW
    first, *others = paragraph(finding.text, hang, indent)
    yield paint(first, style)
    yield from others
    yield from paragraph(finding.action, hang)


def shown(value: float | None, form: str) -> str:
    """Return a formatted value, or a dash without one."""
    if value is None:
        return DASH
    return form.format(value)


def percent(ratio: float | None) -> str:
    """Return a ratio as ``48.3%``, or a dash."""
    return shown(ratio, "{:.1%}")


def whole_percent(ratio: float | None) -> str:
    """Return a ratio as ``48%``, or a dash."""
    return shown(ratio, "{:.0%}")


def length(tokens: float | None) -> str:
    """Return a number of tokens per draft as ``2.94``, or a dash."""
    return shown(tokens, "{:.2f}")


def factor(ratio: float | None) -> str:
    """Return a ratio of speeds or times as ``1.96x``, or a dash."""
    return shown(ratio, "{:.2f}x")


def digits(value: float) -> str:
    """Return a number with three digits, or all before the decimal point."""
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Collection[str] = (),
    *,
    shorten: str = "",
    indent: str = "    ",
) -> Iterator[str]:
    """Yield a table.

    Columns are right-aligned, but for `left`; `shorten` is cut to fit into the line.
    """
    lines = [list(heads)]
    lines += [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if shorten:
        column = heads.index(shorten)
        excess = len(indent) + sum(widths) + 2 * (len(widths) - 1) - WIDTH
        width = max(_MIN_COLUMN, widths[column] - excess)
        widths[column] = min(widths[column], width)
        for line in lines:
            line[column] = _cut(line[column], widths[column])
    for line in lines:
        cells = []
        for head, cell, width in zip(heads, line, widths, strict=True):
            align = cell.ljust if head in left else cell.rjust
            cells.append(align(width))
        yield f"{indent}{'  '.join(cells)}".rstrip()


def _cut(text: str, width: int) -> str:
    """Return a text without its middle if it is too long: names often differ at their
    ends.
    """
    if len(text) <= width:
        return text
    end = width // 2
    return f"{text[: width - 1 - end]}…{text[-end:]}"
