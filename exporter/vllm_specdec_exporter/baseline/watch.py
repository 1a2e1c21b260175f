"""Watching a server to record its baseline: samples at a fixed beat, one recorder per engine."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from .. import dialects
from ..exposition import MalformedExposition
from ..history import Sample
from ..upstream import PollError
from .document import FORMAT, Baseline, BaselineError
from .record import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..reading import EngineKey, EngineReading, Reading
    from ..upstream import Upstream


class Watcher:
    """Records the engines of one model of one server.

    Args:
        upstream: the server.
        model_name: the model to record, empty for the only one.
        settle: seconds behind the last draft that are left out.
        clock: a clock that never goes back, in seconds.

    Attributes:
        missed: polls that failed.
        drafting: whether the newest sample was left out because of drafts.
    """

    def __init__(
        self, upstream: Upstream, model_name: str, settle: float, clock: Callable[[], float]
    ) -> None:
        self._upstream = upstream
        self._settle = settle
        self._clock = clock
        self._recorders: dict[EngineKey, Recorder] = {}
        self._model_name = model_name
        self._version = ""
        self._dialect = ""
        self.missed = 0
        self.drafting = False

    async def begin(self, earlier: Baseline | None = None) -> None:
        """Take the first sample.

        Args:
            earlier: a baseline that is to be added to.

        Raises:
            PollError: the server cannot be reached or understood.
            BaselineError: it has nothing to record: the message says what is missing.
        """
        reading = await self._read()
        models = sorted({engine.key.model_name for engine in reading.engines})
        if not self._model_name and len(models) > 1:
            msg = f"the server has several models, choose one with --model: {', '.join(models)}"
            raise BaselineError(msg)
        if self._model_name and self._model_name not in models:
            msg = f"no model {self._model_name!r}; the server has {', '.join(models)}"
            raise BaselineError(msg)
        self._model_name = self._model_name or models[0]
        for engine in self._engines(reading):
            if engine.latencies is None or engine.latencies.time_per_output_token is None:
                msg = (
                    "the server has no vllm:request_time_per_output_token_seconds: a baseline needs "
                    "vLLM 0.11 or later, without --disable-log-stats"
                )
                raise BaselineError(msg)
        self._dialect = reading.dialect
        self._version = await self._upstream.version()
        if earlier is not None and (reason := earlier.why_not(self._model_name, self._version)):
            raise BaselineError(reason)
        self._observe(reading)

    async def watch(self, seconds: float, interval: float, tell: Callable[[float, float], None]) -> None:
        """Take samples until the time is over.

        Args:
            seconds: how long.
            interval: seconds between samples.
            tell: takes the seconds passed and the requests recorded, after each sample.
        """
        started = self._clock()
        beat = started
        while (passed := self._clock() - started) < seconds:
            beat = max(beat + interval, self._clock())
            await asyncio.sleep(min(beat - self._clock(), seconds - passed))
            try:
                self._observe(await self._read())
            except PollError:
                self.missed += 1
                for recorder in self._recorders.values():
                    recorder.interrupt()
            tell(self._clock() - started, sum(recorder.requests for recorder in self._recorders.values()))

    def baseline(self, earlier: Baseline | None = None) -> Baseline:
        """Return what was recorded, added to an earlier baseline where there is one.

        Raises:
            BaselineError: nothing was, or the earlier one has other histogram buckets.
        """
        together = Recorder()
        problem: BaselineError | None = None
        for recorder in self._recorders.values():
            try:
                together.include(recorder.buckets())
            except BaselineError as error:
                problem = error
        if not together.requests and problem is not None:
            raise problem
        if earlier is not None:
            together.include(earlier.buckets)
        return Baseline(
            format=FORMAT,
            model_name=self._model_name,
            upstream_version=self._version,
            dialect=self._dialect,
            recorded_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            buckets=together.buckets(),
        )

    async def _read(self) -> Reading:
        answer = await self._upstream.fetch()
        try:
            return dialects.read(answer.body, answer.content_type, latencies=True)
        except MalformedExposition as error:
            raise PollError("malformed", str(error)) from error
        except dialects.Unrecognized as error:
            raise PollError("unrecognized", str(error)) from error

    def _engines(self, reading: Reading) -> list[EngineReading]:
        return [engine for engine in reading.engines if engine.key.model_name == self._model_name]

    def _observe(self, reading: Reading) -> None:
        now = self._clock()
        for engine in self._engines(reading):
            recorder = self._recorders.setdefault(engine.key, Recorder(self._settle))
            sample = Sample(now, engine.counters, engine.load.requests_running, latencies=engine.latencies)
            before = recorder.speculating_seconds
            recorder.observe(sample)
            self.drafting = recorder.speculating_seconds > before
