"""The HTTP server: every endpoint reads the latest result and answers at once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import yaml
from aiohttp import web

from . import snapshot, statuspage
from .metrics_endpoint import compress, make_handler
from .options import ConfigError
from .per_request.push import PATH as PUSH_PATH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .exporter import Exporter
    from .webconfig.guard import Guard

EXPORTER: web.AppKey[Exporter] = web.AppKey("exporter")

#: Requests that wait for the next reload, which all get together.
_MOST_RELOADS = 4

# The page shows labels that come from the server behind: nothing in it may run or load.
_PAGE_HEADERS = {
    "Content-Security-Policy": statuspage.CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def create_app(exporter: Exporter, guard: Guard | None = None) -> web.Application:
    """Return the application that serves `exporter` to whom `guard` lets in, or to everybody."""
    app = web.Application()
    app[EXPORTER] = exporter
    if guard is not None:
        guard.attach(app)
    metrics = make_handler(exporter.latest, process_metrics=exporter.config.process_metrics)
    app.router.add_get("/", _page)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/-/healthy", _healthy)
    app.router.add_get("/-/ready", _ready)
    app.router.add_post("/-/reload", _reload)
    app.router.add_get("/config", _config)
    app.router.add_get("/api/v1/snapshot", _snapshot)
    if not exporter.config.push_token_file:
        app.router.add_post(PUSH_PATH, _no_push)
    else:
        # Imported here, for whoever takes no pushes.
        from .push import add_push

        add_push(app, exporter.requests, exporter.config.push_token_file)
    return app


async def _no_push(_request: web.Request) -> web.Response:
    error = "this exporter takes no pushes: start it with --push.bearer-token-file"
    return web.json_response({"error": error}, status=404)


async def _page(request: web.Request) -> web.Response:
    exporter = request.app[EXPORTER]
    refresh = statuspage.parse_refresh(request.query.get("refresh"), exporter.config.poll_interval)
    page = statuspage.render(exporter.latest(), time.time(), refresh)
    return web.Response(text=page, content_type="text/html", headers=_PAGE_HEADERS)


async def _healthy(request: web.Request) -> web.Response:
    if request.app[EXPORTER].healthy():
        return web.Response(text="healthy\n")
    return web.Response(status=503, text="a poll loop has ended\n")


async def _ready(_request: web.Request) -> web.Response:
    # Never a matter of the server behind: a pod must not lose its traffic for want of metrics.
    return web.Response(text="ready\n")


async def _reload(request: web.Request) -> web.Response:
    if "Origin" in request.headers:  # a web page somewhere must not make somebody's browser ask for it
        return web.Response(status=403, text="browsers are not served\n")
    exporter = request.app[EXPORTER]
    if exporter.reloads_waiting >= _MOST_RELOADS:
        headers = {"Retry-After": "1"}
        return web.Response(status=503, text="others wait for a reload already\n", headers=headers)
    try:
        await exporter.reload()
    except ConfigError as error:
        return web.Response(status=500, text=f"not reloaded: {error}\n")
    return web.Response(text="reloaded\n")


async def _config(request: web.Request) -> web.Response:
    text = yaml.safe_dump(_nest(request.app[EXPORTER].config.shown), sort_keys=False, allow_unicode=True)
    return web.Response(text=text, content_type="application/yaml", headers={"Cache-Control": "no-store"})


def _nest(texts: Mapping[str, object]) -> dict[str, object]:
    """Nest the settings as the configuration file would have them."""
    document: dict[str, object] = {}
    for key, value in texts.items():
        *levels, last = key.split(".")
        place = document
        for level in levels:
            place = place.setdefault(level, {})  # type: ignore[assignment]
        place[last] = value
    return document


async def _snapshot(request: web.Request) -> web.Response:
    exporter = request.app[EXPORTER]
    windows = [window.name for window in exporter.config.settings.windows]
    try:
        wanted = snapshot.parse_filter(request.query.items(), windows)
    except snapshot.FilterError as error:
        return web.json_response({"error": str(error)}, status=400)
    body = snapshot.encode(exporter.latest(), wanted)
    response = web.Response(body=body, content_type="application/json", headers={"Cache-Control": "no-store"})
    compress(request, response)
    return response
