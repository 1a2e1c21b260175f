"""What a section of the status page is drawn from, and the words and marks for an engine's states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...judgement.activity import ActivityState
from ...measures.measures import LIFETIME
from ..markup import Html, element, join, length, name, none, percent, pill

if TYPE_CHECKING:
    from ...measures.measures import Measures
    from ...observe.result import EngineResult

#: What the states mean for an operator.
ACTIVITY_WORDS = {
    None: "unknown",
    ActivityState.OFF: "off",
    ActivityState.IDLE: "idle",
    ActivityState.BYPASSED: "bypassed",
    ActivityState.WARMING_UP: "warming up",
    ActivityState.ACTIVE: "active",
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


def only_active(engine: EngineResult) -> str:
    """Return why an engine is not judged."""
    return (
        "not judged" if engine.activity.state is ActivityState.ACTIVE else "only an active engine is judged"
    )


def quality_pill(engine: EngineResult) -> Html:
    """Return an engine's quality as a coloured word."""
    level = engine.quality.level
    return pill(level.value, level.value) if level else none(only_active(engine))


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


def missing(view: View) -> Html:
    """Say why a section has nothing to show."""
    why = view.why_none
    if view.judged is not None and view.judged.drafts:
        why = "the server has no usable counters by position"
    return element("p", f"None: {why}.", class_="empty")


def varying(measures: Measures) -> Html:
    """Warn of deep positions that are understated."""
    if not measures.drafts_vary or measures.mean_draft_length is None:
        return Html()
    drafted = length(measures.mean_draft_length)
    words = f"Drafts hold {drafted} tokens on average, fewer than K: the deep positions are understated."
    return element("p", words, class_="note")
