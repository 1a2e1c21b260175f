"""Stance: what advice stands for, and when it changes its mind.

The first stance goes by the first window that holds enough drafts, and is taken anew until that window is
full. From then on noise must not move it, and a real change must. So another stance needs more than a window
that argues for it: that only raises a doubt. What is drafted from then on is a sample of its own, which was
not picked for its outcome. It grows until it clears the doubt, or shows, beyond any that days of noise could
bring about, that another stance is better. A large change shows within one window; a small one takes as long
as it takes to be sure. A window that turns a stance into its opposite beyond doubt, a loss where it drafts or
a gain where it does not, overrules it at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..economics.choice import Choice, choose
from ..measures import survival

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..reading import Counters
    from ..thresholds import Thresholds

#: Standard deviations that a first stance needs over the present K, and that clear a doubt if missing: 90 %.
LIKELY = 1.28
#: Standard deviations that a change of mind needs. A window has a new sample every few minutes, for months.
CERTAIN = 4.0
#: Standard deviations at which a single window overrules a stance that contradicts it.
BEYOND_DOUBT = 5.0

#: A smaller K saves work as well, so from two tokens fewer on a part of the gain suffices.
_SHORTER = 0.25
#: A K that was never drafted must promise more.
_FARTHER = 3.0


@dataclass(frozen=True, slots=True)
class Stance:
    """What is advised: a K, 0 for none, and whether to look for another method."""

    k: int
    switch: bool = False


@dataclass(frozen=True, slots=True)
class Doubt:
    """When the data began to argue for another stance, in seconds, and the counters of that moment."""

    time: float
    drafts: float
    accepted: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """The stance that stands, and the doubt about it."""

    stance: Stance
    doubt: Doubt | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a stance is taken on.

    Attributes:
        survival: at index i, the share of the window's drafts in which position i was accepted.
        drafts: drafts in the window.
        counters: cumulative counters at its end.
        cost: from a K to the time of its step, in plain steps, at the present load.
        settled: whether the window is full; until then a stance is taken anew each time.
        varying: whether drafts are shorter than K, so that nothing is known of any other K.
        thresholds: for gains, and what the method usually reaches.
    """

    survival: tuple[float, ...]
    drafts: float
    counters: Counters
    cost: Callable[[int], float]
    settled: bool
    varying: bool
    thresholds: Thresholds

    def in_window(self, sureness: float) -> Choice:
        """Return what every K gives in the window."""
        return self._choose(self.survival, self.drafts, sureness)

    def since(self, doubt: Doubt, sureness: float) -> Choice | None:
        """Return what every K gives since a doubt began, ``None`` while that are too few drafts."""
        drafts = (self.counters.drafts or 0.0) - doubt.drafts
        now = self.counters.accepted_tokens_per_position
        if drafts < self.thresholds.advice_minimum_drafts or len(now) != len(doubt.accepted):
            return None
        accepted = tuple(max(0.0, a - b) for a, b in zip(now, doubt.accepted, strict=True))
        return self._choose(survival(accepted, drafts), drafts, sureness)

    def _choose(self, survival: tuple[float, ...], drafts: float, sureness: float) -> Choice:
        return choose(survival, drafts, self.cost, len(survival) if self.varying else 0, sureness)


def stand(evidence: Evidence, standing: Standing | None, time: float, hold: float) -> Standing:
    """Return the stance after another sample.

    Args:
        evidence: what it is taken on.
        standing: what stood before in this life and with this K, if anything did.
        time: now, in seconds.
        hold: how long a doubt must last at the least before the stance changes.
    """
    present = Stance(len(evidence.survival))
    held = standing.stance if standing else present
    counters = evidence.counters
    doubt = standing.doubt if standing else None
    choice = evidence.in_window(LIKELY)
    if standing is not None and (not evidence.settled or _overruled(evidence, choice, held)):
        standing, doubt, held = None, None, present
    if standing is None or doubt is None:
        wanted = _wanted(evidence, choice, held)
        if standing is None or wanted == held:
            return Standing(wanted)
        begun = Doubt(time, counters.drafts or 0.0, counters.accepted_tokens_per_position)
        return Standing(held, begun)
    if (counters.drafts or 0.0) < doubt.drafts:
        return replace(standing, doubt=None)
    likely, certain = evidence.since(doubt, LIKELY), evidence.since(doubt, CERTAIN)
    if likely is None or certain is None:
        return standing
    if _wanted(evidence, likely, held) == held:
        return replace(standing, doubt=None)
    wanted = _wanted(evidence, certain, held)
    return Standing(wanted) if wanted != held and time - doubt.time >= hold else standing


def _overruled(evidence: Evidence, likely: Choice, held: Stance) -> bool:
    """Tell whether the window leaves no doubt that the stance loses, or that drafting pays after all.

    Payoff says the same of the same window, and advice must not contradict it for long.
    """
    harmful, drafted = evidence.thresholds.harmful_speedup, slice(1, likely.drafted + 1)
    if held.k and likely.option(held.k).speedup >= harmful:
        return False  # as nearly always, and far cheaper than to ask for certainty
    if not held.k and max(option.speedup for option in likely.options[drafted]) <= 1:
        return False
    choice = evidence.in_window(BEYOND_DOUBT)
    if held.k == 0:
        return max(option.speedup_low for option in choice.options[drafted]) > 1
    return choice.option(held.k).speedup_high < harmful


def _wanted(evidence: Evidence, choice: Choice, held: Stance) -> Stance:
    """Return what the data argue for, with what is held having the benefit of the doubt."""
    wanted: tuple[int, ...]
    if evidence.varying:
        # Of the other K too little is known, but K = 0 needs no data. A K that was advised while more was
        # known stands.
        wanted = (0,) if held.k else (0, choice.drafted)
    else:
        wanted = (choice.best.num_speculative_tokens, choice.best_drafting.num_speculative_tokens)
    k = next((k for k in wanted if _beats(evidence, choice, k, held.k)), held.k)
    return Stance(k, not evidence.varying and _misfit(choice, k, held, evidence))


def _beats(evidence: Evidence, choice: Choice, k: int, held: int) -> bool:
    if k == held:
        return False
    this, that = choice.option(k), choice.option(held)
    if k == 0:
        return choice.best_drafting.speedup_high < evidence.thresholds.harmful_speedup
    part = _FARTHER if this.extrapolated else _SHORTER if held - k > 1 else 1.0
    needed = evidence.thresholds.advice_minimum_gain * part
    return this.speedup >= (1 + needed) * that.speedup and choice.surely_better(k, held)


def _misfit(choice: Choice, k: int, held: Stance, evidence: Evidence) -> bool:
    """Tell whether the method stays below what it usually reaches, and gains little, even at its best."""
    usual = evidence.thresholds.usual_mean_acceptance_length
    # A draft of one token emits two at most, whatever the method.
    if usual <= 1 or k == 0 or choice.drafted < 2:
        return False
    option, beneficial = choice.option(k), evidence.thresholds.beneficial_speedup
    longest = choice.option(choice.drafted)
    if held.switch:
        return not (option.speedup_low > beneficial or longest.length_low > usual)
    return option.speedup_high < beneficial and longest.length_high < usual
