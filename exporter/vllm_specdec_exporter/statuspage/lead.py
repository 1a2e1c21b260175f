"""The lead of an engine on the status page: the answer, and what to do. Also the words for its states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..judgement.activity import ActivityState
from ..judgement.findings import Severity
from ..judgement.quality import QualityLevel
from ..measures import LIFETIME
from .markup import (
    Html,
    bar,
    count,
    element,
    join,
    length,
    name,
    none,
    percent,
    pill,
    section,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..measures import Measures
    from ..result import EngineResult

#: What the states mean for an operator.
ACTIVITY_WORDS = {
    None: "unknown",
    ActivityState.OFF: "off",
    ActivityState.IDLE: "idle",
    ActivityState.BYPASSED: "bypassed",
    ActivityState.WARMING_UP: "warming up",
    ActivityState.ACTIVE: "active",
}
#: Why an engine has the level.
LEVEL_WORDS = {
    QualityLevel.POOR: "a criterion for poor acceptance holds",
    QualityLevel.FAIR: "not poor, but not every criterion for healthy is met",
    QualityLevel.HEALTHY: "every criterion for it that can be judged is met",
    QualityLevel.OPTIMAL: "every criterion for it that can be judged is met",
}
ONLY_LIFETIME = "vLLM V0 shows only means over its whole life"
NOT_SHOWN = "the server does not show this"


@dataclass(frozen=True, slots=True)
class View:
    """What a section is drawn from.

    Attributes:
        engine: the engine to show.
        anchor: prefix of the identifiers of its elements.
        minimum_drafts: drafts that a window must hold to be judged, where known.
    """

    engine: EngineResult
    anchor: str
    minimum_drafts: float | None = None

    @property
    def judged(self) -> Measures | None:
        """The window that activity and quality look at."""
        return self.engine.window(self.engine.judged_window)

    @property
    def headline(self) -> Measures | None:
        """The measures to lead with: the judged window's, but for vLLM V0, which has only its lifetime's."""
        return self.engine.window(LIFETIME) or self.judged

    @property
    def off(self) -> bool:
        """Whether the engine does not speculate at all."""
        return self.engine.activity.state is ActivityState.OFF

    @property
    def window_words(self) -> str:
        """The judged window in words."""
        return f"last {self.engine.judged_window}"

    @property
    def why_none(self) -> str:
        """Why the judged window has no ratios of drafts."""
        if self.headline is None:
            return f"no samples yet to look back on the {self.window_words}"
        if is_lifetime(self.headline):
            return ONLY_LIFETIME
        if self.off:
            return "speculation is off"
        return f"no drafts in the {self.window_words}"


def is_lifetime(measures: Measures | None) -> bool:
    """Whether these are a server's own means over its whole life, not a window's."""
    return measures is not None and measures.window == LIFETIME


def engine_name(engine: EngineResult) -> Html:
    """Return what to call an engine: its labels, as far as it has them."""
    model = name(engine.model_name) if engine.model_name else Html("unnamed model")
    return (
        join(model, element("span", " engine ", name(engine.engine), class_="dim"))
        if engine.engine
        else model
    )


def activity_pill(engine: EngineResult) -> Html:
    """Return an engine's activity as a coloured word."""
    state = engine.activity.state
    return pill(state.value if state else "unknown", ACTIVITY_WORDS[state])


def quality_pill(engine: EngineResult) -> Html:
    """Return an engine's quality as a coloured word."""
    level = engine.quality.level
    return pill(level.value, level.value) if level else none("only an active engine is judged")


def why_no_length(view: View, measures: Measures | None) -> str:
    """Return why there is no mean acceptance length."""
    return "K is not known; give the exporter --spec.config" if is_lifetime(measures) else view.why_none


def why_no_ratio(view: View, measures: Measures | None) -> str:
    """Return why there is no acceptance ratio."""
    return NOT_SHOWN if is_lifetime(measures) else view.why_none


def length_or_none(view: View, measures: Measures | None) -> str:
    """Return the mean acceptance length, or a dash that says why there is none."""
    if measures is not None and measures.mean_acceptance_length is not None:
        return length(measures.mean_acceptance_length)
    return none(why_no_length(view, measures))


def ratio_or_none(view: View, measures: Measures | None) -> str:
    """Return the acceptance ratio, or a dash that says why there is none."""
    if measures is not None and measures.acceptance_ratio is not None:
        return percent(measures.acceptance_ratio)
    return none(why_no_ratio(view, measures))


def answer(view: View) -> Html:
    """Is it speculating, how good is the acceptance, and the two numbers that say so."""
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
    if not view.engine.findings:
        return Html()
    items = (
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
        for finding in view.engine.findings
    )
    return section(
        "What to do",
        element("ul", *items),
        anchor=f"{view.anchor}-findings",
        class_="findings",
    )


#: What leads an engine, across the whole width, in this order.
LEAD: tuple[Callable[[View], Html], ...] = (answer, findings)
