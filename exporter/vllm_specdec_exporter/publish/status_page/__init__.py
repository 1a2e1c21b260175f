"""The status page at `/`: the latest result as one HTML document, for `kubectl
port-forward` and a browser.

It has no fonts, images or scripts from elsewhere, so it works behind any proxy and path
prefix. It reloads itself, also without scripts; its own only waits while text is
selected. The answer comes first, the numbers behind it after. A missing value is a dash
with the reason.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

from ...measures.measures import LIFETIME
from ...observe.result import REASONS, ExporterResult
from ...per_request.observation import RECORD_STATES
from .. import pages, wording
from ..last_hour import LastHour
from .query import PageQuery, parse_query
from .requests import requests_view
from .view import View

__all__ = ["CONTENT_SECURITY_POLICY", "PageQuery", "parse_query", "render"]

_STYLE = pages.read("status_page.css")
_SCRIPT = pages.read("status_page.js")
_PLAIN = PageQuery()


def _source(content: str) -> str:
    """Return the source of a policy that allows this style sheet or script."""
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


#: The page's Content-Security-Policy: its own style sheet and script are all that may
#: load.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src {_source(_STYLE)}",
        f"script-src {_source(_SCRIPT)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


def render(
    result: ExporterResult,
    now: float,
    query: PageQuery = _PLAIN,
    hours: Sequence[LastHour] = (),
) -> str:
    """Return the page as HTML.

    Args:
        result: what is shown.
        now: the Unix time of the page.
        query: how it is shown.
        hours: the last hour of each target.
    """
    engines = sorted(_engines(result, hours), key=lambda view: view.severity)
    by_anchor = {view.anchor: view for view in engines}
    # An engine that is gone, as after a restart, gives way to the worst one.
    worst = next(iter(engines), None)
    # A server without engines has a line of the overview, too.
    lines = sum(max(1, len(target.engines)) for target in result.targets)
    return pages.render(
        "status_page.html",
        LIFETIME=LIFETIME,
        engines=engines,
        now=now,
        query=query,
        reasons=REASONS,
        record_states=RECORD_STATES,
        requests=requests_view(result.requests) if result.requests else None,
        result=result,
        script=_SCRIPT,
        several=lines > 1,
        shown=by_anchor.get(query.engine, worst),
        style=_STYLE,
        summary=_summary(result),
    )


def _engines(result: ExporterResult, hours: Sequence[LastHour]) -> Iterator[View]:
    for target_index, target in enumerate(result.targets):
        hour = hours[target_index] if target_index < len(hours) else {}
        for index, engine in enumerate(target.engines):
            yield View(
                engine=engine,
                target=target,
                target_index=target_index,
                anchor=f"engine-{target_index}-{index}",
                minimum_drafts=result.thresholds.get("minimum_drafts"),
                hour=hour.get(engine.key, ()),
            )


def _summary(result: ExporterResult) -> str:
    """Return the states of all engines in a few words, for the browser's tab."""
    states: Counter[str] = Counter()
    for target in result.targets:
        if not target.up:
            states["down" if target.failure else wording.NOT_POLLED] += 1
        elif not target.engines:
            states["no engine"] += 1
        for engine in target.engines:
            verdict = engine.payoff.verdict or engine.quality.level
            states[verdict or wording.activity_words(engine)] += 1
    if states.total() == 1:
        return next(iter(states))
    counted = [f"{number} {state}" for state, number in states.most_common()]
    return ", ".join(counted) or "no targets"
