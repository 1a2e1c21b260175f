"""One engine at one poll: what follows from its windows, up to the case to judge.

Most of it is asked for more than once, and some of it only of some engines. So each
step is a property, which is kept where it is dear, and stands below those that it is
made of.
"""

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from ..economics.choice import TriedK
from ..economics.cost import CostProfile
from ..economics.equal_load import prefix_cache_differs
from ..economics.observed_step import with_observed_step
from ..economics.profiles import deployed, guess_method
from ..economics.step_correction import correct_by_steps
from ..economics.step_totals import StepIncrease, steps_between
from ..engines import ENGINE_OF
from ..engines.reading import Counters, Drafting, EngineReading, Reading, Steps
from ..judgement.activity import Activity, with_schedule
from ..judgement.case import Case, PrefixCaches
from ..judgement.messages import message
from ..judgement.payoff import shows_opposite
from ..measures.estimation import DraftTree
from ..measures.history import Delta, Window
from ..measures.measures import (
    DraftShape,
    Measures,
    counted_shape,
    derive,
    derive_lifetime,
    draft_and_batch,
    observed_step,
)
from ..measures.trials import Trials
from .derived_totals import why_unadvisable
from .engine_activity import FULL, activity_by_counters, activity_by_gauges
from .settings import Settings
from .state import EngineState
from .windows import window_deltas

#: Seconds without an opposite after which the shortest window is judged again: of
#: traffic that changes every few minutes, it would show now a gain and now a loss.
_STEADY = 3600.0


class PolledServer(Struct, frozen=True):
    """A server at one poll."""

    reading: Reading  # its metrics
    version: str = ""  # from ``/version``, empty if not known
    #: Draft lengths by model, from records of single requests.
    shapes: Mapping[str, DraftShape] = field(default_factory=dict)


class PolledEngine(Struct, frozen=True, dict=True):
    """One engine at one poll, and what follows from its windows."""

    engine: EngineReading
    state: EngineState  # with the sample of this reading
    time: float  # of the poll, in seconds
    settings: Settings
    server: PolledServer
    mismatch: str  # why the baseline does not fit its model, empty if it does

    # --- what it runs, and what its counters grew by

    @property
    def model_name(self) -> str:
        """The served name."""
        return self.engine.key.model_name

    @property
    def drafting(self) -> Drafting:
        """How it drafts now, as far as its gauges say."""
        return self.engine.drafting or Drafting()

    @property
    def method(self) -> str:
        """How it drafts: as given, or as the drafter's name or a gauge says; empty if
        not known.
        """
        speculation = self.settings.speculation
        configured = guess_method(speculation.method, speculation.draft_model)
        return configured or self.drafting.method

    @cached_property
    def k(self) -> int | None:
        """The present K: by a gauge, else the number of positions, or as configured."""
        k = self.drafting.num_speculative_tokens
        if k is not None:
            return int(k)
        positions = len(self.engine.counters.accepted_tokens_per_position)
        return positions or self.settings.speculation.num_speculative_tokens

    @cached_property
    def deltas(self) -> dict[Window, Delta]:
        """The increase within each window that holds two samples."""
        return window_deltas(self.state.history, self.settings, self.time)

    @property
    def judged_delta(self) -> Delta | None:
        """The increase within the judged window, also while the shortest one overrules
        its verdict: a cost rests on more drafts; ``None`` before two samples.
        """
        return self.deltas.get(self.settings.judged)

    # --- the context of its requests

    @cached_property
    def _life(self) -> StepIncrease:
        """The totals of the server's whole life."""
        newest = self.state.history.newest
        if newest is None:
            return steps_between((Counters(), Steps()), (Counters(), Steps()))
        zeros = Steps(prompt_tokens=0.0, requests=0.0)
        nothing = (Counters(generation_tokens=0.0), zeros)
        return steps_between(nothing, (newest.counters, newest.steps))

    @cached_property
    def context_tokens(self) -> float | None:
        """Mean context of a request: of the judged window, else as it last was, else of
        the server's whole life; ``None`` if too few requests began.
        """
        delta = self.judged_delta
        if delta is not None and delta.context_tokens is not None:
            return delta.context_tokens
        if self.state.context_tokens is not None:
            return self.state.context_tokens
        return self._life.mean_context

    @property
    def _awaits_context(self) -> bool:
        """Whether the context is not known yet, and will be."""
        return self.context_tokens is None and self._life.counts_context

    # --- its measures, by what a step costs

    @cached_property
    def profile(self) -> CostProfile:
        """The cost of steps: of the method, at the measured context, corrected by what
        the engine shows.
        """
        settings = self.settings
        delta = self.judged_delta
        profile = deployed(
            settings.costs,
            settings.speculation,
            self.model_name,
            dialect=self.server.reading.dialect,
            version=self.server.version,
            printed=self.drafting.method,
        )
        profile = profile.at_context(self.context_tokens)
        if delta is not None:
            if delta.prompts_per_token is not None:
                profile = profile.with_prompts(delta.prompts_per_token)
            profile = profile.with_measured_draft(
                delta.draft_share, self.drafting.num_speculative_tokens
            )
        drafted, batch = draft_and_batch(delta)
        profile = correct_by_steps(
            profile,
            self.state.steps,
            drafted=drafted,
            batch=batch,
            time=self.time,
            method=self.method,
        )
        step = observed_step(delta)
        if step is None:
            return profile
        return with_observed_step(profile, step)

    @property
    def _tree(self) -> DraftTree | None:
        """The size of its drafts if they are trees, and were no others before."""
        drafting = self.drafting
        tokens = drafting.num_speculative_tokens
        if not drafting.tree or not tokens or self.state.derivation.changed:
            return None
        return DraftTree(drafting.draft_steps or 0.0, tokens)

    def _prefix_cache_differs(self, delta: Delta) -> bool:
        baseline = self.settings.baseline
        return baseline is not None and prefix_cache_differs(
            delta.prefix_cache_hit_ratio, baseline.prefix_cache_hit_ratio
        )

    def _comparable(self, delta: Delta) -> Delta:
        """Return the increase, without the comparison with a baseline that computed
        another share of its prompts beside its output.
        """
        if self._prefix_cache_differs(delta):
            return replace(delta, matches=())
        return delta

    @cached_property
    def windows(self) -> tuple[Measures, ...]:
        """The measures of each window, and of the whole life of a vLLM V0."""
        windows = tuple(
            derive(
                window.name,
                self._comparable(delta),
                self.profile,
                minimum_requests=self.settings.thresholds.measurement_minimum_requests,
                memory_ratio=self.settings.memory_ratio,
                tree=self._tree,
            )
            for window, delta in self.deltas.items()
        )
        if self.engine.misses_drafts:
            # The tokens of drafts that were not counted would be from none.
            windows = tuple(replace(each, coverage_ratio=None) for each in windows)
        lifetime = self.engine.lifetime
        if lifetime is None:
            return windows
        whole_life = derive_lifetime(
            lifetime.lifetime_acceptance_ratio, lifetime.lifetime_efficiency, self.k
        )
        # V0 has no usable counter of drafts.
        return (*(replace(measures, drafts=None) for measures in windows), whole_life)

    # --- the window that is judged

    def _measures_of(self, window: Window) -> Measures | None:
        for measures in self.windows:
            if measures.window == window.name:
                return measures
        return None

    @cached_property
    def opposite(self) -> bool:
        """Whether the shortest window shows the opposite of the judged one."""
        newest = self._measures_of(self.settings.shortest)
        judged = self._measures_of(self.settings.judged)
        if newest is None or judged is None:
            return False
        return shows_opposite(newest, judged, self.settings.thresholds)

    @cached_property
    def overruled(self) -> bool:
        """Whether the shortest window is judged: it shows the opposite, for the first
        time in an hour.
        """
        shown_at = self.state.opposite_at
        first_in_an_hour = shown_at is None or self.time - shown_at >= _STEADY
        return self.opposite and (self.state.overruled or first_in_an_hour)

    @cached_property
    def judged(self) -> Measures | None:
        """The measures of the judged window, or of the shortest one while it overrules
        that.
        """
        if self.overruled:
            return self._measures_of(self.settings.shortest)
        return self._measures_of(self.settings.judged)

    @property
    def since(self) -> float:
        """When the judged window began, in seconds."""
        return self.time - self.settings.judged.seconds - self.settings.slack

    @cached_property
    def batch_sizes(self) -> tuple[float, float] | None:
        """The least and the most requests running in the judged window."""
        return self.state.history.batch_sizes(self.since)

    @property
    def _settled(self) -> bool:
        """Whether the judged window is full."""
        delta = self.judged_delta
        return delta is not None and delta.span >= FULL * self.settings.judged.seconds

    @cached_property
    def busy(self) -> bool:
        """Whether requests ran at every sample of the judged window, which is full."""
        samples = self.state.history.since(self.since)
        return self._settled and all(sample.requests_running for sample in samples)

    # --- whether it speculates

    @cached_property
    def activity(self) -> Activity:
        """Whether it speculates, by its gauges, or else by its counters."""
        paused_at = self.state.derivation.paused_at
        paused = (
            paused_at is not None
            and self.time - paused_at <= self.settings.judged.seconds
        )
        activity = activity_by_gauges(self.engine, self.settings, paused=paused)
        if activity is None:
            activity = activity_by_counters(
                self.engine,
                self.server.reading,
                self.settings,
                self.deltas,
                busy=self.busy,
            )
        return with_schedule(activity, self.settings.speculation, self.batch_sizes)

    # --- what is held against an estimate: a baseline, and other K that ran

    @property
    def _prefix_caches(self) -> PrefixCaches | None:
        """The hit ratios of the baseline and now, where they differ too much."""
        baseline = self.settings.baseline
        judged = self.judged
        if baseline is None or self.mismatch or judged is None:
            return None
        recorded = baseline.prefix_cache_hit_ratio
        hit_ratio = judged.prefix_cache_hit_ratio
        if recorded is None or hit_ratio is None:
            return None
        if not prefix_cache_differs(hit_ratio, recorded):
            return None
        return PrefixCaches(recorded, hit_ratio)

    @property
    def _unmeasured(self) -> str:
        """Why the judged window has no measured speedup, if there is a baseline."""
        baseline = self.settings.baseline
        judged = self.judged
        if baseline is None or self.mismatch or judged is None:
            return ""
        if judged.measured.speedup is not None:
            return ""
        if self._prefix_caches:
            return message("payoff.prefix_cache_differs", caches=self._prefix_caches)
        missing = baseline.why_nothing(judged.batch_size) if judged.batch_size else ""
        needed = self.settings.thresholds.measurement_minimum_requests
        return missing or message("payoff.baseline_requests", needed=needed)

    @cached_property
    def trials(self) -> Trials:
        """The K that it really ran, with the newest interval."""
        history = self.state.history
        interval = history.newest_interval
        # Requests of an unknown context are comparable with no others.
        if interval is None or self._awaits_context:
            return self.state.trials
        return self.state.trials.add(
            *interval,
            started=history.samples[0].time,
            context_tokens=self.context_tokens,
            deployment=(self.method, self.server.version),
        )

    @property
    def _drafts_k(self) -> int:
        """The K of the judged window's drafts, 0 unless it is the present one: a K
        schedule may draft fewer tokens.
        """
        judged = self.judged
        if judged is None or len(judged.position_acceptance_ratio) != self.k:
            return 0
        return self.k

    @property
    def _tried(self) -> tuple[TriedK, ...]:
        """The other K that really ran at the load of the judged window."""
        judged = self.judged
        if judged is None or judged.batch_size is None or not self._drafts_k:
            return ()
        return tuple(self.trials.others(self._drafts_k, judged.batch_size))

    @property
    def _awaited_k(self) -> int | None:
        """Another K that can be compared with the present one before long."""
        judged = self.judged
        samples = self.state.history.samples
        if judged is None or judged.batch_size is None or not self._drafts_k:
            return None
        age = self.time - samples[0].time
        return self.trials.awaited(self._drafts_k, judged.batch_size, age)

    @property
    def _unadvisable(self) -> str:
        """Why no K can be advised, whatever is counted; empty if one can."""
        profile = self.profile
        depends_on_context = (
            profile.physical is not None
            or profile.target.per_context_token > 0
            or profile.draft.per_context_token > 0
        )
        if depends_on_context and self._awaits_context:
            return message("unadvisable.context_unknown")
        awaited = self._awaited_k
        if awaited is not None:
            return message("unadvisable.being_compared", k=awaited)
        return why_unadvisable(self.engine, self.state.derivation)

    # --- all of it

    @cached_property
    def case(self) -> Case:
        """All that the judgement looks at."""
        settings = self.settings
        state = self.state
        reading = self.server.reading
        judged = self.judged
        counted = counted_shape(self.judged_delta)
        return Case(
            activity=self.activity,
            measures=judged,
            counters=self.engine.counters,
            k=self.k,
            method=self.method,
            profile=self.profile,
            thresholds=settings.thresholds,
            other_windows=tuple(m for m in self.windows if m is not judged),
            speculation=settings.speculation,
            ambiguous=settings.ambiguous,
            batch_sizes=self.batch_sizes,
            settled=self._settled,
            busy=self.busy,
            model_name=self.model_name,
            version=self.server.version,
            engine=ENGINE_OF[reading.dialect],
            unadvisable=self._unadvisable,
            engines=reading.engines_beside(self.engine.key),
            shape=self.server.shapes.get(self.model_name) or counted,
            speculative=reading.speculative,
            defects=state.latest_defects,
            mismatch=self.mismatch,
            unmeasured=self._unmeasured,
            prefix_caches=self._prefix_caches,
            uptime=state.uptime,
            routed=reading.routed,
            overruled=self.overruled,
            tried=self._tried,
        )
