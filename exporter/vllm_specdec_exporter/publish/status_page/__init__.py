"""The status page at `/`: the latest result as one HTML document, for `kubectl
port-forward` and a browser.

It has no scripts, fonts or images from elsewhere, so it works behind any proxy and path
prefix. It reloads itself, also without scripts; its own only waits while text is
selected. The answer comes first, the numbers behind it after. A missing value is a dash
with the reason.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ...judgement.activity import ActivityState
from ...judgement.payoff import PayoffVerdict
from ...judgement.quality import QualityLevel
from ...observe.result import (
    REASONS,
    Discovered,
    EngineResult,
    ExporterResult,
    TargetResult,
)
from .. import markup as h
from ..last_hour import LastHour
from ..markup import Html, element
from . import answer, sections
from . import view as v
from .requests import pointer, requests_section
from .view import PageQuery, parse_query

__all__ = ["CONTENT_SECURITY_POLICY", "PageQuery", "parse_query", "render"]

PRODUCT = "vllm-specdec-exporter"
_PLAIN = PageQuery()

_CSS = Path(__file__).with_name("status_page.css").read_text(encoding="utf-8")
#: Reloads the page, but not while text is selected, which would be lost.
_SCRIPT = (
    "const page=document.documentElement.dataset,reload=()=>getSelection().isCollapsed?"
    "location.reload():setTimeout(reload,500);setTimeout(reload,1000*page.seconds)"
)


def _hash(content: str) -> str:
    """Return the source of a Content-Security-Policy that allows this style sheet or
    script.
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


#: The page's Content-Security-Policy: its own style sheet and script are all that may
#: load.
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src {_hash(_CSS)}; script-src {_hash(_SCRIPT)}; "
    "img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

#: Links to other pages. Relative, because a proxy may add a path prefix.
_LINKS = (
    ("Metrics", "metrics"),
    ("Snapshot", "api/v1/snapshot"),
    ("Configuration", "config"),
    ("Healthy", "-/healthy"),
    ("Ready", "-/ready"),
)


def render(
    result: ExporterResult,
    now: float,
    query: PageQuery = _PLAIN,
    hours: Sequence[LastHour] = (),
) -> str:
    """Return the page as HTML, rendered at the Unix time `now`; `hours` has the last
    hour of each target.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="robots", content="noindex"),
        *_reload(query),
        # Without it, browsers request /favicon.ico.
        element("link", rel="icon", href="data:,"),
        element("title", f"{_summary(result)} – {PRODUCT}"),
        element("style", Html(_CSS)),
    )
    body = element(
        "body", _header(result, now, query), _main(result, now, query, hours)
    )
    seconds = str(query.refresh or "")
    return (
        "<!doctype html>\n"
        f"{element('html', head, body, lang='en', data_seconds=seconds)}\n"
    )


def _reload(query: PageQuery) -> tuple[Html, ...]:
    """Return what reloads the page: a script, or a tag where scripts are off.

    Without an address of its own, browsers do not reload a page that was opened at an
    anchor.
    """
    if not query.refresh:
        return ()
    tag = element(
        "meta", http_equiv="refresh", content=f"{query.refresh}; url={query.link()}"
    )
    return element("noscript", tag), element("script", Html(_SCRIPT))


def _summary(result: ExporterResult) -> str:
    """Return the states of all engines in a few words, for the browser's tab."""
    states: Counter[str] = Counter()
    for target in result.targets:
        if not target.up:
            states["down" if target.failure else "not polled yet"] += 1
        elif not target.engines:
            states["no engine"] += 1
        for engine in target.engines:
            states[
                engine.payoff.verdict
                or engine.quality.level
                or v.activity_words(engine)
            ] += 1
    if sum(states.values()) == 1:
        return next(iter(states))
    return (
        ", ".join(f"{number} {state}" for state, number in states.most_common())
        or "no targets"
    )


def _header(result: ExporterResult, now: float, query: PageQuery) -> Html:
    if query.refresh:
        pause = element(
            "a", "pause", href=replace(query, refresh=0, chosen=True).link()
        )
        reloads = h.join(f" · reloads every {h.duration(query.refresh)} · ", pause)
    else:
        reloads = h.join(
            " · reloading paused · ",
            element("a", "resume", href=replace(query, chosen=False).link()),
        )
    links = h.bullets(element("a", words, href=href) for words, href in _LINKS)
    title = element(
        "h1", "Speculative decoding ", element("small", f"{PRODUCT} {result.version}")
    )
    updated = element("p", "As of ", h.moment(result.timestamp_seconds, now), reloads)
    return element(
        "header",
        element("div", title, updated),
        element("nav", links, aria_label="Other pages"),
    )


def _main(
    result: ExporterResult, now: float, query: PageQuery, hours: Sequence[LastHour]
) -> Html:
    parts = [_reload_failed(result, now), *map(_discovery_failed, result.discoveries)]
    if result.requests is not None:
        parts.append(pointer(result.requests))
    engines = sorted(_engines(result), key=lambda item: _rank(item[1]))
    several = sum(max(1, len(target.engines)) for target in result.targets) > 1
    if several:
        parts.append(_overview(result, query, engines))
    anchors = [anchor for anchor, _, _ in engines]
    if query.engine in anchors:
        shown = query.engine
    else:
        shown = next(iter(anchors), "")
    for t, target in enumerate(result.targets):
        parts.append(_target(target, t, now))
        for e, engine in enumerate(target.engines):
            if _anchor(t, e) == shown:
                hour = hours[t].get(engine.key, ()) if t < len(hours) else ()
                least = result.thresholds.get("minimum_drafts")
                parts.append(
                    _engine(v.View(engine, shown, least, query, hour), several=several)
                )
    if not result.targets:
        parts.append(
            v.notice("No targets", element("p", "No server is known to poll."))
        )
    if result.requests is not None:
        parts.append(requests_section(result.requests, now))
    return element("main", *parts)


def _anchor(target: int, engine: int) -> str:
    return f"engine-{target}-{engine}"


def _engines(
    result: ExporterResult,
) -> Iterator[tuple[str, EngineResult, TargetResult]]:
    for t, target in enumerate(result.targets):
        for e, engine in enumerate(target.engines):
            yield _anchor(t, e), engine, target


def _rank(engine: EngineResult) -> tuple[int, float]:
    """Return a key that sorts the worst engine first."""
    payoff = engine.payoff
    bad = (
        payoff.verdict is PayoffVerdict.HARMFUL,
        payoff.likely is PayoffVerdict.HARMFUL,
        engine.activity.unexplained,
        engine.quality.level is QualityLevel.POOR,
        payoff.verdict is PayoffVerdict.MARGINAL,
        payoff.verdict is not PayoffVerdict.BENEFICIAL
        and engine.activity.state is ActivityState.ACTIVE,
        payoff.verdict is PayoffVerdict.BENEFICIAL,
    )
    return bad.index(True) if True in bad else len(bad), payoff.speedup or 0.0


def _reload_failed(result: ExporterResult, now: float) -> Html:
    if result.reload.successful:
        return Html()
    words = element(
        "p",
        "The configuration could not be read anew; the one of ",
        h.moment(result.reload.success_timestamp_seconds, now),
        " stays in force. The exporter's log says why.",
    )
    return v.notice("Configuration not reloaded", words)


def _discovery_failed(name: Discovered) -> Html:
    if name.up:
        return Html()
    kept = (
        f"Servers that are still polled: {name.targets}, for five minutes after the "
        "last answer."
    )
    return v.notice(
        f"{name.name} is not resolved", element("p", f"{name.failure}. {kept}")
    )


def _overview(
    result: ExporterResult,
    query: PageQuery,
    engines: Sequence[tuple[str, EngineResult, TargetResult]],
) -> Html:
    several = len(result.targets) > 1
    heads = ["Engine", "Payoff", "What to do", "Activity", "Quality"]
    heads += [
        "Mean acceptance length",
        "Acceptance ratio",
        "Generated tokens/s",
        "Running",
        "Findings",
    ]
    heads += ["Server"] if several else []
    rows = [
        *_silent_rows(result, several=several),
        *_overview_rows(query, engines, several=several),
    ]
    content = h.table(heads, rows, label="Overview, worst first", class_="overview")
    heading = element("h2", "Overview ", element("small", "worst first"), id="overview")
    return element(
        "section", heading, content, class_="panel", aria_labelledby="overview"
    )


def _silent_rows(result: ExporterResult, *, several: bool) -> Iterator[Html]:
    for t, target in enumerate(result.targets):
        if not target.engines:
            server = (h.name(target.target),) if several else ()
            down = target.failure.message if target.failure else "not polled yet"
            why = h.none("the server shows no engine" if target.up else down)
            link = element("a", h.name(target.target), href=f"#target-{t}")
            yield h.row(link, (why, why, _target_pill(target), *[why] * 6, *server))


def _overview_rows(
    query: PageQuery,
    engines: Sequence[tuple[str, EngineResult, TargetResult]],
    *,
    several: bool,
) -> Iterator[Html]:
    for anchor, engine, target in engines:
        view = v.View(engine, anchor)
        if view.judged:
            speed = view.judged.generation_tokens_per_second
        else:
            speed = None
        tokens, why_no_length = view.acceptance_length
        ratio, why_no_ratio = view.acceptance_ratio
        cells = (
            v.payoff_pill(engine),
            v.advice_pill(engine),
            v.activity_pill(engine),
            v.quality_pill(engine),
            h.or_none(tokens, h.length, why_no_length),
            h.or_none(ratio, h.percent, why_no_ratio),
            h.or_none(speed, h.rate, "not known in this window"),
            h.or_none(engine.load.requests_running, h.count, v.NOT_SHOWN),
            str(len(engine.findings)),
        )
        server = (h.name(target.target),) if several else ()
        link = element(
            "a", v.engine_name(engine), href=replace(query, engine=anchor).link(anchor)
        )
        yield h.row(link, (*cells, *server))


def _target_pill(target: TargetResult) -> Html:
    if target.up:
        return h.pill("up", "up")
    if target.failure:
        return h.pill("down", "down")
    return h.pill("unknown", "not polled yet")


def _target(target: TargetResult, index: int, now: float) -> Html:
    heading = element(
        "h2", h.name(target.target), " ", _target_pill(target), id=f"target-{index}"
    )
    return element(
        "section",
        element("div", heading, _polls(target, now), class_="server"),
        _no_engines(target, now),
        class_="target",
        aria_labelledby=f"target-{index}",
    )


def _polls(target: TargetResult, now: float) -> Html:
    last = target.last_success_timestamp_seconds
    if last is None:
        age: Html | str = h.none("no poll has succeeded yet")
    else:
        age = f"{h.duration(now - last)} ago"
    return h.facts(
        (
            ("Last success", age),
            (
                "Last poll took",
                h.or_none(target.poll_duration_seconds, h.duration, "not polled yet"),
            ),
            ("Failed polls", h.counts(target.poll_errors_total) or "0"),
        )
    )


def _no_engines(target: TargetResult, now: float) -> Html:
    """Return the reason why there are no engines, empty if there are."""
    if target.up and target.engines:
        return Html()
    if target.up:
        words = (
            "The server answers, but shows no engine: it may still be starting, or "
            "serve no model."
        )
        return v.notice("No engine", element("p", words), kind="hint")
    if target.failure is None:
        return v.notice(
            "Not polled yet", element("p", "The first poll is under way."), kind="hint"
        )
    last = target.last_success_timestamp_seconds
    since = h.text("No poll has succeeded since the exporter started.")
    if last is not None:
        ago = f", {h.duration(now - last)} ago."
        since = h.join("The last successful poll was at ", h.moment(last, now), ago)
    reason = target.failure.reason
    meaning = f" ({REASONS[reason]})" if reason in REASONS else ""
    return v.notice(
        f"Down: {target.failure.message}",
        element("p", "Reason: ", element("code", reason), f"{meaning}. ", since),
        element(
            "p",
            (
                "Nothing is derived while the server does not answer, so nothing here "
                "is out of date."
            ),
        ),
    )


def _engine(view: v.View, *, several: bool) -> Html:
    engine = view.engine
    heading = element("h3", v.engine_name(engine), id=view.anchor)
    if several:
        back = element("a", "↑ Overview", href="#overview", class_="back")
    else:
        back = Html()
    panels = (*answer.panels(view), *sections.panels(view))
    return element(
        "article",
        element("div", heading, back, class_="head"),
        answer.answer(view),
        v.finding_list(engine.findings, f"{view.anchor}-findings"),
        element("div", *panels, class_="panels"),
        class_=engine.payoff.verdict
        or engine.quality.level
        or engine.activity.state
        or "unknown",
        aria_labelledby=view.anchor,
    )
