"""The overview of several engines on the status page, and the state of all of them in a few words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..markup import Html, count, element, name, none, pill, rate, row, table
from .payoff import advice_pill, payoff_pill
from .view import (
    ACTIVITY_WORDS,
    NOT_SHOWN,
    View,
    activity_pill,
    engine_name,
    length_or_none,
    quality_pill,
    ratio_or_none,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..result import EngineResult, ExporterResult, TargetResult


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
