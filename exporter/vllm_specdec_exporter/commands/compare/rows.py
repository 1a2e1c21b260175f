"""The table of a comparison: a row per quantity, a column per side. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .side import PER_TOKEN
from .verdict import times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...economics.statistics import Interval, SampleMean
    from ...measures.history import Latency
    from .comparison import Comparison, LatencyComparison, Pair
    from .side import Side

#: Latencies in the order of the table, with their names.
LATENCIES = {
    PER_TOKEN: "time per output token",
    "time_to_first_token": "time to first token",
    "end_to_end": "end to end",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity of every side; ``None`` if it does not exist."""

    name: str
    cells: tuple[str | None, ...]  # its values, side by side
    of: str = ""  # the quantity above that it belongs to, empty for a separate one

    @property
    def whole_name(self) -> str:
        """A name that does not depend on the rows above."""
        return f"{self.of}, {self.name}" if self.of else self.name


def tables(comparison: Comparison) -> dict[str, tuple[Row, ...]]:
    """Return the table in parts by title; quantities that no side has are left out."""
    parts = {"Speed": _speed(comparison), "Load": _load(comparison), "Speculation": _speculation(comparison)}
    found = {title: tuple(row for row in rows if any(row.cells)) for title, rows in parts.items()}
    return {title: rows for title, rows in found.items() if rows}


def legend(comparison: Comparison) -> tuple[str, ...]:
    """Return the meaning of the marks and words in the table."""
    found = [
        f"x: times the value of {comparison.sides[0].name}. ±: 95 % interval of the sample.",
        "~: interpolated within the server's buckets, so as coarse as these; without an interval.",
        "Requests at a time: finished per second times their mean time end to end (Little's law).",
    ]
    if any(side.estimated_speedup for side in comparison.sides):
        found.append(
            "Estimated speedup: of the tokens out of drafts, by the cost profile, with its uncertainty."
        )
    return tuple(found)


def describe(side: Side) -> str:
    """Return what a side is, in a line."""
    if side.speculating:
        drafting = " ".join(filter(None, ("speculation", side.method)))
        if side.num_speculative_tokens:
            drafting += f", K={side.num_speculative_tokens}"
    elif side.speculating is False:
        drafting = "no drafts"
    else:
        drafting = ""
    period = "" if side.span_seconds is None else f"{side.span_seconds:.0f} s"
    facts = (
        f"{'watched for' if side.live else 'snapshot of'} {period}" if period else "no period",
        " and ".join(side.models),
        " ".join(filter(None, (side.dialect, side.version))),
        f"{side.engines} engines" if side.engines > 1 else "",
        drafting,
    )
    return ", ".join(filter(None, facts))


def _speed(comparison: Comparison) -> Iterator[Row]:
    speeds = [pair.speed.speedup for pair in comparison.pairs]
    cells = ("1" if any(speeds) else None, *map(_ratio, speeds))
    yield Row(f"speed against {comparison.sides[0].name}", cells)
    for name, words in LATENCIES.items():
        against = [_of(pair, name) for pair in (None, *comparison.pairs)]
        columns = list(zip(comparison.sides, against, strict=True))
        yield Row(f"{words}, mean", tuple(_mean(side.mean(name), found) for side, found in columns))
        for quantile in ("p50", "p95", "p99"):
            cells = tuple(_quantile(side.latency(name), found, quantile) for side, found in columns)
            yield Row(f"{quantile.upper()} ~", cells, words)
    finished = (side.latency(PER_TOKEN) or next(iter(side.latencies), None) for side in comparison.sides)
    yield Row(
        "requests finished", tuple(None if one is None else _formatted(one.requests) for one in finished)
    )


def _quantile(latency: Latency | None, against: LatencyComparison | None, quantile: str) -> str | None:
    seconds = None if latency is None else getattr(latency, f"{quantile}_seconds")
    ratio = None if against is None else getattr(against, f"{quantile}_ratio")
    return None if seconds is None else _beside(time(seconds), ratio)


def _load(comparison: Comparison) -> Iterator[Row]:
    rates = [_significant(side.generation_tokens_per_second) for side in comparison.sides]
    ratios = (None, *(pair.throughput_ratio for pair in comparison.pairs))
    cells = (rate and _beside(rate, ratio) for rate, ratio in zip(rates, ratios, strict=True))
    yield Row("generated tokens/s", tuple(cells))
    rows: dict[str, Callable[[Side], str | None]] = {
        "requests finished/s": lambda side: _significant(side.requests_per_second),
        "requests at a time": lambda side: _significant(side.requests_at_a_time),
        "tokens a request": lambda side: _formatted(side.tokens_per_request),
        "requests running, at the end": lambda side: _formatted(side.requests_running),
        "requests waiting, at the end": lambda side: _formatted(side.requests_waiting),
    }
    for name, cell in rows.items():
        yield Row(name, tuple(map(cell, comparison.sides)))


def _speculation(comparison: Comparison) -> Iterator[Row]:
    rows: dict[str, Callable[[Side], str | None]] = {
        "K": lambda side: _formatted(side.num_speculative_tokens),
        "drafts": lambda side: _formatted(side.drafts) if side.speculating else None,
        "drafts/s": lambda side: _significant(side.drafts_per_second) if side.speculating else None,
        "acceptance ratio": lambda side: _with_margin(side.acceptance_ratio, 100, ".1f", " %"),
        "mean acceptance length": lambda side: _with_margin(side.mean_acceptance_length, 1, ".2f", ""),
        "mean draft length": lambda side: _formatted(side.mean_draft_length, ".2f"),
        "tokens out of drafts": lambda side: _formatted(side.coverage_ratio, ".1%"),
        "rejected draft tokens/s": lambda side: (
            _significant(side.rejected_tokens_per_second) if side.speculating else None
        ),
        "estimated speedup": lambda side: _ratio(side.estimated_speedup),
        "quality": lambda side: side.quality or None,
        "payoff": lambda side: side.payoff or None,
        "advice": lambda side: side.advice or None,
    }
    for name, cell in rows.items():
        yield Row(name, tuple(map(cell, comparison.sides)))


def _of(pair: Pair | None, name: str) -> LatencyComparison | None:
    latencies = () if pair is None else pair.latencies
    return next((latency for latency in latencies if latency.name == name), None)


def _mean(found: SampleMean | None, against: LatencyComparison | None) -> str | None:
    if found is None:
        return None
    ratio = None if against is None or against.ratio is None else against.ratio.value
    return _beside(_time(found.interval), ratio)


def time(seconds: float) -> str:
    """Return a time with three digits: ``4.21 ms``, ``12.3 ms``, ``1.23 s``."""
    return f"{_digits(seconds)} s" if seconds >= 1 else f"{_digits(1000 * seconds)} ms"


def _time(interval: Interval) -> str:
    if interval.half is None:
        return time(interval.value)
    scale, unit = (1, "s") if interval.value >= 1 else (1000, "ms")
    shown = _digits(scale * interval.value)
    decimals = len(shown.partition(".")[2])
    return f"{shown} ± {scale * interval.half:.{decimals}f} {unit}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _beside(words: str, ratio: float | None) -> str:
    return words if ratio is None else f"{words}  x{ratio:.2f}"


def _ratio(interval: Interval | None) -> str | None:
    if interval is None:
        return None
    words = times(interval.value)
    if interval.low is None or interval.high is None:
        return words
    return f"{words} ({times(interval.low)} to {times(interval.high)})"


def _with_margin(interval: Interval | None, scale: float, form: str, unit: str) -> str | None:
    if interval is None:
        return None
    margin = "" if interval.half is None else f" ± {scale * interval.half:{form}}"
    return f"{scale * interval.value:{form}}{margin}{unit}"


def _formatted(value: float | None, form: str = ",.0f") -> str | None:
    return None if value is None else format(value, form)


def _significant(value: float | None) -> str | None:
    return None if value is None else _digits(value)
