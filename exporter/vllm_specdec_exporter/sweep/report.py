"""The report of a sweep for a terminal, and as rows for a spreadsheet. Pure."""

from __future__ import annotations

import csv
import io
import textwrap
from typing import TYPE_CHECKING, Any

import msgspec

from ..wording import printable
from .conclusions import conclusions, degree, trouble
from .record import Status
from .zones import MEANINGS, NOTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .record import CellResult, SweepRecord
    from .statistics import Distribution
    from .zones import Zones

_NONE = "–"
_WIDTH = 110
_HEADS = (
    *("prompts", "conc.", "temp.", "acceptance", "95 % interval", "zone"),
    *("length", "TTFT P50", "TPOT P50", "TPOT P99", "tok/s", "errors"),
)
_LEFT = frozenset({"prompts", "zone"})

#: The columns of the CSV file; times in seconds, ratios from 0 to 1.
COLUMNS = (
    *("prompts", "concurrency", "temperature", "status", "zone", "acceptance_ratio"),
    *("acceptance_low", "acceptance_high", "interval_unit", "mean_acceptance_length"),
    *("acceptance_ratio_counters", "acceptance_ratio_records", "drafts_counters", "drafts_records"),
    *("mean_draft_length", "coverage_ratio"),
    *(f"{time}_{what}" for time in ("ttft", "tpot", "latency") for what in ("p50", "p95", "p99", "mean")),
    *("tokens_per_second", "requests", "errors", "completion_tokens", "generated_tokens", "seconds"),
    *("attempts", "reasons"),
)
_POSITIONS = "position_{}_acceptance_ratio"


def render(record: SweepRecord, zones: Zones) -> str:
    """Return the report as text: a table with a row for each cell, notes, and the conclusions."""
    server = record.server
    facts = {
        "model": server.model,
        "vLLM" if server.dialect.startswith("vllm") else "server": server.version,
        "K": str(server.num_speculative_tokens or ""),
        "api": record.setup.api,
        "requests per cell": str(record.setup.requests),
        "max tokens": str(record.setup.max_tokens),
    }
    lines = [f"{server.target} ({', '.join(f'{k} {v}' for k, v in facts.items() if v)})", ""]
    if not record.cells:
        return "\n".join(map(printable, [*lines, "no cell was measured"]))
    lines += _table([_HEADS, *(_row(result, zones) for result in record.cells)])
    lines += ["", *_wrapped(_notes(record, zones)), "", *_wrapped(conclusions(record, zones))]
    return "\n".join(printable(line.rstrip()) for line in lines)


def _wrapped(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from textwrap.wrap(
            text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )


def zone_words(result: CellResult, zones: Zones) -> str:
    """Return the zone of a cell, with a mark where the interval reaches into another; empty without one."""
    ratio, interval = result.acceptance_ratio, result.acceptance_interval
    if ratio is None:
        return ""
    crossed = interval is not None and zones.crossed_by(interval.low, interval.high)
    return f"{zones.of(ratio)}{' *' if crossed else ''}"


def _row(result: CellResult, zones: Zones) -> tuple[str, ...]:
    interval = result.acceptance_interval
    marks = {Status.OK: "", Status.DISTURBED: "disturbed", Status.FAILED: "failed"}
    zone = zone_words(result, zones)
    state = marks[result.status]
    return (
        result.prompts,
        str(result.concurrency),
        degree(result.temperature),
        number(result.acceptance_ratio),
        _NONE if interval is None else f"{interval.low:.2f} to {interval.high:.2f}",
        ", ".join(word for word in (zone, state) if word) or _NONE,
        number(result.mean_acceptance_length),
        milliseconds(result.ttft.p50),
        milliseconds(result.tpot.p50),
        milliseconds(result.tpot.p99),
        number(result.tokens_per_second, 1),
        str(result.errors),
    )


def _notes(record: SweepRecord, zones: Zones) -> Iterator[str]:
    yield (
        f"zones: below {zones.disable_below:.2f} {MEANINGS[zones.of(0.0)]}; "
        f"{zones.disable_below:.2f} to {zones.benefit_above:.2f} near break-even; above likely benefit"
    )
    yield NOTE
    if any(zone_words(result, zones).endswith("*") for result in record.cells):
        yield "* the interval reaches into another zone: more requests would tell"
    units = {r.acceptance_interval.unit for r in record.cells if r.acceptance_interval is not None}
    yield from (UNITS[unit] for unit in ("request", "prompt", "draft") if unit in units)
    yield from trouble(record.cells)


#: What is said of an interval by the unit that it takes as independent.
UNITS = {
    "request": "intervals: 95 %, drafts of one request belong together",
    "prompt": "intervals: 95 %, drafts of one prompt belong together, because prompts recur in a cell",
    "draft": (
        "intervals: 95 %, by drafts and so too narrow; a server started with "
        "--per-request-spec-decode-metrics tells them by request"
    ),
}


def number(value: float | None, decimals: int = 2) -> str:
    """Return a number, or a dash where there is none."""
    return _NONE if value is None else f"{value:.{decimals}f}"


def milliseconds(seconds: float | None) -> str:
    """Return a time in milliseconds with three digits, or a dash."""
    if seconds is None:
        return _NONE
    value = seconds * 1000
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (
            cell.ljust(width) if head in _LEFT else cell.rjust(width)
            for cell, width, head in zip(row, widths, _HEADS, strict=True)
        )
        yield "  ".join(cells)


def document(record: SweepRecord, zones: Zones) -> dict[str, Any]:
    """Return the record as plain objects, with the zone of each cell and the conclusions."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(record))
    for cell, result in zip(found["cells"], record.cells, strict=True):
        ratio = result.acceptance_ratio
        cell["zone"] = None if ratio is None else zones.of(ratio).value
    found["zones"] = msgspec.to_builtins(zones)
    found["conclusions"] = list(conclusions(record, zones))
    return found


def to_csv(record: SweepRecord, zones: Zones) -> str:
    """Return one row for each cell, with a column for each position behind `COLUMNS`."""
    depth = max((len(result.position_acceptance_ratio) for result in record.cells), default=0)
    heads = [*COLUMNS, *(_POSITIONS.format(i) for i in range(depth))]
    text = io.StringIO()
    writer = csv.DictWriter(text, heads, lineterminator="\n")
    writer.writeheader()
    for result in record.cells:
        writer.writerow(_flat(result, zones))
    return text.getvalue()


def _flat(result: CellResult, zones: Zones) -> dict[str, object]:
    """Return the values of a row; a column without one stays empty."""
    interval, counters, records = result.acceptance_interval, result.counters, result.records
    row: dict[str, object] = {name: getattr(result, name) for name in COLUMNS if hasattr(result, name)}
    row |= {
        "status": result.status.value,
        "zone": "" if result.acceptance_ratio is None else zones.of(result.acceptance_ratio).value,
        "reasons": _harmless("; ".join(result.reasons)),
        "prompts": _harmless(result.prompts),
    }
    if interval is not None:
        row |= {
            "acceptance_low": interval.low,
            "acceptance_high": interval.high,
            "interval_unit": interval.unit,
        }
    if counters is not None:
        row |= {
            "acceptance_ratio_counters": counters.acceptance_ratio,
            "drafts_counters": counters.drafts,
            "mean_draft_length": counters.mean_draft_length,
            "coverage_ratio": counters.coverage_ratio,
        }
    if records is not None:
        row |= {"acceptance_ratio_records": records.acceptance_ratio, "drafts_records": records.drafts}
    for name in ("ttft", "tpot", "latency"):
        times: Distribution = getattr(result, name)
        row |= {f"{name}_{what}": getattr(times, what) for what in ("p50", "p95", "p99", "mean")}
    return row | {_POSITIONS.format(i): ratio for i, ratio in enumerate(result.position_acceptance_ratio)}


def _harmless(text: str) -> str:
    """Return text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
