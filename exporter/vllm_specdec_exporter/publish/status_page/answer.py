"""The answer for an engine: does speculation pay, what to do, and the K candidates
behind the advice.
"""

from collections.abc import Callable, Iterator, Mapping

from ...economics.baseline_match import Measured
from ...economics.choice import CandidateK
from ...economics.cost import Basis
from ...judgement.activity import ActivityState
from ...judgement.payoff import correction
from ...judgement.quality import QualityLevel
from ...measures.measures import Measures
from ...observe.result import EngineResult
from .. import markup as h
from ..last_hour import sparkline
from ..markup import Html, element
from ..wording import LATENCIES, ONLY_CHANGES, SAYS, only_changes, seen_words, to_paste
from . import view as v

_QUANTILES = (0.5, 0.95, 0.99)
#: A relative change of the shortest window against the judged one that is called a
#: trend.
_TREND = 0.1
#: Why an engine has its level.
_LEVEL_WORDS = {
    QualityLevel.POOR: "a criterion for poor acceptance holds",
    QualityLevel.FAIR: "not poor, but not every criterion for healthy is met",
    QualityLevel.HEALTHY: "every criterion for it that can be judged is met",
    QualityLevel.OPTIMAL: "every criterion for it that can be judged is met",
}


def answer(view: v.View) -> Html:
    """Return the tiles: payoff, advice, activity and acceptance."""
    engine = view.engine
    shown = view.headline
    if v.is_lifetime(shown):
        span = "over the server's whole life (V0)"
    else:
        span = view.window_words
    if engine.activity.state is ActivityState.WARMING_UP and not v.is_lifetime(shown):
        span += ", too few drafts to judge"
    k = engine.num_speculative_tokens
    most = f" of at most {k + 1}" if k is not None else ""
    tokens, why_no_length = view.acceptance_length
    ratio, why_no_ratio = view.acceptance_ratio
    # Without a value, the caption is the reason.
    if tokens is None:
        length_words = why_no_length
    else:
        length_words = f"tokens per draft{most}, {span}"
    if ratio is None:
        ratio_words = why_no_ratio
    else:
        ratio_words = f"of the drafted tokens accepted, {span}"
    hour = sparkline(
        view.hour, lambda point: point.mean_acceptance_length, h.length, None, tokens
    )
    tiles = (
        ("Payoff", v.payoff_pill(engine), _payoff_words(view)),
        ("What to do", v.advice_pill(engine), element("p", v.advice_reason(engine))),
        ("Activity", v.activity_pill(engine), _activity_words(view)),
        ("Acceptance quality", v.quality_pill(engine), _quality_words(engine)),
        (
            "Mean acceptance length",
            h.or_none(tokens, h.length, why_no_length),
            h.join(_length_trend(view, tokens), element("p", length_words), hour),
        ),
        (
            "Acceptance ratio",
            h.or_none(ratio, h.percent, why_no_ratio),
            element("p", ratio_words),
        ),
    )
    return element("dl", *(tile(*parts) for parts in tiles), class_="answer")


def tile(title: str, value: str, words: Html) -> Html:
    """Return a part of an answer: a title, a large value, and words below it."""
    return element(
        "div",
        element("dt", title),
        element("dd", element("p", value, class_="big"), words),
    )


def _payoff_words(view: v.View) -> Html:
    payoff = view.engine.payoff
    judged = view.judged
    if payoff.verdict is None or payoff.basis is None or judged is None:
        return element("p", v.why_no_payoff(view.engine))
    words = (
        f"times as fast as without speculation, {payoff.basis.value}, "
        f"{view.window_words}"
    )
    if (
        payoff.speedup is None
        and payoff.speedup_low is not None
        and payoff.speedup_high is not None
    ):
        words = f"{payoff.speedup_low:.2f} to {payoff.speedup_high:.2f} {words}"
    tokens = judged.estimate.break_even_acceptance_length
    ratio = judged.estimate.break_even_acceptance_ratio
    even = Html()
    if tokens is not None and ratio is not None:
        even = element(
            "p",
            f"by the cost profile it breaks even at {h.length(tokens)} tokens per "
            "draft, "
            f"or {h.percent(ratio)} of the drafted tokens accepted",
        )
    hour = sparkline(
        view.hour, lambda point: point.speedup, h.times, 1.0, payoff.speedup
    )
    return h.join(
        _payoff_trend(view), element("p", words), even, h.bullets(payoff.reasons), hour
    )


def _payoff_trend(view: v.View) -> Html:
    """Return how the speedup of the shortest window differs, on the same basis."""
    newest = view.newest
    speedup = view.engine.payoff.speedup
    if newest is None or speedup is None:
        return Html()
    if view.engine.payoff.basis is Basis.MEASURED:
        now = newest.measured.speedup
    else:
        drafted = newest.estimate.speedup
        if drafted is None:
            now = None
        else:
            now = newest.estimate.of_all(newest.coverage_ratio)[0]
    return _trend(now, speedup, h.times, newest)


def _length_trend(view: v.View, tokens: float | None) -> Html:
    newest = view.newest
    if newest is None:
        return Html()
    return _trend(newest.mean_acceptance_length, tokens, h.length, newest)


def _trend(
    now: float | None,
    before: float | None,
    form: Callable[[float], str],
    newest: Measures,
) -> Html:
    if now is None or not before or abs(now / before - 1) < _TREND:
        return Html()
    direction = "falling" if now < before else "rising"
    return element(
        "p",
        f"{direction}: {form(now)} in the last {newest.window}",
        class_=f"trend {direction}",
    )


def _activity_words(view: v.View) -> Html:
    engine = view.engine
    judged = view.judged
    least = view.minimum_drafts
    words = element("p", engine.activity.reason)
    if (
        engine.activity.state is not ActivityState.WARMING_UP
        or judged is None
        or not least
    ):
        return words
    drafts = judged.drafts or 0.0
    progress = element("p", f"{h.count(drafts)} of {h.count(least)} drafts")
    return h.join(words, progress, h.bar(drafts / least))


def _quality_words(engine: EngineResult) -> Html:
    level = engine.quality.level
    if level is None:
        return element("p", "only an active engine is judged")
    return h.join(element("p", _LEVEL_WORDS[level]), h.bullets(engine.quality.reasons))


def panels(view: v.View) -> tuple[Html, ...]:
    """Return the sections behind the advice: every K, the text to paste, the baseline,
    rules of thumb.
    """
    return (_every_k(view), _paste(view), _measured(view), _rules(view))


def _every_k(view: v.View) -> Html:
    if view.off:
        return Html()
    title = "Every K"
    place = {"anchor": f"{view.anchor}-k", "beside": view.window_words}
    measures = view.judged
    options = view.engine.advice.options
    if measures is None or not measures.mean_acceptance_length_at:
        return h.section(title, v.missing(view), **place)
    words = "A K below the present one has at least these tokens per draft."
    if options:
        words += (
            " The interval has the sample and this bound alone; that of the payoff "
            "has the cost profile "
            f"{view.engine.deployment.cost_profile}, too, which can be off by more."
        )
        if measures.measured.speedup is not None:
            words += (
                (
                    " What was measured does not show the cost of a draft, so it does "
                    "not correct these speedups."
                )
                if correction(measures) is None
                else " Speedups are corrected by what was measured."
            )
    heads = ("K", "Tokens per draft", "Speedup", "95 % interval of the sample")
    if options:
        rows = _options(view, options)
    else:
        rows = _lengths(view, measures)
    below = (h.note(words), v.varying(measures))
    return h.table_section(title, heads, rows, *below, **place, class_="bars options")


def _options(view: v.View, options: tuple[CandidateK, ...]) -> Iterator[Html]:
    best = max(options, key=lambda option: option.speedup)
    for option in options:
        k = option.num_speculative_tokens
        interval = f"{option.speedup_low:.2f} to {option.speedup_high:.2f}"
        cells = (
            h.length(option.mean_acceptance_length),
            h.gauge(option.speedup / best.speedup, h.times(option.speedup)),
            interval if k else h.none("no speculation is the measure itself"),
        )
        is_noise = (
            k > 0 and option is not best and option.speedup_high >= best.speedup_low
        )
        marks = {
            "extrapolated": option.extrapolated,
            "within noise of the best": is_noise,
        }
        yield _k_row(view, k, cells, marks)


def _lengths(view: v.View, measures: Measures) -> Iterator[Html]:
    why = h.none(v.advice_reason(view.engine))
    for k, tokens in enumerate(measures.mean_acceptance_length_at, 1):
        yield _k_row(view, k, (h.length(tokens), why, why), {})


def _k_row(
    view: v.View, k: int, cells: tuple[str, ...], more: Mapping[str, bool]
) -> Html:
    present = k == view.engine.num_speculative_tokens
    marks = {
        "no speculation": k == 0,
        "now": present,
        "recommended": k == view.engine.advice.num_speculative_tokens,
        **more,
    }
    words = ", ".join(word for word, holds in marks.items() if holds)
    if words:
        head = h.join(str(k), " ", element("small", words))
    else:
        head = h.join(str(k))
    return h.row(head, cells, class_="present" if present else "")


def _rules(view: v.View) -> Html:
    rules = view.engine.advice.rules
    if not rules:
        return Html()
    rows = (h.row(SAYS.get(rule.says, rule.says), (rule.text,)) for rule in rules)
    words = (
        "The published rules look at acceptance alone. What to do weighs it against "
        "the time a step takes, "
        "so it may differ."
    )
    table = h.table(("Says", "Because"), rows, label="Rules of thumb", class_="words")
    folded = view.query.fold(
        "rules", table, h.note(f"{words} Over the {view.window_words}.")
    )
    return element("div", folded, class_="panel")


def _paste(view: v.View) -> Html:
    advice = view.engine.advice
    parts = []
    if advice.speculative_config:
        parts += [
            element("p", "With the recommended K:"),
            _flag(advice.speculative_config),
        ]
    if advice.schedule_config:
        rows = (
            h.row(
                f"{item.first:,} and more"
                if item is advice.schedule[-1]
                else f"{item.first:,} to {item.last:,}",
                (str(item.num_speculative_tokens or "0, no speculation"),),
            )
            for item in advice.schedule
        )
        parts += [
            h.table(
                ("Requests in the batch", "K"),
                rows,
                label="Best K by batch size",
                class_="numbers",
            ),
            element("p", "As a K schedule, which vLLM ignores with data parallelism:"),
            _flag(advice.schedule_config),
        ]
        seen = seen_words(advice)
        parts += [h.note(seen)] if seen else []
    if advice.schedule_note:
        parts.append(h.note(f"No K schedule: {advice.schedule_note}."))
    if not parts:
        return Html()
    if only_changes(view.engine):
        parts.append(h.note(ONLY_CHANGES))
    return h.section(
        "To paste", *parts, anchor=f"{view.anchor}-paste", class_="panel paste"
    )


def _flag(config: str) -> Html:
    return element("p", element("code", to_paste(config)))


def _measured(view: v.View) -> Html:
    if not any(
        m.measured.speedup is not None or m.measured.latency_ratios
        for m in view.engine.windows
    ):
        return Html()
    title = "Against the baseline"
    anchor = f"{view.anchor}-baseline"
    measured = view.judged.measured if view.judged else None
    if measured is None or (measured.speedup is None and not measured.latency_ratios):
        why = (
            "None: too few requests finished in the window at a load that the baseline "
            "has."
        )
        return h.section(
            title,
            element("p", why, class_="empty"),
            anchor=anchor,
            beside=view.window_words,
        )
    words = (
        "At the same load. Times below 1 are faster, and as coarse as the server's "
        "buckets. "
        "A speedup below 1 is slower."
    )
    content = (h.facts(_speedup(measured), "list"), _latencies(measured), h.note(words))
    return h.section(title, *content, anchor=anchor, beside=view.window_words)


def _speedup(measured: Measured) -> tuple[tuple[str, str], ...]:
    few = "too few requests finished"
    throughput = measured.baseline_tokens_per_second
    if (
        measured.speedup is None
        or measured.speedup_low is None
        or measured.speedup_high is None
    ):
        return (("Speedup per output token", h.none(few)),)
    return (
        ("Speedup per output token", h.times(measured.speedup)),
        (
            "95 % interval",
            f"{h.length(measured.speedup_low)} to {h.times(measured.speedup_high)}",
        ),
        ("Requests behind it", h.or_none(measured.requests, h.count, few)),
        (
            "Tokens per second of the baseline",
            h.or_none(throughput, h.rate, "not known"),
        ),
    )


def _latencies(measured: Measured) -> Html:
    if not measured.latency_ratios:
        return Html()
    ratios = {
        (item.latency, item.quantile): item.ratio for item in measured.latency_ratios
    }
    why = "too few requests finished, or the server does not show it"
    rows = (
        h.row(
            words.capitalize(),
            [h.or_none(ratios.get((name, q)), h.times, why) for q in _QUANTILES],
        )
        for name, words in LATENCIES.items()
    )
    heads = (
        "Time now over the baseline's",
        *(f"P{100 * quantile:g}" for quantile in _QUANTILES),
    )
    return h.table(
        heads, rows, label="Latencies against the baseline", class_="numbers"
    )
