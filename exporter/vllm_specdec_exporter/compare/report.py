"""The report of a comparison as text for a terminal: the verdicts first. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..wording import wrap
from .rows import LATENCIES, describe, legend, tables, time
from .verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .comparison import Comparison, Pair
    from .rows import Row
    from .statistics import Interval

_NONE = "–"
_COLOURS = {Outcome.FASTER: "32", Outcome.SLOWER: "31", Outcome.NO_DIFFERENCE: "33", Outcome.UNKNOWN: "33"}
_WARNING = "33"


def render(comparison: Comparison, *, colour: bool = False) -> str:
    """Return the report on `comparison`.

    Args:
        comparison: what to report.
        colour: whether to emphasise with terminal colours; the words say everything without them.
    """

    def paint(text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if colour else text

    lines: list[str] = []
    for pair in comparison.pairs:
        lines += [paint(line, _COLOURS[pair.speed.outcome]) for line in wrap(pair.speed.text, "", 2)]
        for detail in details(pair):
            lines += wrap(detail, "    ", 6)
    if comparison.warnings or comparison.notes:
        lines.append("")
    for warning in comparison.warnings:
        lines += [paint(line, _WARNING) for line in wrap(f"warning: {warning}", "", 2)]
    for note in comparison.notes:
        lines += wrap(f"note: {note}", "", 2)
    lines.append("")
    width = max(len(side.name) for side in comparison.sides)
    for side in comparison.sides:
        lines += wrap(f"{side.source}: {describe(side)}", f"  {side.name:<{width}}  ", width + 4)
    lines += _table(comparison)
    lines.append("")
    for words in legend(comparison):
        lines += wrap(words, "  ", 4)
    return "\n".join(line.rstrip() for line in lines)


def details(pair: Pair) -> Iterator[str]:
    """Yield what else there is to say of a pair, a line each."""
    if pair.gain is not None:
        yield pair.gain.text
    if pair.claim is not None:
        yield pair.claim.text
    for latency in pair.latencies if pair.load.same is not False else ():
        if latency.name == "end_to_end" and latency.difference_seconds.low is not None:
            yield f"{LATENCIES[latency.name]}: {_difference(latency.difference_seconds)}"
    length, ratio = pair.acceptance_length_difference, pair.acceptance_ratio_difference
    if length is not None and length.low is not None:
        told = f"mean acceptance length {length.value:+.2f} ({length.low:+.2f} to {length.high:+.2f})"
        if ratio is not None and ratio.low is not None and ratio.high is not None:
            told += (
                f", acceptance ratio {100 * ratio.value:+.1f} points "
                f"({100 * ratio.low:+.1f} to {100 * ratio.high:+.1f})"
            )
        yield f"{told}{_unsure(length)}"


def _difference(interval: Interval) -> str:
    low, high = interval.low or 0.0, interval.high or 0.0
    if low <= 0 <= high:
        return f"no difference that the sample supports ({_signed(low)} to {_signed(high)} a request)"
    word = "more" if interval.value > 0 else "less"
    ends = sorted((abs(low), abs(high)))
    return f"{time(abs(interval.value))} {word} a request ({time(ends[0])} to {time(ends[1])})"


def _unsure(interval: Interval) -> str:
    return (
        ": no difference that the sample supports" if (interval.low or 0) <= 0 <= (interval.high or 0) else ""
    )


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{time(abs(seconds))}"


def _table(comparison: Comparison) -> Iterator[str]:
    parts = tables(comparison)
    rows = [row for part in parts.values() for row in part]
    names = [side.name for side in comparison.sides]
    first = max((len(_name(row)) for row in rows), default=0)
    widths = [
        max([len(name), *(len(row.cells[place] or _NONE) for row in rows)])
        for place, name in enumerate(names)
    ]
    heads = "  ".join(f"{name:<{width}}" for name, width in zip(names, widths, strict=True))
    yield ""
    yield f"  {'':<{first}}  {heads}"
    for number, part in enumerate(parts.values()):
        if number:
            yield ""
        for row in part:
            cells = "  ".join(
                f"{cell or _NONE:<{width}}" for cell, width in zip(row.cells, widths, strict=True)
            )
            yield f"  {_name(row):<{first}}  {cells}"


def _name(row: Row) -> str:
    return f"  {row.name}" if row.of else row.name
