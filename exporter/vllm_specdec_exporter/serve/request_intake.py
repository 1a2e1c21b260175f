"""Single requests in a running exporter: who tells of them, the book of them, how busy servers are."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from ..economics.profiles import deployed
from ..publish.events import Event
from ..requests.aggregation import RequestAggregator
from ..requests.judgement import BatchCost
from ..requests.observation import Source
from ..requests.push_schema import PATH, PushError, read_push
from . import logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..measures.measures import DraftShape
    from ..observe.result import TargetResult
    from ..observe.state import Settings
    from ..requests.grouping import GroupOverflow
    from ..requests.observation import Observation
    from ..requests.result import RequestsResult
    from .configuration import ServeConfig
    from .tap.tap import Tap


class RequestIntake:
    """What is known of single requests; nothing where neither tap nor push tells of any.

    Args:
        config: the configuration in force.
        clock: a clock that never goes back, in seconds.

    Attributes:
        tap: the tap, once there is one.
    """

    def __init__(self, config: ServeConfig, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._settings = config.settings
        told = {Source.TAP: config.tap is not None, Source.PUSH: bool(config.push_token_file)}
        # For good: who tells of requests changes with a restart.
        self._sources = [source for source, tells in told.items() if tells]
        self._classification = config.requests.classification
        self._book = RequestAggregator(config.requests, config.settings.thresholds, self._sources)
        self._crowded: set[GroupOverflow] = set()  # the log tells of each once
        self.tap: Tap | None = None

    def use(self, config: ServeConfig) -> None:
        """Go on with another configuration."""
        book = RequestAggregator(config.requests, config.settings.thresholds, self._sources)
        book.adopt(self._book)
        self._book, self._settings = book, config.settings
        self._classification = config.requests.classification
        if self.tap is not None:
            self.listen_to(self.tap)

    def listen_to(self, tap: Tap) -> None:
        """Count what passes through the tap."""
        self.tap = tap
        tap.use(self._classification, partial(self.observe, Source.TAP))

    def observe(self, source: Source, observation: Observation) -> None:
        """Count a request that has just ended."""
        for what in self._book.add(observation, source, self._clock()):
            if what not in self._crowded:
                self._crowded.add(what)
                logs.write([Event(logging.WARNING, "no room for more names of requests", {"label": what})])

    def reject(self, count: int) -> None:
        """Count pushed observations that could not be used."""
        self._book.push_rejected_total += count

    def shapes(self) -> Mapping[str, DraftShape]:
        """Return how long the drafts of each model are."""
        return self._book.shapes(self._clock())

    def result(self, targets: Iterable[TargetResult]) -> RequestsResult | None:
        """Return all that is known, beside what is known of the servers."""
        if not self._sources:
            return None
        tap = self.tap.result() if self.tap is not None else None
        return self._book.result(self._clock(), batch_costs(targets, self._settings), tap)


def batch_costs(targets: Iterable[TargetResult], settings: Settings) -> dict[str, BatchCost]:
    """Return how busy the server of each model is; of several engines the first that says so."""
    loads: dict[str, BatchCost] = {}
    for engine in (engine for target in targets for engine in target.engines):
        measures = engine.window(engine.judged_window)
        if measures is None or measures.estimate.batch_size is None or engine.model_name in loads:
            continue
        profile = deployed(
            settings.profile, settings.size_ratio, settings.speculation.draft_model, engine.model_name
        )
        loads[engine.model_name] = BatchCost(measures.estimate.batch_size, profile)
    return loads


#: Seconds that a client may take to send its push.
_PATIENCE = 30.0

#: Errors that an answer lists.
_MOST_ERRORS = 10


def add_push(app: web.Application, requests: RequestIntake, token_file: str) -> None:
    """Let `app` take pushes for `requests` from whoever has the token in a file."""

    async def push(request: web.Request) -> web.Response:
        token = await asyncio.to_thread(_read_token, token_file)
        if not token:
            return _answer(503, "the bearer token file of the exporter cannot be read, or is empty")
        if not _authorized(request.headers.get("Authorization", ""), token):
            response = _answer(
                401, "a bearer token is needed: Authorization: Bearer TOKEN, with the right one"
            )
            response.headers["WWW-Authenticate"] = 'Bearer realm="vllm-specdec-exporter"'
            return response
        try:
            async with asyncio.timeout(_PATIENCE):
                body = await request.read()
        except TimeoutError:
            requests.reject(1)
            return _answer(408, "the body did not come in time")
        except web.HTTPRequestEntityTooLarge:
            requests.reject(1)
            return _answer(413, "more than 1 MiB: push fewer requests at a time")
        except (web.RequestPayloadError, ConnectionError):
            requests.reject(1)
            return _answer(400, "the body was cut off, or is not compressed as its headers say")
        try:
            pushed = read_push(body, time.time())
        except PushError as error:
            requests.reject(error.count)
            return _answer(400, str(error))
        for observation in pushed.observations:
            requests.observe(Source.PUSH, observation)
        requests.reject(len(pushed.errors))
        document = {
            "accepted": len(pushed.observations),
            "rejected": len(pushed.errors),
            "errors": _told(pushed.errors),
            "warnings": _told(pushed.warnings),
        }
        return web.json_response(document, status=200 if pushed.observations or not pushed.errors else 400)

    app.router.add_post(PATH, push)


def _told(items: tuple[tuple[int, str], ...]) -> list[str]:
    return [f"requests[{place}]: {why}" for place, why in items[:_MOST_ERRORS]]


def _answer(status: int, error: str) -> web.Response:
    return web.json_response({"error": error}, status=status)


def _authorized(header: str, token: str) -> bool:
    kind, _, given = header.strip().partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(
        given.strip().encode("utf-8", "surrogateescape"), token.encode()
    )


def _read_token(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
