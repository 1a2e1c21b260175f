"""Settings: what the pipeline needs to know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..config.thresholds import Thresholds
from ..economics.baseline_match import Match
from ..economics.profiles import BUILTIN
from ..economics.speculative_config import Speculation
from ..judgement.current_advice import CurrentAdvice
from ..measures.history import History, Window, defects, running_between
from ..measures.measures import Distribution, recover

if TYPE_CHECKING:
    from ..economics.baseline import Baseline
    from ..economics.cost import CostProfile
    from ..measures.history import Sample


DEFAULT_WINDOWS = (Window(30.0), Window(300.0))


@dataclass(frozen=True, slots=True)
class Settings:
    """What the pipeline needs to know.

    Attributes:
        windows: the windows to publish, from the shortest to the longest.
        judged: the one of them that judgement looks at.
        slack: seconds by which a window's oldest sample may be too old: half a poll interval.
        thresholds: the numbers that judge.
        speculation: what the operator says of the server.
        profile: what steps cost.
        size_ratio: size of the draft model over the target's, where the operator says so.
        memory_ratio: memory of the draft model over that of the GPUs, where the operator says so.
        baseline: how fast the server is without speculation, where that was recorded.
        latencies: whether to read what requests took; a baseline needs it.
    """

    windows: tuple[Window, ...] = DEFAULT_WINDOWS
    judged: Window = DEFAULT_WINDOWS[-1]
    slack: float = 2.5
    thresholds: Thresholds = Thresholds()
    speculation: Speculation = Speculation()
    profile: CostProfile = BUILTIN["unknown"]
    size_ratio: float | None = None
    memory_ratio: float | None = None
    baseline: Baseline | None = None
    latencies: bool = False


@dataclass(frozen=True, slots=True)
class EngineState:
    """What is remembered of one engine.

    Attributes:
        history: the samples of the present life.
        inconsistent_samples: how many samples contradicted themselves or the one before.
        distribution: accepted tokens per draft in this life.
        latest_defects: what was inconsistent in the newest sample.
        current_advice: the advice that stands.
    """

    history: History = History()
    inconsistent_samples: int = 0
    distribution: Distribution | None = None
    latest_defects: tuple[str, ...] = ()
    current_advice: CurrentAdvice = CurrentAdvice()

    def observe(
        self, sample: Sample, keep: float, found: tuple[str, ...], baseline: Baseline | None = None
    ) -> EngineState:
        """Return the state after `sample`.

        Args:
            sample: what was read.
            keep: how many seconds the history must reach back.
            found: the defects that its reading showed.
            baseline: what to compare finished requests with.
        """
        before = self.history.newest
        if baseline is not None:
            sample = _matched(before, sample, baseline)
        history = self.history.observe(sample, keep)
        lives_on = before is not None and history.resets == self.history.resets
        if before is not None and sample.time <= before.time:
            found = (*found, "the clock did not advance since the sample before")
        if lives_on and before is not None and not self.history.interrupted:
            found = (*found, *defects(before, sample))
        recovered = recover(sample.counters, self.distribution if lives_on else None)
        return EngineState(
            history=history,
            inconsistent_samples=self.inconsistent_samples + bool(found),
            distribution=recovered or (self.distribution if lives_on else None),
            latest_defects=found,
            current_advice=self.current_advice if lives_on else CurrentAdvice(),
        )

    def interrupt(self) -> EngineState:
        """Return the state after the server was gone: no window will reach across that."""
        return replace(self, history=self.history.interrupt())


def _matched(previous: Sample | None, sample: Sample, baseline: Baseline) -> Sample:
    """Return `sample` with what finished since the one before beside the baseline."""
    match = (previous.match if previous else None) or Match(baseline=baseline)
    load = running_between(previous, sample) if previous else None
    if previous is not None and load is not None and _generated(previous, sample):
        seconds = sample.time - previous.time
        match = match.add(previous.latencies, sample.latencies, load, seconds, baseline)
    return replace(sample, match=match)


def _generated(previous: Sample, sample: Sample) -> bool:
    """Tell whether anything was generated between two samples: idle time has no throughput to compare."""
    before, after = previous.counters.generation_tokens, sample.counters.generation_tokens
    return before is None or after is None or after != before
