"""The table of a comparison: a row per quantity, a column per side. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...economics.statistics import Interval
from ...publish.wording import times
from .comparison import Comparison
from .side import PER_TOKEN, Side

#: Latencies in the order of the table, with their names.
LATENCIES = {
    PER_TOKEN: "time per output token",
    "time_to_first_token": "time to first token",
    "end_to_end": "end to end",
}


#: The name of a quantity, and its value of both sides; ``None`` if it does not exist.
Row = tuple[str, tuple[str | None, ...]]


def tables(comparison: Comparison) -> list[list[Row]]:
    """Return the table in its parts: speed, load, speculation. Quantities that no side has are left out."""
    parts = _speed(comparison), _load(comparison), _speculation(comparison)
    shown = ([(name, cells) for name, cells in rows if any(cells)] for rows in parts)
    return [rows for rows in shown if rows]


def legend(comparison: Comparison) -> tuple[str, ...]:
    """Return the meaning of the marks and words in the table."""
    return (
        f"x: times the value of {comparison.reference.name}. ±: 95 % interval of the sample.",
        "~: interpolated within the server's buckets, so as coarse as these; without an interval.",
        "Requests at a time: finished per second times their mean time end to end (Little's law).",
        "Estimated speedup: of the tokens out of drafts, by the cost profile, with its uncertainty.",
    )


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
    period = "" if side.measures.span_seconds is None else f"{side.measures.span_seconds:.0f} s"
    facts = (
        f"{'watched for' if side.live else 'snapshot of'} {period}" if period else "no period",
        " and ".join(side.models),
        " ".join(filter(None, (side.dialect, side.version))),
        f"{side.engines} engines" if side.engines > 1 else "",
        drafting,
    )
    return ", ".join(filter(None, facts))


def _speed(comparison: Comparison) -> Iterator[Row]:
    speedup, sides = _ratio(comparison.speed.speedup), comparison.sides
    yield f"speed against {comparison.reference.name}", (speedup and "1", speedup)
    for name, words in LATENCIES.items():
        means = [side.mean(name) for side in sides]
        cells = [None if mean is None else _time(mean.interval) for mean in means]
        yield f"{words}, mean", _beside(cells, [None if mean is None else mean.mean for mean in means])
        for quantile in ("p50", "p95", "p99"):
            values = [getattr(side.latency(name), f"{quantile}_seconds", None) for side in sides]
            cells = [None if value is None else time(value) for value in values]
            yield f"  {quantile.upper()} ~", _beside(cells, values)
    finished = (side.latency(PER_TOKEN) or next(iter(side.measures.latencies), None) for side in sides)
    yield "requests finished", tuple(None if one is None else _formatted(one.requests) for one in finished)


def _beside(cells: Sequence[str | None], values: Sequence[float | None]) -> tuple[str | None, ...]:
    """Return both cells, the one of the side with the ratio of its value to that of the reference."""
    (reference, side), (there, here) = cells, values
    ratio = "" if not there or here is None else f"  x{here / there:.2f}"
    return reference, side and side + ratio


def _load(comparison: Comparison) -> Iterator[Row]:
    rates = [side.measures.generation_tokens_per_second for side in comparison.sides]
    yield "generated tokens/s", _beside([_significant(rate) for rate in rates], rates)
    rows: dict[str, Callable[[Side], str | None]] = {
        "requests finished/s": lambda side: _significant(side.requests_per_second),
        "requests at a time": lambda side: _significant(side.requests_at_a_time),
        "tokens a request": lambda side: _formatted(side.tokens_per_request),
        "requests running, at the end": lambda side: _formatted(side.requests_running),
        "requests waiting, at the end": lambda side: _formatted(side.requests_waiting),
    }
    yield from _of_each_side(comparison, rows)


def _speculation(comparison: Comparison) -> Iterator[Row]:
    rows: dict[str, Callable[[Side], str | None]] = {
        "K": lambda side: _formatted(side.num_speculative_tokens),
        "drafts": lambda side: _formatted(side.measures.drafts) if side.speculating else None,
        "drafts/s": lambda side: _significant(side.measures.drafts_per_second) if side.speculating else None,
        "acceptance ratio": lambda side: _with_margin(side.acceptance_ratio, 100, ".1f", " %"),
        "mean acceptance length": lambda side: _with_margin(side.mean_acceptance_length, 1, ".2f", ""),
        "mean draft length": lambda side: _formatted(side.measures.mean_draft_length, ".2f"),
        "tokens out of drafts": lambda side: _formatted(side.measures.coverage_ratio, ".1%"),
        "rejected draft tokens/s": lambda side: _significant(_rejected(side)) if side.speculating else None,
        "estimated speedup": lambda side: _ratio(side.estimated_speedup),
        "quality": lambda side: side.quality or None,
        "payoff": lambda side: side.payoff or None,
        "advice": lambda side: side.advice or None,
    }
    yield from _of_each_side(comparison, rows)


def _rejected(side: Side) -> float | None:
    drafted, accepted = side.measures.draft_tokens_per_second, side.measures.accepted_tokens_per_second
    return None if drafted is None or accepted is None else max(0.0, drafted - accepted)


def _of_each_side(comparison: Comparison, rows: dict[str, Callable[[Side], str | None]]) -> Iterator[Row]:
    for name, cell in rows.items():
        yield name, tuple(map(cell, comparison.sides))


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
