"""The report of a sweep as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from ...publish import plots
from ...publish.markup import Html, Section, bullets, data_table, facts, figure, note, page, side_by_side
from . import report
from .record import CellResult, SweepRecord


def render(record: SweepRecord) -> str:
    """Return the report as one HTML document; ConfigError without matplotlib."""
    started = min((result.started for result in record.cells), default=0.0)
    when = f", {datetime.fromtimestamp(started, UTC):%Y-%m-%d %H:%M} UTC" if started else ""
    prompts = ", ".join(f"{name} ({digest})" for name, digest in record.setup.prompts.items())
    sections = [Section("What was measured", (facts({**report.facts(record), "prompts": prompts}.items()),))]
    if record.cells:
        sections = [
            Section("Acceptance", tuple(_acceptance(record))),
            Section("Latency", tuple(_latency(record))),
            Section("All cells", tuple(_tables(record))),
            *sections,
        ]
    failures = report.trouble(record.cells)
    if failures:
        sections.append(Section("What went wrong", (bullets(failures),)))
    return page(
        f"Speculative decoding sweep: {record.server.model}",
        sections,
        subtitle=f"{record.server.target}{when}, vllm-specdec-exporter {record.exporter_version}",
        lead=[_sentence(words) for words in report.conclusions(record)] or ["No cell was measured."],
    )


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _acceptance(record: SweepRecord) -> Iterator[str]:
    title, unit = "Acceptance ratio", "acceptance ratio"
    ratio = _plot(record, title, lambda r: r.acceptance_ratio, unit, (0.0, 1.0), intervals=True)
    title, unit = "Mean acceptance length", "tokens per draft"
    yield side_by_side(ratio, _plot(record, title, lambda r: r.mean_acceptance_length, unit, (1.0, None)))
    for words in report.interval_notes(record):
        yield note(_sentence(words))


def _latency(record: SweepRecord) -> Iterator[str]:
    yield side_by_side(
        _plot(record, "TPOT, P50", lambda r: _ms(r.tpot.p50), "ms per token"),
        _plot(record, "TPOT, P99", lambda r: _ms(r.tpot.p99), "ms per token"),
        _plot(record, "TTFT, P50", lambda r: _ms(r.ttft.p50), "ms"),
        _plot(record, "Throughput", lambda r: r.tokens_per_second, "tokens/s"),
    )
    yield note(
        "Measured by the client from streamed answers; the server's prefix cache holds every prompt. TPOT is "
        "(last token - first token) / (completion tokens - 1). With few requests in a cell, P99 lies near "
        "the slowest one."
    )


def _plot(
    record: SweepRecord,
    title: str,
    value: Callable[[CellResult], float | None],
    unit: str,
    y_range: tuple[float | None, float | None] = (0.0, None),
    *,
    intervals: bool = False,
) -> Html:
    """Return a plot over temperature, or over concurrency if only that varies."""
    by_load = len(record.setup.temperatures) == 1 and len(record.setup.concurrencies) > 1
    axis = "concurrency" if by_load else "temperature"
    series = []
    for name, cells in report.lines(record, axis).items():
        points = []
        for cell in cells:
            y = value(cell)
            if y is not None:
                interval = cell.acceptance_interval if intervals else None
                ends = (None, None) if interval is None else (interval.low, interval.high)
                points.append(plots.Point(float(getattr(cell, axis)), y, *ends))
        series.append(plots.Series(name, tuple(points)))
    svg = plots.lines(
        f"{title} against {axis}",
        series,
        x_label=axis,
        y_label=unit,
        description="; ".join(
            f"{one.name}: " + ", ".join(f"{point.y:.3g} at {axis} {point.x:g}" for point in one.points)
            for one in series
            if one.points
        ),
        y_range=y_range,
    )
    return figure(svg, title)


def _tables(record: SweepRecord) -> Iterator[str]:
    yield data_table(report.HEADS, map(report.row, record.cells), label="Results of all cells")
    depth = max((len(result.position_acceptance_ratio) for result in record.cells), default=0)
    if depth:
        heads = ("cell", *(f"position {i}" for i in range(depth)))
        rows = (_positions_row(result, depth) for result in record.cells)
        yield data_table(heads, rows, label="Share of drafts in which each position was accepted")


def _positions_row(result: CellResult, depth: int) -> tuple[str, ...]:
    ratios = result.position_acceptance_ratio
    padded = ratios + (0.0,) * (depth - len(ratios))
    return result.cell.name, *(f"{ratio:.3f}" for ratio in padded)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
