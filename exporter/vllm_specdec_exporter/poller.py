"""The poll loop of one target: fetch, run the pipeline, keep the latest result.

Polls are started on a fixed beat. One that takes long does not shift the beat; beats that pass meanwhile are
left out, never made up for.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from . import dialects, logs, pipeline
from .events import changes
from .exposition import MalformedExposition
from .result import PollFailure, TargetResult
from .upstream import REASONS, PollError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .events import Event
    from .pipeline import EngineState, Settings
    from .reading import EngineKey
    from .result import EngineResult
    from .upstream import Upstream


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

    Attributes:
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
    ) -> None:
        self.name = name
        self.settings = settings
        self._upstream = upstream
        self._interval = interval
        self._patience = patience
        self._clock = clock
        self._wall = wall
        self._tell = tell
        self._states: dict[EngineKey, EngineState] = {}
        self._version: str | None = None
        self._polled_at: float | None = None
        self.latest = TargetResult(target=name, poll_errors_total=dict.fromkeys(REASONS, 0))

    def adopt(self, other: Poller) -> None:
        """Go on from what `other`, the poller of the same target before a reload, knows."""
        self._states = other._states
        self._version = other._version
        self._polled_at = other._polled_at
        self.latest = other.latest

    async def run(self, delay: float = 0.0) -> None:
        """Poll until cancelled, the first time after `delay` seconds."""
        beat = self._clock() + delay
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
            failure = PollFailure("malformed", str(error))
        except dialects.Unrecognized as error:
            failure = PollFailure("unrecognized", str(error))
        except Exception as error:  # noqa: BLE001 - a defect here must not end the watch over a server
            logs.LOGGER.exception("poll failed unexpectedly", extra={"fields": {"target": self.name}})
            failure = PollFailure("internal", f"{type(error).__name__}: {error}")
        after = replace(before, failure=failure, poll_duration_seconds=self._clock() - started)
        if failure is None:
            self.latest = replace(
                after, up=True, last_success_timestamp_seconds=self._wall(), engines=engines
            )
        else:
            self._fail(after, failure)
        self._polled_at = self._clock()
        self._tell(changes(before, self.latest))

    async def _observe(self, started: float) -> tuple[EngineResult, ...]:
        answer = await self._upstream.fetch()
        time = self._clock()
        reading = dialects.read(answer.body, answer.content_type)
        if self._version is None:
            self._version = ""
            if reading.dialect.startswith("vllm"):
                # One deadline for the whole poll: the version gets what the metrics left of it.
                self._version = await self._upstream.version(self._upstream.timeout - (time - started))
        self._states, engines = pipeline.observe(self._states, reading, time, self.settings, self._version)
        return engines

    def _fail(self, after: TargetResult, failure: PollFailure) -> None:
        errors = _counted(after.poll_errors_total, failure.reason)
        self.latest = replace(after, up=False, engines=(), poll_errors_total=errors)
        # Another server, or another version of it, may answer next.
        self._version = None
        if failure.reason == "refused":
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
        return self._polled_at is not None and now - self._polled_at > self._patience

    async def close(self) -> None:
        """Close the client."""
        await self._upstream.close()


def _counted(errors: dict[str, int], reason: str) -> dict[str, int]:
    return {**errors, reason: errors[reason] + 1}
