"""The status page at `/`: the latest result as one HTML document, for `kubectl port-forward` and a browser.

It has no scripts, fonts or images from elsewhere, so it works behind any proxy and path prefix, and reloads
itself. The answer comes first, the numbers behind it after. A missing value is a dash with the reason.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ...observe.result import REASONS
from .. import markup as h
from ..markup import Html, element
from . import answer, sections
from .requests import pointer, requests_section
from .view import (
    NOT_SHOWN,
    View,
    activity_pill,
    activity_words,
    advice_pill,
    engine_name,
    finding_list,
    notice,
    payoff_pill,
    quality_pill,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...observe.result import ExporterResult, TargetResult

__all__ = ["CONTENT_SECURITY_POLICY", "parse_refresh", "render"]

PRODUCT = "vllm-specdec-exporter"
DEFAULT_REFRESH = 5.0
#: Engines of a server that are shown in detail; the overview has all.
MOST_ENGINES = 32
_SLOWEST_REFRESH = 3600.0

_CSS = Path(__file__).with_name("status_page.css").read_text(encoding="utf-8")
_CSS_HASH = base64.b64encode(hashlib.sha256(_CSS.encode()).digest()).decode()

#: The page's Content-Security-Policy: its own style sheet is all that may load.
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_CSS_HASH}'; img-src data:; "
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


def parse_refresh(query: str | None, default: float = DEFAULT_REFRESH) -> float:
    """Return the ``refresh`` parameter: seconds between reloads, 0 for never.

    An invalid value gives the default, so that the page never fails because of it.
    """
    try:
        seconds = default if query is None else float(query)
    except ValueError:
        return default
    return min(max(seconds, 0.0), _SLOWEST_REFRESH) if math.isfinite(seconds) else default


def render(result: ExporterResult, now: float, refresh: float = DEFAULT_REFRESH) -> str:
    """Return the page as one HTML document, rendered at the Unix time `now`.

    `refresh` is the number of seconds between reloads, 0 for never.
    """
    # Browsers truncate to whole seconds: a fraction would become 0 and reload without a pause.
    seconds = math.ceil(refresh) if refresh > 0 else 0
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="robots", content="noindex"),
        element("meta", http_equiv="refresh", content=str(seconds)) if seconds else Html(),
        # Without it, browsers request /favicon.ico.
        element("link", rel="icon", href="data:,"),
        element("title", f"{_summary(result)} – {PRODUCT}"),
        element("style", Html(_CSS)),
    )
    body = element("body", _header(result, now, seconds), _main(result, now))
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def _summary(result: ExporterResult) -> str:
    """Return the states of all engines in a few words, for the browser's tab."""
    states: Counter[str] = Counter()
    for target in result.targets:
        if not target.up:
            states["down" if target.failure else "not polled yet"] += 1
        elif not target.engines:
            states["no engine"] += 1
        for engine in target.engines:
            states[engine.payoff.verdict or engine.quality.level or activity_words(engine)] += 1
    if sum(states.values()) == 1:
        return next(iter(states))
    return ", ".join(f"{number} {state}" for state, number in states.most_common()) or "no targets"


def _header(result: ExporterResult, now: float, seconds: int) -> Html:
    if seconds:
        reloads = h.join(
            f" · reloads every {h.duration(seconds)} · ", element("a", "pause", href="?refresh=0")
        )
    else:
        reloads = h.join(" · reloading paused · ", element("a", "resume", href="?"))
    links = h.bullets(element("a", words, href=href) for words, href in _LINKS)
    title = element("h1", "Speculative decoding ", element("small", f"{PRODUCT} {result.version}"))
    updated = element("p", "As of ", h.moment(result.timestamp_seconds, now), reloads)
    return element("header", element("div", title, updated), element("nav", links, aria_label="Other pages"))


def _main(result: ExporterResult, now: float) -> Html:
    parts = [_reload_failed(result, now)]
    if result.requests is not None:
        parts.append(pointer(result.requests))
    several = sum(max(1, len(target.engines)) for target in result.targets) > 1
    if several:
        parts.append(_overview(result))
    parts += (_target(result, index, now, several=several) for index in range(len(result.targets)))
    if not result.targets:
        parts.append(notice("No targets", element("p", "The exporter was given no server to poll.")))
    if result.requests is not None:
        parts.append(requests_section(result.requests, now))
    parts.append(_thresholds(result))
    return element("main", *parts)


def _reload_failed(result: ExporterResult, now: float) -> Html:
    if result.reload.successful:
        return Html()
    words = element(
        "p",
        "The configuration could not be read anew; the one of ",
        h.moment(result.reload.success_timestamp_seconds, now),
        " stays in force. The exporter's log says why.",
    )
    return notice("Configuration not reloaded", words)


def _overview(result: ExporterResult) -> Html:
    several = len(result.targets) > 1
    heads = ["Engine", "Payoff", "What to do", "Activity", "Quality"]
    heads += ["Mean acceptance length", "Acceptance ratio", "Generated tokens/s", "Running", "Findings"]
    heads += ["Server"] if several else []
    content = h.table(heads, _overview_rows(result, several=several), label="Overview", class_="overview")
    heading = element("h2", "Overview", id="overview")
    return element("section", heading, content, class_="panel", aria_labelledby="overview")


def _overview_rows(result: ExporterResult, *, several: bool) -> Iterator[Html]:
    for t, target in enumerate(result.targets):
        server = (h.name(target.target),) if several else ()
        if not target.engines:
            down = target.failure.message if target.failure else "not polled yet"
            why = h.none("the server shows no engine" if target.up else down)
            link = element("a", h.name(target.target), href=f"#target-{t}")
            yield h.row(link, (why, why, _target_pill(target), *[why] * 6, *server))
        for e, engine in enumerate(target.engines):
            view = View(engine, f"engine-{t}-{e}")
            speed = view.judged.generation_tokens_per_second if view.judged else None
            tokens, why_no_length = view.acceptance_length
            ratio, why_no_ratio = view.acceptance_ratio
            cells = (
                payoff_pill(engine),
                advice_pill(engine),
                activity_pill(engine),
                quality_pill(engine),
                h.or_none(tokens, h.length, why_no_length),
                h.or_none(ratio, h.percent, why_no_ratio),
                h.or_none(speed, h.rate, "not known in this window"),
                h.or_none(engine.load.requests_running, h.count, NOT_SHOWN),
                str(len(engine.findings)),
            )
            link = element("a", engine_name(engine), href=f"#{view.anchor}")
            yield h.row(link if e < MOST_ENGINES else engine_name(engine), (*cells, *server))


def _target_pill(target: TargetResult) -> Html:
    if target.up:
        return h.pill("up", "up")
    return h.pill("down", "down") if target.failure else h.pill("unknown", "not polled yet")


def _target(result: ExporterResult, index: int, now: float, *, several: bool) -> Html:
    target, least = result.targets[index], result.thresholds.get("minimum_drafts")
    heading = element("h2", h.name(target.target), " ", _target_pill(target), id=f"target-{index}")
    views = (
        View(engine, f"engine-{index}-{e}", least) for e, engine in enumerate(target.engines[:MOST_ENGINES])
    )
    return element(
        "section",
        element("div", heading, _polls(target, now), class_="server"),
        _no_engines(target, now),
        *(_engine(view, several=several) for view in views),
        _not_shown(target),
        _errors(target),
        class_="target",
        aria_labelledby=f"target-{index}",
    )


def _polls(target: TargetResult, now: float) -> Html:
    last = target.last_success_timestamp_seconds
    age = h.none("no poll has succeeded yet") if last is None else f"{h.duration(now - last)} ago"
    return h.facts(
        (
            ("Last success", age),
            ("Last poll took", h.or_none(target.poll_duration_seconds, h.duration, "not polled yet")),
            ("Failed polls", h.counts(target.poll_errors_total) or "0"),
        )
    )


def _no_engines(target: TargetResult, now: float) -> Html:
    """Return the reason why there are no engines, empty if there are."""
    if target.up and target.engines:
        return Html()
    if target.up:
        words = "The server answers, but shows no engine: it may still be starting, or serve no model."
        return notice("No engine", element("p", words), kind="hint")
    if target.failure is None:
        return notice("Not polled yet", element("p", "The first poll is under way."), kind="hint")
    last = target.last_success_timestamp_seconds
    since = h.text("No poll has succeeded since the exporter started.")
    if last is not None:
        ago = f", {h.duration(now - last)} ago."
        since = h.join("The last successful poll was at ", h.moment(last, now), ago)
    reason = target.failure.reason
    meaning = f" ({REASONS[reason]})" if reason in REASONS else ""
    return notice(
        f"Down: {target.failure.message}",
        element("p", "Reason: ", element("code", reason), f"{meaning}. ", since),
        element("p", "Nothing is derived while the server does not answer, so nothing here is out of date."),
    )


def _engine(view: View, *, several: bool) -> Html:
    engine = view.engine
    heading = element("h3", engine_name(engine), id=view.anchor)
    back = element("a", "↑ Overview", href="#overview", class_="back") if several else Html()
    panels = (*answer.panels(view), *sections.panels(view))
    return element(
        "article",
        element("div", heading, back, class_="head"),
        answer.answer(view),
        finding_list(engine.findings, f"{view.anchor}-findings"),
        element("div", *panels, class_="panels"),
        class_=engine.payoff.verdict or engine.quality.level or engine.activity.state or "unknown",
        aria_labelledby=view.anchor,
    )


def _not_shown(target: TargetResult) -> Html:
    number = len(target.engines) - MOST_ENGINES
    if number <= 0:
        return Html()
    words = "The overview shows all engines, and the snapshot has their numbers."
    return notice(f"{number} more engines", element("p", words), kind="hint")


def _errors(target: TargetResult) -> Html:
    failed = {reason: number for reason, number in target.poll_errors_total.items() if number}
    if not failed:
        return Html()
    rows = (
        h.row(element("code", reason), (h.count(number), REASONS.get(reason, "")))
        for reason, number in failed.items()
    )
    content = h.table(("Reason", "Polls", "Meaning"), rows, label="Failed polls by reason", class_="words")
    return element("div", h.folded("Failed polls by reason", content), class_="panel fold")


def _thresholds(result: ExporterResult) -> Html:
    if not result.thresholds:
        return Html()
    pairs = ((key.replace("_", " "), f"{value:g}") for key, value in result.thresholds.items())
    return element("div", h.folded("Thresholds in force", h.facts(pairs, "list")), class_="panel fold")
