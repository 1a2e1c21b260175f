"""Settings of the pipeline, and the state of each engine between polls, with totals
that are derived.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..config.thresholds import Thresholds
from ..economics.baseline_match import BaselineComparison
from ..economics.profiles import CostSettings
from ..economics.speculative_config import Speculation
from ..economics.step_time import EngineSteps, step_interval
from ..engines.dialect import MAX_POSITIONS
from ..engines.reading import Counters, Drafting, EngineReading
from ..judgement.advice import CurrentAdvice
from ..measures.history import (
    Delta,
    History,
    Sample,
    Window,
    counters_reset,
    delta,
    running_between,
    window_delta,
)
from ..measures.measures import Distribution, Measures, reaching, recover
from ..measures.uptime import Uptime

if TYPE_CHECKING:
    from ..economics.baseline import Baseline

DEFAULT_WINDOWS = (Window(30.0), Window(300.0))


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the pipeline."""

    #: The windows to publish, from the shortest to the longest.
    windows: tuple[Window, ...] = DEFAULT_WINDOWS
    judged: Window = DEFAULT_WINDOWS[-1]  # the window that is judged
    #: Seconds by which the oldest sample may lie before the window: half a poll
    #: interval.
    slack: float = 2.5
    thresholds: Thresholds = Thresholds()
    #: The server's ``--speculative-config``, if given.
    speculation: Speculation = Speculation()
    costs: CostSettings = CostSettings()
    #: Memory of the draft model over that of the GPUs, if given.
    memory_ratio: float | None = None
    baseline: Baseline | None = None  # the recorded speed without speculation, if given
    latencies: bool = False  # whether to read latency histograms; a baseline needs them
    server_info: bool = False  # whether to read SGLang's /server_info


def _without_undrafted(delta: Delta, scheduled: int | None, least: float) -> Delta:
    """Return the increase without the deep positions that no draft of the window had.

    A K schedule leaves them out: `scheduled` is the K that it had in the whole window,
    if that is known. Without one, or if the server does not follow it, all drafts,
    `least` of them or more, had as many tokens, and none was accepted beyond.
    """
    drafts = delta.drafts
    tokens = delta.draft_tokens
    positions = delta.accepted_tokens_per_position
    if not drafts or not tokens or delta.drafted_tokens_per_position:
        return delta
    if tokens % drafts == 0 and drafts >= least:
        alike = int(tokens / drafts)
    else:
        alike = 0
    for k in (scheduled or 0, alike):
        if 0 < k < len(positions) and not any(positions[k:]) and tokens <= k * drafts:
            return replace(delta, accepted_tokens_per_position=positions[:k])
    return delta


class Derivation(Struct, frozen=True):
    """What earlier polls showed of an engine with derived totals, since its counters
    were last reset.
    """

    excess: float = 0.0  # tokens in the difference that no draft can have had
    #: Of them, those of the newest answer: it may lack the drafts that they came from.
    late: float = 0.0
    early: float = 0.0  # drafts of the newest answer that lacks their tokens
    k: float | None = None  # the newest K above 0
    changed: bool = False  # whether K changed
    #: The most tokens of a draft that can be accepted, by the largest K; 0 if not
    #: known.
    most: float = 0.0
    #: When it last was seen to draft nothing although it speculates, in seconds.
    paused_at: float | None = None


class EngineState(Struct, frozen=True):
    """The state of one engine between polls."""

    history: History = History()  # the samples since the last counter reset
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

    def of_process(self, process: str) -> EngineState:
        """Return the state for a response of this process: another process has reset
        counters.
        """
        if not self.process or not process or process == self.process:
            return replace(self, process=process)
        started = History(resets=self.history.resets + 1)
        return EngineState(
            history=started,
            inconsistent_samples=self.inconsistent_samples,
            process=process,
        )

    def add_sample(
        self,
        sample: Sample,
        keep: float,
        in_reading: tuple[str, ...],
        baseline: Baseline | None = None,
    ) -> EngineState:
        """Return the state after `sample`, in whose reading these defects were; `keep`
        is in seconds.
        """
        before = self.history.newest
        if baseline is not None:
            sample = _matched(before, sample, baseline)
        history = self.history.add(sample, keep)
        reset = history.resets > self.history.resets
        continued = before is not None and not reset
        known = self
        # nothing that was learned before a reset; totals by position must not fall
        if not continued:
            # step times outlast a response without a series
            steps = EngineSteps() if reset else self.steps
            known = EngineState(
                reaching=self.reaching,
                steps=steps,
                derivation=self.derivation,
                process=self.process,
            )
        latest_defects = in_reading
        steps = known.steps
        if before is not None and sample.time <= before.time:
            latest_defects = (
                *latest_defects,
                "the clock did not advance since the sample before",
            )
        if before is not None and continued and not self.history.interrupted:
            latest_defects = (*latest_defects, *defects(before, sample))
            steps = _with_interval(steps, before, sample)
        return replace(
            known,
            history=history,
            inconsistent_samples=self.inconsistent_samples + bool(latest_defects),
            distribution=recover(sample.counters, known.distribution)
            or known.distribution,
            reaching=known._reaching(before if continued else None, sample),
            latest_defects=latest_defects,
            steps=steps,
            uptime=known.uptime.add(
                history.newest, interrupted=len(history.samples) <= 1
            ),
        )

    def _reaching(self, before: Sample | None, sample: Sample) -> tuple[float, ...]:
        counters = sample.counters
        if not counters.drafted_tokens_per_position:
            drafts = counters.drafts
            accepted = counters.accepted_tokens_per_position
            if drafts is None or not accepted:
                return ()
            return (drafts, *accepted[:-1])
        # An estimate from totals could fall, so those of the intervals are added up.
        increases = reaching(delta(before, sample)) if before else ()
        return tuple(map(sum, zip_longest(self.reaching, increases, fillvalue=0.0)))

    def deltas(self, settings: Settings, time: float) -> dict[Window, Delta]:
        """Return the increase within each window that holds two samples, of the
        positions that drafts had.
        """
        increases = {}
        slack = settings.slack
        for window in settings.windows:
            increase = window_delta(self.history, window, slack)
            if increase is not None:
                speculation = settings.speculation
                since = time - window.seconds - slack
                if speculation.schedule:
                    loads = self.history.batch_sizes(since)
                else:
                    loads = None
                scheduled = speculation.scheduled_k_of(*loads) if loads else None
                least = settings.thresholds.minimum_drafts
                increases[window] = _without_undrafted(increase, scheduled, least)
        return increases

    def interrupt(self) -> EngineState:
        """Return the state after a failed poll: no window spans the interruption.

        Another K after it may be that of another process, so it shows no change.
        """
        if self.derivation.k:
            derivation = replace(self.derivation, k=None)
        else:
            derivation = self.derivation
        return replace(self, history=self.history.interrupt(), derivation=derivation)


def _with_interval(steps: EngineSteps, before: Sample, sample: Sample) -> EngineSteps:
    """Return the step times with those of the interval between two adjacent samples, if
    it has any.
    """
    shown = step_interval(
        (before.counters, before.steps),
        (sample.counters, sample.steps),
        running_between(before, sample),
        sample.kv_cache,
    )
    if shown is None:
        return steps
    return steps.add(*shown, sample.time)


def defects(previous: Sample, current: Sample) -> tuple[str, ...]:
    """Return descriptions of inconsistent counters in `current`, compared with the
    sample before it.
    """
    texts = []
    step = delta(previous, current)
    positions = step.accepted_tokens_per_position
    tolerance = current.counters.resolution * (current.counters.draft_tokens or 0.0)
    bound = math.inf if step.drafts is None else step.drafts
    for position, accepted in enumerate(positions):
        if accepted > bound + tolerance:
            if position == 0:
                of = "drafts"
            else:
                of = f"accepted at position {position - 1}"
            texts.append(
                f"{accepted:g} accepted at position {position}, but only {bound:g} {of}"
            )
        bound = accepted
    had = step.drafted_tokens_per_position
    over = (
        i
        for i, accepted in enumerate(positions[: len(had)])
        if accepted > had[i] + tolerance
    )
    texts += [
        f"{positions[i]:g} accepted at position {i}, but only {had[i]:g} drafted there"
        for i in over
    ]
    total = step.accepted_tokens
    drafted = step.draft_tokens
    if total is not None and drafted is not None and total > drafted + tolerance:
        texts.append(f"{total:g} accepted tokens, but only {drafted:g} draft tokens")
    most = len(positions) * (step.drafts or 0.0)
    if (
        positions
        and step.drafts is not None
        and drafted is not None
        and drafted > most + tolerance
    ):
        texts.append(
            f"{drafted:g} draft tokens, but at most {most:g} in {step.drafts:g} drafts"
        )
    before = _surplus(previous)
    now = _surplus(current)
    if (
        positions
        and min(abs(before), abs(now)) > tolerance
        and (before > 0) is (now > 0)
    ):
        texts.append(
            f"accepted tokens differ from the sum over positions by {now:+g}, "
            "twice in a row"
        )
    return tuple(texts)


def _surplus(sample: Sample) -> float:
    """Return the accepted tokens in excess of the sum over positions."""
    counters = sample.counters
    return (counters.accepted_tokens or 0.0) - sum(
        counters.accepted_tokens_per_position
    )


def _matched(previous: Sample | None, sample: Sample, baseline: Baseline) -> Sample:
    match = (previous.match if previous else None) or BaselineComparison(
        baseline=baseline
    )
    load = running_between(previous, sample) if previous else None
    if previous is not None and load is not None and _generated(previous, sample):
        seconds = sample.time - previous.time
        match = match.add(previous.latencies, sample.latencies, load, seconds, baseline)
    return replace(sample, match=match)


def _generated(previous: Sample, sample: Sample) -> bool:
    """Return whether tokens were generated between two samples: idle time has no
    throughput to compare.
    """
    before = previous.counters.generation_tokens
    after = sample.counters.generation_tokens
    return before is None or after is None or after != before


# Totals that an engine does not count but that follow from its other counters: accepted
# tokens of such an engine are what it generated without a draft's help, taken off all
# that it generated. So a request without drafts adds tokens that no draft had, and the
# difference can fall for a moment without a restart. Draft tokens are drafts times K,
# which holds while K does not change.


def with_rising_totals(
    engine: EngineReading, state: EngineState, time: float
) -> tuple[EngineReading, EngineState]:
    """Return the reading with totals that only rise, and the state with what the next
    poll needs.

    `time` is that of the poll, in seconds.
    """
    if not engine.derived:
        return engine, state
    now = engine.counters
    earlier = state.derivation
    newest = state.history.newest
    previous = newest.counters if newest else None
    if previous is not None and counters_reset(_counted(previous), _counted(now)):
        earlier = Derivation()
        previous = None
    seen = _of_k(earlier, engine.drafting, time)
    draft_tokens = None if seen.changed else now.draft_tokens
    if now.accepted_tokens is None or now.drafts is None:
        counters = replace(now, draft_tokens=draft_tokens)
        return replace(engine, counters=counters), replace(state, derivation=seen)
    before = 0.0
    drafts = now.drafts
    generated = now.generation_tokens or 0.0
    if previous is not None and None not in (previous.accepted_tokens, previous.drafts):
        before = previous.accepted_tokens or 0.0
        drafts = now.drafts - (previous.drafts or 0.0)
        generated -= previous.generation_tokens or 0.0
    # Each draft gives a token, so these drafts and their tokens are in two answers.
    torn = drafts > generated
    excess = seen.excess - seen.late if torn else seen.excess
    accepted = now.accepted_tokens - excess
    most = before + (drafts + seen.early) * (seen.most or MAX_POSITIONS)
    over = max(0.0, accepted - most)
    defects = engine.defects
    if over and drafts:
        defects = (
            *defects,
            f"{over:g} tokens more than {drafts:g} drafts can have given",
        )
    early = drafts if torn and not seen.late else 0.0
    counters = replace(
        now, accepted_tokens=max(before, accepted - over), draft_tokens=draft_tokens
    )
    seen = replace(seen, excess=excess + over, late=over, early=early)
    return replace(engine, counters=counters, defects=defects), replace(
        state, derivation=seen
    )


def _counted(counters: Counters) -> Counters:
    """Return the counters without the totals that are derived, which may fall without a
    reset.
    """
    return replace(counters, draft_tokens=None, accepted_tokens=None)


def _of_k(earlier: Derivation, drafting: Drafting | None, time: float) -> Derivation:
    if drafting is None or not drafting.verified_tokens:
        return earlier
    # Not by the steps: SGLang prints 0 of them for n-gram drafts.
    k = drafting.num_speculative_tokens
    return replace(
        earlier,
        k=k or earlier.k,
        changed=earlier.changed or k == 0 or (earlier.k is not None and k != earlier.k),
        most=max(earlier.most, drafting.depth or 0.0),
        paused_at=time if k == 0 else earlier.paused_at,
    )


def why_no_advice(engine: EngineReading, seen: Derivation) -> str:
    """Return why no K can be advised to an engine with derived totals, empty if it
    lacks positions only.
    """
    if seen.changed:
        return "the server changes K itself (--speculative-adaptive)"
    if engine.drafting is not None and engine.drafting.tree:
        if engine.drafting.topk is None:
            return (
                "drafts have more tokens than steps: they are trees or blocks "
                "(--spec.server-info tells)"
            )
        return "drafts are trees (top-k above 1), so their tokens have no positions"
    return ""


def why_unmeasured(measures: Measures, settings: Settings) -> str:
    """Return why a window has no measured speedup although there is a baseline; empty
    without a baseline.
    """
    if settings.baseline is None or measures.measured.speedup is not None:
        return ""
    if measures.batch_size:
        nothing = settings.baseline.why_nothing(measures.batch_size)
    else:
        nothing = ""
    least = settings.thresholds.measurement_minimum_requests
    return (
        nothing
        or f"fewer than {least:,.0f} requests finished at a load that the baseline has"
    )


def sample_of(engine: EngineReading, time: float) -> Sample:
    """Return the sample of an engine, read at `time` seconds."""
    return Sample(
        time,
        engine.counters,
        engine.load.requests_running,
        latencies=engine.latencies,
        steps=engine.steps,
        kv_cache=engine.load.kv_cache_usage_ratio,
    )
