"""An engine as the status page shows it: values that the result does not have itself.

The words are in the templates.
"""

from collections.abc import Collection
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from ...economics.cost import Basis
from ...judgement.activity import ActivityState
from ...judgement.payoff import PayoffVerdict, correction
from ...judgement.quality import QualityLevel
from ...measures.measures import LIFETIME, Measures
from ...observe.result import EngineResult, TargetResult
from ..last_hour import Point
from .sparkline import Sparkline, sparkline

#: A relative change of the shortest window against the judged one that is called a
#: trend. Smaller ones are mostly noise.
_TREND = 0.1


class Trend(Struct, frozen=True):
    """How a value of the shortest window differs from that of the judged one."""

    direction: str  # falling or rising
    value: float  # of the shortest window
    window: str  # the name of the shortest window


class View(Struct, frozen=True):
    """An engine with its place on the page."""

    engine: EngineResult
    target: TargetResult
    target_index: int
    anchor: str  # prefix of the identifiers of its elements
    #: Drafts that a window must hold to be judged, if known.
    minimum_drafts: float | None = None
    hour: tuple[Point, ...] = ()  # the last hour, oldest first

    @property
    def severity(self) -> tuple[int, float]:
        """A key that sorts the worst engine first."""
        payoff = self.engine.payoff
        active = self.engine.activity.state is ActivityState.ACTIVE
        beneficial = payoff.verdict is PayoffVerdict.BENEFICIAL
        # What loses throughput for sure first; what pays last but idle engines, which
        # need nobody's attention.
        conditions = (
            payoff.verdict is PayoffVerdict.HARMFUL,
            payoff.likely is PayoffVerdict.HARMFUL,
            self.engine.activity.unexplained,
            self.engine.quality.level is QualityLevel.POOR,
            payoff.verdict is PayoffVerdict.MARGINAL,
            active and not beneficial,
            beneficial,
            True,
        )
        return conditions.index(True), payoff.speedup or 0.0

    @property
    def state(self) -> str:
        """The state that colours its border."""
        engine = self.engine
        verdict = engine.payoff.verdict or engine.quality.level
        return verdict or engine.activity.state or "unknown"

    @property
    def off(self) -> bool:
        """Whether the engine does not speculate at all."""
        return self.engine.activity.state is ActivityState.OFF

    @property
    def warming_up(self) -> bool:
        """Whether it has too few drafts to be judged."""
        return self.engine.activity.state is ActivityState.WARMING_UP

    @property
    def judged(self) -> Measures | None:
        """The window that activity and quality are judged by."""
        return self.engine.window(self.engine.judged_window)

    @property
    def window_words(self) -> str:
        """The judged window in words."""
        return f"last {self.engine.judged_window}"

    @property
    def headline(self) -> Measures | None:
        """The measures shown first.

        The judged window's, or the lifetime's of vLLM V0, which has no other.
        """
        return self.engine.window(LIFETIME) or self.judged

    @property
    def lifetime(self) -> bool:
        """Whether the measures shown first are means over the server's whole life."""
        return self.headline is not None and self.headline.window == LIFETIME

    @property
    def acceptance_length(self) -> float | None:
        """The mean acceptance length shown first."""
        return self.headline.mean_acceptance_length if self.headline else None

    @property
    def acceptance_ratio(self) -> float | None:
        """The acceptance ratio shown first."""
        return self.headline.acceptance_ratio if self.headline else None

    @property
    def payoff_trend(self) -> Trend | None:
        """The trend of the speedup, on the basis of the verdict."""
        newest = self._newest
        if newest is None:
            return None
        # Two bases differ by more than a trend.
        if self.engine.payoff.basis is Basis.MEASURED:
            speedup = newest.measured.interval
        else:
            speedup = newest.estimate.of_all_tokens(newest.coverage_ratio)
        if speedup is None:
            return None
        return _trend(newest, speedup.value, self.engine.payoff.speedup)

    @property
    def length_trend(self) -> Trend | None:
        """The trend of the mean acceptance length."""
        newest = self._newest
        if newest is None:
            return None
        return _trend(newest, newest.mean_acceptance_length, self.acceptance_length)

    @property
    def _newest(self) -> Measures | None:
        """The shortest window, if it is not the judged one and has enough drafts."""
        if not self.engine.windows:
            return None
        shortest = self.engine.windows[0]
        if shortest.window in (LIFETIME, self.engine.judged_window):
            return None
        # With fewer drafts, a difference is likely to be noise.
        if (shortest.drafts or 0.0) < (self.minimum_drafts or 0.0):
            return None
        return shortest

    @property
    def payoff_hour(self) -> Sparkline | None:
        """The speedup over the last hour, with a line at break-even."""
        latest = self.engine.payoff.speedup
        return sparkline(self.hour, lambda point: point.speedup, latest, mark=1.0)

    @property
    def length_hour(self) -> Sparkline | None:
        """The mean acceptance length over the last hour."""
        latest = self.acceptance_length
        return sparkline(self.hour, lambda point: point.mean_acceptance_length, latest)

    @property
    def within_noise(self) -> Collection[int]:
        """The K whose speedups differ from the best one by noise alone."""
        options = self.engine.advice.options
        if not options:
            return ()
        best = max(options, key=lambda option: option.speedup)
        alike = set()
        for option in options:
            overlaps = option.speedup_high >= best.speedup_low
            if option is not best and overlaps:
                alike.add(option.num_speculative_tokens)
        # Without speculation there is no K to name.
        alike.discard(0)
        return alike

    @property
    def corrected(self) -> bool:
        """Whether the speedups of other K are corrected by what was measured."""
        return self.judged is not None and correction(self.judged) is not None

    @property
    def has_baseline(self) -> bool:
        """Whether any window is compared with a baseline."""
        return any(
            window.measured.speedup is not None or window.measured.latency_ratios
            for window in self.engine.windows
        )

    @property
    def drafts_by_accepted(self) -> list[float]:
        """The drafts with 0, 1, ... accepted tokens since the engine started."""
        distribution = self.engine.accepted_tokens_per_draft
        if distribution is None:
            return []
        cumulative = (0.0, *distribution.buckets)
        return [upper - lower for lower, upper in pairwise(cumulative)]

    @property
    def counts_drafts(self) -> bool:
        """Whether the server counts drafts."""
        return self.engine.counters.drafts is not None

    @property
    def windows(self) -> tuple[Measures, ...]:
        """The windows, without numbers that a missing counter makes 0."""
        if self.counts_drafts:
            return self.engine.windows
        # A missing counter is unknown, not 0.
        return tuple(
            replace(window, drafts=None, coverage_ratio=None)
            for window in self.engine.windows
        )


def _trend(newest: Measures, value: float | None, judged: float | None) -> Trend | None:
    if value is None or not judged:
        return None
    if abs(value / judged - 1) < _TREND:
        return None
    return Trend("falling" if value < judged else "rising", value, newest.window)
