"""The report of a sweep: table, CSV, JSON, and one sentence per series on acceptance. Pure."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...publish.wording import DASH, printable, table
from .grid import MEANINGS, NOTE, Zone
from .record import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...economics.statistics import TimeSummary
    from .grid import Zones
    from .record import CellResult, SweepRecord


class TemperatureRow(NamedTuple):
    """The cells of one set of prompts and concurrency, by temperature; failed ones left out."""

    prompts: str
    concurrency: int
    cells: tuple[CellResult, ...]


def series(record: SweepRecord) -> tuple[TemperatureRow, ...]:
    """Return one row of cells for each set of prompts and concurrency."""
    found: dict[tuple[str, int], list[CellResult]] = {}
    for result in record.cells:
        if result.status is not Status.FAILED:
            found.setdefault((result.prompts, result.concurrency), []).append(result)
    return tuple(
        TemperatureRow(prompts, concurrency, tuple(sorted(cells, key=lambda one: one.temperature)))
        for (prompts, concurrency), cells in found.items()
    )


def label(line: TemperatureRow, lines: Sequence[TemperatureRow]) -> str:
    """Return what distinguishes a row from the others."""
    parts = []
    if len({one.prompts for one in lines}) > 1:
        parts.append(line.prompts)
    if len({one.concurrency for one in lines}) > 1:
        parts.append(f"concurrency {line.concurrency}")
    return ", ".join(parts) or line.prompts


def conclusions(record: SweepRecord, zones: Zones) -> tuple[str, ...]:
    """Return one sentence for each row, with its label if there are several."""
    lines = series(record)
    told = [(label(line, lines), _conclude(line.cells, zones)) for line in lines]
    return tuple(f"{name}: {words}" if len(lines) > 1 else words for name, words in told)


def _conclude(cells: Sequence[CellResult], zones: Zones) -> str:
    known = [cell for cell in cells if cell.acceptance_ratio is not None]
    if not known:
        return "nothing was drafted, so there is no acceptance to speak of"
    first, last = known[0], known[-1]
    if first is last:
        return f"acceptance is {_at(first)}, in the zone of {_named(zones.of(_ratio(first)))}"
    if _differ(first, last):
        verb = "falls" if _ratio(last) < _ratio(first) else "rises"
        words = f"acceptance {verb} from {_at(first)} to {_at(last)}"
    else:
        ratios = [_ratio(cell) for cell in known]
        low, high = short(min(ratios)), short(max(ratios))
        lies = f"is {low}" if low == high else f"stays between {low} and {high}"
        words = (
            f"acceptance {lies} from {degree(first.temperature)} to {degree(last.temperature)}, "
            "with no difference beyond chance between the two"
        )
    return f"{words}; {_crossings(known, zones)}"


def _crossings(cells: Sequence[CellResult], zones: Zones) -> str:
    here = [zones.of(_ratio(cell)) for cell in cells]
    if len(set(here)) == 1:
        return f"all of it in the zone of {_named(here[0])}"
    changes = []
    before = here[0]
    for cell, zone in zip(cells, here, strict=True):
        if zone is before:
            continue
        verb = "leaves" if before is Zone.LIKELY_BENEFIT else "enters"
        which = before if verb == "leaves" else zone
        changes.append(f"at {degree(cell.temperature)} it {verb} the zone of {_named(which)}")
        if verb == "leaves" and zone is Zone.DISABLE:
            changes[-1] += f" for that of {_named(zone)}"
        before = zone
    return ", ".join(changes)


def _named(zone: Zone) -> str:
    return '"disable"' if zone is Zone.DISABLE else str(zone)


def _differ(one: CellResult, other: CellResult) -> bool:
    """Return whether two ratios differ significantly."""
    a, b = one.acceptance_interval, other.acceptance_interval
    gap = abs(_ratio(one) - _ratio(other))
    if a is None or b is None:
        return gap > 0
    # Half-widths of independent estimates add in quadrature.
    return gap > math.hypot((a.high - a.low) / 2, (b.high - b.low) / 2)


def _at(cell: CellResult) -> str:
    return f"{short(_ratio(cell))} at {degree(cell.temperature)}"


def _ratio(cell: CellResult) -> float:
    assert cell.acceptance_ratio is not None
    return cell.acceptance_ratio


def short(ratio: float) -> str:
    """Return a ratio in the form of the published sweep: ``.81``, and ``1.00``."""
    text = f"{ratio:.2f}"
    return text if ratio >= 0.995 else text.removeprefix("0")


def degree(temperature: float) -> str:
    """Return a temperature with at least one decimal: ``0.0``, ``0.4``, ``0.25``."""
    return str(float(temperature))


def trouble(results: Iterable[CellResult]) -> tuple[str, ...]:
    """Return a sentence for each invalid cell, and for failed requests."""
    return tuple(
        f"{result.cell.name}: {result.status}: {'; '.join(result.reasons)}"
        for result in results
        if result.reasons
    )


_WIDTH = 110
_HEADS = (
    "prompts",
    "conc.",
    "temp.",
    "acceptance",
    "95 % interval",
    "zone",
    "length",
    "TTFT P50",
    "TPOT P50",
    "TPOT P99",
    "tok/s",
    "errors",
)

#: The columns of the CSV file; times in seconds, ratios from 0 to 1.
COLUMNS = (
    "prompts",
    "concurrency",
    "temperature",
    "status",
    "zone",
    "acceptance_ratio",
    "acceptance_low",
    "acceptance_high",
    "interval_unit",
    "mean_acceptance_length",
    "acceptance_ratio_counters",
    "acceptance_ratio_records",
    "drafts_counters",
    "drafts_records",
    "mean_draft_length",
    "coverage_ratio",
    *(f"{time}_{what}" for time in ("ttft", "tpot", "latency") for what in ("p50", "p95", "p99", "mean")),
    "tokens_per_second",
    "requests",
    "errors",
    "completion_tokens",
    "generated_tokens",
    "seconds",
    "attempts",
    "reasons",
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
    lines += table(_HEADS, (_row(result, zones) for result in record.cells), ("prompts", "zone"), indent="")
    lines += ["", *_wrapped(_notes(record, zones)), "", *_wrapped(conclusions(record, zones))]
    return "\n".join(printable(line.rstrip()) for line in lines)


def _wrapped(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from textwrap.wrap(
            text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )


def zone_words(result: CellResult, zones: Zones) -> str:
    """Return the zone of a cell, marked if its interval covers another one; empty without a zone."""
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
        DASH if interval is None else f"{interval.low:.2f} to {interval.high:.2f}",
        ", ".join(word for word in (zone, state) if word) or DASH,
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


#: Descriptions of intervals by their unit.
UNITS = {
    "request": "intervals: 95 %, drafts of one request belong together",
    "prompt": "intervals: 95 %, drafts of one prompt belong together, because prompts recur in a cell",
    "draft": (
        "intervals: 95 %, by drafts and so too narrow; a server started with "
        "--per-request-spec-decode-metrics tells them by request"
    ),
}


def number(value: float | None, decimals: int = 2) -> str:
    """Return a number, or a dash without one."""
    return DASH if value is None else f"{value:.{decimals}f}"


def milliseconds(seconds: float | None) -> str:
    """Return a time in milliseconds with three digits, or a dash."""
    if seconds is None:
        return DASH
    value = seconds * 1000
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


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
    """Return one row for each cell, with a column for each position after `COLUMNS`."""
    depth = max((len(result.position_acceptance_ratio) for result in record.cells), default=0)
    heads = [*COLUMNS, *(_POSITIONS.format(i) for i in range(depth))]
    text = io.StringIO()
    writer = csv.DictWriter(text, heads, lineterminator="\n")
    writer.writeheader()
    for result in record.cells:
        writer.writerow(_flat(result, zones))
    return text.getvalue()


def _flat(result: CellResult, zones: Zones) -> dict[str, object]:
    """Return the values of a row; missing ones are empty."""
    interval, counters, records = result.acceptance_interval, result.counters, result.records
    row: dict[str, object] = {name: getattr(result, name) for name in COLUMNS if hasattr(result, name)}
    row |= {
        "status": result.status.value,
        "zone": "" if result.acceptance_ratio is None else zones.of(result.acceptance_ratio).value,
        "reasons": _harmless("; ".join(result.reasons)),
        "prompts": _harmless(result.prompts),
    }
    if interval is not None:
        row |= {"acceptance_low": interval.low, "acceptance_high": interval.high}
        row["interval_unit"] = interval.unit
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
        times: TimeSummary = getattr(result, name)
        row |= {f"{name}_{what}": getattr(times, what) for what in ("p50", "p95", "p99", "mean")}
    return row | {_POSITIONS.format(i): ratio for i, ratio in enumerate(result.position_acceptance_ratio)}


def _harmless(text: str) -> str:
    """Return text that spreadsheets do not interpret as a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
