"""Watching a server without speculation, with one recorder per engine."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from ...economics.baseline import FORMAT, Baseline, BaselineError
from ...economics.speculative_config import drafts_without_model
from ...engines import ENGINE_OF
from ...engines.reading import EngineKey, EngineReading, Reading
from ...engines.tables import servers_with_latencies
from ...measures.history import Sample
from ...upstream.client import PollError, Upstream
from ..measuring import LOOKUPS, NOT_PLAIN
from .recorder import Recorder

_NO_PLAIN_STEPS = (
    f"the server speculates, and {NOT_PLAIN}: record a server without {{}}, or give "
    f"--method if it is one of {LOOKUPS}"
)


class Watcher:
    """Records the engines of one model of a server."""

    def __init__(
        self,
        upstream: Upstream,
        *,
        model_name: str,
        settle: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        method: str = "",
    ) -> None:
        """Begin with nothing.

        Args:
            upstream: the server.
            model_name: empty for the only one.
            settle: seconds after a draft that are left out.
            clock: returns seconds of a monotonic clock.
            sleep: waits for so many seconds of it.
            method: the server's speculative method, empty if it has none or tells it.
        """
        self._upstream = upstream
        self._settle = settle
        self._clock = clock
        self._sleep = sleep
        self._recorders: dict[EngineKey, Recorder] = {}
        self._model_name = model_name
        self._method = method
        self._version = ""
        self._dialect = ""
        self.missed = 0  # failed polls
        # whether the newest sample was left out because of drafts
        self.drafting = False

    async def begin(self, earlier: Baseline | None = None) -> None:
        """Take the first sample; `earlier` is a baseline to extend.

        Raises:
            PollError: the server cannot be reached or parsed.
            BaselineError: there is nothing to record.
        """
        reading = await self._upstream.read(latencies=True)
        self._choose_model(reading)
        for engine in self._engines(reading):
            latencies = engine.latencies
            if latencies is None or latencies.time_per_output_token is None:
                raise BaselineError(
                    "the server has no time per output token: a baseline needs "
                    f"{servers_with_latencies()}, without --disable-log-stats"
                )
        self._dialect = reading.dialect
        self._version = await self._upstream.version()
        if earlier is not None:
            reason = earlier.why_not(self._model_name, self._version)
            if reason:
                raise BaselineError(reason)
        self._observe(reading)

    def _choose_model(self, reading: Reading) -> None:
        models = sorted({engine.key.model_name for engine in reading.engines})
        if not self._model_name:
            if len(models) > 1:
                raise BaselineError(
                    "the server has several models, choose one with --model: "
                    f"{', '.join(models)}"
                )
            self._model_name = models[0]
        elif self._model_name not in models:
            raise BaselineError(
                f"no model {self._model_name!r}; the server has {', '.join(models)}"
            )

    async def watch(
        self, seconds: float, interval: float, tell: Callable[[float, float], None]
    ) -> None:
        """Take samples for some seconds; `tell` gets the elapsed seconds and the
        recorded requests.
        """
        started = self._clock()
        end = started + seconds
        beat = started
        while self._clock() < end:
            # On a beat, and without catching up on beats that a slow poll missed.
            beat = max(beat + interval, self._clock())
            await self._sleep(min(beat, end) - self._clock())
            try:
                self._observe(await self._upstream.read(latencies=True))
            except PollError:
                self.missed += 1
                for recorder in self._recorders.values():
                    recorder.interrupt()
            requests = sum(recorder.requests for recorder in self._recorders.values())
            tell(self._clock() - started, requests)

    def baseline(self, earlier: Baseline | None = None) -> Baseline:
        """Return the recording, added to the earlier baseline if there is one, or raise
        BaselineError.
        """
        together = Recorder()
        problem: BaselineError | None = None
        for recorder in self._recorders.values():
            try:
                together.include(recorder.buckets())
            except BaselineError as error:
                problem = error
        # An engine without requests is no problem beside one that has some.
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

    def _engines(self, reading: Reading) -> list[EngineReading]:
        return [
            engine
            for engine in reading.engines
            if engine.key.model_name == self._model_name
        ]

    def _observe(self, reading: Reading) -> None:
        now = self._clock()
        for engine in self._engines(reading):
            method = self._method
            if not method and engine.drafting:
                method = engine.drafting.method
            if engine.shows_speculation and not drafts_without_model(method):
                option = ENGINE_OF[reading.dialect].speculation_option
                raise BaselineError(_NO_PLAIN_STEPS.format(option))
            if engine.key not in self._recorders:
                self._recorders[engine.key] = Recorder(self._settle)
            recorder = self._recorders[engine.key]
            left_out = recorder.speculating_seconds
            recorder.observe(
                Sample(
                    now,
                    engine.counters,
                    engine.load.requests_running,
                    latencies=engine.latencies,
                )
            )
            self.drafting = recorder.speculating_seconds > left_out
