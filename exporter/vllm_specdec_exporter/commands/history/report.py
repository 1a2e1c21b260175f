"""A history as text for a terminal, and as a plot. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import cycle
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...config.values import format_duration
from ...economics.statistics import Interval, format_ratio
from ...publish import plots
from ...publish.terminal import DASH, printable, shown, table, wrap
from ...publish.wording import range_words
from .document import HistoryDocument, ModelHistory, Summary
from .matching import BinSpeedup, Change

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Share of the traffic below which the speedup is not that of the usual load.
_LITTLE = 0.5
_HEADS = [
    "configuration",
    "from",
    "to",
    "requests",
    "running",
    "accepted",
    "ms/token",
    "tokens/s",
]
_LEGEND = (
    "running: replicas, and the requests in the batch of each: mean (P10 to P90 of the "
    "time); accepted: acceptance length and ratio; ms/token: mean at its own load, so "
    "not to be compared; tokens/s: of a replica while it generates; (x to y): 95 % "
    "interval; times in UTC."
)


def render(history: HistoryDocument, next_step: str = "") -> str:
    """Return the report; `next_step` is what to do with the written baseline, if there
    is one.
    """
    lines: list[str] = []
    for model in history.models:
        lines += _model(model, history.block_seconds)
    lines += wrap(_LEGEND, "  ", 2)
    for warning in history.warnings:
        lines += wrap(f"the server warns: {warning}", "  ", 4)
    if next_step:
        lines.append(f"  baseline written; {next_step}")
    return "\n".join(printable(line.rstrip()) for line in lines)


def _model(model: ModelHistory, block: float) -> Iterator[str]:
    yield model.name
    yield from table(
        _HEADS, map(_row, model.configurations), left=_HEADS[:3], indent="  "
    )
    yield ""
    for change in model.comparisons:
        yield from wrap(sentence(model, change), "  ", 4)
        if change.speedup is not None:
            yield from wrap(_how_compared(change, block), "    ", 6)
        if len(change.bins) > 1:
            yield from map(_bin, change.bins)
    if not model.comparisons:
        yield from wrap(f"nothing to compare: {model.problem}", "  ", 4)
    yield ""


def _row(summary: Summary) -> tuple[str, ...]:
    end = _clock(summary.last_seconds)
    if summary.periods > 1:
        end += f" ({summary.periods} times)"
    # Loads change over the day, so that a mean alone would mislead.
    spread = f"({_short(summary.running_p10)}-{_short(summary.running_p90)})"
    accepted = DASH
    if summary.mean_acceptance_length is not None:
        ratio = summary.acceptance_ratio or 0
        accepted = f"{summary.mean_acceptance_length:.2f}, {ratio:.0%}"
    milliseconds = summary.time_per_output_token_seconds
    if milliseconds is not None:
        milliseconds *= 1000
    return (
        summary.configuration.words,
        _clock(summary.first_seconds),
        end,
        f"{summary.requests:,.0f}",
        f"{summary.replicas} x {_short(summary.running)} {spread}",
        accepted,
        shown(milliseconds, "{:.2f}"),
        f"{summary.tokens_per_second:,.0f}",
    )


def sentence(model: ModelHistory, change: Change) -> str:
    """Return a change in words: since when, what changed, the speedup and the
    acceptance.
    """
    new = model.configurations[change.new]
    old = model.configurations[change.old]
    since = f"since {_time(new.first_seconds):%-d %B} ({_changed(new, old)})"
    speedup = change.speedup
    if speedup is None:
        return f"{since}: cannot be compared: {change.problem}"
    text = (
        f"{since}: {change.effect}, {format_ratio(speedup.value)} times as fast "
        f"({range_words(speedup)}) at the same load"
    )
    if change.coverage < _LITTLE:
        text += f", in {change.coverage:.0%} of its traffic"
    if new.mean_acceptance_length is not None:
        text += "; acceptance length "
        if old.mean_acceptance_length is not None:
            text += f"{old.mean_acceptance_length:.2f} to "
        text += f"{new.mean_acceptance_length:.2f}"
    return text


def _changed(new: Summary, old: Summary) -> str:
    """Return what changed: K alone, or whatever it was."""
    k = new.configuration.num_speculative_tokens
    k_before = old.configuration.num_speculative_tokens
    if k and k_before:
        old_with_k = replace(old.configuration, num_speculative_tokens=k)
        if old_with_k == new.configuration:
            return f"K {k_before} to {k}"
    return f"{new.configuration.words} against {old.configuration.words}"


def _how_compared(change: Change, block: float) -> str:
    text = (
        f"{change.coverage:.0%} of its traffic is compared, matched by "
        f"{', '.join(change.matched_by)}; in {change.blocks} and "
        f"{change.blocks_before} blocks of {format_duration(block)}"
    )
    if change.per_token:
        text += ", by inter-token latency over the tokens of a step"
    return text


def _bin(speedups: BinSpeedup) -> str:
    lowest = int(speedups.above) + 1
    if speedups.up_to is None:
        running = f"{lowest}+"
    elif lowest < speedups.up_to:
        running = f"{lowest} to {speedups.up_to:g}"
    else:
        running = str(lowest)
    interval = range_words(speedups.speedup) or "too few blocks for an interval"
    return (
        f"      {f'{running} running':<16} {format_ratio(speedups.speedup.value)} "
        f"({interval}), {speedups.share:.0%} of its traffic, at "
        f"{_short(speedups.running)} running"
    )


def _short(value: float) -> str:
    if value >= 10:
        return f"{value:.0f}"
    return f"{value:.1f}"


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _clock(seconds: float) -> str:
    return f"{_time(seconds):%-d %b %H:%M}"


def plot(models: Sequence[ModelHistory]) -> str:
    """Return configurations as bands with their speedups, and the load beneath, over
    time, as SVG.

    Raises ConfigError without matplotlib.
    """
    with plots.drawing(plots.HEIGHT * len(models)) as (figure, axes):
        axes.remove()
        rows = figure.subplots(
            2 * len(models),
            1,
            sharex=True,
            squeeze=False,
            height_ratios=[2, 1] * len(models),
        )[:, 0]
        sentences = []
        for model, speedups, load in zip(models, rows[::2], rows[1::2], strict=True):
            _draw(speedups, model)
            speedups.axhline(1.0, color=plots.INK, linewidth=1.2, linestyle=(0, (4, 3)))
            speedups.set_ylabel(f"{printable(model.name)}\nspeedup")
            load.plot(
                [_time(at) for at, _ in model.load],
                [running for _, running in model.load],
                color=plots.INK,
            )
            load.set_ylabel("running")
            sentences += [sentence(model, change) for change in model.comparisons]
        figure.autofmt_xdate()
        return plots.svg(figure, "Configurations and speedups", " ".join(sentences))


def _draw(axes: Axes, model: ModelHistory) -> None:
    measured: dict[int, Interval | None] = {}
    for change in model.comparisons:
        # The one against no speculation comes before the one against the configuration
        # before.
        measured.setdefault(change.new, change.speedup)
    colours = cycle(plots.PALETTE)
    for index, summary in enumerate(model.configurations):
        colour = next(colours)
        begin = _time(summary.first_seconds)
        span: Any = [begin, _time(summary.last_seconds)]
        axes.axvspan(*span, color=colour, alpha=0.15, linewidth=0)
        speedup = measured.get(index)
        if speedup is not None:
            axes.fill_between(
                span, speedup.low or 0.0, speedup.high or 0.0, color=colour, alpha=0.4
            )
            axes.plot(span, [speedup.value] * 2, color=colour, linewidth=1.8)
        position: Any = begin
        axes.annotate(
            printable(summary.configuration.words),
            xy=(position, 1),
            xycoords=("data", "axes fraction"),
            xytext=(2, -2),
            textcoords="offset points",
            rotation=90,
            va="top",
            fontsize=8,
        )
