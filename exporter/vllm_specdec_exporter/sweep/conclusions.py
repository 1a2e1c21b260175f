"""Conclusions: what a sweep says about temperature and acceptance, in one sentence for each series. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .record import Status
from .zones import Zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .record import CellResult, SweepRecord
    from .zones import Zones


@dataclass(frozen=True, slots=True)
class Line:
    """The cells of one set of prompts at one concurrency, by temperature; failed ones left out."""

    prompts: str
    concurrency: int
    cells: tuple[CellResult, ...]


def series(record: SweepRecord) -> tuple[Line, ...]:
    """Return the sweep as one line of cells for each set of prompts and concurrency."""
    found: dict[tuple[str, int], list[CellResult]] = {}
    for result in record.cells:
        if result.status is not Status.FAILED:
            found.setdefault((result.prompts, result.concurrency), []).append(result)
    return tuple(
        Line(prompts, concurrency, tuple(sorted(cells, key=lambda one: one.temperature)))
        for (prompts, concurrency), cells in found.items()
    )


def label(line: Line, lines: Sequence[Line]) -> str:
    """Return what tells a line from the others."""
    parts = []
    if len({one.prompts for one in lines}) > 1:
        parts.append(line.prompts)
    if len({one.concurrency for one in lines}) > 1:
        parts.append(f"concurrency {line.concurrency}")
    return ", ".join(parts) or line.prompts


def conclusions(record: SweepRecord, zones: Zones) -> tuple[str, ...]:
    """Return one sentence for each line; those of several lines begin with what tells them apart."""
    lines = series(record)
    told = [(label(line, lines), _conclude(line.cells, zones)) for line in lines]
    return tuple(f"{name}: {words}" if len(lines) > 1 else words for name, words in told)


def _conclude(cells: Sequence[CellResult], zones: Zones) -> str:
    known = [cell for cell in cells if cell.acceptance_ratio is not None]
    if not known:
        return "nothing was drafted, so there is no acceptance to speak of"
    first, last = known[0], known[-1]
    if first is last:
        return f"acceptance is {_at(first)}, in the zone of {_zone(first, zones)}"
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
        return f"all of it in the zone of {_zone(cells[0], zones)}"
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


def _zone(cell: CellResult, zones: Zones) -> str:
    return _named(zones.of(_ratio(cell)))


def _named(zone: Zone) -> str:
    return '"disable"' if zone is Zone.DISABLE else str(zone)


def _differ(one: CellResult, other: CellResult) -> bool:
    """Tell whether two ratios differ beyond chance: whether the difference lies outside its own interval."""
    a, b = one.acceptance_interval, other.acceptance_interval
    gap = abs(_ratio(one) - _ratio(other))
    if a is None or b is None:
        return gap > 0
    # The half-widths of independent estimates add up in squares.
    return gap > math.hypot((a.high - a.low) / 2, (b.high - b.low) / 2)


def _at(cell: CellResult) -> str:
    return f"{short(_ratio(cell))} at {degree(cell.temperature)}"


def _ratio(cell: CellResult) -> float:
    assert cell.acceptance_ratio is not None
    return cell.acceptance_ratio


def short(ratio: float) -> str:
    """Return a ratio as the published sweep writes it: ``.81``, and ``1.00``."""
    text = f"{ratio:.2f}"
    return text if ratio >= 0.995 else text.removeprefix("0")


def degree(temperature: float) -> str:
    """Return a temperature with at least one decimal: ``0.0``, ``0.4``, ``0.25``."""
    return str(float(temperature))


def trouble(results: Iterable[CellResult]) -> tuple[str, ...]:
    """Return a sentence for each cell that cannot be believed, or has failed requests."""
    return tuple(
        f"{result.cell.name}: {result.status}: {'; '.join(result.reasons)}"
        for result in results
        if result.reasons
    )
