"""The report of a comparison as text for a terminal: the verdicts first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...economics.statistics import Interval, SampleMean
from ...publish import plots
from ...publish.markup import Html, Section, element, figure, page, side_by_side
from ...publish.wording import DASH, GREEN, RED, YELLOW, painter, table, wrap
from .comparison import Comparison
from .rows import LATENCIES, describe, legend, tables, time
from .side import Side
from .verdict import SpeedComparison

_COLOURS = {SpeedComparison.FASTER: GREEN, SpeedComparison.SLOWER: RED}


def render(comparison: Comparison, *, colour: bool = False) -> str:
    """Return the report on `comparison`; the text is complete without colours."""
    paint = painter(colour=colour)
    lines: list[str] = []
    verdict = _COLOURS.get(comparison.speed.outcome, YELLOW)
    lines += [paint(line, verdict) for line in wrap(comparison.speed.text, "", 2)]
    for detail in details(comparison):
        lines += wrap(detail, "    ", 6)
    if comparison.warnings or comparison.notes:
        lines.append("")
    for warning in comparison.warnings:
        lines += [paint(line, YELLOW) for line in wrap(f"warning: {warning}", "", 2)]
    for remark in comparison.notes:
        lines += wrap(f"note: {remark}", "", 2)
    lines.append("")
    width = max(len(side.name) for side in comparison.sides)
    for side in comparison.sides:
        lines += wrap(f"{side.source}: {describe(side)}", f"  {side.name:<{width}}  ", width + 4)
    lines += _table(comparison)
    lines.append("")
    for words in legend(comparison):
        lines += wrap(words, "  ", 4)
    return "\n".join(line.rstrip() for line in lines)


def details(comparison: Comparison) -> Iterator[str]:
    """Yield further lines on the verdict."""
    if comparison.gain is not None:
        yield comparison.gain.text
    if comparison.claim is not None:
        yield comparison.claim.text
    whole = comparison.end_to_end_difference_seconds
    if whole is not None and whole.low is not None and comparison.load.same is not False:
        yield f"end to end: {_difference(whole)}"
    length, ratio = comparison.acceptance_length_difference, comparison.acceptance_ratio_difference
    if length is not None and length.low is not None:
        words = f"mean acceptance length {length.value:+.2f} ({length.low:+.2f} to {length.high:+.2f})"
        if ratio is not None and ratio.low is not None and ratio.high is not None:
            words += (
                f", acceptance ratio {100 * ratio.value:+.1f} points "
                f"({100 * ratio.low:+.1f} to {100 * ratio.high:+.1f})"
            )
        unsure = length.low <= 0 <= (length.high or 0)
        yield f"{words}{': no difference that the sample supports' if unsure else ''}"


def _difference(interval: Interval) -> str:
    low, high = interval.low or 0.0, interval.high or 0.0
    if low <= 0 <= high:
        return f"no difference that the sample supports ({_signed(low)} to {_signed(high)} a request)"
    word = "more" if interval.value > 0 else "less"
    ends = sorted((abs(low), abs(high)))
    return f"{time(abs(interval.value))} {word} a request ({time(ends[0])} to {time(ends[1])})"


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{time(abs(seconds))}"


def _table(comparison: Comparison) -> Iterator[str]:
    parts = tables(comparison)
    heads = ("", *(side.name for side in comparison.sides))
    rows = ((name, *(cell or DASH for cell in cells)) for part in parts for name, cells in part)
    head, *lines = table(heads, rows, left=heads, indent="  ")
    yield from ("", head)
    for number, part in enumerate(parts):
        if number:
            yield ""
        for _ in part:
            yield lines.pop(0)


def render_page(comparison: Comparison) -> str:
    """Return the report with plots as one self-contained HTML document; ConfigError without matplotlib."""
    drawn = tuple(_plots(comparison))
    sections = [Section("At a glance", (side_by_side(*drawn),))] if drawn else []
    sections.append(Section("Report", (element("pre", render(comparison)),)))
    return page(
        f"Comparison: {comparison.side.name} against {comparison.reference.name}",
        sections,
        subtitle=f"vllm-specdec-exporter {comparison.version}",
        lead=[f"{comparison.speed.text}."],
    )


def _plots(comparison: Comparison) -> Iterator[Html]:
    sides, reference = comparison.sides, comparison.reference.name
    speed = {comparison.side.name: comparison.speed.speedup}
    yield from _bars("Speed per output token", speed, f"times as fast as {reference}", line=1.0)
    for name, words in LATENCIES.items():
        means = {side.name: _milliseconds(side.mean(name)) for side in sides}
        yield from _bars(f"{words[:1].upper()}{words[1:]}, mean", means, "ms", form="{:,.3g}")
    lengths = {side.name: side.mean_acceptance_length for side in sides}
    yield from _bars("Mean acceptance length", lengths, "tokens per draft")
    yield from _positions(sides)


def _positions(sides: tuple[Side, ...]) -> Iterator[Html]:
    series = [
        plots.Series(side.name, tuple(plots.Point(float(i), ratio) for i, ratio in enumerate(ratios)))
        for side in sides
        if (ratios := side.measures.position_acceptance_ratio)
    ]
    if not series:
        return
    title = "Acceptance by position"
    drawn = plots.lines(
        title,
        series,
        x_label="position in the draft",
        y_label="share of drafts",
        description="; ".join(f"{s.name}: " + ", ".join(f"{p.y:.2f}" for p in s.points) for s in series),
        y_range=(0.0, 1.0),
    )
    yield figure(drawn, title)


def _bars(
    title: str,
    values: Mapping[str, Interval | None],
    unit: str,
    form: str = "{:.2f}",
    line: float | None = None,
) -> Iterator[Html]:
    """Yield a plot, unless no side has a value."""
    if not any(values.values()):
        return
    bars = [
        plots.Bar(name, None) if value is None else plots.Bar(name, value.value, value.low, value.high)
        for name, value in values.items()
    ]
    words = "; ".join(f"{bar.name} {'none' if bar.value is None else form.format(bar.value)}" for bar in bars)
    drawn = plots.bars_with_intervals(title, bars, x_label=unit, description=words, form=form, reference=line)
    yield figure(drawn, title)


def _milliseconds(mean: SampleMean | None) -> Interval | None:
    if mean is None:
        return None
    return SampleMean(1000 * mean.mean, mean.error and 1000 * mean.error, mean.freedom).interval
