"""The table of a comparison: a row per quantity, a column per side. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .side import PER_TOKEN
from .verdict import times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...economics.statistics import Interval
    from .comparison import Comparison, LatencyComparison, Pair
    from .side import Side

#: Latencies in the order of the table, with their names.
LATENCIES = {
    PER_TOKEN: "time per output token",
    "time_to_first_token": "time to first token",
    "end_to_end": "end to end",
}
_QUANTILES = ("p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity of every side; ``None`` if it does not exist.

    Attributes:
        cells: its values, side by side.
        of: the quantity above that it belongs to, empty for a separate one.
    """

    name: str
    cells: tuple[str | None, ...]
    of: str = ""

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
    yield Row(
        f"speed against {comparison.sides[0].name}",
        ("1" if any(speeds) else None, *(_ratio(speed) for speed in speeds)),
    )
    for name, words in LATENCIES.items():

        def mean(side: Side, pair: Pair | None, name: str = name) -> str | None:
            found, against = side.mean(name), _of(pair, name)
            if found is None:
                return None
            ratio = None if against is None or against.ratio is None else against.ratio.value
            return _beside(_time(found.interval), ratio)

        yield Row(f"{words}, mean", _cells(comparison, mean))
        for quantile in _QUANTILES:

            def value(
                side: Side, pair: Pair | None, name: str = name, quantile: str = quantile
            ) -> str | None:
                found, against = side.latency(name), _of(pair, name)
                seconds = None if found is None else getattr(found, f"{quantile}_seconds")
                ratio = None if against is None else getattr(against, f"{quantile}_ratio")
                return None if seconds is None else _beside(time(seconds), ratio)

            yield Row(f"{quantile.upper()} ~", _cells(comparison, value), words)
    yield _plain(comparison, "requests finished", lambda side: _count(_finished(side)))


def _load(comparison: Comparison) -> Iterator[Row]:
    yield Row(
        "generated tokens/s",
        _cells(
            comparison,
            lambda side, pair: (
                None
                if side.generation_tokens_per_second is None
                else _beside(
                    _digits(side.generation_tokens_per_second),
                    None if pair is None else pair.throughput_ratio,
                )
            ),
        ),
    )
    rows: dict[str, Callable[[Side], str | None]] = {
        "requests finished/s": lambda side: _significant(side.requests_per_second),
        "requests at a time": lambda side: _significant(side.requests_at_a_time),
        "tokens a request": lambda side: _count(side.tokens_per_request),
        "requests running, at the end": lambda side: _count(side.requests_running),
        "requests waiting, at the end": lambda side: _count(side.requests_waiting),
    }
    for name, value in rows.items():
        yield _plain(comparison, name, value)


def _speculation(comparison: Comparison) -> Iterator[Row]:
    rows: dict[str, Callable[[Side], str | None]] = {
        "K": lambda side: _count(side.num_speculative_tokens),
        "drafts": lambda side: _count(side.drafts) if side.speculating else None,
        "drafts/s": lambda side: _significant(side.drafts_per_second) if side.speculating else None,
        "acceptance ratio": lambda side: _share(side.acceptance_ratio),
        "mean acceptance length": lambda side: _with_margin(side.mean_acceptance_length),
        "mean draft length": lambda side: _two_decimals(side.mean_draft_length),
        "tokens out of drafts": lambda side: (
            None if side.coverage_ratio is None else f"{side.coverage_ratio:.1%}"
        ),
        "rejected draft tokens/s": lambda side: (
            _significant(side.rejected_tokens_per_second) if side.speculating else None
        ),
        "estimated speedup": lambda side: _ratio(side.estimated_speedup),
        "quality": lambda side: side.quality or None,
        "payoff": lambda side: side.payoff or None,
        "advice": lambda side: side.advice or None,
    }
    for name, value in rows.items():
        yield _plain(comparison, name, value)


def _cells(comparison: Comparison, cell: Callable[[Side, Pair | None], str | None]) -> tuple[str | None, ...]:
    first, *others = comparison.sides
    pairs = zip(others, comparison.pairs, strict=True)
    return cell(first, None), *(cell(side, pair) for side, pair in pairs)


def _plain(comparison: Comparison, name: str, cell: Callable[[Side], str | None]) -> Row:
    return Row(name, tuple(cell(side) for side in comparison.sides))


def _of(pair: Pair | None, name: str) -> LatencyComparison | None:
    latencies = () if pair is None else pair.latencies
    return next((latency for latency in latencies if latency.name == name), None)


def _finished(side: Side) -> float | None:
    found = side.latency(PER_TOKEN) or next(iter(side.latencies), None)
    return None if found is None else found.requests


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


def _share(interval: Interval | None) -> str | None:
    if interval is None:
        return None
    margin = "" if interval.half is None else f" ± {100 * interval.half:.1f}"
    return f"{100 * interval.value:.1f}{margin} %"


def _with_margin(interval: Interval | None) -> str | None:
    if interval is None:
        return None
    return f"{interval.value:.2f}" + ("" if interval.half is None else f" ± {interval.half:.2f}")


def _count(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}"


def _significant(value: float | None) -> str | None:
    return None if value is None else _digits(value)


def _two_decimals(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"
