"""The poll loop of one target: fetch, run the pipeline, keep the latest result.

Polls start at fixed times. A long poll does not shift them; those that pass meanwhile
are skipped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from msgspec.structs import replace
from msgspec.structs import replace as replace_reading

from ..engines import (
    ENGINE_OF,
    MAX_SERVER_INFO,
    ReadingEmptiesError,
    ServerInfo,
    Unrecognized,
    add_server_info,
    read,
    read_server_info,
)
from ..engines.reading import EngineKey, Reading
from ..exposition.text import MalformedExposition
from ..measures.measures import DraftShape
from ..observe import pipeline
from ..observe.pipeline import EngineState, Settings
from ..observe.result import REASONS, EngineResult, PollFailure, TargetResult
from ..publish.events import Event, changes
from ..publish.last_hour import LastHour, add_minute
from ..runtime import logs
from ..runtime.daemon_threads import in_daemon_thread
from ..upstream.client import PollError, Upstream

#: Failures that do not suggest a restart of the server. After any other, the next
#: response may be from another process, whose counters may already exceed the old
#: values.
_SAME_SERVER = frozenset(
    {"timeout", "too_large", "malformed", "credentials", "internal"}
)
#: A response of more bytes is parsed in a thread, so that it does not block the loop.
_LARGE = 256 * 1024
_VERSION_TRIES = 3  # requests for a server's version before it is assumed to have none


class Poller:
    """Polls one target and keeps its latest result.

    Args:
        name: the value of the label `target`.
        upstream: the client.
        settings: of the pipeline, for the next poll.
        interval: seconds between polls.
        patience: seconds after which the last poll is stale.
        clock: monotonic time in seconds.
        wall: Unix time in seconds.
        log: writes events to the log.
        shapes: returns the draft lengths of each model, if single requests are
            observed.
    """

    def __init__(
        self,
        name: str,
        upstream: Upstream,
        settings: Settings,
        interval: float,
        *,
        patience: float,
        clock: Callable[[], float],
        wall: Callable[[], float],
        log: Callable[[Iterable[Event]], None] = logs.write,
        shapes: Callable[[], Mapping[str, DraftShape]] = dict,
    ) -> None:
        self.name = name
        self.settings = settings
        self._upstream = upstream
        self._interval = interval
        self._patience = patience
        self._clock = clock
        self._wall = wall
        self._log = log
        self._shapes = shapes
        self._states: dict[EngineKey, EngineState] = {}
        self._resets: dict[tuple[str, str], int] = {}
        self._version = ""
        self._version_tries = _VERSION_TRIES
        self._server_info: ServerInfo | None = None
        self._expires: float | None = None
        self._final: PollFailure | None = None
        self.latest = TargetResult(
            target=name, poll_errors_total=dict.fromkeys(REASONS, 0)
        )
        self.last_hour: LastHour = {}

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for two pollers that send the same requests at the same times."""
        return self._upstream.identity, self._interval, self._patience

    def adopt(self, other: Poller) -> None:
        """Take over the state of `other`, the poller of the same target before a
        reload.

        A result that is not stale now stays until the first poll of this poller is
        overdue.
        """
        # Windows and counts continue where the server is the same one.
        self._states = other._states
        self._resets = other._resets
        self._version = other._version
        self._server_info = None
        if self.settings.server_info:
            self._server_info = other._server_info
        self._expires = other._expires
        self._final = None
        if other.identity == self.identity:
            self._final = other._final
        now = self._clock()
        if self._expires is not None and not self._overdue(now):
            self._expires = max(self._expires, now + self._patience)
        self.latest = other.latest
        self.last_hour = other.last_hour

    async def run(self, start: float) -> None:
        """Poll until cancelled, the first time at `start` on the clock."""
        while True:
            await asyncio.sleep(max(0.0, start - self._clock()))
            await self.poll()
            missed = max(0.0, self._clock() - start) // self._interval
            start += (missed + 1) * self._interval

    async def poll(self) -> None:
        """Poll once and keep the result."""
        started = self._clock()
        previous = self.latest
        if self._overdue(started):
            errors = _counted(previous.poll_errors_total, "stale")
            previous = replace(previous, poll_errors_total=errors)
        failure: PollFailure | None = None
        results: tuple[EngineResult, ...] = ()
        try:
            if self._final is not None:
                raise PollError(self._final.reason, self._final.message)
            results = await self._process(started)
        except PollError as error:
            failure = PollFailure(error.reason, str(error))
        except MalformedExposition as error:
            failure = _failure("malformed", error)
        except Unrecognized as error:
            failure = _failure("unrecognized", error)
            if isinstance(error, ReadingEmptiesError):
                self._final = failure
            else:
                self._final = None
        except Exception as error:  # noqa: BLE001 - a bug must not end the poll loop
            logs.LOGGER.exception(
                "poll failed unexpectedly", extra={"fields": {"target": self.name}}
            )
            failure = PollFailure("internal", f"{type(error).__name__}: {error}")
        if failure is not None:
            failure = replace(failure, message=self._upstream.mask(failure.message))
        polled = replace(
            previous, failure=failure, poll_duration_seconds=self._clock() - started
        )
        if failure is None:
            self._succeed(polled, results)
        else:
            self._fail(polled, failure)
        self._expires = self._clock() + self._patience
        self._log(changes(previous, self.latest))

    def _succeed(self, polled: TargetResult, engines: tuple[EngineResult, ...]) -> None:
        now = self._wall()
        self.latest = replace(
            polled, up=True, last_success_timestamp_seconds=now, engines=engines
        )
        self.last_hour = add_minute(self.last_hour, engines, now)
        resets = {
            (each.model_name, each.engine): each.engine_resets_total for each in engines
        }
        # Compared with the last successful poll, so that each restart counts once.
        if any(total > self._resets.get(key, 0) for key, total in resets.items()):
            self._forget_version()
        self._resets = resets

    async def _process(self, started: float) -> tuple[EngineResult, ...]:
        response = await self._upstream.fetch()
        time = self._clock()
        latencies = self.settings.latencies or self.settings.baseline is not None
        parse = partial(
            read,
            response.body,
            response.content_type,
            latencies=latencies,
            process=response.life,
        )
        if len(response.body) > _LARGE:
            reading = await in_daemon_thread(parse)
        else:
            reading = parse()
        reading = replace_reading(reading, routed="model=" in self.name)
        # One deadline for the whole poll: the version gets the rest of it.
        left = self._upstream.timeout - (time - started)
        engine = ENGINE_OF[reading.dialect]
        if not self._version and self._version_tries and engine.has_version:
            self._version_tries -= 1
            self._version = await self._upstream.version(left)
        if self.settings.server_info and engine.has_server_info:
            reading = await self._informed(reading, left)
        self._states, results = pipeline.process_reading(
            self._states, reading, time, self.settings, self._version, self._shapes()
        )
        return results

    async def _informed(self, reading: Reading, left: float) -> Reading:
        if self._server_info is None and self._version_tries:
            self._version_tries -= 1
            reason = "malformed"
            try:
                body = await self._upstream.document(
                    "server_info", left, MAX_SERVER_INFO
                )
                self._server_info = await in_daemon_thread(read_server_info, body)
            except PollError as error:
                reason = error.reason  # not the message, which may quote the server
            if self._server_info is None and not self._version_tries:
                logs.log(
                    logging.WARNING,
                    "server_info cannot be read",
                    target=self.name,
                    reason=reason,
                )
            if self._server_info:
                self._version = self._upstream.mask(self._server_info.version)
            else:
                self._version = ""
        if self._server_info:
            return add_server_info(reading, self._server_info)
        return reading

    def _fail(self, polled: TargetResult, failure: PollFailure) -> None:
        errors = _counted(polled.poll_errors_total, failure.reason)
        self.latest = replace(polled, up=False, engines=(), poll_errors_total=errors)
        if failure.reason not in _SAME_SERVER:
            self._forget_version()
            self._states = pipeline.interrupt(self._states)

    def result(self, now: float) -> TargetResult:
        """Return the latest result, or a failure if it is stale because this process
        was blocked.
        """
        # A process that was stopped, or starved of CPU, must not serve old values.
        if not self.latest.up or not self._overdue(now):
            return self.latest
        failure = PollFailure(
            "stale", "the exporter was blocked, and its last poll is too old to serve"
        )
        return replace(self.latest, up=False, failure=failure, engines=())

    def _overdue(self, now: float) -> bool:
        return self._expires is not None and now > self._expires

    def _forget_version(self) -> None:
        self._version = ""
        self._version_tries = _VERSION_TRIES
        self._server_info = None

    async def close(self) -> None:
        """Close the client."""
        await self._upstream.close()


def _failure(reason: str, error: Exception) -> PollFailure:
    # `PollError` removes control characters from the text, which may quote the server.
    return PollFailure(reason, str(PollError(reason, str(error))))


def _counted(errors: dict[str, int], reason: str) -> dict[str, int]:
    return {**errors, reason: errors[reason] + 1}
