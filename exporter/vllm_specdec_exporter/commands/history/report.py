"""A history as text for a terminal, and as a plot. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...config.values import format_duration
from ...economics.statistics import format_ratio
from ...publish import plots
from ...publish.terminal import DASH, printable, shown, table, wrap
from ...publish.wording import range_words
from .document import HistoryDocument, ModelHistory, Summary
from .matching import BinSpeedup, Change, Uncompared

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Share of the traffic below which the speedup is not that of all of it.
_NEARLY_ALL = 0.9
#: Factor between the prompts or answers of two configurations that are the same.
_SAME_LENGTH = 1.1
#: Share of the requests up to which those that are left out are not shown.
_FEW_LEFT_OUT = 0.05
#: Inches of the plots of a model: speedups, load, and speedups by load.
_PLOT_HEIGHT = 1.7 * plots.HEIGHT
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
    "interval; times in UTC; requests: without those in parentheses, near a start or "
    "an end; (n times): with another configuration, or nothing for a block, between."
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
            yield from wrap(_how_compared(model, change, block), "    ", 6)
        if len(change.bins) > 1:
            yield from map(_bin, change.bins)
    if model.problem:
        nothing = "" if model.comparisons else "nothing to compare: "
        yield from wrap(f"{nothing}{model.problem}", "  ", 4)
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
    requests = f"{summary.requests:,.0f}"
    if summary.requests_left_out > _FEW_LEFT_OUT * summary.requests:
        requests += f" (+{summary.requests_left_out:,.0f})"
    return (
        summary.configuration.words,
        _clock(summary.first_seconds),
        end,
        requests,
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
    if change.coverage < _NEARLY_ALL:
        text += f", in {change.coverage:.0%} of its traffic"
        if change.uncompared is not None:
            text += f"; {_rest(change.uncompared)}"
    if change.other_changes:
        text += f"; something else changed too: {', '.join(change.other_changes)}"
    if new.mean_acceptance_length is not None:
        text += "; acceptance length "
        if old.mean_acceptance_length is not None:
            text += f"{old.mean_acceptance_length:.2f} to "
        text += f"{new.mean_acceptance_length:.2f}"
    return text


def _rest(rest: Uncompared) -> str:
    """Return in words what is not compared."""
    text = (
        f"not known for the other {rest.share:.0%}, at {_short(rest.running)} running "
        f"({_short(rest.running_low)} to {_short(rest.running_high)})"
    )
    if rest.prompt_tokens is not None:
        text += f" with prompts of {rest.prompt_tokens:,.0f} tokens"
    return text


def _lengths(new: Summary, old: Summary) -> Iterator[str]:
    """Yield what requests are longer or shorter than before."""
    for name, length, length_before in (
        ("prompts", new.prompt_tokens, old.prompt_tokens),
        ("answers", new.answer_tokens, old.answer_tokens),
    ):
        if not length or not length_before:
            continue
        longer, shorter = max(length, length_before), min(length, length_before)
        if longer > _SAME_LENGTH * shorter:
            yield f"{name} of {length:,.0f} tokens, before {length_before:,.0f}"


def _changed(new: Summary, old: Summary) -> str:
    """Return what changed: K alone, or whatever it was."""
    k = new.configuration.num_speculative_tokens
    k_before = old.configuration.num_speculative_tokens
    if k and k_before:
        old_with_k = replace(old.configuration, num_speculative_tokens=k)
        if old_with_k == new.configuration:
            return f"K {k_before} to {k}"
    return f"{new.configuration.words} against {old.configuration.words}"


def _how_compared(model: ModelHistory, change: Change, block: float) -> str:
    text = (
        f"{change.coverage:.0%} of its traffic is compared, matched by "
        f"{', '.join(change.matched_by)}"
    )
    if change.corrected_for:
        text += f", corrected for {', '.join(change.corrected_for)}"
    text += (
        f"; in {change.blocks} and {change.blocks_before} blocks of "
        f"{format_duration(block)}"
    )
    if change.per_token:
        text += ", by inter-token latency over the tokens of a step"
    lengths = _lengths(
        model.configurations[change.new], model.configurations[change.old]
    )
    text = "; ".join((text, *lengths))
    prefill = change.prefill_speedup
    if prefill is None:
        return f"{text}; no prefill times, which would show other changes"
    return (
        f"{text}; prefills {format_ratio(prefill.value)} times as fast per prompt token"
    )


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
    time, and the speedups by load, as SVG.

    Raises ConfigError without matplotlib.
    """
    with plots.drawing(_PLOT_HEIGHT * len(models)) as (figure, axes):
        axes.remove()
        rows = figure.subplots(
            3 * len(models), 1, squeeze=False, height_ratios=[4, 2, 3] * len(models)
        )[:, 0]
        sentences = []
        for model, speedups, load, by_load in zip(
            models, rows[::3], rows[1::3], rows[2::3], strict=True
        ):
            _draw(speedups, model)
            speedups.set_ylabel(f"{printable(model.name)}\nspeedup")
            load.plot(
                [_time(at) for at, _ in model.load],
                [running for _, running in model.load],
                color=plots.INK,
                marker="",
            )
            load.set_ylabel("running")
            load.sharex(speedups)
            speedups.tick_params(axis="x", labelbottom=False)
            # Level, dates would overlap.
            load.tick_params(axis="x", labelrotation=20)
            _draw_bins(by_load, model)
            for each in (speedups, by_load):
                each.axhline(1.0, color=plots.INK, linewidth=1.2, linestyle=(0, (4, 3)))
            sentences += [sentence(model, change) for change in model.comparisons]
        return plots.svg(figure, "Configurations and speedups", " ".join(sentences))


def _draw_bins(axes: Axes, model: ModelHistory) -> None:
    """Draw the speedups by running requests, each with its share of the traffic."""
    colours = _colours(model)
    for new, change in _shown_changes(model).items():
        name = model.configurations[new].configuration.words
        if change.speedup is not None:
            value = format_ratio(change.speedup.value)
            name += f": {value} ({range_words(change.speedup)})"
        values = [each.speedup for each in change.bins]
        axes.errorbar(
            [each.running for each in change.bins],
            [value.value for value in values],
            yerr=plots.reach(values),
            label=printable(f"{name}, {change.coverage:.0%} compared"),
            color=colours[new],
            capsize=3.5,
            markersize=4,
        )
        for each in change.bins:
            axes.annotate(
                f"{each.share:.0%}",
                (each.running, each.speedup.value),
                xytext=(4, 4),
                textcoords="offset points",
                fontsize=7,
            )
    axes.set_xlabel("running requests, with the share of the traffic")
    axes.set_ylabel("speedup")
    if axes.has_data():
        axes.legend(fontsize=7, frameon=False)


def _shown_changes(model: ModelHistory) -> dict[int, Change]:
    """Return the changes with a speedup to draw, by their new configuration."""
    changes: dict[int, Change] = {}
    for change in model.comparisons:
        # The one against no speculation comes before the one against the configuration
        # before.
        changes.setdefault(change.new, change)
    return {
        new: change for new, change in changes.items() if change.speedup is not None
    }


def _colours(model: ModelHistory) -> list[str]:
    """Return the colour of each configuration."""
    return list(islice(cycle(plots.PALETTE), len(model.configurations)))


def _draw(axes: Axes, model: ModelHistory) -> None:
    changes = _shown_changes(model)
    colours = _colours(model)
    for index, summary in enumerate(model.configurations):
        colour = colours[index]
        begin = _time(summary.first_seconds)
        span: Any = [begin, _time(summary.last_seconds)]
        axes.axvspan(*span, color=colour, alpha=0.15, linewidth=0)
        change = changes.get(index)
        if change is not None and change.speedup is not None:
            speedup = change.speedup
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
