"""The speedup of every candidate K, and the confidence of a difference between two.

The mean acceptance length is 1 + the sum of the first K position ratios. Below the
present K this is a lower bound: longer drafts pass over easy text in fewer drafts, so
more of them start at hard text. `_UNDERESTIMATE` widens the interval upwards for that.
Larger K are extrapolated, up to twice the present one, and cautiously: the conditional
acceptance of a further position is at most that of either of the last two, keeps
falling as it did between them, and its sampling error counts against it.

A K that the engine really ran at this load (`TriedK`) has the speed that was measured,
and moves the cost of the others: between it and the present K in proportion, beyond it
by as much.

Two K count the same drafts, so the error of their difference is computed draft by draft
from the exact distribution of accepted tokens. Drafts of one request are correlated;
`CLUSTERING` widens every interval for that.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from .statistics import CLUSTERING, AcceptanceSample, Interval, Z

#: Standard error of the decline, in standard errors of a conditional ratio: it is a
#: ratio of two.
_DECLINE = 1.5
#: How much more a smaller K may accept, per position that it leaves out, as a share of
#: what is read: 10.5 % over seven positions is published (vLLM 48892: the same prompts
#: have a length of 1.84 with K=1, and 1.76 read from K=8). It is doubled because the
#: share per position is larger near the present K: in a model of text with easy and
#: hard parts that has these position ratios, twice the mean over seven.
_UNDERESTIMATE = 2 * 0.105 / 7
_CAUTION = 0.85  # assumed decline per position if K = 1, where no decline was observed


class CandidateK(Struct, frozen=True):
    """One K and its speedup.

    Attributes:
        num_speculative_tokens: the K.
        mean_acceptance_length: tokens per draft, at least these if K is smaller than
            the present one.
        length_low: lower end of its interval (95 % by default).
        length_high: upper end, with the underestimate.
        step_cost: time of its step, in plain steps.
        speedup: length over cost.
        extrapolated: whether it is larger than the present K.
        extrapolation_error: standard error of the length by extrapolation.
        underestimate: how much longer the length of a K below the present one may be.
        tried: whether the engine ran it at this load, so that its speedup is that of
            the present K times the measured ratio of both.
    """

    num_speculative_tokens: int
    mean_acceptance_length: float
    length_low: float
    length_high: float
    step_cost: float
    speedup: float
    extrapolated: bool = False
    extrapolation_error: float = 0.0
    underestimate: float = 0.0
    tried: bool = False

    @property
    def speedup_low(self) -> float:
        """Lower end of the speedup's interval, of the length alone."""
        return self.length_low / self.step_cost

    @property
    def speedup_high(self) -> float:
        """Upper end of the speedup's interval, of the length alone."""
        return self.length_high / self.step_cost

    @property
    def speedup_most(self) -> float:
        """The speedup with the underestimate, without the error of the sample."""
        return (self.mean_acceptance_length + self.underestimate) / self.step_cost

    @property
    def shown(self) -> str:
        """The speedup in words, with the most that it may be."""
        at_least = f"{self.speedup:.2f}"
        at_most = f"{self.speedup_most:.2f}"
        if at_least == at_most:
            return at_least
        return f"{at_least} to {at_most}"


class TriedK(Struct, frozen=True):
    """Another K that the engine really ran at this load."""

    num_speculative_tokens: int
    #: How many times as fast as with the present K a token was generated, with its
    #: interval.
    speed: Interval
    mean_acceptance_length: float  # tokens per draft while it ran

    @property
    def surely_slower(self) -> bool:
        """Whether it was slower than the present K."""
        return self.speed.is_below(1)

    def error(self, *, below: bool) -> float:
        """Return the standard error of the logarithm of its speed towards one end:
        contexts that differ move one end alone.
        """
        low, high = self.speed.ends
        reach = self.speed.value / low if below else high / self.speed.value
        return math.log(reach) / Z


_NO_DRAFTS = CandidateK(
    num_speculative_tokens=0,
    mean_acceptance_length=1.0,
    length_low=1.0,
    length_high=1.0,
    step_cost=1.0,
    speedup=1.0,
)


class Choice(Struct, frozen=True):
    """Every candidate K, from 0 up."""

    #: One per K, in order; the first is K = 0, with speedup 1.
    options: tuple[CandidateK, ...]
    drafted: int  # the present K; larger ones are extrapolated
    sample: AcceptanceSample  # the distribution of accepted tokens
    sureness: float  # standard deviations to either side of an interval
    tried: tuple[TriedK, ...] = ()  # other K that really ran at this load

    def option(self, k: int) -> CandidateK:
        """Return the candidate for `k`, or the largest one if `k` is larger."""
        return self.options[min(k, len(self.options) - 1)]

    @property
    def best(self) -> CandidateK:
        """The fastest K, 0 included, the smallest of equals; extrapolated ones count
        with their lower end.
        """
        return max(self.options, key=self._cautious)

    @property
    def best_drafting(self) -> CandidateK:
        """The same, among K from 1 up."""
        return max(self.options[1:], key=self._cautious)

    def _cautious(self, option: CandidateK) -> float:
        return (
            option.speedup
            - self.sureness * option.extrapolation_error / option.step_cost
        )

    def surely_better(self, k: int, rival_k: int) -> bool:
        """Return whether `k` is faster than `rival_k`, at `sureness` standard
        deviations of the sample.

        A larger K must be faster than the most that a smaller one may have. K that were
        tried are compared as they were measured.
        """
        option = self.option(k)
        rival = self.option(rival_k)
        if option.tried or rival.tried:
            return self._measured_better(option, rival)
        sampling_error = self.sample.error_of_difference(
            (k, option.step_cost), (rival_k, rival.step_cost)
        )
        extrapolation_error = (
            option.extrapolation_error / option.step_cost
            - rival.extrapolation_error / rival.step_cost
        )
        error = math.hypot(sampling_error, extrapolation_error)
        rival_speedup = rival.speedup_most if rival_k < k else rival.speedup
        return option.speedup - rival_speedup > self.sureness * error

    def _measured_better(self, option: CandidateK, rival: CandidateK) -> bool:
        """Return whether an option is faster than another, of which one was tried.

        A measurement is no series of tests as windows are, so 95 % suffice.
        """
        if option.speedup <= 0 or rival.speedup <= 0:
            return option.speedup > rival.speedup
        gain = math.log(option.speedup / rival.speedup)
        error = math.hypot(
            self._error_of(option, below=True), self._error_of(rival, below=False)
        )
        return gain > min(self.sureness, Z) * error

    def _error_of(self, option: CandidateK, *, below: bool) -> float:
        """Return the standard error of the logarithm of a speedup over the present one,
        towards its lower end or its upper one.
        """
        for tried in self.tried:
            if tried.num_speculative_tokens == option.num_speculative_tokens:
                return tried.error(below=below)
        if option.num_speculative_tokens == self.drafted:
            return 0.0
        reach = math.log(option.length_high / option.length_low) / 2
        return reach / max(self.sureness, 1.0)

    @property
    def best_tried(self) -> TriedK | None:
        """The fastest other K that really ran, if it was surely faster than the present
        one.
        """
        faster = [tried for tried in self.tried if tried.speed.is_above(1)]
        return max(faster, key=lambda tried: tried.speed.value, default=None)

    def was_slower(self, k: int) -> bool:
        """Return whether a K that really ran was slower than the present one, and `k`
        is that K or lies beyond it.
        """
        for tried in self.tried:
            slower_k = tried.num_speculative_tokens
            beyond = self.drafted < slower_k <= k or 0 < k <= slower_k < self.drafted
            if tried.surely_slower and beyond:
                return True
        return False


def choose(
    survival: Sequence[float],
    drafts: float,
    cost: Callable[[int], float],
    reach: int = 0,
    sureness: float = Z,
    *,
    tried: Sequence[TriedK] = (),
) -> Choice:
    """Return the speedup of every candidate K.

    Args:
        survival: at index i, the share of drafts in which position i was accepted,
            falling; at least one.
        drafts: number of drafts behind the ratios, above 0.
        cost: from a K to the time of its step, in plain steps.
        reach: the largest K to look at; by default twice the present one.
        sureness: standard deviations to either side of an interval.
        tried: other K that really ran at this load.
    """
    sample = AcceptanceSample(survival, drafts)
    drafted = len(sample.survival)
    longest = 1.0 + math.fsum(sample.survival)
    reach = max(
        reach or 2 * drafted, *(each.num_speculative_tokens for each in tried), 0
    )
    cost = corrected_cost(cost, (drafted, longest), tried)
    options = [_NO_DRAFTS]
    length = 1.0
    extrapolation_error = 0.0
    positions = _positions(sample.survival, drafts, reach)
    for k, (ratio, error) in enumerate(positions, 1):
        length += ratio
        extrapolation_error += error
        margin = sureness * math.hypot(sample.error_of_length(k), extrapolation_error)
        step_cost = cost(k)
        underestimate = 0.0
        if k < drafted:
            underestimate = min(
                (length - 1) * _UNDERESTIMATE * (drafted - k),
                # Of the same text, a smaller K never gets more out of a draft than a
                # larger one.
                longest - length,
            )
        options.append(
            CandidateK(
                num_speculative_tokens=k,
                mean_acceptance_length=length,
                length_low=max(1.0, length - margin),
                length_high=min(1.0 + k, length + underestimate + margin),
                step_cost=step_cost,
                speedup=length / step_cost,
                extrapolated=k > drafted,
                extrapolation_error=extrapolation_error,
                underestimate=underestimate,
            )
        )
    for each in tried:
        k = each.num_speculative_tokens
        options[k] = _as_measured(each, options[drafted])
    return Choice(tuple(options), drafted, sample, sureness, tuple(tried))


def _as_measured(tried: TriedK, present: CandidateK) -> CandidateK:
    """Return the candidate for a K that really ran."""
    low, high = tried.speed.ends
    length = tried.mean_acceptance_length
    speedup = present.speedup * tried.speed.value
    return CandidateK(
        num_speculative_tokens=tried.num_speculative_tokens,
        mean_acceptance_length=length,
        length_low=length * low / tried.speed.value,
        length_high=length * high / tried.speed.value,
        step_cost=length / speedup,
        speedup=speedup,
        tried=True,
    )


def corrected_cost(
    cost: Callable[[int], float],
    present: tuple[int, float],
    tried: Sequence[TriedK],
) -> Callable[[int], float]:
    """Return the cost of a step of each K, corrected by the K that really ran.

    `present` is the present K and its mean acceptance length. The logarithm of the
    correction is 0 there; between two K that ran it changes evenly, and beyond the last
    one it stays, because nothing shows how it goes on.
    """
    if not tried:
        return cost
    drafted, length = present
    present_cost = cost(drafted)
    corrections = {drafted: 0.0}
    for each in tried:
        k = each.num_speculative_tokens
        measured = each.mean_acceptance_length / length / each.speed.value
        corrections[k] = math.log(measured * present_cost / cost(k))
    known = sorted(corrections)

    def corrected(k: int) -> float:
        if k == 0:
            return cost(0)
        nearest = min(max(k, known[0]), known[-1])
        below = max(each for each in known if each <= nearest)
        above = min(each for each in known if each >= nearest)
        part = 0.0
        if above > below:
            part = (nearest - below) / (above - below)
        correction = corrections[below] + part * (
            corrections[above] - corrections[below]
        )
        # A step that drafts never takes less time than a plain one.
        return max(1.0, cost(k) * math.exp(correction))

    return corrected


def _positions(
    survival: tuple[float, ...], drafts: float, reach: int
) -> Iterator[tuple[float, float]]:
    """Yield the survival of each position, and its standard error by extrapolation.

    Further positions start from the lesser of the last two conditional ratios, and keep
    falling as these two did. With a single position, `_CAUTION` is the decline.
    """
    for ratio in survival:
        yield ratio, 0.0
    # The conditional ratio of each of the last two positions, and its drafts' share.
    conditional = [
        (reaching / drafting, drafting)
        for drafting, reaching in pairwise((1.0, *survival)[-3:])
        if drafting > 0
    ]
    keep, share = min(conditional, default=(0.0, 0.0))
    if len(survival) == 1:
        decline = _CAUTION
    elif keep > 0:
        decline = min(1.0, conditional[-1][0] / conditional[0][0])
    else:
        decline = 0.0
    error = 0.0
    if 0 < keep < 1:
        error = math.sqrt(CLUSTERING * keep * (1 - keep) / (drafts * share)) / keep
    reached = survival[-1]
    for further in range(1, reach - len(survival) + 1):
        keep *= decline
        reached *= keep
        # An error of the last ratio recurs in each position, one of the decline
        # accumulates with each.
        accumulated = further + _DECLINE * further * (further + 1) / 2
        yield reached, reached * error * accumulated
