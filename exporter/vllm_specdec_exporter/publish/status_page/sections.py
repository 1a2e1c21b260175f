"""The windows of an engine on the status page: every measure of every window, side by side."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ..markup import (
    Html,
    count,
    duration,
    element,
    facts,
    folded,
    gauge,
    hidden,
    join,
    length,
    name,
    none,
    percent,
    rate,
    row,
    section,
    table,
    times,
)
from .advice import every_k, paste, rules
from .summary import measured
from .view import NOT_SHOWN, ONLY_LIFETIME, View, is_lifetime, missing, varying

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...measures.measures import Measures


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


def positions(view: View) -> Html:
    """Acceptance by position, of all drafts and of those that got that far."""
    if view.off:
        return Html()
    title, anchor = "Acceptance by position", f"{view.anchor}-positions"
    measures = view.judged
    if measures is None or not measures.position_acceptance_ratio:
        return section(title, missing(view), anchor=anchor, note=view.window_words)
    rows = (
        row(
            str(position),
            (
                gauge(ratio, percent(ratio)),
                gauge(given, "" if given is None else percent(given), "no draft was accepted that far"),
            ),
        )
        for position, (ratio, given) in enumerate(
            zip(
                measures.position_acceptance_ratio,
                measures.position_conditional_acceptance_ratio,
                strict=True,
            )
        )
    )
    content = table(
        ("Position", "Of all drafts", "Of drafts accepted before it"), rows, label=title, class_="bars"
    )
    return section(title, content, varying(measures), anchor=anchor, note=view.window_words)


def distribution(view: View) -> Html:
    """How many drafts had how many tokens accepted, since the engine started."""
    found = view.engine.accepted_tokens_per_draft
    if view.off or found is None:
        return Html()
    title, anchor, note = (
        "Accepted tokens per draft",
        f"{view.anchor}-distribution",
        "since the engine started",
    )
    if found.count <= 0:
        return section(title, element("p", "No drafts yet.", class_="empty"), anchor=anchor, note=note)
    drafts = [here - before for before, here in pairwise((0.0, *found.buckets))]
    rows = (
        row(
            str(accepted),
            (gauge(number / found.count, percent(number / found.count)), count(number)),
        )
        for accepted, number in enumerate(drafts)
    )
    content = table(("Accepted", "Share of drafts", "Drafts"), rows, label=title, class_="bars counted")
    return section(title, content, anchor=anchor, note=note)


def load(view: View) -> Html:
    """How busy the engine is."""
    now = view.engine.load
    used = now.kv_cache_usage_ratio
    pairs = (
        ("Requests running", _number(now.requests_running)),
        ("Requests waiting", _number(now.requests_waiting)),
        ("KV cache in use", gauge(used, "" if used is None else percent(used), NOT_SHOWN)),
    )
    return section("Load", facts(pairs, "list"), anchor=f"{view.anchor}-load", note="at the last poll")


def deployment(view: View) -> Html:
    """What is known of how the engine was started."""
    known, k = view.engine.deployment, view.engine.num_speculative_tokens
    unsaid = "not known; give the exporter --spec.config"
    pairs = (
        ("Method", name(known.method) if known.method else none(unsaid)),
        ("Draft model", name(known.draft_model) if known.draft_model else none(unsaid)),
        (
            "K, tokens drafted at most",
            str(k) if k is not None else none(unsaid if not view.off else view.why_none),
        ),
        ("Server version", name(known.upstream_version) if known.upstream_version else none(NOT_SHOWN)),
        ("Dialect of its metrics", name(known.dialect) if known.dialect else none("not known")),
        ("Cost profile", name(known.cost_profile) if known.cost_profile else none("not known")),
    )
    return section("Deployment", facts(pairs, "list"), anchor=f"{view.anchor}-deployment")


def records(view: View) -> Html:
    """Resets and samples that contradicted themselves."""
    engine = view.engine
    pairs = (
        ("Counter resets seen", count(engine.engine_resets_total)),
        ("Inconsistent samples", count(engine.inconsistent_samples_total)),
    )
    latest = element(
        "div",
        element("p", "In the newest sample:"),
        element("ul", *(element("li", defect) for defect in engine.defects)),
        class_="note",
    )
    content = facts(pairs, "list")
    return section(
        "Data quality",
        content,
        *((latest,) if engine.defects else ()),
        anchor=f"{view.anchor}-records",
        note="since the exporter started",
    )


def details(view: View) -> Html:
    """The rubric as applied, and the counters as the server gave them."""
    return element("div", _rubric(view), _totals(view), class_="panel fold")


def _rubric(view: View) -> Html:
    criteria = view.engine.quality.criteria
    if not criteria:
        return Html()
    rows = (
        row(
            c.level.value,
            (
                c.measure.replace("_", " "),
                none(c.note) if c.value is None else f"{c.value:.3g}",
                f"{c.comparison}\N{NO-BREAK SPACE}{c.threshold:g}",
                element("span", "not judged", hidden(f": {c.note}"), title=c.note)
                if c.met is None
                else ("holds" if c.met else "no"),
            ),
        )
        for c in criteria
    )
    label = "Rubric, applied"
    heads = ("For level", "Measure", "Value", "Needs", "Holds")
    return folded(f"{label} ({view.window_words})", table(heads, rows, label=label, class_="words"))


def _totals(view: View) -> Html:
    counters = view.engine.counters
    pairs = [
        ("Drafts", _number(counters.drafts)),
        ("Draft tokens", _number(counters.draft_tokens)),
        ("Accepted tokens", _number(counters.accepted_tokens)),
        ("Generated tokens", _number(counters.generation_tokens)),
    ]
    pairs += [
        (f"Accepted at position {position}", _number(total))
        for position, total in enumerate(counters.accepted_tokens_per_position)
    ]
    return folded("Counters as the server gave them", facts(pairs, "list"))


def _number(value: float | None) -> str:
    return none(NOT_SHOWN) if value is None else count(value)


#: What is shown of an engine behind its lead, in this order.
SECTIONS: tuple[Callable[[View], Html], ...] = (
    every_k,
    paste,
    measured,
    rules,
    positions,
    distribution,
    windows,
    load,
    deployment,
    records,
    details,
)
