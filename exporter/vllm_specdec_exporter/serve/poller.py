"""The poll loop of one target: fetch, run the pipeline, keep the latest result.

Polls start at fixed times. A long poll does not shift them; those that pass meanwhile
are skipped.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from msgspec.structs import replace

from ..engines import Reader, ReadingEmptiesError, Unrecognized
from ..engines.reading import EngineKey, Reading
from ..exposition.text import MalformedExposition
from ..measures.measures import DraftShape
from ..observe import pipeline
from ..observe.pipeline import JudgedEngine
from ..observe.result import REASONS, EngineResult, PollFailure, TargetResult
from ..observe.settings import Settings
from ..observe.state import EngineState
from ..publish.events import Event, changes
from ..publish.last_hour import LastHour, add_minute
from ..runtime import logs
from ..runtime.memory_limit import memory_limit
from ..upstream.client import PollError, Upstream, UpstreamResponse
from .kept_memory import KeptMemory, kept_bytes
from .poll_turns import PollTurns
from .served_models import ServedModels
from .server_facts import ServerFacts

#: Failures that do not suggest a restart of the server. After any other, the next
#: response may be from another process, whose counters may already exceed the old
#: values.
_SAME_SERVER = frozenset(
    {"timeout", "too_large", "malformed", "credentials", "internal"}
)
#: A response of more bytes is parsed in a thread, and one of more engines is judged
#: there, so that it does not block the loop: 15 ms each.
_LARGE = 256 * 1024
_MANY_ENGINES = 32


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
        turns: when the polls of one exporter begin, and are judged.
        memory: what the samples of all its servers take.
        shapes: returns the draft lengths of each model, if single requests are
            observed.
        served: the models of all targets with the same settings.
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
        turns: PollTurns | None = None,
        memory: KeptMemory | None = None,
        log: Callable[[Iterable[Event]], None] = logs.write,
        shapes: Callable[[], Mapping[str, DraftShape]] = dict,
        served: ServedModels | None = None,
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
        self._served = served or ServedModels()
        self._turns = turns or PollTurns(clock)
        self._memory = memory or KeptMemory(memory_limit())
        self._states: dict[EngineKey, EngineState] = {}
        self._resets: dict[tuple[str, str], int] = {}
        self._facts = ServerFacts(name, upstream)
        self._reader = Reader()
        self._expires: float | None = None
        #: The result of all further polls, without a request.
        self._final: PollFailure | None = None
        #: Without reasons and most findings: `explained` adds them.
        self.latest = TargetResult(
            target=name, poll_errors_total=dict.fromkeys(REASONS, 0)
        )
        #: Its engines, and what their reasons are made from.
        self.judged: tuple[JudgedEngine, ...] = ()
        self.last_hour: LastHour = {}

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for two pollers that send the same requests at the same times."""
        return self._upstream.identity, self._interval, self._patience

    def adopt(self, predecessor: Poller) -> None:
        """Take over the state of `predecessor`, the poller of the same target before a
        reload.

        A result that is not stale now stays until the first poll of this poller is
        overdue.
        """
        # Windows and counts continue where the server is the same one.
        self._states = predecessor._states
        self._resets = predecessor._resets
        self._facts.adopt(predecessor._facts, with_info=self.settings.server_info)
        self._expires = predecessor._expires
        self._final = None
        if predecessor.identity == self.identity:
            self._final = predecessor._final
        time_now = self._clock()
        if self._expires is not None and not self._overdue(time_now):
            self._expires = max(self._expires, time_now + self._patience)
        self.latest = predecessor.latest
        self.judged = predecessor.judged
        self.last_hour = predecessor.last_hour

    async def run(self, start: float) -> None:
        """Poll until cancelled, the first time at `start` on the clock."""
        while True:
            await asyncio.sleep(max(0.0, start - self._clock()))
            await self._turns.begin()
            self._count_late(start)
            await self.poll()
            missed = max(0.0, self._clock() - start) // self._interval
            start += (missed + 1) * self._interval

    async def poll(self) -> None:
        """Poll once and keep the result."""
        started = self._clock()
        previous = self.latest
        outcome = await self._outcome(started)
        if isinstance(outcome, PollFailure) and outcome.reason == "stale":
            self._leave_out()
            if not previous.up and previous.failure is None:
                # There is no earlier result, and whoever asks learns why.
                self.latest = replace(self.latest, failure=outcome)
            return
        polled = replace(
            previous, failure=None, poll_duration_seconds=self._clock() - started
        )
        if isinstance(outcome, PollFailure):
            self._fail(polled, outcome)
        else:
            self._succeed(polled, outcome)
        self._expires = self._clock() + self._patience
        self._log(changes(previous, self.latest, self._explained_engine))

    def explained(self, result: TargetResult) -> Callable[[], TargetResult]:
        """Return a function that adds the reasons and findings to `result`, a result of
        now, in any thread.
        """
        return partial(self._explain, result, self.judged)

    def _explained_engine(self, engine: EngineResult) -> EngineResult:
        judged = tuple(each for each in self.judged if each.result is engine)
        result = replace(self.latest, engines=(engine,))
        [explained] = self._explain(result, judged).engines
        return explained

    def _explain(
        self, result: TargetResult, judged: tuple[JudgedEngine, ...]
    ) -> TargetResult:
        try:
            return pipeline.explained(result, judged)
        except Exception:  # noqa: BLE001 - without its reasons, a verdict holds
            self._log_bug("reasons could not be written")
            return result

    def _log_bug(self, what: str) -> None:
        logs.log(
            logging.ERROR,
            what,
            target=self.name,
            # Its last line may quote the server, which may quote a credential.
            traceback=self._upstream.mask(traceback.format_exc().rstrip()),
        )

    def _count_late(self, due: float) -> None:
        """Count the polls that a poll which begins now, and was due then, stands
        for.
        """
        time_now = self._clock()
        missed = int((time_now - due) // self._interval)
        if self._overdue(time_now):
            missed = max(1, missed)
        if missed:
            self._leave_out(missed)

    def _leave_out(self, polls: int = 1) -> None:
        """Keep the last result, which becomes stale: nothing is known of the server
        since.
        """
        errors = _counted(self.latest.poll_errors_total, "stale", polls)
        self.latest = replace(self.latest, poll_errors_total=errors)
        self._turns.leave_out(polls)

    async def _outcome(self, started: float) -> tuple[JudgedEngine, ...] | PollFailure:
        """Return the engines at a poll, or why there are none."""
        if self._final is not None:
            return self._final
        try:
            return await self._process(started)
        except PollError as error:
            if error.was_closed:
                self._expect_another_process()
            return PollFailure(error.reason, str(error))
        except MalformedExposition as error:
            return _failure("malformed", error)
        except ReadingEmptiesError as error:
            self._final = _failure("unrecognized", error)
            return self._final
        except Unrecognized as error:
            return _failure("unrecognized", error)
        except Exception as error:  # noqa: BLE001 - a bug must not end the poll loop
            self._log_bug("poll failed unexpectedly")
            return PollFailure("internal", f"{type(error).__name__}: {error}")

    def _succeed(self, polled: TargetResult, judged: tuple[JudgedEngine, ...]) -> None:
        wall_time = self._wall()
        engines = tuple(each.result for each in judged)
        self.judged = judged
        self.latest = replace(
            polled, up=True, last_success_timestamp_seconds=wall_time, engines=engines
        )
        self.last_hour = add_minute(self.last_hour, engines, wall_time)
        resets = {
            (each.model_name, each.engine): each.engine_resets_total for each in engines
        }
        # Compared with the last successful poll, so that each restart counts once.
        if any(total > self._resets.get(key, 0) for key, total in resets.items()):
            self._facts.forget()
        self._resets = resets

    async def _process(self, started: float) -> tuple[JudgedEngine, ...]:
        try:
            response = await self._upstream.fetch()
            time = self._clock()
            reading = await self._parsed(response)
        finally:
            self._upstream.release()
        reading = replace(reading, routed="model=" in self.name)
        # One deadline for the whole poll: the facts get the rest of it.
        left = self._upstream.timeout - (time - started)
        reading = await self._facts.add_to(
            reading, left, with_info=self.settings.server_info
        )
        self._claim_memory(reading)
        self._served.note(
            self.name, (engine.key.model_name for engine in reading.engines)
        )
        judge = partial(
            pipeline.judge_reading,
            self._states,
            reading,
            time,
            self.settings.named(self.name),
            upstream_version=self._facts.version,
            shapes=self._shapes(),
            models=self._served.models,
        )
        if len(reading.engines) > _MANY_ENGINES:
            self._states, judged = await self._turns.large(judge)
        else:
            self._states, judged = judge()
        return judged

    def _claim_memory(self, reading: Reading) -> None:
        """Claim the memory that full windows of the reading's engines take; PollError
        if there is not so much.
        """
        samples = 1 + self.settings.kept_seconds / self._interval
        size = kept_bytes(reading, samples)
        if not self._memory.keep(self.name, size):
            raise PollError(
                "too_large",
                f"no memory for the samples of its {len(reading.engines)} engines, "
                f"{size // 1024} KiB: raise the memory limit",
            )

    async def _parsed(self, response: UpstreamResponse) -> Reading:
        latencies = self.settings.latencies or self.settings.baseline is not None
        parse = partial(
            self._reader.read,
            response.body,
            response.content_type,
            latencies=latencies,
            process=response.life,
        )
        if len(response.body) > _LARGE:
            return await self._turns.large(parse)
        await self._turns.take()
        return parse()

    def _fail(self, polled: TargetResult, failure: PollFailure) -> None:
        failure = replace(failure, message=self._upstream.mask(failure.message))
        errors = _counted(polled.poll_errors_total, failure.reason)
        self.latest = replace(
            polled, up=False, failure=failure, engines=(), poll_errors_total=errors
        )
        self.judged = ()
        if failure.reason not in _SAME_SERVER:
            self._expect_another_process()

    def _expect_another_process(self) -> None:
        self._facts.forget()
        self._states = pipeline.interrupt(self._states)

    def result(self, time: float) -> TargetResult:
        """Return the latest result, or a failure if it is stale because this process
        was blocked.
        """
        # A process that was stopped, or starved of CPU, must not serve old values.
        if not self.latest.up or not self._overdue(time):
            return self.latest
        failure = PollFailure(
            "stale", "the exporter was blocked, and its last poll is too old to serve"
        )
        return replace(self.latest, up=False, failure=failure, engines=())

    def _overdue(self, time: float) -> bool:
        return self._expires is not None and time > self._expires

    async def close(self) -> None:
        """Close the client."""
        await self._upstream.close()

    def forget(self) -> None:
        """Forget the target, which has no other poller now."""
        self._served.forget(self.name)
        self._memory.forget(self.name)


def _failure(reason: str, error: Exception) -> PollFailure:
    # `PollError` removes control characters from the text, which may quote the server.
    return PollFailure(reason, str(PollError(reason, str(error))))


def _counted(errors: dict[str, int], reason: str, count: int = 1) -> dict[str, int]:
    return {**errors, reason: errors[reason] + count}
