"""The report of a sweep as a self-contained HTML page."""

from __future__ import annotations

from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING

from ...publish import plots
from ...publish.markup import Section, bullets, data_table, facts, figure, note, page, side_by_side
from . import report
from .grid import MEANINGS, NOTE, Zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...publish.markup import Html
    from .grid import Zones
    from .record import CellResult, SweepRecord


def render(record: SweepRecord, zones: Zones) -> str:
    """Return the report as one HTML document; ConfigError without matplotlib."""
    started = min((result.started for result in record.cells), default=0.0)
    when = f", {datetime.fromtimestamp(started, UTC):%Y-%m-%d %H:%M} UTC" if started else ""
    sections = [Section("What was measured", (_facts(record),))]
    if record.cells:
        sections = [
            Section("Acceptance", tuple(_acceptance(record, zones))),
            Section("Latency", tuple(_latency(record))),
            Section("All cells", tuple(_tables(record, zones))),
            *sections,
        ]
    found = report.trouble(record.cells)
    if found:
        sections.append(Section("What went wrong", (bullets(found),)))
    return page(
        f"Speculative decoding sweep: {record.server.model}",
        sections,
        subtitle=f"{record.server.target}{when}, vllm-specdec-exporter {record.exporter_version}",
        lead=[f"{words[:1].upper()}{words[1:]}." for words in report.conclusions(record, zones)]
        or ["No cell was measured."],
    )


def _acceptance(record: SweepRecord, zones: Zones) -> Iterator[str]:
    ratio = _plot(
        record,
        "Acceptance ratio",
        lambda r: r.acceptance_ratio,
        "acceptance ratio",
        bands=(
            plots.Band(0.0, zones.disable_below, Zone.DISABLE, "bad"),
            plots.Band(zones.disable_below, zones.benefit_above, Zone.NEAR_BREAK_EVEN, "middle"),
            plots.Band(zones.benefit_above, 1.0, Zone.LIKELY_BENEFIT, "good"),
        ),
        intervals=True,
        y_range=(0.0, 1.0),
    )
    title, unit = "Mean acceptance length", "tokens per draft"
    mean = _plot(record, title, lambda r: r.mean_acceptance_length, unit, y_range=(1.0, None))
    yield side_by_side(ratio, mean)
    yield note(
        f"Zones: below {zones.disable_below:.2f} {MEANINGS[Zone.DISABLE]}; {zones.disable_below:.2f} to "
        f"{zones.benefit_above:.2f} near break-even; above likely benefit. {NOTE}"
    )
    units = {r.acceptance_interval.unit for r in record.cells if r.acceptance_interval is not None}
    for unit in sorted(units):
        yield note(f"{report.UNITS[unit][:1].upper()}{report.UNITS[unit][1:]}.")


def _latency(record: SweepRecord) -> Iterator[str]:
    yield side_by_side(
        _plot(record, "TPOT, P50", lambda r: _ms(r.tpot.p50), "ms per token", y_range=(0.0, None)),
        _plot(record, "TPOT, P99", lambda r: _ms(r.tpot.p99), "ms per token", y_range=(0.0, None)),
        _plot(record, "TTFT, P50", lambda r: _ms(r.ttft.p50), "ms", y_range=(0.0, None)),
        _plot(record, "Throughput", lambda r: r.tokens_per_second, "tokens/s", y_range=(0.0, None)),
    )
    yield note(
        "Measured by the client from streamed answers; the server's prefix cache holds every prompt. TPOT is "
        "(last token - first token) / (completion tokens - 1). With few requests in a cell, P95 and P99 lie "
        "near the slowest one."
    )


def _plot(
    record: SweepRecord,
    title: str,
    value: Callable[[CellResult], float | None],
    unit: str,
    *,
    bands: tuple[plots.Band, ...] = (),
    intervals: bool = False,
    y_range: tuple[float | None, float | None],
) -> Html:
    """Return a plot over temperature, or over concurrency if only that varies."""
    by_load = len(record.setup.temperatures) == 1 and len(record.setup.concurrencies) > 1
    lines = _by_load(record) if by_load else report.series(record)
    found = []
    for line in lines:
        points = []
        for result in line.cells:
            y = value(result)
            if y is not None:
                interval = result.acceptance_interval if intervals else None
                x = float(result.concurrency) if by_load else result.temperature
                ends = (None, None) if interval is None else (interval.low, interval.high)
                points.append(plots.Point(x, y, *ends))
        found.append(plots.Series(line.prompts if by_load else report.label(line, lines), tuple(points)))
    axis = "concurrency" if by_load else "temperature"
    drawn = plots.lines(
        f"{title} against {axis}",
        found,
        x_label=axis,
        y_label=unit,
        description="; ".join(
            f"{one.name}: " + ", ".join(f"{point.y:.3g} at {axis} {point.x:g}" for point in one.points)
            for one in found
            if one.points
        ),
        bands=bands,
        y_range=y_range,
    )
    return figure(drawn, title)


def _by_load(record: SweepRecord) -> tuple[report.TemperatureRow, ...]:
    found: dict[str, list[CellResult]] = {}
    for line in report.series(record):
        found.setdefault(line.prompts, []).extend(line.cells)
    return tuple(
        report.TemperatureRow(prompts, 0, tuple(sorted(cells, key=lambda r: r.concurrency)))
        for prompts, cells in found.items()
    )


def _tables(record: SweepRecord, zones: Zones) -> Iterator[str]:
    heads: tuple[str, ...]
    heads = ("Cell", "Acceptance", "95 % interval", "Zone", "Mean length", "Drafts", "By counters")
    heads += ("By records", "Tokens from drafts", "Status")
    rows = (_acceptance_row(result, zones) for result in record.cells)
    yield data_table(heads, rows, label="Acceptance of all cells")
    if any(report.zone_words(result, zones).endswith("*") for result in record.cells):
        yield note("* The interval reaches into another zone: more requests would tell.")
    depth = max((len(result.position_acceptance_ratio) for result in record.cells), default=0)
    if depth:
        heads = ("Cell", *(f"Position {i}" for i in range(depth)))
        rows = (_positions_row(result, depth) for result in record.cells)
        yield data_table(heads, rows, label="Share of drafts in which each position was accepted")
    heads = (
        "Cell",
        *(f"{kind} {time}" for kind in ("TTFT", "TPOT") for time in ("P50", "P95", "P99", "mean")),
    )
    yield data_table(heads, map(_times_row, record.cells), label="Times of all cells")
    heads = ("Cell", "Tokens/s", "Requests", "Errors", "Completion tokens", "Generated tokens", "Seconds")
    yield data_table(heads, map(_work_row, record.cells), label="Work of all cells")


def _positions_row(result: CellResult, depth: int) -> tuple[str, ...]:
    ratios = result.position_acceptance_ratio
    padded = ratios + (0.0,) * (depth - len(ratios))
    return result.cell.name, *(f"{ratio:.3f}" for ratio in padded)


def _acceptance_row(result: CellResult, zones: Zones) -> tuple[str | None, ...]:
    interval, counters, records = result.acceptance_interval, result.counters, result.records
    return (
        result.cell.name,
        _known(result.acceptance_ratio, 3),
        None if interval is None else f"{interval.low:.3f} to {interval.high:.3f}",
        report.zone_words(result, zones) or None,
        _known(result.mean_acceptance_length, 2),
        None if counters is None or counters.drafts is None else f"{counters.drafts:,.0f}",
        None if counters is None else _known(counters.acceptance_ratio, 3),
        None if records is None else _known(records.acceptance_ratio, 3),
        None if counters is None or counters.coverage_ratio is None else f"{counters.coverage_ratio:.0%}",
        str(result.status),
    )


def _times_row(result: CellResult) -> tuple[str | None, ...]:
    values = attrgetter("p50", "p95", "p99", "mean")
    times = (*values(result.ttft), *values(result.tpot))
    return (result.cell.name, *(None if time is None else report.milliseconds(time) for time in times))


def _work_row(result: CellResult) -> tuple[str | None, ...]:
    generated = result.generated_tokens
    return (
        result.cell.name,
        _known(result.tokens_per_second, 1),
        str(result.requests),
        str(result.errors),
        f"{result.completion_tokens:,}",
        None if generated is None else f"{generated:,.0f}",
        f"{result.seconds:.1f}",
    )


def _facts(record: SweepRecord) -> Html:
    server, setup = record.server, record.setup
    pairs = {
        "Server": server.target,
        "Model": server.model,
        "Weights": server.root,
        "Version": server.version,
        "Metrics": server.dialect,
        "K": str(server.num_speculative_tokens or ""),
        "API": setup.api,
        "Temperatures": ", ".join(map(report.degree, setup.temperatures)),
        "Concurrency": ", ".join(map(str, setup.concurrencies)),
        "Prompts": ", ".join(f"{name} ({digest})" for name, digest in setup.prompts.items()),
        "Requests per cell": str(setup.requests),
        "Most tokens of an answer": str(setup.max_tokens),
        "Seed": "none" if setup.seed is None else str(setup.seed),
        "Top p": "" if setup.top_p is None else f"{setup.top_p:g}",
        "End of sequence": "ignored" if setup.ignore_eos else "ends an answer",
    }
    return facts((name, value) for name, value in pairs.items() if value)


def _known(value: float | None, decimals: int) -> str | None:
    return None if value is None else report.number(value, decimals)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
