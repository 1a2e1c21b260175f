"""The poll loop of one target: fetch, run the pipeline, keep the latest result.

Polls are started on a fixed beat. One that takes long does not shift the beat; beats that pass meanwhile are
left out, never made up for.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import engines as dialects
from ..exposition.text import MalformedExposition
from ..observe import pipeline
from ..observe.result import REASONS, PollFailure, TargetResult
from ..publish.events import changes
from . import logs
from .upstream import PollError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..engines.reading import EngineKey
    from ..measures.measures import DraftShape
    from ..observe.pipeline import EngineState, Settings
    from ..observe.result import EngineResult
    from ..publish.events import Event
    from .upstream import Upstream


#: Failures in which the server itself was there, so that its counters go on. After any other, another
#: process may answer next, and may have counted past the old values unseen.
_SAME_SERVER = frozenset({"timeout", "too_large", "malformed", "credentials", "internal"})

#: How often a server is asked for its version before it is taken to have none.
_VERSION_TRIES = 3


class Poller:
    """Polls one target and holds what is known of it.

    Args:
        name: the target as labels show it.
        upstream: the client for it.
        settings: what the pipeline needs.
        interval: seconds between polls.
        patience: seconds after which the last poll is too old to serve.
        clock: a clock that never goes back, in seconds.
        wall: Unix time in seconds.
        tell: takes what is worth a log line.
        shapes: tells how long the drafts of each model are, where single requests are observed.

    Attributes:
        settings: what the pipeline needs; the next poll goes by what is here then.
        latest: the result of the last poll.
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
        tell: Callable[[Iterable[Event]], None] = logs.write,
        shapes: Callable[[], Mapping[str, DraftShape]] = dict,
    ) -> None:
        self.name = name
        self.settings = settings
        self._upstream = upstream
        self._interval = interval
        self._patience = patience
        self._clock = clock
        self._wall = wall
        self._tell = tell
        self._shapes = shapes
        self._states: dict[EngineKey, EngineState] = {}
        self._resets: dict[tuple[str, str], int] = {}
        self._version = ""
        self._version_tries = _VERSION_TRIES
        self._expires: float | None = None
        self.latest = TargetResult(target=name, poll_errors_total=dict.fromkeys(REASONS, 0))

    @property
    def asks(self) -> tuple[object, ...]:
        """Whom it asks, how, and how often."""
        return self._upstream.identity, self._interval, self._patience

    def adopt(self, other: Poller) -> None:
        """Go on from what `other`, the poller of the same target before a reload, knows.

        What is not too old now stays until the first poll of this one is overdue.
        """
        self._states = other._states
        self._resets = other._resets
        self._version = other._version
        self._expires = other._expires
        now = self._clock()
        if self._expires is not None and not self._overdue(now):
            self._expires = max(self._expires, now + self._patience)
        self.latest = other.latest

    async def run(self, beat: float) -> None:
        """Poll until cancelled, the first time at `beat` on the clock."""
        while True:
            await asyncio.sleep(max(0.0, beat - self._clock()))
            await self.poll()
            missed = max(0.0, self._clock() - beat) // self._interval
            beat += (missed + 1) * self._interval

    async def poll(self) -> None:
        """Poll once and keep the result."""
        started = self._clock()
        before = self.latest
        if self._overdue(started):
            before = replace(before, poll_errors_total=_counted(before.poll_errors_total, "stale"))
        failure: PollFailure | None = None
        engines: tuple[EngineResult, ...] = ()
        try:
            engines = await self._observe(started)
        except PollError as error:
            failure = PollFailure(error.reason, str(error))
        except MalformedExposition as error:
            failure = _failure("malformed", error)
        except dialects.Unrecognized as error:
            failure = _failure("unrecognized", error)
        except Exception as error:  # noqa: BLE001 - a defect here must not end the watch over a server
            logs.LOGGER.exception("poll failed unexpectedly", extra={"fields": {"target": self.name}})
            failure = PollFailure("internal", f"{type(error).__name__}: {error}")
        after = replace(before, failure=failure, poll_duration_seconds=self._clock() - started)
        if failure is None:
            self.latest = replace(
                after, up=True, last_success_timestamp_seconds=self._wall(), engines=engines
            )
            resets = {(each.model_name, each.engine): each.engine_resets_total for each in engines}
            # Against those last seen, whatever polls failed since: each start is told once.
            if any(total > self._resets.get(engine, 0) for engine, total in resets.items()):
                self._forget_version()
            self._resets = resets
        else:
            self._fail(after, failure)
        self._expires = self._clock() + self._patience
        self._tell(changes(before, self.latest))

    async def _observe(self, started: float) -> tuple[EngineResult, ...]:
        answer = await self._upstream.fetch()
        time = self._clock()
        latencies = self.settings.latencies or self.settings.baseline is not None
        reading = dialects.read(answer.body, answer.content_type, latencies=latencies)
        if not self._version and self._version_tries and reading.dialect.startswith("vllm"):
            self._version_tries -= 1
            # One deadline for the whole poll: the version gets what the metrics left of it.
            self._version = await self._upstream.version(self._upstream.timeout - (time - started))
        self._states, engines = pipeline.observe(
            self._states, reading, time, self.settings, self._version, self._shapes()
        )
        return engines

    def _fail(self, after: TargetResult, failure: PollFailure) -> None:
        errors = _counted(after.poll_errors_total, failure.reason)
        self.latest = replace(after, up=False, engines=(), poll_errors_total=errors)
        if failure.reason not in _SAME_SERVER:
            self._forget_version()
            self._states = pipeline.interrupt(self._states)

    def result(self, now: float) -> TargetResult:
        """Return the latest result, or a failure where it is too old.

        That happens only if this very process was held up: nothing stale is served, for whatever reason.
        """
        if not self.latest.up or not self._overdue(now):
            return self.latest
        failure = PollFailure("stale", "the exporter was held up, and its last poll is too old to serve")
        return replace(self.latest, up=False, failure=failure, engines=())

    def _overdue(self, now: float) -> bool:
        return self._expires is not None and now > self._expires

    def _forget_version(self) -> None:
        self._version, self._version_tries = "", _VERSION_TRIES

    async def close(self) -> None:
        """Close the client."""
        await self._upstream.close()


def _failure(reason: str, error: Exception) -> PollFailure:
    """Return a failure whose text, which may quote the server, is fit for people and terminals."""
    return PollFailure(reason, str(PollError(reason, str(error))))


def _counted(errors: dict[str, int], reason: str) -> dict[str, int]:
    return {**errors, reason: errors[reason] + 1}
