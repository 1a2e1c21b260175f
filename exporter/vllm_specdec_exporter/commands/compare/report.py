"""The report of a comparison as text and as a page: the verdicts first, then a table.

Pure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from ...economics.statistics import Interval, SampleMean, times
from ...publish import pages, plots
from ...publish.plots import Plot
from ...publish.wording import (
    DASH,
    GREEN,
    RED,
    YELLOW,
    digits,
    painter,
    range_words,
    table,
    wrap,
)
from .comparison import Comparison
from .side import PER_TOKEN, Side
from .verdict import SpeedComparison

#: Latencies in the order of the table, with their names.
LATENCIES = {
    PER_TOKEN: "time per output token",
    "time_to_first_token": "time to first token",
    "end_to_end": "end to end",
}


#: The name of a quantity, and its value of both sides; ``None`` if it does not exist.
Row = tuple[str, tuple[str | None, ...]]
_Cells = dict[str, Callable[[Side], str | None]]


def tables(comparison: Comparison) -> list[list[Row]]:
    """Return the table in its parts: speed, load, speculation.

    Quantities that no side has are left out.
    """
    parts = _speed(comparison), _load(comparison), _speculation(comparison)
    shown = ([(name, cells) for name, cells in rows if any(cells)] for rows in parts)
    return [rows for rows in shown if rows]


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
    if side.speculating:
        drafting = " ".join(filter(None, ("speculation", side.method)))
        if side.num_speculative_tokens:
            drafting += f", K={side.num_speculative_tokens}"
    elif side.speculating is False:
        drafting = "no drafts"
    elif side.measures.drafts == 0 and side.measures.generation_tokens_per_second:
        drafting = "no drafts, which with a draft model is not without speculation"
    else:
        drafting = ""
    if side.measures.span_seconds is None:
        period = ""
    else:
        period = f"{side.measures.span_seconds:.0f} s"
    facts = (
        f"{'watched for' if side.live else 'snapshot of'} {period}"
        if period
        else "no period",
        " and ".join(side.models),
        " ".join(filter(None, (side.dialect, side.version))),
        f"{side.engines} engines" if side.engines > 1 else "",
        drafting,
    )
    return ", ".join(filter(None, facts))


def _speed(comparison: Comparison) -> Iterator[Row]:
    speedup = _ratio(comparison.speed.speedup)
    sides = comparison.sides
    yield f"speed against {comparison.reference.name}", (speedup and "1", speedup)
    for name, words in LATENCIES.items():
        means = [side.mean(name) for side in sides]
        cells = [None if mean is None else _time(mean.interval) for mean in means]
        yield (
            f"{words}, mean",
            _beside(cells, [None if mean is None else mean.mean for mean in means]),
        )
        for quantile in ("p50", "p95", "p99"):
            values = [
                getattr(side.latency(name), f"{quantile}_seconds", None)
                for side in sides
            ]
            cells = [None if value is None else time(value) for value in values]
            yield f"  {quantile.upper()} ~", _beside(cells, values)
    finished = (
        side.latency(PER_TOKEN) or next(iter(side.measures.latencies), None)
        for side in sides
    )
    yield (
        "requests finished",
        tuple(None if one is None else _formatted(one.requests) for one in finished),
    )


def _beside(
    cells: Sequence[str | None], values: Sequence[float | None]
) -> tuple[str | None, ...]:
    """Return both cells, the one of the side with the ratio of its value to that of the
    reference.
    """
    (reference, side), (there, here) = cells, values
    ratio = "" if not there or here is None else f"  x{here / there:.2f}"
    return reference, side and side + ratio


def _load(comparison: Comparison) -> Iterator[Row]:
    rates = [side.measures.generation_tokens_per_second for side in comparison.sides]
    yield "generated tokens/s", _beside([_significant(rate) for rate in rates], rates)
    rows: _Cells = {
        "requests finished/s": lambda side: _significant(side.requests_per_second),
        "requests at a time": lambda side: _significant(side.requests_at_a_time),
        "tokens a request": lambda side: _formatted(side.tokens_per_request),
        "requests running, at the end": lambda side: _formatted(side.requests_running),
        "requests waiting, at the end": lambda side: _formatted(side.requests_waiting),
    }
    yield from (
        (name, tuple(map(cell, comparison.sides))) for name, cell in rows.items()
    )


def _speculation(comparison: Comparison) -> Iterator[Row]:
    rows: _Cells = {
        "K": lambda side: _formatted(side.num_speculative_tokens),
        "drafts": lambda side: (
            _formatted(side.measures.drafts) if side.speculating else None
        ),
        "drafts/s": lambda side: (
            _significant(side.measures.drafts_per_second) if side.speculating else None
        ),
        "acceptance ratio": lambda side: _with_margin(
            side.acceptance_ratio, 100, ".1f", " %"
        ),
        "mean acceptance length": lambda side: _with_margin(
            side.mean_acceptance_length, 1, ".2f", ""
        ),
        "mean draft length": lambda side: _formatted(
            side.measures.mean_draft_length, ".2f"
        ),
        "tokens out of drafts": lambda side: _formatted(
            side.measures.coverage_ratio, ".1%"
        ),
        "rejected draft tokens/s": lambda side: (
            _significant(_rejected(side)) if side.speculating else None
        ),
        "estimated speedup": lambda side: _ratio(side.estimated_speedup),
        "quality": lambda side: side.quality or None,
        "payoff": lambda side: side.payoff or None,
        "advice": lambda side: side.advice or None,
    }
    yield from (
        (name, tuple(map(cell, comparison.sides))) for name, cell in rows.items()
    )


def _rejected(side: Side) -> float | None:
    drafted = side.measures.draft_tokens_per_second
    accepted = side.measures.accepted_tokens_per_second
    if drafted is None or accepted is None:
        return None
    return max(0.0, drafted - accepted)


def time(seconds: float) -> str:
    """Return a time with three digits: ``4.21 ms``, ``12.3 ms``, ``1.23 s``."""
    if seconds >= 1:
        return f"{digits(seconds)} s"
    return f"{digits(1000 * seconds)} ms"


def _time(interval: Interval) -> str:
    if interval.half is None:
        return time(interval.value)
    scale, unit = (1, "s") if interval.value >= 1 else (1000, "ms")
    shown = digits(scale * interval.value)
    decimals = len(shown.partition(".")[2])
    return f"{shown} ± {scale * interval.half:.{decimals}f} {unit}"


def _ratio(interval: Interval | None) -> str | None:
    if interval is None:
        return None
    words = times(interval.value)
    ends = range_words(interval)
    if ends:
        return f"{words} ({ends})"
    return words


def _with_margin(
    interval: Interval | None, scale: float, form: str, unit: str
) -> str | None:
    if interval is None:
        return None
    if interval.half is None:
        margin = ""
    else:
        margin = f" ± {scale * interval.half:{form}}"
    return f"{scale * interval.value:{form}}{margin}{unit}"


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
    lines: list[str] = []
    verdict = _COLOURS.get(comparison.speed.outcome, YELLOW)
    lines += [paint(line, verdict) for line in wrap(comparison.speed.text, "", 2)]
    for detail in details(comparison):
        lines += wrap(detail, "    ", 6)
    if comparison.warnings or comparison.notes:
        lines.append("")
    for warning in comparison.warnings:
        lines += [paint(line, YELLOW) for line in wrap(f"warning: {warning}", "", 2)]
    for remark in comparison.notes:
        lines += wrap(f"note: {remark}", "", 2)
    lines.append("")
    width = max(len(side.name) for side in comparison.sides)
    for side in comparison.sides:
        lines += wrap(
            f"{side.source}: {describe(side)}", f"  {side.name:<{width}}  ", width + 4
        )
    lines += _table(comparison)
    lines.append("")
    for words in legend(comparison):
        lines += wrap(words, "  ", 4)
    return "\n".join(line.rstrip() for line in lines)


def details(comparison: Comparison) -> Iterator[str]:
    """Yield further lines on the verdict."""
    if comparison.gain is not None:
        yield comparison.gain.text
    if comparison.claim is not None:
        yield comparison.claim.text
    whole = comparison.end_to_end_difference_seconds
    if (
        whole is not None
        and whole.low is not None
        and comparison.load.same is not False
    ):
        yield f"end to end: {_difference(whole)}"
    length = comparison.acceptance_length_difference
    ratio = comparison.acceptance_ratio_difference
    if length is not None and length.low is not None:
        words = (
            f"mean acceptance length {length.value:+.2f} ({length.low:+.2f} to "
            f"{length.high:+.2f})"
        )
        if ratio is not None and ratio.low is not None and ratio.high is not None:
            words += (
                f", acceptance ratio {100 * ratio.value:+.1f} points "
                f"({100 * ratio.low:+.1f} to {100 * ratio.high:+.1f})"
            )
        unsure = length.low <= 0 <= (length.high or 0)
        yield f"{words}{': no difference that the sample supports' if unsure else ''}"


def _difference(interval: Interval) -> str:
    low = interval.low or 0.0
    high = interval.high or 0.0
    if low <= 0 <= high:
        return (
            f"no difference that the sample supports ({_signed(low)} to "
            f"{_signed(high)} a request)"
        )
    word = "more" if interval.value > 0 else "less"
    ends = sorted((abs(low), abs(high)))
    return (
        f"{time(abs(interval.value))} {word} a request ({time(ends[0])} to "
        f"{time(ends[1])})"
    )


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{time(abs(seconds))}"


def _table(comparison: Comparison) -> Iterator[str]:
    parts = tables(comparison)
    heads = ("", *(side.name for side in comparison.sides))
    rows = (
        (name, *(cell or DASH for cell in cells))
        for part in parts
        for name, cells in part
    )
    head, *lines = table(heads, rows, left=heads, indent="  ")
    yield from ("", head)
    for number, part in enumerate(parts):
        if number:
            yield ""
        for _ in part:
            yield lines.pop(0)


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
    for name, words in LATENCIES.items():
        means = {side.name: _milliseconds(side.mean(name)) for side in sides}
        yield from _bars(
            f"{words[:1].upper()}{words[1:]}, mean", means, "ms", form="{:,.3g}"
        )
    lengths = {side.name: side.mean_acceptance_length for side in sides}
    yield from _bars("Mean acceptance length", lengths, "tokens per draft")
    yield from _positions(sides)


def _positions(sides: tuple[Side, ...]) -> Iterator[Plot]:
    series = [
        plots.Series(
            side.name,
            tuple(plots.Point(float(i), ratio) for i, ratio in enumerate(ratios)),
        )
        for side in sides
        if (ratios := side.measures.position_acceptance_ratio)
    ]
    if not series:
        return
    title = "Acceptance by position"
    drawn = plots.lines(
        title,
        series,
        x_label="position in the draft",
        y_label="share of drafts",
        description="; ".join(
            f"{s.name}: " + ", ".join(f"{p.y:.2f}" for p in s.points) for s in series
        ),
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
    words = "; ".join(
        f"{name} {plots.bar_label(value, form)}" for name, value in values.items()
    )
    drawn = plots.bars_with_intervals(
        title, values, x_label=unit, description=words, form=form, reference=line
    )
    yield Plot(title, drawn)


def _milliseconds(mean: SampleMean | None) -> Interval | None:
    if mean is None:
        return None
    return SampleMean(
        1000 * mean.mean, mean.error and 1000 * mean.error, mean.freedom
    ).interval
