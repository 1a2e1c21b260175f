"""The report of a comparison as text and as a page: the verdicts first, then a table.

Pure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from ...economics.statistics import Interval, SampleMean, times
from ...publish import pages, plots
from ...publish.plots import Plot
from ...publish.terminal import DASH, GREEN, RED, YELLOW, digits, painter, table, wrap
from ...publish.wording import range_words
from .comparison import Comparison
from .side import PACE, Side
from .verdict import SpeedComparison

#: Latencies in the order of the table, with their names.
LATENCIES = {
    PACE: "time per output token",
    "time_to_first_token": "time to first token",
    "end_to_end": "end to end",
}

#: The name of a quantity, and its value of the reference and of the side; ``None`` if
#: it does not exist.
Row = tuple[str, tuple[str | None, ...]]


def tables(comparison: Comparison) -> list[list[Row]]:
    """Return the table in its parts: speed, load, speculation.

    Quantities that no side has are left out.
    """
    parts = []
    for rows in (_speed(comparison), _load(comparison), _speculation(comparison)):
        shown = [row for row in rows if any(row[1])]
        if shown:
            parts.append(shown)
    return parts


def legend(comparison: Comparison) -> tuple[str, ...]:
    """Return the meaning of the marks and words in the table."""
    return (
        (
            f"x: times the value of {comparison.reference.name}. ±: 95 % interval of "
            "the sample."
        ),
        (
            "~: interpolated within the server's buckets, so as coarse as these; "
            "without an interval."
        ),
        (
            "Requests at a time: finished per second times their mean time end to end "
            "(Little's law)."
        ),
        (
            "Estimated speedup: of the tokens out of drafts, by the cost profile, with "
            "its uncertainty."
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
    how = "snapshot of"
    if side.live:
        how = "watched for"
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
    speedup = _ratio(comparison.speed.speedup)
    speed_of_reference: str | None = None
    if speedup:
        speed_of_reference = "1"
    yield (
        f"speed against {comparison.reference.name}",
        (speed_of_reference, speedup),
    )
    for name, title in LATENCIES.items():
        yield _mean_row(comparison, name, title)
        for quantile in ("p50", "p95", "p99"):
            yield _quantile_row(comparison, name, quantile)
    yield (
        "requests finished",
        tuple(_formatted(_finished(side)) for side in comparison.sides),
    )


def _mean_row(comparison: Comparison, name: str, title: str) -> Row:
    texts: list[str | None] = []
    values: list[float | None] = []
    for side in comparison.sides:
        mean = side.mean(name)
        if mean is None:
            texts.append(None)
            values.append(None)
        else:
            texts.append(_time(mean.interval))
            values.append(mean.mean)
    return f"{title}, mean", _beside(texts, values)


def _quantile_row(comparison: Comparison, name: str, quantile: str) -> Row:
    texts: list[str | None] = []
    values: list[float | None] = []
    for side in comparison.sides:
        value = getattr(side.latency(name), f"{quantile}_seconds", None)
        values.append(value)
        texts.append(value and time(value))
    return f"  {quantile.upper()} ~", _beside(texts, values)


def _finished(side: Side) -> float | None:
    """Return the requests behind the speed, or behind what latency there is."""
    latency = side.latency(PACE)
    if latency is None and side.measures.latencies:
        latency = side.measures.latencies[0]
    if latency is None:
        return None
    return latency.requests


def _beside(
    texts: Sequence[str | None], values: Sequence[float | None]
) -> tuple[str | None, ...]:
    """Return both texts, the one of the side with the ratio of its value to that of the
    reference.
    """
    text_of_reference, text = texts
    value_of_reference, value = values
    if text and value_of_reference and value is not None:
        text += f"  x{value / value_of_reference:.2f}"
    return text_of_reference, text


def _load(comparison: Comparison) -> Iterator[Row]:
    rates = [side.measures.generation_tokens_per_second for side in comparison.sides]
    yield "generated tokens/s", _beside([_significant(rate) for rate in rates], rates)
    yield from _rows(
        comparison.sides,
        {
            "requests finished/s": lambda side: _significant(side.requests_per_second),
            "requests at a time": lambda side: _significant(side.requests_at_a_time),
            "tokens a request": lambda side: _formatted(side.tokens_per_request),
            "requests running, at the end": lambda side: _formatted(
                side.requests_running
            ),
            "requests waiting, at the end": lambda side: _formatted(
                side.requests_waiting
            ),
        },
    )


def _speculation(comparison: Comparison) -> Iterator[Row]:
    return _rows(
        comparison.sides,
        {
            "K": lambda side: _formatted(side.num_speculative_tokens),
            "drafts": lambda side: _formatted(_if_speculating(side, "drafts")),
            "drafts/s": lambda side: _significant(
                _if_speculating(side, "drafts_per_second")
            ),
            "acceptance ratio": _acceptance_ratio,
            "mean acceptance length": _acceptance_length,
            "mean draft length": lambda side: _formatted(
                side.measures.mean_draft_length, ".2f"
            ),
            "tokens out of drafts": lambda side: _formatted(
                side.measures.coverage_ratio, ".1%"
            ),
            "rejected draft tokens/s": lambda side: _significant(_rejected(side)),
            "estimated speedup": lambda side: _ratio(side.estimated_speedup),
            "quality": lambda side: side.quality or None,
            "payoff": lambda side: side.payoff or None,
            "advice": lambda side: side.advice or None,
        },
    )


def _rows(
    sides: tuple[Side, Side], cells: Mapping[str, Callable[[Side], str | None]]
) -> Iterator[Row]:
    for name, cell in cells.items():
        yield name, tuple(map(cell, sides))


def _if_speculating(side: Side, name: str) -> float | None:
    if not side.speculating:
        return None
    value: float | None = getattr(side.measures, name)
    return value


def _rejected(side: Side) -> float | None:
    drafted = _if_speculating(side, "draft_tokens_per_second")
    accepted = side.measures.accepted_tokens_per_second
    if drafted is None or accepted is None:
        return None
    return max(0.0, drafted - accepted)


def _acceptance_ratio(side: Side) -> str | None:
    ratio = side.acceptance_ratio
    if ratio is None:
        return None
    margin = ""
    if ratio.half is not None:
        margin = f" ± {100 * ratio.half:.1f}"
    return f"{100 * ratio.value:.1f}{margin} %"


def _acceptance_length(side: Side) -> str | None:
    length = side.mean_acceptance_length
    if length is None:
        return None
    margin = ""
    if length.half is not None:
        margin = f" ± {length.half:.2f}"
    return f"{length.value:.2f}{margin}"


def time(seconds: float) -> str:
    """Return a time with three digits: ``4.21 ms``, ``12.3 ms``, ``1.23 s``."""
    if seconds >= 1:
        return f"{digits(seconds)} s"
    return f"{digits(1000 * seconds)} ms"


def _time(interval: Interval) -> str:
    if interval.half is None:
        return time(interval.value)
    scale = 1000
    unit = "ms"
    if interval.value >= 1:
        scale = 1
        unit = "s"
    value = digits(scale * interval.value)
    decimals = len(value.partition(".")[2])
    return f"{value} ± {scale * interval.half:.{decimals}f} {unit}"


def _ratio(interval: Interval | None) -> str | None:
    if interval is None:
        return None
    ratio = times(interval.value)
    ends = range_words(interval)
    if ends:
        return f"{ratio} ({ends})"
    return ratio


def _formatted(value: float | None, form: str = ",.0f") -> str | None:
    if value is None:
        return None
    return format(value, form)


def _significant(value: float | None) -> str | None:
    if value is None:
        return None
    return digits(value)


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
    for explanation in legend(comparison):
        lines += wrap(explanation, "  ", 4)
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
        text += _ratio_difference(comparison.acceptance_ratio_difference)
        if length.low <= 0 <= length.high:
            text += ": no difference that the sample supports"
        yield text


def _ratio_difference(ratio: Interval | None) -> str:
    if ratio is None or ratio.low is None or ratio.high is None:
        return ""
    return (
        f", acceptance ratio {100 * ratio.value:+.1f} points "
        f"({100 * ratio.low:+.1f} to {100 * ratio.high:+.1f})"
    )


def _time_difference(interval: Interval) -> str:
    low = interval.low or 0.0
    high = interval.high or 0.0
    if low <= 0 <= high:
        return (
            f"no difference that the sample supports ({_signed(low)} to "
            f"{_signed(high)} a request)"
        )
    direction = "less"
    if interval.value > 0:
        direction = "more"
    nearer, farther = sorted((abs(low), abs(high)))
    return (
        f"{time(abs(interval.value))} {direction} a request ({time(nearer)} to "
        f"{time(farther)})"
    )


def _signed(seconds: float) -> str:
    sign = "+"
    if seconds < 0:
        sign = "-"
    return f"{sign}{time(abs(seconds))}"


def _table(comparison: Comparison) -> Iterator[str]:
    parts = tables(comparison)
    heads = ("", *(side.name for side in comparison.sides))
    rows = []
    for part in parts:
        for name, cells in part:
            rows.append((name, *(cell or DASH for cell in cells)))
    head, *lines = table(heads, rows, left=heads, indent="  ")
    yield ""
    yield head
    remaining = iter(lines)
    for number, part in enumerate(parts):
        if number:
            yield ""
        yield from islice(remaining, len(part))


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
        yield from _bars(
            f"{latency[:1].upper()}{latency[1:]}, mean", means, "ms", form="{:,.3g}"
        )
    lengths = {side.name: side.mean_acceptance_length for side in sides}
    yield from _bars("Mean acceptance length", lengths, "tokens per draft")
    yield from _positions(sides)


def _positions(sides: tuple[Side, Side]) -> Iterator[Plot]:
    series = []
    descriptions = []
    for side in sides:
        ratios = side.measures.position_acceptance_ratio
        if ratios:
            points = [plots.Point(float(i), ratio) for i, ratio in enumerate(ratios)]
            series.append(plots.Series(side.name, tuple(points)))
            numbers = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            descriptions.append(f"{side.name}: {numbers}")
    if not series:
        return
    title = "Acceptance by position"
    drawn = plots.lines(
        title,
        series,
        x_label="position in the draft",
        y_label="share of drafts",
        description="; ".join(descriptions),
        y_range=(0.0, 1.0),
    )
    yield Plot(title, drawn)


def _bars(
    title: str,
    values: Mapping[str, Interval | None],
    unit: str,
    form: str = "{:.2f}",
    line: float | None = None,
) -> Iterator[Plot]:
    """Yield a plot, unless no side has a value."""
    if not any(values.values()):
        return
    description = "; ".join(
        f"{name} {plots.bar_label(value, form)}" for name, value in values.items()
    )
    drawn = plots.bars_with_intervals(
        title,
        values,
        x_label=unit,
        description=description,
        form=form,
        reference=line,
    )
    yield Plot(title, drawn)


def _milliseconds(mean: SampleMean | None) -> Interval | None:
    if mean is None:
        return None
    error = mean.error
    if error is not None:
        error *= 1000
    return SampleMean(1000 * mean.mean, error, mean.freedom).interval
