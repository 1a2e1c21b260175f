"""State: what is remembered of one engine between polls. Bounded by the longest window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .baseline.match import Match
from .consistency import defects
from .distribution import Distribution, recover
from .history import History, running_between
from .judgement.counsel import Counsel

if TYPE_CHECKING:
    from .baseline.document import Baseline
    from .history import Sample


@dataclass(frozen=True, slots=True)
class EngineState:
    """What is remembered of one engine.

    Attributes:
        history: the samples of the present life.
        inconsistent_samples: how many samples contradicted themselves or the one before.
        distribution: accepted tokens per draft in this life.
        latest_defects: what was inconsistent in the newest sample.
        counsel: the advice that stands.
    """

    history: History = History()
    inconsistent_samples: int = 0
    distribution: Distribution | None = None
    latest_defects: tuple[str, ...] = ()
    counsel: Counsel = Counsel()

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
            counsel=self.counsel if lives_on else Counsel(),
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
