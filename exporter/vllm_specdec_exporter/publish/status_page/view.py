"""What all parts of the status page share: its address, the view of an engine, pills,
notices, findings.

The page has no scripts, and browsers forget what was opened when it reloads. So
reloads, the engine in detail and the opened parts are in the address.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from ...judgement.activity import ActivityState
from ...judgement.findings import Finding, Severity
from ...measures.measures import LIFETIME, Measures
from ...observe.result import EngineResult
from .. import markup as h
from ..last_hour import Point
from ..markup import Html, element
from ..wording import (
    CHECK,
    NO_ADVICE,
    OFF,
    OFF_OR_MEASURE,
    reason_words,
    to_do,
    verdict_words,
)

#: The parts that are folded: the word in the query and the title.
FOLDS = {
    "rules": "Rules of thumb",
    "rubric": "Rubric, applied",
}
DEFAULT_REFRESH = 5.0
_MAX_REFRESH = 3600.0  # seconds: an hour; 0 pauses the page
_ENGINE = re.compile(r"engine-\d{1,6}-\d{1,6}")


@dataclass(frozen=True, slots=True)
class PageQuery:
    """How the page is shown."""

    #: Whole seconds between reloads, 0 for never.
    refresh: int = math.ceil(DEFAULT_REFRESH)
    chosen: bool = False  # whether the address says so
    #: Anchor of the engine that is shown in detail, empty for the worst one.
    engine: str = ""
    opened: frozenset[str] = frozenset()  # keys of `FOLDS`

    def link(self, anchor: str = "") -> str:
        """Return the address of the page, relative to itself."""
        parts = {
            "refresh": str(self.refresh) if self.chosen else "",
            "engine": self.engine,
            "open": ",".join(key for key in FOLDS if key in self.opened),
        }
        query = urlencode(
            {key: value for key, value in parts.items() if value}, safe=","
        )
        return (f"?{query}" if query else ".") + (f"#{anchor}" if anchor else "")

    def fold(self, key: str, *content: str) -> Html:
        """Return a part with a link that opens or closes it."""
        is_open = key in self.opened
        anchor = f"open-{key}"
        link = element(
            "a",
            FOLDS[key],
            href=replace(self, opened=self.opened ^ {key}).link(anchor),
            aria_expanded="true" if is_open else "false",
        )
        return element(
            "div",
            element("p", link, id=anchor),
            *(content if is_open else ()),
            class_="fold",
        )


def parse_query(
    query: Mapping[str, str], default_refresh: float = DEFAULT_REFRESH
) -> PageQuery:
    """Return what the parameters `refresh`, `engine` and `open` say; what is invalid is
    ignored.
    """
    try:
        seconds = float(query["refresh"])
        chosen = math.isfinite(seconds)
    except (KeyError, ValueError):
        chosen = False
    if not chosen:
        seconds = default_refresh
    # Browsers truncate to whole seconds: a fraction would become 0 and reload without a
    # pause.
    refresh = math.ceil(min(max(seconds, 0.0), _MAX_REFRESH))
    engine = query.get("engine", "")
    return PageQuery(
        refresh=refresh,
        chosen=chosen,
        engine=engine if _ENGINE.fullmatch(engine) else "",
        opened=frozenset(
            key for key in query.get("open", "").split(",") if key in FOLDS
        ),
    )


ONLY_LIFETIME = "vLLM V0 shows only means over its whole life"
NOT_SHOWN = "the server does not show this"


@dataclass(frozen=True, slots=True)
class View:
    """An engine as the sections show it."""

    engine: EngineResult
    anchor: str  # prefix of the identifiers of its elements
    #: Drafts that a window must hold to be judged, if known.
    minimum_drafts: float | None = None
    query: PageQuery = PageQuery()  # how the page is shown
    hour: tuple[Point, ...] = ()  # the last hour, oldest first

    @property
    def judged(self) -> Measures | None:
        """The window that activity and quality are judged by."""
        return self.engine.window(self.engine.judged_window)

    @property
    def headline(self) -> Measures | None:
        """The measures shown first: the judged window's, or the lifetime's of vLLM V0,
        which has no other.
        """
        return self.engine.window(LIFETIME) or self.judged

    @property
    def newest(self) -> Measures | None:
        """The shortest window, if it is shorter than the judged one and has enough
        drafts for a trend.
        """
        shortest = self.engine.windows[0] if self.engine.windows else None
        if (
            shortest is None
            or is_lifetime(shortest)
            or shortest.window == self.engine.judged_window
        ):
            return None
        if (shortest.drafts or 0.0) >= (self.minimum_drafts or 0.0):
            return shortest
        return None

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

    @property
    def acceptance_length(self) -> tuple[float | None, str]:
        """The mean acceptance length shown first, and the reason if there is none."""
        shown = self.headline
        no_k = "K is not known; give the exporter --spec.config"
        why = no_k if is_lifetime(shown) else self.why_none
        return shown.mean_acceptance_length if shown else None, why

    @property
    def acceptance_ratio(self) -> tuple[float | None, str]:
        """The acceptance ratio shown first, and the reason if there is none."""
        shown = self.headline
        why = NOT_SHOWN if is_lifetime(shown) else self.why_none
        return shown.acceptance_ratio if shown else None, why


def is_lifetime(measures: Measures | None) -> bool:
    """Return whether these are a server's own means over its whole life, not a
    window's.
    """
    return measures is not None and measures.window == LIFETIME


def engine_name(engine: EngineResult) -> Html:
    """Return the labels of an engine as its name."""
    if engine.model_name:
        model = h.name(engine.model_name)
    else:
        model = Html("unnamed model")
    if not engine.engine:
        return model
    return h.join(
        model, element("span", " engine ", h.name(engine.engine), class_="dim")
    )


def activity_pill(engine: EngineResult) -> Html:
    """Return an engine's activity as a pill."""
    return h.pill(engine.activity.state or "unknown", activity_words(engine))


def activity_words(engine: EngineResult) -> str:
    """Return an engine's activity in words."""
    return (engine.activity.state or "unknown").replace("_", " ")


def quality_pill(engine: EngineResult) -> Html:
    """Return an engine's acceptance quality as a pill, or a dash with the reason."""
    level = engine.quality.level
    if level:
        return h.pill(level.value, level.value)
    return h.none(_why_not_judged(engine))


def payoff_pill(engine: EngineResult) -> Html:
    """Return an engine's verdict as a pill with the speedup, or a dash with the reason."""
    payoff = engine.payoff
    if payoff.verdict is None:
        return h.none(why_no_payoff(engine))
    shown = h.pill(payoff.likely or payoff.verdict, verdict_words(payoff))
    if payoff.speedup is None:
        return shown
    return h.join(shown, " ", h.times(payoff.speedup))


def why_no_payoff(engine: EngineResult) -> str:
    """Return the reason why there is no verdict."""
    if engine.payoff.reasons:
        return engine.payoff.reasons[0]
    return _why_not_judged(engine)


def _why_not_judged(engine: EngineResult) -> str:
    active = engine.activity.state is ActivityState.ACTIVE
    if active:
        return "not judged"
    return "only an active engine is judged"


def advice_pill(engine: EngineResult) -> Html:
    """Return what to do as a pill, or a dash with the reason where there is neither
    advice nor a problem.
    """
    words = to_do(engine)
    if words == NO_ADVICE:
        if engine.findings and engine.findings[0].severity is Severity.PROBLEM:
            return h.pill("problem", "see the findings")
        return h.none(advice_reason(engine))
    bad = words in (OFF, OFF_OR_MEASURE, CHECK)
    return h.pill("problem" if bad else engine.advice.action.value, words)


def advice_reason(engine: EngineResult) -> str:
    """Return the reason of the advice, or why there is none."""
    return reason_words(engine.advice) or "nothing is known yet"


def missing(view: View) -> Html:
    """Return the reason why a section of the judged window is empty."""
    why = view.why_none
    if view.judged is not None and view.judged.drafts:
        why = "the server has no usable counters by position"
    return element("p", f"None: {why}.", class_="empty")


def varying(measures: Measures) -> Html:
    """Return a warning if drafts vary in length, which understates deep positions."""
    if not measures.drafts_vary or measures.mean_draft_length is None:
        return Html()
    drafted = h.length(measures.mean_draft_length)
    return h.note(
        f"Drafts hold {drafted} tokens on average, fewer than K: the deep "
        "positions are understated."
    )


def notice(title: str, *content: Html, kind: str = "problem") -> Html:
    """Return a message about a whole page or section."""
    return element(
        "div", element("p", element("strong", title)), *content, class_=f"notice {kind}"
    )


def finding_list(findings: Iterable[Finding], anchor: str) -> Html:
    """Return findings with their remedies, empty if there are none."""
    items = [_finding(finding) for finding in findings]
    if items:
        return h.section(
            "Findings", element("ul", *items), anchor=anchor, class_="findings"
        )
    return Html()


def _finding(finding: Finding) -> Html:
    severity = finding.severity.value
    head = element(
        "p",
        h.pill(f"severity {severity}", severity),
        " ",
        element("strong", finding.text),
    )
    return element("li", head, element("p", finding.action), class_=severity)
