"""Payoff on the status page: does speculation pay, what is to be done, and what the baseline says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...judgement.activity import ActivityState
from ...judgement.advice import Action
from ...judgement.findings import Severity
from ...judgement.quality import QualityLevel
from ..markup import (
    Html,
    bar,
    count,
    element,
    facts,
    join,
    name,
    none,
    percent,
    pill,
    rate,
    row,
    section,
    table,
    times,
)
from ..markup import length as tokens
from ..wording import action_words, reason_words
from .view import (
    ACTIVITY_WORDS,
    NOT_SHOWN,
    View,
    activity_pill,
    engine_name,
    is_lifetime,
    length_or_none,
    only_active,
    quality_pill,
    ratio_or_none,
    why_no_length,
    why_no_ratio,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ...economics.baseline_match import Measured
    from ...judgement.findings import Finding
    from ...observe.result import EngineResult, ExporterResult, TargetResult


#: What the latencies are called.
_LATENCIES = {
    "time_to_first_token": "First token",
    "time_per_output_token": "Output token",
    "end_to_end": "Whole request",
}
_QUANTILES = (0.5, 0.95, 0.99)


def why_no_payoff(engine: EngineResult) -> str:
    """Return why there is no verdict."""
    return engine.payoff.reasons[0] if engine.payoff.reasons else only_active(engine)


def payoff_pill(engine: EngineResult) -> Html:
    """Return the verdict as a coloured word with the speedup, or a dash that says why there is none."""
    payoff = engine.payoff
    if payoff.verdict is None:
        return none(why_no_payoff(engine))
    shown = pill(payoff.verdict.value, payoff.verdict.value)
    return shown if payoff.speedup is None else join(shown, " ", times(payoff.speedup))


def payoff_words(view: View) -> Html:
    """Say what the speedup is of, where it breaks even, and how it comes about."""
    payoff, judged = view.engine.payoff, view.judged
    if payoff.verdict is None or payoff.basis is None or judged is None:
        return element("p", why_no_payoff(view.engine))
    words = f"times as fast as without speculation, {payoff.basis.value}, {view.window_words}"
    estimate = judged.estimate
    length, ratio = estimate.break_even_acceptance_length, estimate.break_even_acceptance_ratio
    even = Html()
    if length is not None and ratio is not None:
        words_even = (
            f"by the cost profile it breaks even at {tokens(length)} tokens per draft, or {percent(ratio)}"
        )
        even = element("p", f"{words_even} of the drafted tokens accepted")
    reasons = element("ul", *(element("li", reason) for reason in payoff.reasons))
    return join(element("p", words), even, reasons)


def advice_pill(engine: EngineResult) -> Html:
    """Return what is advised as a coloured word, or a dash that says why nothing is."""
    advice = engine.advice
    if advice.action is Action.INSUFFICIENT_DATA:
        return none(reason_words(advice) or "nothing is known yet")
    return pill(advice.action.value, action_words(advice))


def advice_words(view: View) -> Html:
    """Say why that is advised."""
    return element("p", reason_words(view.engine.advice) or "nothing is known yet")


def measured(view: View) -> Html:
    """What was measured against the baseline; left out where no window has anything of it."""
    if not any(m.measured.speedup is not None or m.measured.latency_ratios for m in view.engine.windows):
        return Html()
    title, anchor = "Against the baseline", f"{view.anchor}-baseline"
    found = view.judged.measured if view.judged else None
    if found is None or (found.speedup is None and not found.latency_ratios):
        why = "None: too few requests finished in the window at a load that the baseline has."
        return section(title, element("p", why, class_="empty"), anchor=anchor, note=view.window_words)
    note = (
        "At the same load. Times below 1 are faster, and as coarse as the server's buckets. "
        "A speedup below 1 is slower."
    )
    return section(
        title,
        facts(_speedup(found), "list"),
        _latencies(found),
        element("p", note, class_="note"),
        anchor=anchor,
        note=view.window_words,
    )


def _speedup(found: Measured) -> tuple[tuple[str, str], ...]:
    few = none("too few requests finished")
    if found.speedup is None or found.speedup_low is None or found.speedup_high is None:
        return (("Speedup per output token", few),)
    throughput = found.baseline_tokens_per_second
    return (
        ("Speedup per output token", times(found.speedup)),
        ("95 % interval", f"{tokens(found.speedup_low)} to {times(found.speedup_high)}"),
        ("Requests behind it", few if found.requests is None else count(found.requests)),
        (
            "Tokens per second of the baseline",
            none("not known") if throughput is None else rate(throughput),
        ),
    )


def _latencies(found: Measured) -> Html:
    if not found.latency_ratios:
        return Html()
    ratios = {(item.latency, item.quantile): item.ratio for item in found.latency_ratios}
    rows = (
        row(words, [_ratio(ratios.get((latency, quantile))) for quantile in _QUANTILES])
        for latency, words in _LATENCIES.items()
    )
    heads = ("Time now over the baseline's", *(f"P{100 * quantile:g}" for quantile in _QUANTILES))
    return table(heads, rows, label="Latencies against the baseline", class_="numbers")


def _ratio(value: float | None) -> str:
    return (
        none("too few requests finished, or the server does not show it") if value is None else times(value)
    )


#: Why an engine has the level.
LEVEL_WORDS = {
    QualityLevel.POOR: "a criterion for poor acceptance holds",
    QualityLevel.FAIR: "not poor, but not every criterion for healthy is met",
    QualityLevel.HEALTHY: "every criterion for it that can be judged is met",
    QualityLevel.OPTIMAL: "every criterion for it that can be judged is met",
}


def answer(view: View) -> Html:
    """Does speculation pay, what is to be done, and what it rests on: activity and acceptance."""
    engine, shown = view.engine, view.headline
    span = "over the server's whole life (V0)" if is_lifetime(shown) else view.window_words
    if engine.activity.state is ActivityState.WARMING_UP and not is_lifetime(shown):
        span += ", too few drafts to judge"
    k = engine.num_speculative_tokens
    most = f" of at most {k + 1}" if k is not None else ""
    # A dash that explains itself needs no caption with units, but its reason in the open.
    no_length = shown is None or shown.mean_acceptance_length is None
    no_ratio = shown is None or shown.acceptance_ratio is None
    tiles = (
        _tile("Payoff", payoff_pill(engine), payoff_words(view)),
        _tile("What to do", advice_pill(engine), advice_words(view)),
        _tile("Activity", activity_pill(engine), _activity_words(view)),
        _tile("Acceptance quality", quality_pill(engine), _quality_words(engine)),
        _tile(
            "Mean acceptance length",
            length_or_none(view, shown),
            element("p", why_no_length(view, shown) if no_length else f"tokens per draft{most}, {span}"),
        ),
        _tile(
            "Acceptance ratio",
            ratio_or_none(view, shown),
            element(
                "p", why_no_ratio(view, shown) if no_ratio else f"of the drafted tokens accepted, {span}"
            ),
        ),
    )
    return element("dl", *tiles, class_="answer")


def _tile(title: str, value: str, words: Html) -> Html:
    return element("div", element("dt", title), element("dd", element("p", value, class_="big"), words))


def _activity_words(view: View) -> Html:
    engine, judged, least = view.engine, view.judged, view.minimum_drafts
    words = element("p", engine.activity.reason)
    if engine.activity.state is not ActivityState.WARMING_UP or judged is None or not least:
        return words
    drafts = judged.drafts or 0.0
    progress = element("p", f"{count(drafts)} of {count(least)} drafts")
    return join(words, progress, bar(drafts / least))


def _quality_words(engine: EngineResult) -> Html:
    level = engine.quality.level
    if level is None:
        return element("p", "only an active engine is judged")
    reasons = element("ul", *(element("li", reason) for reason in engine.quality.reasons))
    return join(element("p", LEVEL_WORDS[level]), reasons)


def findings(view: View) -> Html:
    """What is wrong, and what to do about it."""
    return finding_list(view.engine.findings, f"{view.anchor}-findings")


def notice(title: str, *content: Html, kind: str = "problem") -> Html:
    """Return what is said of the whole page or section, before all else."""
    return element("div", element("p", element("strong", title)), *content, class_=f"notice {kind}")


def finding_list(found: Iterable[Finding], anchor: str) -> Html:
    """Return findings with what to do about them; left out where there are none."""
    items = [
        element(
            "li",
            element(
                "p",
                pill(f"severity {finding.severity.value}", finding.severity.value),
                " ",
                element("strong", finding.text),
            ),
            element("p", finding.action),
            class_="problem" if finding.severity is Severity.PROBLEM else "hint",
        )
        for finding in found
    ]
    if not items:
        return Html()
    return section("Findings", element("ul", *items), anchor=anchor, class_="findings")


#: What leads an engine, across the whole width, in this order.
LEAD: tuple[Callable[[View], Html], ...] = (answer, findings)


def summary(result: ExporterResult) -> str:
    """Return the state of everything in few words, for the browser's tab."""
    states: Counter[str] = Counter()
    for target in result.targets:
        if not target.up:
            states["down" if target.failure else "not polled yet"] += 1
        elif not target.engines:
            states["no engine"] += 1
        for engine in target.engines:
            states[_state(engine)] += 1
    if sum(states.values()) == 1:
        return next(iter(states))
    return ", ".join(f"{number} {state}" for state, number in states.most_common()) or "no targets"


def _state(engine: EngineResult) -> str:
    verdict, level = engine.payoff.verdict, engine.quality.level
    return verdict or level or ACTIVITY_WORDS[engine.activity.state]


def overview(result: ExporterResult) -> Html:
    """One line per engine, to find the one to look at."""
    several = len(result.targets) > 1
    heads = ["Engine", "Payoff", "What to do", "Activity", "Quality"]
    heads += ["Mean acceptance length", "Acceptance ratio", "Generated tokens/s", "Running", "Findings"]
    if several:
        heads.append("Server")
    content = table(heads, _overview_rows(result, several=several), label="Overview", class_="overview")
    heading = element("h2", "Overview", id="overview")
    return element("section", heading, content, class_="panel", aria_labelledby="overview")


def _overview_rows(result: ExporterResult, *, several: bool) -> Iterator[Html]:
    for t, target in enumerate(result.targets):
        server = (name(target.target),) if several else ()
        if not target.engines:
            why = none(_trouble(target))
            link = element("a", name(target.target), href=f"#target-{t}")
            yield row(link, (why, why, target_pill(target), *[why] * 6, *server))
        for e, engine in enumerate(target.engines):
            view = View(engine, engine_anchor(t, e))
            speed = view.judged.generation_tokens_per_second if view.judged else None
            running = engine.load.requests_running
            cells = (
                payoff_pill(engine),
                advice_pill(engine),
                activity_pill(engine),
                quality_pill(engine),
                length_or_none(view, view.headline),
                ratio_or_none(view, view.headline),
                none("not known in this window") if speed is None else rate(speed),
                none(NOT_SHOWN) if running is None else count(running),
                str(len(engine.findings)),
            )
            yield row(element("a", engine_name(engine), href=f"#{view.anchor}"), (*cells, *server))


def _trouble(target: TargetResult) -> str:
    if target.up:
        return "the server shows no engine"
    return target.failure.message if target.failure else "not polled yet"


def target_pill(target: TargetResult) -> Html:
    """Return whether a server answers, as a coloured word."""
    if target.up:
        return pill("up", "up")
    return pill("down", "down") if target.failure else pill("unknown", "not polled yet")


def engine_anchor(target: int, engine: int) -> str:
    """Return the identifier of an engine's element, and the prefix of those within."""
    return f"engine-{target}-{engine}"
