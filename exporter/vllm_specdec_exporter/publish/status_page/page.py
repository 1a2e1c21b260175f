"""The status page at `/`: for the operator who has nothing but a browser and a port forwarded.

One document out of one result: rendered here, without scripts, fonts or images from elsewhere, so it works
behind any proxy and path prefix. It reloads itself. It serves the answer first and the numbers behind it
after; what does not exist is a dash that says why.

The parts: `overview` sets all engines side by side, `lead` has what one leads with, `sections` the numbers
behind that, `requests` what is known of single requests, `status_page.css` the looks.
"""

from __future__ import annotations

import base64
import hashlib
import math
from pathlib import Path
from typing import TYPE_CHECKING

from ...observe.result import REASONS
from ..markup import Html, count, duration, element, facts, folded, join, moment, name, none, row, table
from .requests import pointer, requests
from .sections import SECTIONS
from .summary import LEAD, engine_anchor, notice, overview, summary, target_pill
from .view import View, engine_name

if TYPE_CHECKING:
    from ...observe.result import ExporterResult, TargetResult

PRODUCT = "vllm-specdec-exporter"
DEFAULT_REFRESH = 5.0
_SLOWEST_REFRESH = 3600.0

_CSS = Path(__file__).with_name("status_page.css").read_text(encoding="utf-8")
_CSS_HASH = base64.b64encode(hashlib.sha256(_CSS.encode()).digest()).decode()

#: To be sent with the page: it needs its own style sheet and nothing else, so nothing else may run or load.
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_CSS_HASH}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

#: Where else to look. Relative, because a path prefix may stand before the page.
_LINKS = (
    ("Metrics", "metrics"),
    ("Snapshot", "api/v1/snapshot"),
    ("Configuration", "config"),
    ("Healthy", "-/healthy"),
    ("Ready", "-/ready"),
)


def parse_refresh(query: str | None, default: float = DEFAULT_REFRESH) -> float:
    """Return the seconds between reloads that the page's ``refresh`` parameter asks for; 0 is never.

    What is no number asks for nothing: a page must not fail over it.
    """
    try:
        asked = default if query is None else float(query)
    except ValueError:
        return default
    return min(max(asked, 0.0), _SLOWEST_REFRESH) if math.isfinite(asked) else default


def render(result: ExporterResult, now: float, refresh: float = DEFAULT_REFRESH) -> str:
    """Return the status page as one HTML document.

    Args:
        result: what to show.
        now: Unix time of the rendering, for ages.
        refresh: seconds after which the page reloads itself, 0 for never.
    """
    # Browsers take whole seconds; a fraction would be cut off to 0, which reloads without a pause.
    seconds = math.ceil(refresh) if refresh > 0 else 0
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="robots", content="noindex"),
        element("meta", http_equiv="refresh", content=str(seconds)) if seconds else Html(),
        # Without this, browsers ask for /favicon.ico.
        element("link", rel="icon", href="data:,"),
        element("title", f"{summary(result)} – {PRODUCT}"),
        element("style", Html(_CSS)),
    )
    body = element("body", _header(result, now, seconds), _main(result, now))
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def _header(result: ExporterResult, now: float, seconds: int) -> Html:
    if seconds:
        reloads = join(f" · reloads every {duration(seconds)} · ", element("a", "pause", href="?refresh=0"))
    else:
        reloads = join(" · reloading paused · ", element("a", "resume", href="?"))
    links = element("ul", *(element("li", element("a", words, href=href)) for words, href in _LINKS))
    title = element("h1", "Speculative decoding ", element("small", f"{PRODUCT} {result.version}"))
    updated = element("p", "As of ", moment(result.timestamp_seconds, now), reloads)
    return element("header", element("div", title, updated), element("nav", links, aria_label="Other pages"))


def _main(result: ExporterResult, now: float) -> Html:
    parts = [_reload_failed(result, now)]
    if result.requests is not None:
        parts.append(pointer(result.requests))
    rows = sum(max(1, len(target.engines)) for target in result.targets)
    if rows > 1:
        parts.append(overview(result))
    parts += (
        _target(result, index, target, now, several=rows > 1) for index, target in enumerate(result.targets)
    )
    if not result.targets:
        parts.append(notice("No targets", element("p", "The exporter was given no server to poll.")))
    if result.requests is not None:
        parts.append(requests(result.requests, now))
    parts.append(_thresholds(result))
    return element("main", *parts)


def _reload_failed(result: ExporterResult, now: float) -> Html:
    if result.reload.successful:
        return Html()
    since = moment(result.reload.success_timestamp_seconds, now)
    words = element(
        "p",
        "The configuration could not be read anew; the one of ",
        since,
        " stays in force. The exporter's log says why.",
    )
    return notice("Configuration not reloaded", words)


def _target(result: ExporterResult, index: int, target: TargetResult, now: float, *, several: bool) -> Html:
    """One server: how the polls go, and its engines."""
    heading = element("h2", name(target.target), " ", target_pill(target), id=f"target-{index}")
    engines = (
        _engine(
            View(engine, engine_anchor(index, e), result.thresholds.get("minimum_drafts")), several=several
        )
        for e, engine in enumerate(target.engines)
    )
    return element(
        "section",
        element("div", heading, _polls(target, now), class_="server"),
        _state(target, now),
        *engines,
        _errors(target),
        class_="target",
        aria_labelledby=f"target-{index}",
    )


def _polls(target: TargetResult, now: float) -> Html:
    last, took = target.last_success_timestamp_seconds, target.poll_duration_seconds
    failed = ", ".join(f"{reason} {count(number)}" for reason, number in _failed(target).items())
    return facts(
        (
            (
                "Last success",
                none("no poll has succeeded yet") if last is None else f"{duration(now - last)} ago",
            ),
            ("Last poll took", none("not polled yet") if took is None else duration(took)),
            ("Failed polls", failed or "0"),
        )
    )


def _failed(target: TargetResult) -> dict[str, int]:
    return {reason: number for reason, number in target.poll_errors_total.items() if number}


def _state(target: TargetResult, now: float) -> Html:
    """Say why there are no engines to show."""
    if target.up and target.engines:
        return Html()
    if target.up:
        words = "The server answers, but shows no engine: it may still be starting, or serve no model."
        return notice("No engine", element("p", words), kind="hint")
    if target.failure is None:
        return notice("Not polled yet", element("p", "The first poll is under way."), kind="hint")
    last = target.last_success_timestamp_seconds
    since = (
        join("No poll has succeeded since the exporter started.")
        if last is None
        else join("The last successful poll was at ", moment(last, now), ", ", duration(now - last), " ago.")
    )
    reason = target.failure.reason
    meaning = f" ({REASONS[reason]})" if reason in REASONS else ""
    return notice(
        f"Down: {target.failure.message}",
        element("p", "Reason: ", element("code", reason), f"{meaning}. ", since),
        element("p", "Nothing is derived while the server does not answer, so nothing here is out of date."),
    )


def _engine(view: View, *, several: bool) -> Html:
    """One engine: the answer, what to do, then the numbers behind it."""
    engine = view.engine
    heading = element("h3", engine_name(view.engine), id=view.anchor)
    back = element("a", "↑ Overview", href="#overview", class_="back") if several else Html()
    lead = (show(view) for show in LEAD)
    rest = element("div", *(show(view) for show in SECTIONS), class_="panels")
    return element(
        "article",
        element("div", heading, back, class_="head"),
        *lead,
        rest,
        class_=engine.payoff.verdict or engine.quality.level or engine.activity.state or "unknown",
        aria_labelledby=view.anchor,
    )


def _errors(target: TargetResult) -> Html:
    failed = _failed(target)
    if not failed:
        return Html()
    rows = (
        row(element("code", reason), (count(number), REASONS.get(reason, "")))
        for reason, number in failed.items()
    )
    content = table(("Reason", "Polls", "Meaning"), rows, label="Failed polls by reason", class_="words")
    return element("div", folded("Failed polls by reason", content), class_="panel fold")


def _thresholds(result: ExporterResult) -> Html:
    if not result.thresholds:
        return Html()
    pairs = ((key.replace("_", " "), f"{value:g}") for key, value in result.thresholds.items())
    return element("div", folded("Thresholds in force", facts(pairs, "list")), class_="panel fold")
