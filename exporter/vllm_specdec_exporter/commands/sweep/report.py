"""The report of a sweep as text, JSON and a page: a table, and one sentence per series
on acceptance.
"""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import msgspec

from ...economics.statistics import Interval
from ...engines import ENGINE_OF
from ...publish import pages, plots
from ...publish.plots import Plot
from ...publish.terminal import DASH, digits, length, printable, shown, table, wrap
from .record import CellResult, Status, SweepRecord


def render_page(record: SweepRecord) -> str:
    """Return the report as one HTML document; ConfigError without matplotlib."""
    started: datetime | None = None
    acceptance = []
    latency = []
    if record.cells:
        started = datetime.fromtimestamp(record.cells[0].started, UTC)
        acceptance = [_plot(record, *plot) for plot in _ACCEPTANCE]
        latency = [_plot(record, *plot) for plot in _LATENCY]
    prompts = ", ".join(
        f"{name} ({digest})" for name, digest in record.setup.prompts.items()
    )
    return pages.report(
        "sweep_report.html",
        record=record,
        started=started,
        conclusions=conclusions(record),
        acceptance_plots=acceptance,
        interval_notes=interval_notes(record),
        latency_plots=latency,
        columns=COLUMNS,
        rows=list(map(row, record.cells)),
        facts={**facts(record), "prompts": prompts},
        trouble=trouble(record),
    )


def _acceptance(cell: CellResult) -> Interval | None:
    if cell.acceptance_ratio is None or cell.acceptance_interval is None:
        return _value(cell.acceptance_ratio)
    interval = cell.acceptance_interval
    return Interval(cell.acceptance_ratio, interval.low, interval.high)


def _value(value: float | None, scale: float = 1.0) -> Interval | None:
    if value is None:
        return None
    return Interval(value * scale)


#: Plots of the page: title, unit, the ends of the vertical axis, and the value of a
#: cell.
_Drawn = tuple[
    str,
    str,
    tuple[float | None, float | None],
    Callable[[CellResult], Interval | None],
]
_ACCEPTANCE: tuple[_Drawn, ...] = (
    ("Acceptance ratio", "acceptance ratio", (0.0, 1.0), _acceptance),
    (
        "Mean acceptance length",
        "tokens per draft",
        (1.0, None),
        lambda cell: _value(cell.mean_acceptance_length),
    ),
)
_LATENCY: tuple[_Drawn, ...] = (
    ("TPOT, P50", "ms per token", (0, None), lambda c: _value(c.tpot.p50, 1000)),
    ("TPOT, P99", "ms per token", (0, None), lambda c: _value(c.tpot.p99, 1000)),
    ("TTFT, P50", "ms", (0, None), lambda c: _value(c.ttft.p50, 1000)),
    ("Throughput", "tokens/s", (0, None), lambda c: _value(c.tokens_per_second)),
)


def _plot(
    record: SweepRecord,
    title: str,
    unit: str,
    y_range: tuple[float | None, float | None],
    value: Callable[[CellResult], Interval | None],
) -> Plot:
    """Return a plot over temperature, or over concurrency if only that varies."""
    # Over a single temperature each line would be one point.
    by_load = (
        len(record.setup.temperatures) == 1 and len(record.setup.concurrencies) > 1
    )
    axis = "concurrency" if by_load else "temperature"
    series = []
    for name, cells in lines(record, axis).items():
        points = {}
        for cell in cells:
            y = value(cell)
            if y is not None:
                points[float(getattr(cell, axis))] = y
        series.append(plots.Series(name, points))
    return plots.lines(
        f"{title} against {axis}",
        series,
        x_label=axis,
        y_label=unit,
        y_range=y_range,
    )


def lines(
    record: SweepRecord, axis: str = "temperature"
) -> dict[str, list[CellResult]]:
    """Return the cells without failed ones, as named lines over `axis`, which is a
    field of a cell.
    """
    several_loads = axis != "concurrency" and len(record.setup.concurrencies) > 1
    groups: dict[str, list[CellResult]] = {}
    # Measured in the order of the flags, which need not rise.
    for cell in sorted(record.cells, key=attrgetter(axis)):
        if cell.status is Status.FAILED:
            continue
        name = cell.prompts
        if several_loads:
            name += f", concurrency {cell.concurrency}"
        groups.setdefault(name, []).append(cell)
    return groups


def conclusions(record: SweepRecord) -> tuple[str, ...]:
    """Return one sentence for each line over temperature, with its name if there are
    several.
    """
    groups = lines(record)
    if len(groups) == 1:
        return tuple(map(_conclude, groups.values()))
    return tuple(f"{name}: {_conclude(cells)}" for name, cells in groups.items())


def _conclude(cells: Sequence[CellResult]) -> str:
    measured: list[Interval] = []
    texts: list[str] = []
    for cell in cells:
        acceptance = _acceptance(cell)
        if acceptance is not None:
            measured.append(acceptance)
            texts.append(f"{acceptance.value:.2f} at {float(cell.temperature)}")
    if not measured:
        return "nothing was drafted, so there is no acceptance"
    if len(measured) == 1:
        return f"acceptance is {texts[0]}"
    first = measured[0]
    last = measured[-1]
    # Half-widths of independent estimates add in quadrature.
    chance = math.hypot(first.half or 0.0, last.half or 0.0)
    if abs(first.value - last.value) <= chance:
        both = f"{texts[0]} and {texts[-1]}"
        return f"acceptance does not differ beyond chance: it is {both}"
    verb = "falls" if last.value < first.value else "rises"
    return f"acceptance {verb} from {texts[0]} to {texts[-1]}"


def trouble(record: SweepRecord) -> tuple[str, ...]:
    """Return a sentence for each invalid cell, and for failed requests."""
    return tuple(
        f"{cell.name}: {cell.status}: {'; '.join(cell.reasons)}"
        for cell in record.cells
        if cell.reasons
    )


#: The columns of the table, in a terminal and on the page.
COLUMNS = (
    "prompts",
    "conc.",
    "temp.",
    "acceptance",
    "95 % interval",
    "length",
    "TTFT P50",
    "TPOT P50",
    "TPOT P99",
    "tok/s",
    "errors",
    "status",
)


def row(cell: CellResult) -> list[str]:
    """Return a cell in these columns."""
    interval = DASH
    if cell.acceptance_interval is not None:
        ends = cell.acceptance_interval
        interval = f"{ends.low:.2f} to {ends.high:.2f}"
    return [
        cell.prompts,
        str(cell.concurrency),
        str(float(cell.temperature)),
        length(cell.acceptance_ratio),
        interval,
        length(cell.mean_acceptance_length),
        milliseconds(cell.ttft.p50),
        milliseconds(cell.tpot.p50),
        milliseconds(cell.tpot.p99),
        shown(cell.tokens_per_second, "{:.1f}"),
        str(cell.errors),
        cell.status,
    ]


def facts(record: SweepRecord) -> dict[str, str]:
    """Return the server and the settings in words, without what is not known."""
    server = record.server
    setup = record.setup
    engine = ENGINE_OF.get(server.dialect)
    named = {
        "model": server.model,
        engine.name if engine else "server": server.version,
        "K": str(server.num_speculative_tokens or ""),
        "api": setup.api,
        "requests per cell": str(setup.requests),
        "max tokens": str(setup.max_tokens),
        "top p": "" if setup.top_p is None else f"{setup.top_p:g}",
        "end of sequence": "ignored" if setup.ignore_eos else "",
    }
    return {name: value for name, value in named.items() if value}


def render(record: SweepRecord) -> str:
    """Return the report as text: a table with a row for each cell, notes, and the
    conclusions.
    """
    settings = ", ".join(f"{name} {value}" for name, value in facts(record).items())
    report = [f"{record.server.target} ({settings})", ""]
    if not record.cells:
        report.append("no cell was measured")
        return "\n".join(map(printable, report))
    report += table(COLUMNS, map(row, record.cells), ("prompts", "status"), indent="")
    notes = (*interval_notes(record), *trouble(record))
    for texts in (notes, conclusions(record)):
        report.append("")
        for text in texts:
            report += wrap(text, "", 2)
    return "\n".join(printable(line.rstrip()) for line in report)


#: Descriptions of intervals by their unit.
_UNITS = {
    "request": "intervals: 95 %, drafts of one request belong together",
    "prompt": (
        "intervals: 95 %, drafts of one prompt belong together, because prompts recur "
        "in a cell"
    ),
    "draft": (
        "intervals: 95 %, by drafts and so too narrow; see vLLM's "
        "--per-request-spec-decode-metrics"
    ),
}


def interval_notes(record: SweepRecord) -> tuple[str, ...]:
    """Return what the intervals of the cells take as independent."""
    units = set()
    for cell in record.cells:
        if cell.acceptance_interval is not None:
            units.add(cell.acceptance_interval.unit)
    return tuple(note for unit, note in _UNITS.items() if unit in units)


def milliseconds(seconds: float | None) -> str:
    """Return a time in milliseconds with three digits or all before the point, or a
    dash.
    """
    if seconds is None:
        return DASH
    return f"{digits(1000 * seconds)} ms"


def document(record: SweepRecord) -> dict[str, Any]:
    """Return the record as plain objects, with the conclusions."""
    return {**msgspec.to_builtins(record), "conclusions": conclusions(record)}
