"""The windows of an engine on the status page: every measure of every window, side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..markup import (
    Html,
    count,
    duration,
    element,
    join,
    length,
    none,
    percent,
    rate,
    row,
    section,
    table,
    times,
)
from .view import NOT_SHOWN, ONLY_LIFETIME, View, is_lifetime, missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..measures import Measures


def windows(view: View) -> Html:
    """Every measure of every window, side by side."""
    title, anchor = "Windows", f"{view.anchor}-windows"
    shown = view.engine.windows
    if not shown:
        return section(title, missing(view), anchor=anchor)
    # What the server does not count is not known to be 0.
    uncounted = view.engine.counters.drafts is None
    if uncounted:
        shown = tuple(replace(m, drafts=None, coverage_ratio=None) for m in shown)
    measures = [
        (words, read, "the server does not count drafts" if uncounted else why)
        for words, read, why in _MEASURES
    ]
    measures += [measure for measure in _IF_ANY if any(measure[1](m) for m in shown)]
    rows = (row(words, [_cell(read, why, m) for m in shown]) for words, read, why in measures)
    content = table(("Measure", *(_window_head(view, m) for m in shown)), rows, label=title, class_="numbers")
    return section(title, content, anchor=anchor, note="with the samples behind them")


def _window_head(view: View, measures: Measures) -> Html:
    if is_lifetime(measures):
        return join("Whole life ", element("small", "V0"))
    if measures.window == view.engine.judged_window:
        return join(measures.window, " ", element("small", "judged"))
    return join(measures.window)


def _cell(read: Callable[[Measures], str | None], why: str, measures: Measures) -> str:
    shown = read(measures)
    if shown is not None:
        return shown
    return none(ONLY_LIFETIME if is_lifetime(measures) else why)


def _shown(value: float | None, form: Callable[[float], str]) -> str | None:
    return None if value is None else form(value)


_NO_COST = "no drafts in this window, or the server does not tell how many requests run"
_NO_DRAFTS, _NO_COUNTER = "no drafts in this window", "the server has no such counter, or no time passed"
#: Words, how to read the measure, and why it may not exist.
_MEASURES: tuple[tuple[str, Callable[[Measures], str | None], str], ...] = (
    ("Drafts", lambda m: _shown(m.drafts, count), NOT_SHOWN),
    ("Span", lambda m: _shown(m.span_seconds, duration), "not known"),
    ("Mean acceptance length", lambda m: _shown(m.mean_acceptance_length, length), _NO_DRAFTS),
    (
        "Acceptance ratio",
        lambda m: _shown(m.acceptance_ratio, percent),
        "no tokens were drafted in this window",
    ),
    (
        "Coverage (output from drafts)",
        lambda m: _shown(m.coverage_ratio, percent),
        "no tokens were generated in this window",
    ),
    ("Mean draft length", lambda m: _shown(m.mean_draft_length, length), _NO_DRAFTS),
    (
        "Expected tokens per step",
        lambda m: _shown(m.expected_tokens_per_step, length),
        "no drafts in this window, or no counters by position",
    ),
    (
        "Position decay",
        lambda m: _shown(m.position_decay_ratio, percent),
        "nothing was accepted that a further position could follow",
    ),
    ("Estimated speedup", lambda m: _shown(m.estimate.speedup, times), _NO_COST),
    (
        "Break-even length",
        lambda m: _shown(m.estimate.break_even_acceptance_length, length),
        _NO_COST,
    ),
    (
        "Break-even acceptance ratio",
        lambda m: _shown(m.estimate.break_even_acceptance_ratio, percent),
        _NO_COST,
    ),
    ("Requests in the batch", lambda m: _shown(m.batch_size, rate), _NO_COST),
    ("Drafts per second", lambda m: _shown(m.drafts_per_second, rate), _NO_COUNTER),
    ("Draft tokens per second", lambda m: _shown(m.draft_tokens_per_second, rate), _NO_COUNTER),
    ("Accepted tokens per second", lambda m: _shown(m.accepted_tokens_per_second, rate), _NO_COUNTER),
    ("Generated tokens per second", lambda m: _shown(m.generation_tokens_per_second, rate), _NO_COUNTER),
)
#: The same for what only some deployments have: left out where no window has it.
_IF_ANY: tuple[tuple[str, Callable[[Measures], str | None], str], ...] = (
    (
        "Measured speedup",
        lambda m: _shown(m.measured.speedup, times),
        "too few requests finished in this window at a load that the baseline has",
    ),
    ("Return on speculation", lambda m: _shown(m.returns.return_ratio, length), _NO_COST),
)
