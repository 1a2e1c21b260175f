"""The report of a sweep as text, JSON and a page: a table, and one sentence per series
on acceptance.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from operator import attrgetter
from typing import Any

import msgspec

from ...economics.statistics import ClusterInterval
from ...engines import ENGINE_OF
from ...publish import pages, plots
from ...publish.plots import Plot
from ...publish.terminal import DASH, digits, length, printable, shown, table, wrap
from .record import CellResult, Status, SweepRecord


def render_page(record: SweepRecord) -> str:
    """Return the report as one HTML document; ConfigError without matplotlib."""
    started: datetime | None = None
    if record.cells:
        started = datetime.fromtimestamp(record.cells[0].started, UTC)
    prompts = ", ".join(
        f"{name} ({digest})" for name, digest in record.setup.prompts.items()
    )
    return pages.report(
        "sweep_report.html",
        record=record,
        started=started,
        conclusions=list(map(_sentence, conclusions(record))),
        acceptance_plots=tuple(_acceptance(record)) if record.cells else (),
        interval_notes=list(map(_sentence, interval_notes(record))),
        latency_plots=tuple(_latency(record)) if record.cells else (),
        columns=tuple(COLUMNS),
        rows=tuple(_rows(record)),
        positions=_positions(record),
        facts={**facts(record), "prompts": prompts},
        trouble=trouble(record.cells),
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _acceptance(record: SweepRecord) -> Iterator[Plot]:
    yield _plot(
        record,
        "Acceptance ratio",
        lambda result: result.acceptance_ratio,
        "acceptance ratio",
        y_range=(0.0, 1.0),
        intervals=True,
    )
    yield _plot(
        record,
        "Mean acceptance length",
        lambda result: result.mean_acceptance_length,
        "tokens per draft",
        y_range=(1.0, None),
    )


def _latency(record: SweepRecord) -> Iterator[Plot]:
    yield _plot(record, "TPOT, P50", lambda r: _ms(r.tpot.p50), "ms per token")
    yield _plot(record, "TPOT, P99", lambda r: _ms(r.tpot.p99), "ms per token")
    yield _plot(record, "TTFT, P50", lambda r: _ms(r.ttft.p50), "ms")
    yield _plot(record, "Throughput", lambda r: r.tokens_per_second, "tokens/s")


def _plot(
    record: SweepRecord,
    title: str,
    value: Callable[[CellResult], float | None],
    unit: str,
    y_range: tuple[float | None, float | None] = (0.0, None),
    *,
    intervals: bool = False,
) -> Plot:
    """Return a plot over temperature, or over concurrency if only that varies."""
    # Over a single temperature each line would be one point.
    by_load = (
        len(record.setup.temperatures) == 1 and len(record.setup.concurrencies) > 1
    )
    axis = "concurrency" if by_load else "temperature"
    series = []
    descriptions = []  # for readers without the picture
    for name, cells in lines(record, axis).items():
        points = []
        values = []
        for cell in cells:
            y = value(cell)
            if y is None:
                continue
            x = float(getattr(cell, axis))
            interval = cell.acceptance_interval
            if intervals and interval is not None:
                points.append(plots.Point(x, y, interval.low, interval.high))
            else:
                points.append(plots.Point(x, y))
            values.append(f"{y:.3g} at {axis} {x:g}")
        series.append(plots.Series(name, tuple(points)))
        if values:
            descriptions.append(f"{name}: {', '.join(values)}")
    svg = plots.lines(
        f"{title} against {axis}",
        series,
        x_label=axis,
        y_label=unit,
        description="; ".join(descriptions),
        y_range=y_range,
    )
    return Plot(title, svg)


def _positions(record: SweepRecord) -> list[list[str]]:
    """Return the share of drafts in which each position was accepted, a row a cell;
    empty if none was.
    """
    by_cell = [result.position_acceptance_ratio for result in record.cells]
    by_position = list(zip_longest(*by_cell, fillvalue=0.0))
    if not by_position:
        return []
    rows = [[result.name] for result in record.cells]
    for ratios in by_position:
        for row, ratio in zip(rows, ratios, strict=True):
            row.append(f"{ratio:.3f}")
    return rows


def _ms(seconds: float | None) -> float | None:
    if seconds is None:
        return None
    return seconds * 1000


def lines(
    record: SweepRecord, axis: str = "temperature"
) -> dict[str, list[CellResult]]:
    """Return the cells without failed ones, as named lines over `axis`, which is a
    field of a cell.
    """
    several_loads = axis != "concurrency" and len(record.setup.concurrencies) > 1
    several_sets = len(record.setup.prompts) > 1
    groups: dict[str, list[CellResult]] = {}
    # Measured in the order of the flags, which need not rise.
    for cell in sorted(record.cells, key=attrgetter(axis)):
        if cell.status is Status.FAILED:
            continue
        parts = []
        if several_sets or not several_loads:
            parts.append(cell.prompts)
        if several_loads:
            parts.append(f"concurrency {cell.concurrency}")
        groups.setdefault(", ".join(parts), []).append(cell)
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
    drafting = [cell for cell in cells if cell.acceptance_ratio is not None]
    if not drafting:
        return "nothing was drafted, so there is no acceptance"
    first = drafting[0]
    last = drafting[-1]
    if first is last:
        return f"acceptance is {_at(first)}"
    if not _differ(first, last):
        both = f"{_at(first)} and {_at(last)}"
        return f"acceptance does not differ beyond chance: it is {both}"
    verb = "falls" if _ratio(last) < _ratio(first) else "rises"
    return f"acceptance {verb} from {_at(first)} to {_at(last)}"


def _differ(first: CellResult, last: CellResult) -> bool:
    a = first.acceptance_interval
    b = last.acceptance_interval
    gap = abs(_ratio(first) - _ratio(last))
    if a is None or b is None:
        return gap > 0
    # Half-widths of independent estimates add in quadrature.
    return gap > math.hypot((a.high - a.low) / 2, (b.high - b.low) / 2)


def _at(cell: CellResult) -> str:
    return f"{_ratio(cell):.2f} at {float(cell.temperature)}"


def _ratio(cell: CellResult) -> float:
    assert cell.acceptance_ratio is not None
    return cell.acceptance_ratio


def trouble(results: Iterable[CellResult]) -> tuple[str, ...]:
    """Return a sentence for each invalid cell, and for failed requests."""
    sentences = []
    for result in results:
        if result.reasons:
            reasons = "; ".join(result.reasons)
            sentences.append(f"{result.name}: {result.status}: {reasons}")
    return tuple(sentences)


#: The columns of the table, in a terminal and on the page: the head, and the value of a
#: cell.
COLUMNS: Mapping[str, Callable[[CellResult], str]] = {
    "prompts": lambda result: result.prompts,
    "conc.": lambda result: str(result.concurrency),
    "temp.": lambda result: str(float(result.temperature)),
    "acceptance": lambda result: length(result.acceptance_ratio),
    "95 % interval": lambda result: _interval(result.acceptance_interval),
    "length": lambda result: length(result.mean_acceptance_length),
    "TTFT P50": lambda result: milliseconds(result.ttft.p50),
    "TPOT P50": lambda result: milliseconds(result.tpot.p50),
    "TPOT P99": lambda result: milliseconds(result.tpot.p99),
    "tok/s": lambda result: shown(result.tokens_per_second, "{:.1f}"),
    "errors": lambda result: str(result.errors),
    "status": lambda result: result.status.value,
}


def _interval(interval: ClusterInterval | None) -> str:
    if interval is None:
        return DASH
    return f"{interval.low:.2f} to {interval.high:.2f}"


def _rows(record: SweepRecord) -> Iterator[list[str]]:
    for result in record.cells:
        yield [cell(result) for cell in COLUMNS.values()]


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
    report += table(tuple(COLUMNS), _rows(record), ("prompts", "status"), indent="")
    notes = (*interval_notes(record), *trouble(record.cells))
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
    return {
        **msgspec.json.decode(msgspec.json.encode(record)),
        "conclusions": list(conclusions(record)),
    }
