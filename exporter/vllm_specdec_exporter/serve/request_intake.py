"""Single requests in a running exporter: the observations of tap and pushes, and their
aggregation.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web
from msgspec.structs import replace

from ..config.files import TokenError, is_authorized, read_token
from ..economics.profiles import deployed
from ..engines import DIALECT_NAMED
from ..measures.measures import DraftShape
from ..observe.result import TargetResult
from ..observe.settings import Settings
from ..per_request.grouping import GroupOverflow
from ..per_request.observation import Observation, Source
from ..per_request.records import DraftRecord
from ..per_request.routes import PUSH_PATH
from ..per_request.summary import RequestsResult
from ..runtime import logs
from ..runtime.daemon_threads import SharedThreads
from ..settings.configuration import ServeConfig

if TYPE_CHECKING:
    from ..per_request.acceptance import BatchCost
    from ..per_request.aggregation import RequestAggregator
    from ..per_request.push_schema import Pushed
    from .tap.tap import Tap


#: How long the K of models is kept, in seconds.
_K_SECONDS = 1.0


class ConfiguredK:
    """The K of models whose engines compute the drafted tokens of records from it.

    `polled` returns the newest results of the polls; `clock` is in seconds.
    """

    def __init__(
        self,
        polled: Callable[[], Iterable[TargetResult]],
        clock: Callable[[], float],
    ) -> None:
        self._polled = polled
        self._clock = clock
        #: ``None`` where drafted tokens do not follow from K.
        self._of_models: dict[str, int | None] = {}
        self._read_at = -math.inf

    def agrees(self, model: str, record: DraftRecord) -> bool:
        """Return whether the drafted tokens of a record can be believed.

        The poll shows whether an engine drafts trees or changes K.
        """
        # not for each request: there may be many servers
        time_now = self._clock()
        if time_now - self._read_at >= _K_SECONDS:
            self._read()
            self._read_at = time_now
        if model not in self._of_models:
            if not record.configured_k:
                return True  # of another engine
            if len(self._of_models) == 1:
                (model,) = self._of_models  # an adapter of the only model
        k = self._of_models.get(model)
        return k is not None and record.draft_tokens == k * record.drafts

    def _read(self) -> None:
        for target in self._polled():
            for engine in target.engines:
                if not DIALECT_NAMED[engine.deployment.dialect].k_in_records:
                    continue
                k = engine.num_speculative_tokens
                if engine.counters.draft_tokens is None:
                    k = None
                self._of_models[engine.model_name] = k


class RequestIntake:
    """Aggregates the observed requests, if there is a tap or pushes are accepted.

    `clock` is in seconds; `polled` returns the newest results of the polls.
    """

    def __init__(
        self,
        config: ServeConfig,
        clock: Callable[[], float],
        polled: Callable[[], Iterable[TargetResult]] = tuple,
    ) -> None:
        self._clock = clock
        self._configured_k = ConfiguredK(polled, clock)
        self._sources: list[Source] = []  # not changed by a reload
        if config.tap is not None:
            self._sources.append(Source.TAP)
        if config.push_token_file:
            self._sources.append(Source.PUSH)
        self._aggregator: RequestAggregator | None = None
        self._logged: set[GroupOverflow] = set()  # each is logged once
        self.tap: Tap | None = None
        self.use(config)

    def use(self, config: ServeConfig) -> None:
        """Apply a configuration; the counts are kept."""
        self._config = config
        if self._sources:
            # here: most sidecars see no requests
            from ..per_request.aggregation import RequestAggregator

            aggregator = RequestAggregator(
                config.requests, config.settings.thresholds, self._sources
            )
            if self._aggregator is not None:
                aggregator.adopt(self._aggregator)
            self._aggregator = aggregator
        if self.tap is not None:
            self.attach_tap(self.tap)

    def attach_tap(self, tap: Tap) -> None:
        """Count the requests through a tap."""
        self.tap = tap
        tap.use(self._config.requests.classification, partial(self.observe, Source.TAP))

    def observe(self, source: Source, observation: Observation) -> None:
        """Count a request that has just ended."""
        if self._aggregator is None:
            return
        record = observation.record
        model = observation.model_name
        if record is not None and not self._configured_k.agrees(model, record):
            observation = replace(observation, record=None)
        for label in self._aggregator.add(observation, source, self._clock()):
            if label not in self._logged:
                self._logged.add(label)
                logs.log(logging.WARNING, "label limit reached", label=label)

    def reject(self, count: int) -> None:
        """Count pushed observations that could not be used."""
        if self._aggregator is not None:
            self._aggregator.push_rejected_total += count

    def shapes(self) -> Mapping[str, DraftShape]:
        """Return the draft lengths of each model."""
        if self._aggregator is not None:
            return self._aggregator.shapes(self._clock())
        return {}

    def result(self, targets: Iterable[TargetResult]) -> RequestsResult | None:
        """Return the aggregated requests; `targets` provide the batch sizes of the
        servers.
        """
        if self._aggregator is None:
            return None
        tap = self.tap.result() if self.tap is not None else None
        return self._aggregator.result(
            self._clock(), batch_costs(targets, self._config.settings), tap
        )


def batch_costs(
    targets: Iterable[TargetResult], settings: Settings
) -> dict[str, BatchCost]:
    """Return the batch size and cost profile of each model, from the first engine with
    a batch size.
    """
    from ..per_request.acceptance import BatchCost

    targets = tuple(targets)
    models = {each.model_name for target in targets for each in target.engines}
    costs: dict[str, BatchCost] = {}
    for target in targets:
        for engine in target.engines:
            measures = engine.window(engine.judged_window)
            batch_size = measures.estimate.batch_size if measures else None
            if batch_size is None or engine.model_name in costs:
                continue
            deployment = engine.deployment
            own = settings.named(target.target).of_model(engine.model_name, models)
            profile = deployed(
                own.costs,
                own.speculation,
                engine.model_name,
                dialect=deployment.dialect,
                version=deployment.upstream_version,
                printed=deployment.method,
            )
            costs[engine.model_name] = BatchCost(batch_size, profile)
    return costs


_BODY_SECONDS = 30.0  # deadline to receive a push, in seconds
_MAX_ERRORS = 10  # limit of errors listed in a response


def add_push(app: web.Application, requests: RequestIntake, token_file: str) -> None:
    """Add the endpoint for pushes to `app`; clients need the bearer token of a file."""
    from ..per_request.push_schema import PushError, read_push

    threads = SharedThreads()

    async def push(request: web.Request) -> web.Response:
        try:
            token = await threads.read(read_token, token_file)
        except (TokenError, TimeoutError) as error:
            return _error(503, f"the bearer token file of the exporter {error}")
        if not is_authorized(request.headers.get("Authorization", ""), token):
            return _unauthorized()
        try:
            pushed = read_push(await _body(request), time.time())
        except _BodyError as error:
            requests.reject(1)
            return error.response
        except PushError as error:
            requests.reject(error.count)
            return _error(400, str(error))
        for observation in pushed.observations:
            requests.observe(Source.PUSH, observation)
        requests.reject(len(pushed.errors))
        return _accepted(pushed)

    app.router.add_post(PUSH_PATH, push)


def _accepted(pushed: Pushed) -> web.Response:
    document = {
        "accepted": len(pushed.observations),
        "rejected": len(pushed.errors),
        "errors": _texts(pushed.errors),
        "warnings": _texts(pushed.warnings),
    }
    is_useful = pushed.observations or not pushed.errors
    return web.json_response(document, status=200 if is_useful else 400)


def _unauthorized() -> web.Response:
    response = _error(
        401, "a valid bearer token is required: Authorization: Bearer TOKEN"
    )
    response.headers["WWW-Authenticate"] = 'Bearer realm="vllm-specdec-exporter"'
    return response


class _BodyError(Exception):
    """The body of a push cannot be received."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.response = _error(status, error)


async def _body(request: web.Request) -> bytes:
    """Return the body of a request, or raise _BodyError."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _BodyError(415, "compressed bodies are not read: push plain JSON")
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await request.read()
    except TimeoutError as error:
        raise _BodyError(408, "the body was not received in time") from error
    except web.HTTPRequestEntityTooLarge as error:
        raise _BodyError(413, "more than 1 MiB: push fewer requests at once") from error
    except (web.RequestPayloadError, ConnectionError) as error:
        raise _BodyError(400, "the body was cut off") from error


def _texts(items: tuple[tuple[int, str], ...]) -> list[str]:
    return [f"requests[{index}]: {why}" for index, why in items[:_MAX_ERRORS]]


def _error(status: int, error: str) -> web.Response:
    return web.json_response({"error": error}, status=status)
