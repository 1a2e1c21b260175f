"""The HTTP endpoints of the exporter."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from ..config.options import ConfigError
from ..observe.result import ExporterResult
from ..per_request.routes import PUSH_PATH
from ..publish import snapshot
from ..publish.metrics_text import metrics_text
from ..runtime import logs
from ..runtime.daemon_threads import in_daemon_thread
from .exporter import Exporter
from .texts import Texts, in_pieces

if TYPE_CHECKING:
    from ..listener.web_config.middleware import WebConfigMiddleware

_WEIGHT = re.compile(r"[01](?:\.\d{0,3})?")  # a quality value (RFC 9110, 12.4.2)
#: Bytes that are compressed without a pause for other tasks: a millisecond.
_BLOCK = 64 * 1024
#: Limit of the list of what a client accepts, in characters; Prometheus sends 300.
_MAX_ACCEPT = 4096


def make_handler(
    latest: Callable[[], ExporterResult], texts: Texts, *, process_metrics: bool
) -> Handler:
    """Return the handler of `/metrics`, with those of this process if wanted; `latest`
    must not block.

    It responds in the text format that ``Accept`` prefers.
    """
    of_process = CollectorRegistry()
    if process_metrics:
        ProcessCollector(registry=of_process)
        PlatformCollector(registry=of_process)

    async def handler(request: web.Request) -> web.StreamResponse:
        names = frozenset(request.query.getall("name[]", ()))
        try:
            encode, content_type = choose_encoder(_header(request, "Accept"))
        except (TypeError, ValueError):  # an invalid version
            encode, content_type = choose_encoder("")
        headers = {"Content-Type": content_type}
        gzip = _accepts_gzip(request)
        if gzip:
            headers["Content-Encoding"] = "gzip"

        def blocks() -> Iterator[bytes]:
            open_metrics = content_type.startswith("application/openmetrics-text")
            for text in metrics_text(latest(), names, open_metrics=open_metrics):
                yield text.encode()
            if names:
                yield encode(of_process.restricted_registry(names))
            else:
                yield encode(of_process)

        key = (content_type, gzip, names)
        return await texts.respond(
            request, key, lambda: in_pieces(blocks(), gzip=gzip), headers
        )

    return handler


def _header(request: web.Request, name: str) -> str:
    """Return a header that lists what the client accepts, as far as it is read."""
    return ",".join(request.headers.getall(name, ()))[:_MAX_ACCEPT]


def _accepts_gzip(request: web.Request) -> bool:
    """Return whether the client accepts gzip (RFC 9110, 12.5.3); an invalid quality
    value counts as 0.
    """
    weights: dict[str, float] = {}
    for part in _header(request, "Accept-Encoding").lower().split(","):
        coding, _, parameter = part.partition(";")
        weight = parameter.strip().removeprefix("q=") or "1"
        if not _WEIGHT.fullmatch(weight):
            weight = "0"
        weights[coding.strip()] = float(weight)
    return weights.get("gzip", weights.get("*", 0.0)) > 0


EXPORTER: web.AppKey[Exporter] = web.AppKey("exporter")
_TEXTS: web.AppKey[Texts] = web.AppKey("texts")
#: Limit of requests that wait for the next reload, which they all share: one would do.
_MAX_RELOADS = 4

_NOT_STORED = {"Cache-Control": "no-store"}
_PAGE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    **_NOT_STORED,
}


def create_app(
    exporter: Exporter, guard: WebConfigMiddleware | None = None
) -> web.Application:
    """Return the application that serves `exporter`, with the web configuration of
    `guard` if given.
    """
    app = web.Application()
    app[EXPORTER] = exporter
    app[_TEXTS] = Texts()
    if guard is not None:
        guard.attach(app)
    metrics = make_handler(
        exporter.latest,
        app[_TEXTS],
        process_metrics=exporter.config.process_metrics,
    )
    app.router.add_get("/", _page)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/-/healthy", _healthy)
    app.router.add_get("/-/ready", _ready)
    app.router.add_post("/-/reload", _reload)
    app.router.add_get("/config", _config)
    app.router.add_get("/api/v1/snapshot", _snapshot)
    # Without a token anybody could invent requests, so there is no push without one.
    if not exporter.config.push_token_file:
        app.router.add_post(PUSH_PATH, _no_push)
    else:
        # Imported only if pushes are accepted.
        from .request_intake import add_push

        add_push(app, exporter.requests, exporter.config.push_token_file)
    return app


async def _no_push(_request: web.Request) -> web.Response:
    error = "this exporter accepts no pushes: start it with --push.bearer-token-file"
    return web.json_response({"error": error}, status=404)


async def _page(request: web.Request) -> web.StreamResponse:
    # Imported for the first request: most sidecars are never looked at. In a thread,
    # because Jinja2 takes 0.1 s and more, in which no scrape would be answered.
    await in_daemon_thread(import_module, "..publish.status_page", __package__)
    from ..publish import status_page

    exporter = request.app[EXPORTER]
    query = status_page.parse_query(request.query, exporter.config.poll_interval)

    async def render() -> list[bytes]:
        result = exporter.explained()
        hours = exporter.last_hours()
        # In a thread, so that the page of a large fleet does not hold up scrapes.
        page = await in_daemon_thread(
            lambda: status_page.render(result(), time.time(), query, hours)
        )
        return [page.encode()]

    headers = {
        "Content-Type": "text/html; charset=utf-8",
        # The page shows labels from the server, so it must not run or load anything.
        "Content-Security-Policy": status_page.CONTENT_SECURITY_POLICY,
        **_PAGE_HEADERS,
    }
    return await request.app[_TEXTS].respond(request, ("/", query), render, headers)


async def _healthy(request: web.Request) -> web.Response:
    if request.app[EXPORTER].healthy():
        return web.Response(text="healthy\n")
    return web.Response(status=503, text="a poll loop has ended\n")


async def _ready(_request: web.Request) -> web.Response:
    # Does not depend on the server: a pod must not lose its traffic because metrics are
    # missing.
    return web.Response(text="ready\n")


async def _reload(request: web.Request) -> web.Response:
    if "Origin" in request.headers:  # protects against cross-site requests
        return web.Response(status=403, text="requests from web pages are rejected\n")
    exporter = request.app[EXPORTER]
    if exporter.reloads_waiting >= _MAX_RELOADS:
        return web.Response(
            status=503,
            text="too many requests for a reload\n",
            headers={"Retry-After": "1"},
        )
    try:
        await exporter.reload(logs.log_seldom)
    except ConfigError as error:
        return web.Response(status=500, text=f"not reloaded: {error}\n")
    return web.Response(text="reloaded\n")


async def _config(request: web.Request) -> web.StreamResponse:
    import yaml  # half a megabyte that a sidecar without files does not need

    shown = request.app[EXPORTER].config.shown

    async def dump() -> list[bytes]:
        text: bytes = yaml.safe_dump(
            _nest(shown), sort_keys=False, allow_unicode=True, encoding="utf-8"
        )
        return [text]

    headers = {"Content-Type": "application/yaml; charset=utf-8", **_NOT_STORED}
    return await request.app[_TEXTS].respond(request, "config", dump, headers)


def _nest(texts: Mapping[str, object]) -> dict[str, object]:
    """Nest the settings as in the configuration file."""
    document: dict[str, object] = {}
    for key, value in texts.items():
        *levels, last = key.split(".")
        section = document
        for level in levels:
            section = section.setdefault(level, {})  # type: ignore[assignment]
        section[last] = value
    return document


async def _snapshot(request: web.Request) -> web.StreamResponse:
    exporter = request.app[EXPORTER]
    windows = [window.name for window in exporter.config.settings.windows]
    try:
        selection = snapshot.parse_filter(request.query.items(), windows)
    except snapshot.FilterError as error:
        return web.json_response({"error": str(error)}, status=400)

    gzip = _accepts_gzip(request)
    headers = {"Content-Type": "application/json", **_NOT_STORED}
    if gzip:
        headers["Content-Encoding"] = "gzip"

    async def encode() -> list[bytes]:
        # In a thread, as the page.
        result = await in_daemon_thread(exporter.explained())
        text = snapshot.encode(result, selection)
        blocks = (text[start : start + _BLOCK] for start in range(0, len(text), _BLOCK))
        return await in_pieces(blocks, gzip=gzip)

    key = ("snapshot", gzip, request.query_string)
    return await request.app[_TEXTS].respond(request, key, encode, headers)
