"""The lead of an engine on the status page: the answer, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..judgement.activity import ActivityState
from ..judgement.finding import Severity
from ..judgement.quality import QualityLevel
from ..markup import Html, bar, count, element, join, pill, section
from .payoff import advice_pill, advice_words, payoff_pill, payoff_words
from .view import (
    View,
    activity_pill,
    is_lifetime,
    length_or_none,
    quality_pill,
    ratio_or_none,
    why_no_length,
    why_no_ratio,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..judgement.finding import Finding
    from ..result import EngineResult

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
