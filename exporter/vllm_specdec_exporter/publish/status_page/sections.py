"""The numbers behind the answer: windows, positions, distribution, load, deployment,
data quality.
"""

from collections.abc import Callable
from itertools import pairwise
from operator import attrgetter

from msgspec.structs import replace

from ...judgement.quality import Criterion
from ...measures.measures import Measures
from .. import markup as h
from ..markup import Html, element
from .view import NOT_SHOWN, ONLY_LIFETIME, View, is_lifetime, missing, varying

_NO_COST = "no drafts in this window, or the number of running requests is unknown"
_NO_DRAFTS = "no drafts in this window"
_NO_COUNTER = "the server has no such counter, or no time passed"
_NO_POSITIONS = f"{_NO_DRAFTS}, or no counters by position"
_NONE_ACCEPTED = "nothing was accepted that a further position could follow"
_NO_BASELINE = (
    "too few requests finished in this window at a load that the baseline has"
)
#: Rows of the windows: head, field of `Measures`, format, and the reason of a missing
#: value.
_MEASURES: tuple[tuple[str, str, Callable[[float], str], str], ...] = (
    ("Drafts", "drafts", h.count, NOT_SHOWN),
    ("Span", "span_seconds", h.duration, "not known"),
    ("Mean acceptance length", "mean_acceptance_length", h.length, _NO_DRAFTS),
    (
        "Acceptance ratio",
        "acceptance_ratio",
        h.percent,
        "no tokens were drafted in this window",
    ),
    (
        "Coverage (output from drafts)",
        "coverage_ratio",
        h.percent,
        "no tokens were generated in this window",
    ),
    ("Mean draft length", "mean_draft_length", h.length, _NO_DRAFTS),
    ("Expected tokens per step", "expected_tokens_per_step", h.length, _NO_POSITIONS),
    ("Position decay", "position_decay_ratio", h.percent, _NONE_ACCEPTED),
    ("Estimated speedup", "estimate.speedup", h.times, _NO_COST),
    ("Break-even length", "estimate.break_even_acceptance_length", h.length, _NO_COST),
    (
        "Break-even acceptance ratio",
        "estimate.break_even_acceptance_ratio",
        h.percent,
        _NO_COST,
    ),
    ("Requests in the batch", "batch_size", h.rate, _NO_COST),
    ("Drafts per second", "drafts_per_second", h.rate, _NO_COUNTER),
    ("Draft tokens per second", "draft_tokens_per_second", h.rate, _NO_COUNTER),
    ("Accepted tokens per second", "accepted_tokens_per_second", h.rate, _NO_COUNTER),
    (
        "Generated tokens per second",
        "generation_tokens_per_second",
        h.rate,
        _NO_COUNTER,
    ),
)
#: Rows that are left out if no window has a value.
_OPTIONAL: tuple[tuple[str, str, Callable[[float], str], str], ...] = (
    ("Measured speedup", "measured.speedup", h.times, _NO_BASELINE),
    ("Return on speculation", "returns.return_ratio", h.length, _NO_COST),
)


def panels(view: View) -> tuple[Html, ...]:
    """Return all sections of this module."""
    return (
        _positions(view),
        _distribution(view),
        _windows(view),
        _load(view),
        _deployment(view),
        _data_quality(view),
        _rubric(view),
    )


def _windows(view: View) -> Html:
    title = "Windows"
    anchor = f"{view.anchor}-windows"
    shown = view.engine.windows
    if not shown:
        return h.section(title, missing(view), anchor=anchor)
    reason = ""
    if view.engine.counters.drafts is None:
        # A missing counter is unknown, not 0.
        reason = "the server does not count drafts"
        shown = tuple(replace(m, drafts=None, coverage_ratio=None) for m in shown)
    rows = [
        h.row(
            head, [_cell(attrgetter(field)(m), form, reason or why, m) for m in shown]
        )
        for head, field, form, why in _MEASURES
    ]
    rows += [
        h.row(head, [_cell(attrgetter(field)(m), form, why, m) for m in shown])
        for head, field, form, why in _OPTIONAL
        if any(attrgetter(field)(m) is not None for m in shown)
    ]
    heads = ("Measure", *(_window_head(view, m) for m in shown))
    beside = "with the samples behind them"
    return h.table_section(
        title, heads, rows, anchor=anchor, beside=beside, class_="numbers"
    )


def _window_head(view: View, measures: Measures) -> Html:
    if is_lifetime(measures):
        return h.join("Whole life ", element("small", "V0"))
    if measures.window == view.engine.judged_window:
        return h.join(measures.window, " ", element("small", "judged"))
    return h.join(measures.window)


def _cell(
    value: float | None, form: Callable[[float], str], why: str, measures: Measures
) -> str:
    return h.or_none(value, form, ONLY_LIFETIME if is_lifetime(measures) else why)


def _positions(view: View) -> Html:
    if view.off:
        return Html()
    title = "Acceptance by position"
    anchor = f"{view.anchor}-positions"
    measures = view.judged
    if measures is None or not measures.position_acceptance_ratio:
        return h.section(title, missing(view), anchor=anchor, beside=view.window_words)
    ratios = zip(
        measures.position_acceptance_ratio,
        measures.position_conditional_acceptance_ratio,
        strict=True,
    )
    rows = (
        h.row(
            str(position),
            (h.gauge(ratio), h.gauge(given, why="no draft was accepted that far")),
        )
        for position, (ratio, given) in enumerate(ratios)
    )
    heads = ("Position", "Of all drafts", "Of drafts accepted before it")
    below = varying(measures)
    return h.table_section(
        title,
        heads,
        rows,
        below,
        anchor=anchor,
        beside=view.window_words,
        class_="bars",
    )


def _distribution(view: View) -> Html:
    values = view.engine.accepted_tokens_per_draft
    if view.off or values is None:
        return Html()
    title = "Accepted tokens per draft"
    anchor = f"{view.anchor}-distribution"
    if values.count <= 0:
        content = element("p", "No drafts yet.", class_="empty")
    else:
        drafts = [here - before for before, here in pairwise((0.0, *values.buckets))]
        rows = (
            h.row(str(accepted), (h.gauge(number / values.count), h.count(number)))
            for accepted, number in enumerate(drafts)
        )
        content = h.table(
            ("Accepted", "Share of drafts", "Drafts"),
            rows,
            label=title,
            class_="bars counted",
        )
    return h.section(title, content, anchor=anchor, beside="since the engine started")


def _load(view: View) -> Html:
    now = view.engine.load
    pairs = (
        ("Requests running", h.or_none(now.requests_running, h.count, NOT_SHOWN)),
        ("Requests waiting", h.or_none(now.requests_waiting, h.count, NOT_SHOWN)),
        ("KV cache in use", h.gauge(now.kv_cache_usage_ratio, why=NOT_SHOWN)),
    )
    return h.section(
        "Load",
        h.facts(pairs, "list"),
        anchor=f"{view.anchor}-load",
        beside="at the last poll",
    )


def _deployment(view: View) -> Html:
    known = view.engine.deployment
    k = view.engine.num_speculative_tokens
    no_config = "not known; give the exporter --spec.config"
    pairs = (
        ("Method", h.name(known.method) if known.method else h.none(no_config)),
        (
            "Draft model",
            h.name(known.draft_model) if known.draft_model else h.none(no_config),
        ),
        (
            "K, tokens drafted at most",
            h.or_none(k, str, view.why_none if view.off else no_config),
        ),
        (
            "Server version",
            h.name(known.upstream_version)
            if known.upstream_version
            else h.none(NOT_SHOWN),
        ),
        (
            "Dialect of its metrics",
            h.name(known.dialect) if known.dialect else h.none("not known"),
        ),
        (
            "Cost profile",
            h.name(known.cost_profile) if known.cost_profile else h.none("not known"),
        ),
    )
    return h.section(
        "Deployment", h.facts(pairs, "list"), anchor=f"{view.anchor}-deployment"
    )


def _data_quality(view: View) -> Html:
    engine = view.engine
    pairs = (
        ("Counter resets seen", h.count(engine.engine_resets_total)),
        ("Inconsistent samples", h.count(engine.inconsistent_samples_total)),
    )
    content = [h.facts(pairs, "list")]
    if engine.defects:
        head = element("p", "In the newest sample:")
        content.append(element("div", head, h.bullets(engine.defects), class_="note"))
    anchor = f"{view.anchor}-records"
    beside = "since the exporter started"
    return h.section("Data quality", *content, anchor=anchor, beside=beside)


def _rubric(view: View) -> Html:
    criteria = view.engine.quality.criteria
    if not criteria:
        return Html()
    heads = ("For level", "Measure", "Value", "Needs", "Holds")
    table = h.table(
        heads, map(_criterion, criteria), label="Rubric, applied", class_="words"
    )
    folded = view.query.fold("rubric", table, h.note(f"Over the {view.window_words}."))
    return element("div", folded, class_="panel")


def _criterion(c: Criterion) -> Html:
    value = h.none(c.note) if c.value is None else f"{c.value:.3g}"
    needs = f"{c.comparison}\N{NO-BREAK SPACE}{c.threshold:g}"
    holds = "holds" if c.met else "no"
    if c.met is None:
        holds = element("span", "not judged", h.hidden(f": {c.note}"), title=c.note)
    return h.row(c.level.value, (c.measure.replace("_", " "), value, needs, holds))
