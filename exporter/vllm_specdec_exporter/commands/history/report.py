"""A history as text for a terminal, and as a plot. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle
from typing import TYPE_CHECKING, Any

from ...config.values import format_duration
from ...economics.statistics import times
from ...publish import plots
from ...publish.wording import DASH, printable, range_words, shown, table, wrap
from .matching import Comparison
from .past import History, ModelHistory, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Share of the traffic below which the speedup is not that of the usual load.
_LITTLE = 0.5
_HEADS = (
    "configuration",
    "from",
    "to",
    "requests",
    "running",
    "accepted",
    "ms/token",
    "tokens/s",
)


def render(history: History, out: str = "") -> str:
    """Return the report; `out` is the written baseline, if any."""
    lines: list[str] = []
    for model in history.models:
        lines += _model(model, history.block_seconds)
    lines += wrap(
        "running: replicas, and the requests in the batch of each: mean (P10 to P90 "
        "of the time); accepted: "
        "acceptance length and ratio; ms/token: mean at its own load, so not to be "
        "compared; tokens/s: of a "
        "replica while it generates; (x to y): 95 % interval; times in UTC.",
        "  ",
        2,
    )
    for warning in history.warnings:
        lines += wrap(f"the server warns: {warning}", "  ", 4)
    if out:
        lines.append(
            f"  baseline written; give it to the exporter with --baseline.file {out}"
        )
    return "\n".join(printable(line.rstrip()) for line in lines)


def _model(model: ModelHistory, block: float) -> Iterator[str]:
    yield model.name
    yield from table(
        _HEADS, map(_row, model.configurations), left=_HEADS[:3], indent="  "
    )
    yield ""
    for comparison in model.comparisons:
        yield from wrap(sentence(model, comparison), "  ", 4)
        yield from _details(comparison, block)
    if not model.comparisons:
        yield from wrap(f"nothing to compare: {model.problem}", "  ", 4)
    yield ""


def _row(summary: Summary) -> tuple[str, ...]:
    length = summary.mean_acceptance_length
    seconds = summary.time_per_output_token_seconds
    spread = f" ({_short(summary.running_p10)}-{_short(summary.running_p90)})"
    return (
        summary.configuration.words,
        _clock(summary.first_seconds),
        _clock(summary.last_seconds)
        + (f" ({summary.periods} times)" if summary.periods > 1 else ""),
        f"{summary.requests:,.0f}",
        f"{summary.replicas} x {_short(summary.running)}{spread}",
        DASH
        if length is None
        else f"{length:.2f}, {summary.acceptance_ratio or 0:.0%}",
        shown(seconds and 1000 * seconds, "{:.2f}"),
        f"{summary.tokens_per_second:,.0f}",
    )


def sentence(model: ModelHistory, comparison: Comparison) -> str:
    """Return a comparison in words: since when, the change, the speedup and the
    acceptance.
    """
    new, old = (
        model.configurations[place] for place in (comparison.new, comparison.old)
    )
    change = f"{new.configuration.words} against {old.configuration.words}"
    k, before = (each.configuration.num_speculative_tokens for each in (new, old))
    if (
        k
        and before
        and replace(old.configuration, num_speculative_tokens=k) == new.configuration
    ):
        change = f"K {before} to {k}"
    speedup = comparison.speedup
    begin = f"since {_time(new.first_seconds):%-d %B} ({change}): "
    if speedup is None:
        return f"{begin}cannot be compared: {comparison.problem}"
    words = (
        f"{begin}{comparison.effect}, {times(speedup.value)} times as fast "
        f"({range_words(speedup)}) "
        "at the same load"
    )
    if comparison.coverage < _LITTLE:
        words += f", in {comparison.coverage:.0%} of its traffic"
    length = new.mean_acceptance_length
    earlier = old.mean_acceptance_length
    if length is not None:
        words += (
            "; acceptance length "
            f"{'' if earlier is None else f'{earlier:.2f} to '}{length:.2f}"
        )
    return words


def _details(comparison: Comparison, block: float) -> Iterator[str]:
    if comparison.speedup is None:
        return
    if comparison.per_token:
        measure = ", by inter-token latency over the tokens of a step"
    else:
        measure = ""
    matched_by = ", ".join(comparison.matched_by)
    yield from wrap(
        f"{comparison.coverage:.0%} of its traffic is compared, matched by "
        f"{matched_by}; "
        f"in {comparison.blocks} and {comparison.blocks_before} blocks of "
        f"{format_duration(block)}{measure}",
        "    ",
        6,
    )
    for each in comparison.bins if len(comparison.bins) > 1 else ():
        low = int(each.above) + 1
        if each.up_to is None:
            bin_ = f"{low}+"
        elif low < each.up_to:
            bin_ = f"{low} to {each.up_to:g}"
        else:
            bin_ = str(low)
        interval = range_words(each.speedup) or "too few blocks for an interval"
        measured = (
            f"{times(each.speedup.value)} ({interval}), {each.share:.0%} of its traffic"
        )
        yield (
            f"      {f'{bin_} running':<16} {measured}, at {_short(each.running)} "
            "running"
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
        )
        for model, above, beneath in zip(
            models, rows[::2, 0], rows[1::2, 0], strict=True
        ):
            _draw(above, model)
            above.axhline(1.0, color=plots.INK, linewidth=1.2, linestyle=(0, (4, 3)))
            above.set_ylabel(f"{printable(model.name)}\nspeedup")
            beneath.plot(
                [_time(at) for at, _ in model.load],
                [load for _, load in model.load],
                color=plots.INK,
            )
            beneath.set_ylabel("running")
        figure.autofmt_xdate()
        description = " ".join(
            sentence(model, c) for model in models for c in model.comparisons
        )
        return plots.svg(figure, "Configurations and speedups", description)


def _draw(axes: Axes, model: ModelHistory) -> None:
    # The one against no speculation, which comes before the one against the
    # configuration before.
    measured = {
        comparison.new: comparison.speedup for comparison in model.comparisons[::-1]
    }
    for place, (summary, colour) in enumerate(
        zip(model.configurations, cycle(plots.PALETTE), strict=False)
    ):
        span: Any = [_time(summary.first_seconds), _time(summary.last_seconds)]
        axes.axvspan(*span, color=colour, alpha=0.15, linewidth=0)
        if speedup := measured.get(place):
            axes.fill_between(
                span, speedup.low or 0.0, speedup.high or 0.0, color=colour, alpha=0.4
            )
            axes.plot(span, [speedup.value] * 2, color=colour, linewidth=1.8)
        within: Any = {
            "xycoords": ("data", "axes fraction"),
            "textcoords": "offset points",
        }
        look: Any = {"rotation": 90, "va": "top", "fontsize": 8}
        axes.annotate(
            printable(summary.configuration.words),
            (span[0], 1),
            (2, -2),
            **within,
            **look,
        )
