"""Advice hysteresis: when the advised K changes.

While the first window fills, a sample in which another K beats the advised one replaces
it at once. After that, only a real change of acceptance or load may change it, not
noise:

* A window in which another K is better makes a change pending.
* The drafts from then on are a new sample, independent of the one that raised the
  question. It grows until it clears the pending change, or confirms it at `CERTAIN`
  standard deviations.
* A window that contradicts the advised K replaces it at once: a loss at `BEYOND_DOUBT`
  standard deviations although it drafts, or the verdict `beneficial` although it does
  not. So does a K that really ran and was slower.

While it is not known whether speculation pays, no larger K is advised, K=0 only if a
loss is likely, and both stay: a larger K until a loss is likely, K=0 until a gain is
certain. So noise at one end changes nothing.

A large change is confirmed within one window. A small one takes longer.
"""

import math
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..config.thresholds import Thresholds
from ..economics.choice import CandidateK, Choice, TriedK, choose
from ..engines.reading import Counters
from ..measures.delivered import within_length
from ..measures.measures import survival
from .payoff import Payoff, PayoffVerdict

#: Standard deviations (90 %) that a first advice needs over the present K; below,
#: nothing is pending.
LIKELY = 1.28
#: Standard deviations that a change needs; windows are tested every few minutes, for
#: months.
CERTAIN = 4.0
#: Standard deviations at which a single window overrules the advised K.
BEYOND_DOUBT = 5.0
#: A smaller K saves work as well, so from two tokens fewer on a part of the gain
#: suffices.
_SHORTER = 0.25
_FARTHER = 3.0  # a K beyond the present one is extrapolated, so it must gain more


class AdvisedK(Struct, frozen=True):
    """The advised K, 0 for no speculation, and whether to try another method."""

    k: int
    switch: bool = False


class PendingChange(Struct, frozen=True):
    """When another K was first better, in seconds, and the counters at that time."""

    time: float
    drafts: float
    accepted: tuple[float, ...]


class HysteresisState(Struct, frozen=True):
    """The advised K, and the pending change, if any."""

    advised: AdvisedK
    pending: PendingChange | None = None


class Evidence(Struct, frozen=True):
    """The data that the advised K is chosen from."""

    #: At index i, the share of the window's drafts in which position i was accepted.
    survival: tuple[float, ...]
    drafts: float  # drafts in the window
    counters: Counters  # cumulative counters at its end
    #: From a K to the time of its step, in plain steps, at the present load.
    cost: Callable[[int], float]
    #: Whether the window is full; until then a single sample may replace the advised K.
    settled: bool
    #: Whether drafts are shorter than K, so that other K cannot be compared.
    varying: bool
    only_smaller: bool  # whether the cost of a larger K is not known
    payoff: Payoff  # whether speculation pays, by the same window
    #: For the minimum gain and the usual acceptance length of the method.
    thresholds: Thresholds
    tried: tuple[TriedK, ...] = ()  # other K that really ran at this load
    #: Share of the accepted tokens that reached an answer, 0 to 1.
    delivered_share: float = 1.0

    def in_window(self, sureness: float) -> Choice:
        """Return the speedup of every K, from the window."""
        return self._choose(self.survival, self.drafts, sureness)

    def since(self, pending: PendingChange, sureness: float) -> Choice | None:
        """Return the speedup of every K, from the drafts since `pending`; ``None``
        while they are too few.
        """
        drafts = (self.counters.drafts or 0.0) - pending.drafts
        counted = self.counters.accepted_tokens_per_position
        few = drafts < self.thresholds.advice_minimum_drafts
        if few or len(counted) != len(pending.accepted):
            return None
        pairs = zip(counted, pending.accepted, strict=True)
        accepted = tuple(max(0.0, total - begun) for total, begun in pairs)
        return self._choose(survival(accepted, drafts), drafts, sureness)

    def _choose(
        self, survival: tuple[float, ...], drafts: float, sureness: float
    ) -> Choice:
        reach = len(survival) if self.varying or self.only_smaller else 0
        if self.delivered_share < 1:
            length = 1 + self.delivered_share * math.fsum(survival)
            survival = within_length(survival, length)
        return choose(
            survival,
            drafts,
            self.cost,
            reach=reach,
            sureness=sureness,
            tried=self.tried,
        )


def apply_hysteresis(
    evidence: Evidence, state: HysteresisState | None, time: float, hold: float
) -> HysteresisState:
    """Return the advised K after another sample.

    `state` is that after the previous sample with the same K, ``None`` for the first
    since the last counter reset; a change must have been pending for `hold` seconds
    before it is made.
    """
    present = AdvisedK(len(evidence.survival))
    held = state.advised if state else present
    counters = evidence.counters
    choice = evidence.in_window(LIKELY)
    if state is not None and _overruled(evidence, choice, held):
        state = None
        held = present
    if state is None or not evidence.settled:
        return HysteresisState(_wanted(evidence, choice, held))
    pending = state.pending
    if pending is None:
        if _wanted(evidence, choice, held) == held:
            return HysteresisState(held)
        begun = PendingChange(
            time, counters.drafts or 0.0, counters.accepted_tokens_per_position
        )
        return HysteresisState(held, begun)
    if (counters.drafts or 0.0) < pending.drafts:
        return replace(state, pending=None)
    likely = evidence.since(pending, LIKELY)
    certain = evidence.since(pending, CERTAIN)
    if likely is None or certain is None:
        return state
    if _wanted(evidence, likely, held) == held:
        return replace(state, pending=None)
    wanted = _wanted(evidence, certain, held)
    if wanted != held and time - pending.time >= hold:
        return HysteresisState(wanted)
    return state


def _overruled(evidence: Evidence, likely: Choice, held: AdvisedK) -> bool:
    """Return whether the window shows beyond doubt that the advised K loses, or that
    drafting is worthwhile.

    The payoff verdict rests on the same window, and advice must not contradict it for
    long.
    """
    if held.k == 0:
        return evidence.payoff.verdict is PayoffVerdict.BENEFICIAL
    if likely.was_slower(held.k):
        return True
    harmful = evidence.thresholds.harmful_speedup
    # At first the usual case, which is much cheaper than an interval.
    return (
        likely.option(held.k).speedup < harmful
        and evidence.in_window(BEYOND_DOUBT).option(held.k).speedup_high < harmful
    )


def _wanted(evidence: Evidence, choice: Choice, held: AdvisedK) -> AdvisedK:
    """Return the best K by the data; `held` unless another one is sure to be better.

    The present K comes instead of a `held` one that the payoff contradicts.
    """
    loses = evidence.payoff.side is PayoffVerdict.HARMFUL
    undecided = evidence.payoff.undecided
    extrapolated = choice.option(held.k).extrapolated
    no_gain = extrapolated and (evidence.only_smaller or loses)
    no_loss = held.k == 0 and not (loses or undecided)
    if no_gain or no_loss:
        held = AdvisedK(choice.drafted)
    present = choice.drafted
    candidates = [
        choice.best.num_speculative_tokens,
        choice.best_drafting.num_speculative_tokens,
        present,
    ]
    if choice.best_tried is not None:
        # What was measured comes before what a model says of a K that never ran.
        candidates.insert(0, choice.best_tried.num_speculative_tokens)
    if evidence.varying:
        # Other K cannot be compared, but K = 0 needs no data. A K that was advised
        # before drafts varied stays advised.
        candidates = [0] if held.k else [0, present]
    # The server runs the present K, whatever is advised: what is better than a K that
    # was never tried may not be worth a restart.
    better = (
        k
        for k in candidates
        if _beats(evidence, choice, k, held.k)
        and (k == present or _beats(evidence, choice, k, present))
    )
    k = next(better, held.k)
    return AdvisedK(k, not evidence.varying and _misfit(choice, k, held, evidence))


def _beats(evidence: Evidence, choice: Choice, k: int, held: int) -> bool:
    """Return whether `k` is sure to be better than the `held` K, by enough."""
    needs_decision = choice.option(k).extrapolated or held == 0
    if k == held or (needs_decision and evidence.payoff.undecided):
        return False
    if choice.was_slower(k):
        return False
    smaller = choice.options[1 : choice.drafted]
    if k == 0:
        return _none_pays(evidence, choice, smaller)
    candidate = choice.option(k)
    holder = choice.option(held)
    part = 1.0
    minimum_gain = evidence.thresholds.advice_minimum_gain
    if k == choice.drafted:
        part = 0.0  # to keep the K that runs takes no restart
        # Nor is a gain worth one that has shrunk to a third of what it had to be.
        if (
            holder.extrapolated
            and holder.speedup < (1 + minimum_gain) * candidate.speedup
        ):
            return True
    elif holder.tried and not candidate.tried:
        part = _FARTHER  # a model must promise more than what was measured
    elif candidate.extrapolated:
        if any(option.speedup_most > candidate.speedup for option in smaller):
            return False
        part = _FARTHER
    elif held - k > 1:
        part = _SHORTER
    rival = holder.speedup if k < held else holder.speedup_most
    needed = (1 + minimum_gain * part) * rival
    return candidate.speedup >= needed and choice.surely_better(k, held)


def _none_pays(
    evidence: Evidence, choice: Choice, smaller: Sequence[CandidateK]
) -> bool:
    """Return whether a loss is likely, and no `smaller` K is worth a trial: one that
    may gain as much as one that was never drafted must.
    """
    if evidence.payoff.side is not PayoffVerdict.HARMFUL:
        return False
    if not any(evidence.survival):
        return True  # nothing is accepted, whatever a step may cost
    thresholds = evidence.thresholds
    harmful = thresholds.harmful_speedup
    worth_a_trial = (1 + _FARTHER * thresholds.advice_minimum_gain) * harmful
    if any(option.speedup_most >= worth_a_trial for option in smaller):
        return False
    best = choice.best_drafting
    return best.speedup_high - (best.speedup_most - best.speedup) < harmful


def _misfit(choice: Choice, k: int, held: AdvisedK, evidence: Evidence) -> bool:
    """Return whether the method stays below its usual length and gains little even at
    its best K.
    """
    usual = evidence.thresholds.usual_mean_acceptance_length
    # A draft of one token emits two at most, whatever the method.
    if usual <= 1 or k == 0 or choice.drafted < 2:
        return False
    option = choice.option(k)
    beneficial = evidence.thresholds.beneficial_speedup
    longest = choice.option(choice.drafted)
    if held.switch:
        return not (option.speedup_low > beneficial or longest.length_low > usual)
    return option.speedup_high < beneficial and longest.length_high < usual
