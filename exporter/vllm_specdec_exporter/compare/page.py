"""The report of a comparison as one HTML document, with plots. Pure but for matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import plots
from ..htmlreport import Section, bullets, data_table, figure, note, page
from ..htmlreport import plots as side_by_side
from .report import details
from .rows import LATENCIES, describe, legend, tables
from .side import PER_TOKEN
from .statistics import Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..markup import Html
    from .comparison import Comparison
    from .side import Side


def render_page(comparison: Comparison) -> str:
    """Return the report on `comparison` as one HTML document that needs nothing else.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    sections = []
    said = [f"{pair.side}: {detail}" for pair in comparison.pairs for detail in details(pair)]
    if said:
        sections.append(Section("What it means", (bullets(said),)))
    if comparison.warnings:
        sections.append(Section("What speaks against comparing", (bullets(comparison.warnings),)))
    sections.append(
        Section(
            "Sides",
            (
                data_table(
                    ("Side", "Source", "What it is"),
                    ((side.name, side.source, describe(side)) for side in comparison.sides),
                    label="Sides",
                    numbers=False,
                ),
            ),
        )
    )
    drawn = tuple(_plots(comparison))
    if drawn:
        sections.append(Section("At a glance", (side_by_side(*drawn),)))
    for title, rows in tables(comparison).items():
        table = data_table(
            ("", *(side.name for side in comparison.sides)),
            ((row.whole_name, *row.cells) for row in rows),
            label=title,
        )
        sections.append(Section(title, (table,)))
    sections.append(
        Section("Notes", tuple(note(words) for words in (*comparison.notes, *legend(comparison))))
    )
    return page(
        f"Comparison: {' against '.join(side.name for side in reversed(comparison.sides))}"
        if len(comparison.sides) == 2
        else f"Comparison: {', '.join(side.name for side in comparison.sides)}",
        sections,
        subtitle=f"vllm-specdec-exporter {comparison.version}",
        lead=[f"{pair.speed.text}." for pair in comparison.pairs],
    )


def _plots(comparison: Comparison) -> Iterator[Html]:
    sides = comparison.sides
    reference = sides[0].name
    speeds = [(pair.side, pair.speed.speedup) for pair in comparison.pairs]
    if any(speed for _, speed in speeds):
        yield _bars(
            f"Speed per output token against {reference}",
            speeds,
            "times as fast",
            line=(1.0, f"as fast as {reference}"),
        )
    for name, words in LATENCIES.items():
        yield from _means(
            sides, f"{words[:1].upper()}{words[1:]}, mean", name, 1000.0 if name == PER_TOKEN else 1.0
        )
    values: dict[str, tuple[Callable[[Side], float | None], str]] = {
        "Throughput": (lambda side: side.generation_tokens_per_second, "generated tokens/s"),
        "Load": (lambda side: side.requests_at_a_time, "requests at a time"),
    }
    for title, (value, unit) in values.items():
        if any(value(side) for side in sides):
            yield _bars(title, [(side.name, _alone(value(side))) for side in sides], unit, form="{:,.1f}")
    if any(side.mean_acceptance_length for side in sides):
        yield _bars(
            "Mean acceptance length",
            [(side.name, side.mean_acceptance_length) for side in sides],
            "tokens per draft",
        )
    yield from _positions(sides)


def _means(sides: tuple[Side, ...], title: str, name: str, scale: float) -> Iterator[Html]:
    found = [(side.name, side.mean(name)) for side in sides]
    if not any(mean for _, mean in found):
        return
    scaled = [(who, None if mean is None else _scaled(mean.interval, scale)) for who, mean in found]
    yield _bars(title, scaled, "ms per token" if name == PER_TOKEN else "seconds", form="{:.3g}")


def _positions(sides: tuple[Side, ...]) -> Iterator[Html]:
    series = [
        plots.Series(
            side.name,
            tuple(plots.Point(float(i), ratio) for i, ratio in enumerate(side.position_acceptance_ratio)),
        )
        for side in sides
        if side.position_acceptance_ratio
    ]
    if not series:
        return
    title = "Acceptance by position"
    drawn = plots.lines(
        title,
        series,
        x_label="position in the draft",
        y_label="share of drafts",
        description="; ".join(
            f"{one.name}: " + ", ".join(f"{point.y:.2f}" for point in one.points) for one in series
        ),
        y_range=(0.0, 1.0),
    )
    yield figure(drawn, title)


def _bars(
    title: str,
    values: list[tuple[str, Interval | None]],
    unit: str,
    *,
    form: str = "{:.2f}",
    line: tuple[float, str] | None = None,
) -> Html:
    bars = [
        plots.Bar(name, None) if found is None else plots.Bar(name, found.value, found.low, found.high)
        for name, found in values
    ]
    told = "; ".join(f"{bar.name} {'none' if bar.value is None else form.format(bar.value)}" for bar in bars)
    drawn = plots.bars_with_intervals(title, bars, x_label=unit, description=told, form=form, reference=line)
    return figure(drawn, title)


def _scaled(interval: Interval, scale: float) -> Interval:
    low, high = interval.low, interval.high
    return Interval(
        scale * interval.value, None if low is None else scale * low, None if high is None else scale * high
    )


def _alone(value: float | None) -> Interval | None:
    return None if value is None else Interval(value)
