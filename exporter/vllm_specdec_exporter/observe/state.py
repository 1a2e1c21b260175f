"""The state of each engine between polls: what its readings have shown so far."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..economics.baseline_match import BaselineComparison
from ..economics.step_time import EngineSteps, step_interval
from ..economics.step_totals import steps_between
from ..engines.reading import EngineReading
from ..judgement.advising import CurrentAdvice
from ..judgement.messages import message
from ..measures.history import Sample, SampleHistory, delta, running_between
from ..measures.measures import Distribution, reaching, recover
from ..measures.uptime import Uptime
from .contradictions import contradictions
from .derived_totals import Derivation, with_rising_totals

if TYPE_CHECKING:
    from ..economics.baseline import Baseline


class EngineState(Struct, frozen=True):
    """The state of one engine between polls."""

    #: The samples since the last counter reset.
    history: SampleHistory = SampleHistory()
    inconsistent_samples: int = 0  # number of inconsistent samples so far
    #: Accepted tokens per draft since the reset.
    distribution: Distribution | None = None
    #: The drafts that got to each position, see `EngineResult`.
    reaching: tuple[float, ...] = ()
    latest_defects: tuple[str, ...] = ()  # inconsistencies of the newest sample
    current_advice: CurrentAdvice = CurrentAdvice()
    steps: EngineSteps = EngineSteps()  # step times that were learned since the reset
    #: Of an engine with derived totals, what earlier polls showed.
    derivation: Derivation = Derivation()
    #: What tells the process of the server from others, empty if it is not known.
    process: str = ""
    uptime: Uptime = Uptime()  # the hours since the reset
    #: When the shortest window last showed the opposite of the judged one.
    opposite_at: float | None = None
    overruled: bool = False  # whether the shortest window was judged at the last poll

    def add_reading(
        self,
        engine: EngineReading,
        time: float,
        *,
        process: str,
        keep: float,
        baseline: Baseline | None,
    ) -> tuple[EngineReading, EngineState]:
        """Return the reading of a poll at `time` with totals that only rise, and the
        state after it.

        `process` tells the server's process from others; samples older than `keep`
        seconds are dropped.
        """
        state = self._of_process(process)
        newest = state.history.newest
        previous = newest.counters if newest else None
        engine, derivation = with_rising_totals(
            engine, previous, state.derivation, time
        )
        sample = Sample(
            time=time,
            counters=engine.counters,
            requests_running=engine.load.requests_running,
            latencies=engine.latencies,
            steps=engine.steps,
            kv_cache=engine.load.kv_cache_usage_ratio,
        )
        if baseline is not None:
            sample = _matched(newest, sample, baseline)
        state = replace(state, derivation=derivation)
        return engine, state.add_sample(sample, keep, engine.defects)

    def _of_process(self, process: str) -> EngineState:
        """Return the state for a response of this process: another process has reset
        counters.
        """
        if not self.process or not process or process == self.process:
            return replace(self, process=process)
        return EngineState(
            history=SampleHistory(resets=self.history.resets + 1),
            inconsistent_samples=self.inconsistent_samples,
            process=process,
        )

    def add_sample(
        self, sample: Sample, keep: float, defects: tuple[str, ...] = ()
    ) -> EngineState:
        """Return the state after `sample`, in whose reading these defects were; `keep`
        is in seconds.
        """
        previous = self.history.newest
        history = self.history.add(sample, keep)
        reset = history.resets > self.history.resets
        if previous is not None and sample.time <= previous.time:
            defects = (*defects, message("defect.clock"))
        state = self
        # After an interruption nothing is compared: what happened in it is not known.
        if previous is None or reset:
            state = self._without_learned(reset=reset)
        elif not self.history.interrupted:
            defects = (*defects, *contradictions(previous, sample))
            state = replace(self, steps=_with_interval(self.steps, previous, sample))
        distribution = recover(sample.counters, state.distribution)
        return replace(
            state,
            history=history,
            inconsistent_samples=self.inconsistent_samples + bool(defects),
            distribution=distribution or state.distribution,
            reaching=state._reaching(None if reset else previous, sample),
            latest_defects=defects,
            uptime=state.uptime.add(
                history.newest, interrupted=len(history.samples) <= 1
            ),
        )

    def _without_learned(self, *, reset: bool) -> EngineState:
        """Return the state without what was learned before a reset, or before a
        response that lacked a series.

        Totals by position must not fall, and step times outlast such a response.
        """
        return EngineState(
            reaching=self.reaching,
            steps=EngineSteps() if reset else self.steps,
            derivation=self.derivation,
            process=self.process,
        )

    def _reaching(self, previous: Sample | None, sample: Sample) -> tuple[float, ...]:
        counters = sample.counters
        if not counters.drafted_tokens_per_position:
            drafts = counters.drafts
            accepted = counters.accepted_tokens_per_position
            if drafts is None or not accepted:
                return ()
            return (drafts, *accepted[:-1])
        # An estimate from totals could fall, so those of the intervals are added up.
        increases = reaching(delta(previous, sample)) if previous else ()
        return tuple(map(sum, zip_longest(self.reaching, increases, fillvalue=0.0)))

    def interrupt(self) -> EngineState:
        """Return the state after a failed poll: no window spans the interruption."""
        return replace(
            self,
            history=self.history.interrupt(),
            derivation=self.derivation.interrupt(),
        )


def _with_interval(steps: EngineSteps, previous: Sample, sample: Sample) -> EngineSteps:
    """Return the step times with those of the interval between two adjacent samples, if
    it has any.
    """
    increase = steps_between(
        (previous.counters, previous.steps), (sample.counters, sample.steps)
    )
    running = running_between(previous, sample)
    interval = step_interval(increase, running, sample.kv_cache)
    if interval is None:
        return steps
    return steps.add(*interval, sample.time)


def _matched(previous: Sample | None, sample: Sample, baseline: Baseline) -> Sample:
    """Return the sample with its comparison with the baseline."""
    match = previous.match if previous else None
    if match is None:
        match = BaselineComparison(baseline=baseline)
    if previous is None or not _generated(previous, sample):
        return replace(sample, match=match)
    load = running_between(previous, sample)
    if load is not None:
        seconds = sample.time - previous.time
        match = match.add(
            previous.latencies,
            sample.latencies,
            load=load,
            seconds=seconds,
            baseline=baseline,
        )
    return replace(sample, match=match)


def _generated(previous: Sample, sample: Sample) -> bool:
    """Return whether tokens were generated between two samples: idle time has no
    throughput to compare.
    """
    earlier = previous.counters.generation_tokens
    later = sample.counters.generation_tokens
    return earlier is None or later is None or later != earlier
