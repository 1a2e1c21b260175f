"""The report of a comparison as text and as a page: the verdicts first, then a table.

Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...economics.statistics import Interval, SampleMean, format_ratio
from ...publish import pages, plots
from ...publish.plots import Plot
from ...publish.terminal import (
    DASH,
    GREEN,
    RED,
    YELLOW,
    digits,
    length,
    painter,
    percent,
    table,
    wrap,
)
from ...publish.wording import range_words
from .comparison import Comparison
from .side import END_TO_END, PACE, Side
from .verdict import SpeedComparison

#: Latencies in the order of the table, with their names.
LATENCIES = {
    PACE: "time per output token",
    "time_to_first_token": "time to first token",
    "end_to_end": "end to end",
}

#: The name of a quantity, and its value of the reference and of the side; a dash where
#: it does not exist.
Row = tuple[str, ...]
#: The name of a quantity, its value of a side, and how that is shown: data, so that a
#: new row is a line.
_Quantity = tuple[str, Callable[[Side], Any], Callable[[Any], str]]


def tables(comparison: Comparison) -> list[list[Row]]:
    """Return the table in its parts: speed, load, speculation.

    Quantities that no side has are left out.
    """
    parts = []
    for rows in (_speed(comparison), _load(comparison), _rows(comparison, _DRAFTS)):
        shown_rows = [row for row in rows if set(row[1:]) != {DASH}]
        if shown_rows:
            parts.append(shown_rows)
    return parts


#: The meaning of the marks and words in the table.
_LEGEND = (
    "x: times the value of {}. ±: 95 % interval of the sample.",
    (
        "~: interpolated within the server's buckets, so as coarse as these; without "
        "an interval."
    ),
    (
        "Requests at a time: finished per second times their mean time end to end "
        "(Little's law)."
    ),
    (
        "Estimated speedup: of the tokens out of drafts, by the cost profile, with its "
        "uncertainty."
    ),
)


def describe(side: Side) -> str:
    """Return what a side is, in a line."""
    facts = [
        _period(side),
        " and ".join(side.models),
        " ".join(filter(None, (side.dialect, side.version))),
    ]
    if side.engines > 1:
        facts.append(f"{side.engines} engines")
    facts.append(_drafting(side))
    return ", ".join(filter(None, facts))


def _period(side: Side) -> str:
    if side.measures.span_seconds is None:
        return "no period"
    how = "watched for" if side.live else "snapshot of"
    return f"{how} {side.measures.span_seconds:.0f} s"


def _drafting(side: Side) -> str:
    if side.speculating:
        drafting = " ".join(filter(None, ("speculation", side.method)))
        if side.num_speculative_tokens:
            drafting += f", K={side.num_speculative_tokens}"
        return drafting
    if side.speculating is False:
        return "no drafts"
    if side.measures.drafts == 0 and side.measures.generation_tokens_per_second:
        return "no drafts, which with a draft model is not without speculation"
    return ""


def _speed(comparison: Comparison) -> Iterator[Row]:
    speedup = _cell(comparison.speed.speedup, _speedup)
    speed_of_reference = DASH if speedup == DASH else "1"
    yield f"speed against {comparison.reference.name}", speed_of_reference, speedup
    for name, title in LATENCIES.items():
        means = [_mean(side, name) for side in comparison.sides]
        yield _with_ratio(f"{title}, mean", means)
        for quantile in ("p50", "p95", "p99"):
            values = [_quantile(side, name, quantile) for side in comparison.sides]
            yield _with_ratio(f"  {quantile.upper()} ~", values)
    yield from _rows(comparison, (("requests finished", _finished, _WHOLE),))


def _mean(side: Side, latency: str) -> Interval | None:
    mean = side.mean(latency)
    if mean is None:
        return None
    return mean.interval


def _quantile(side: Side, latency: str, quantile: str) -> Interval | None:
    return _point(getattr(side.latency(latency), f"{quantile}_seconds", None) or None)


def _point(value: float | None) -> Interval | None:
    if value is None:
        return None
    return Interval(value)


def _finished(side: Side) -> float | None:
    """Return the finished requests; ``None`` if it is not known whether any did."""
    for latency in (side.latency(PACE), side.latency(END_TO_END)):
        if latency is not None:
            return latency.requests
    # Requests began, and none has a sample yet.
    if side.measures.latencies:
        return 0.0
    return None


def _load(comparison: Comparison) -> Iterator[Row]:
    rates = [
        _point(side.measures.generation_tokens_per_second) for side in comparison.sides
    ]
    yield _with_ratio("generated tokens/s", rates, lambda rate: digits(rate.value))
    yield from _rows(comparison, _REQUESTS)


def _with_ratio(
    name: str,
    values: Sequence[Interval | None],
    form: Callable[[Interval], str] | None = None,
) -> Row:
    """Return a row in which the side has the ratio of its value to that of the
    reference.
    """
    reference, side = values
    cells = [_cell(value, form or _time) for value in values]
    if reference and reference.value and side:
        cells[1] += f"  x{side.value / reference.value:.2f}"
    return name, *cells


def _rows(comparison: Comparison, quantities: Iterable[_Quantity]) -> Iterator[Row]:
    for name, value_of, form in quantities:
        yield name, *(_cell(value_of(side), form) for side in comparison.sides)


def _cell(value: Any, form: Callable[[Any], str]) -> str:
    if value is None:
        return DASH
    return form(value) or DASH


def _speedup(interval: Interval) -> str:
    ends = range_words(interval)
    if ends:
        return f"{format_ratio(interval.value)} ({ends})"
    return format_ratio(interval.value)


def _time(interval: Interval) -> str:
    """Return a time with three digits: ``4.21 ms``, ``12.3 ms``, ``1.23 s``."""
    scale = 1000
    unit = " ms"
    if interval.value >= 1:
        scale = 1
        unit = " s"
    decimals = len(digits(scale * interval.value).partition(".")[2])
    return _with_margin(interval, scale, decimals) + unit


def _with_margin(interval: Interval, scale: int, decimals: int) -> str:
    text = f"{scale * interval.value:,.{decimals}f}"
    if interval.half is not None:
        text += f" ± {scale * interval.half:.{decimals}f}"
    return text


def _rejected(side: Side) -> float | None:
    drafted = side.measures.draft_tokens_per_second
    accepted = side.measures.accepted_tokens_per_second
    if not drafted or accepted is None:
        return None
    return max(0.0, drafted - accepted)


_WHOLE = "{:,.0f}".format
_REQUESTS: tuple[_Quantity, ...] = (
    ("requests finished/s", lambda side: side.requests_per_second, digits),
    ("requests at a time", lambda side: side.requests_at_a_time, digits),
    ("tokens a request", lambda side: side.tokens_per_request, _WHOLE),
    (
        "prompt tokens from the prefix cache",
        lambda side: side.measures.prefix_cache_hit_ratio,
        percent,
    ),
    ("requests running, at the end", lambda side: side.requests_running, _WHOLE),
    ("requests waiting, at the end", lambda side: side.requests_waiting, _WHOLE),
)
#: Where nothing was drafted, counts of drafts say nothing, so that 0 of them is none.
_DRAFTS: tuple[_Quantity, ...] = (
    ("K", lambda side: side.num_speculative_tokens, _WHOLE),
    ("drafts", lambda side: side.measures.drafts or None, _WHOLE),
    ("drafts/s", lambda side: side.measures.drafts_per_second or None, digits),
    (
        "acceptance ratio",
        lambda side: side.acceptance_ratio,
        lambda ratio: f"{_with_margin(ratio, 100, 1)} %",
    ),
    (
        "mean acceptance length",
        lambda side: side.mean_acceptance_length,
        lambda length: _with_margin(length, 1, 2),
    ),
    (
        "mean draft length",
        lambda side: side.measures.mean_draft_length,
        length,
    ),
    ("tokens out of drafts", lambda side: side.measures.coverage_ratio, percent),
    ("rejected draft tokens/s", _rejected, digits),
    ("estimated speedup", lambda side: side.measures.estimate.interval, _speedup),
    ("quality", lambda side: side.quality, str),
    ("payoff", lambda side: side.payoff, str),
    ("advice", lambda side: side.advice, str),
)
_COLOURS = {SpeedComparison.FASTER: GREEN, SpeedComparison.SLOWER: RED}


def render(comparison: Comparison, *, colour: bool = False) -> str:
    """Return the report on `comparison`; the text is complete without colours."""
    paint = painter(colour=colour)
    verdict_colour = _COLOURS.get(comparison.speed.outcome, YELLOW)
    lines = [paint(line, verdict_colour) for line in wrap(comparison.speed.text, "", 2)]
    for detail in details(comparison):
        lines += wrap(detail, "    ", 6)
    if comparison.warnings or comparison.notes:
        lines.append("")
    for warning in comparison.warnings:
        lines += [paint(line, YELLOW) for line in wrap(f"warning: {warning}", "", 2)]
    for note in comparison.notes:
        lines += wrap(f"note: {note}", "", 2)
    lines.append("")
    width = max(len(side.name) for side in comparison.sides)
    for side in comparison.sides:
        description = f"{side.source}: {describe(side)}"
        lines += wrap(description, f"  {side.name:<{width}}  ", width + 4)
    lines += _table(comparison)
    lines.append("")
    for explanation in _LEGEND:
        lines += wrap(explanation.format(comparison.reference.name), "  ", 4)
    return "\n".join(line.rstrip() for line in lines)


def details(comparison: Comparison) -> Iterator[str]:
    """Yield further lines on the verdict."""
    if comparison.gain is not None:
        yield comparison.gain.text
    if comparison.claim is not None:
        yield comparison.claim.text
    end_to_end = comparison.end_to_end_difference_seconds
    # At another load, waiting differs as well.
    comparable = comparison.load.same is not False
    if comparable and end_to_end is not None and end_to_end.low is not None:
        yield f"end to end: {_time_difference(end_to_end)}"
    length = comparison.acceptance_length_difference
    if length is not None and length.low is not None and length.high is not None:
        text = (
            f"mean acceptance length {length.value:+.2f} ({length.low:+.2f} to "
            f"{length.high:+.2f})"
        )
        ratio = comparison.acceptance_ratio_difference
        if ratio is not None and ratio.low is not None and ratio.high is not None:
            text += (
                f", acceptance ratio {100 * ratio.value:+.1f} points "
                f"({100 * ratio.low:+.1f} to {100 * ratio.high:+.1f})"
            )
        if length.holds(0):
            text += ": no difference that the sample supports"
        yield text


def _time_difference(interval: Interval) -> str:
    low = interval.low or 0.0
    high = interval.high or 0.0
    if interval.holds(0):
        return (
            f"no difference that the sample supports ({_signed(low)} to "
            f"{_signed(high)} a request)"
        )
    direction = "more" if interval.value > 0 else "less"
    nearer, farther = sorted((abs(low), abs(high)))
    return (
        f"{_seconds(abs(interval.value))} {direction} a request ({_seconds(nearer)} to "
        f"{_seconds(farther)})"
    )


def _seconds(seconds: float) -> str:
    return _time(Interval(seconds))


def _signed(seconds: float) -> str:
    sign = "-" if seconds < 0 else "+"
    return f"{sign}{_seconds(abs(seconds))}"


def _table(comparison: Comparison) -> Iterator[str]:
    names = [side.name for side in comparison.sides]
    heads = ("", *names)
    rows: list[Row] = []
    for part in tables(comparison):
        # One table, or the columns of its parts would not be under each other.
        if rows:
            rows.append(("",) * len(heads))
        rows += part
    yield ""
    yield from table(heads, rows, left=heads, indent="  ")


def render_page(comparison: Comparison) -> str:
    """Return the report with plots as one self-contained HTML document; ConfigError
    without matplotlib.
    """
    return pages.report(
        "compare_report.html",
        comparison=comparison,
        plots=tuple(_plots(comparison)),
        report=render(comparison),
    )


def _plots(comparison: Comparison) -> Iterator[Plot]:
    sides = comparison.sides
    reference = comparison.reference.name
    speed = {comparison.side.name: comparison.speed.speedup}
    yield from _bars(
        "Speed per output token", speed, f"times as fast as {reference}", line=1.0
    )
    for name, latency in LATENCIES.items():
        means = {side.name: _milliseconds(side.mean(name)) for side in sides}
        yield from _bars(f"{latency.capitalize()}, mean", means, "ms", form="{:,.3g}")
    lengths = {side.name: side.mean_acceptance_length for side in sides}
    yield from _bars("Mean acceptance length", lengths, "tokens per draft")
    yield from _positions(sides)


def _positions(sides: tuple[Side, Side]) -> Iterator[Plot]:
    series = []
    for side in sides:
        ratios = side.measures.position_acceptance_ratio
        if ratios:
            points = {float(i): Interval(ratio) for i, ratio in enumerate(ratios)}
            series.append(plots.Series(side.name, points))
    if not series:
        return
    yield plots.lines(
        "Acceptance by position",
        series,
        x_label="position",
        y_label="share of drafts",
        y_range=(0.0, 1.0),
    )


def _bars(
    title: str,
    values: Mapping[str, Interval | None],
    unit: str,
    form: str = "{:.2f}",
    line: float | None = None,
) -> Iterator[Plot]:
    """Yield a plot, unless no side has a value."""
    if any(values.values()):
        yield plots.bars_with_intervals(
            title, values, x_label=unit, form=form, reference=line
        )


def _milliseconds(mean: SampleMean | None) -> Interval | None:
    if mean is None:
        return None
    error = mean.error and 1000 * mean.error
    return SampleMean(1000 * mean.mean, error, mean.freedom).interval
