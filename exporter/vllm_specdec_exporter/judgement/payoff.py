"""Payoff: is speculation worth it right now?

The speedup of all generated tokens decides: harmful below 1.0, marginal up to 1.2,
beneficial above. A speedup measured against a baseline at the same load takes
precedence over an estimate by the cost profile, and none decides while its interval
includes 1. The estimate is of tokens from drafts, so it is weighted with the share of
tokens that come from drafts (coverage).

Why a verdict is given: `explanation`.
"""

import math
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from ..config.thresholds import Thresholds

# Imported at run time: annotations are read to decode and document the JSON.
from ..economics.cost import Basis
from ..economics.speedup import MIN_COVERED
from ..economics.statistics import Interval, Z
from ..measures.measures import Measures

#: Least distance of a probability from one half with which a verdict leans to a side.
LEAN = 0.1
#: Largest part of an interval, in logarithms, on the other side of 1, and its largest
#: reach there, as a factor: an interval that holds about as much of a loss as of a
#: gain, or a loss by half beside a gain, has no direction, whatever its middle.
_OTHER_SIDE_SHARE = 1 / 3
_OTHER_SIDE_REACH = math.log(1.5)
#: Standard errors between the lengths of two windows that no sample explains: they are
#: compared at each poll.
APART = 4.0
#: Share of the other side of an interval below which its end counts as cut off.
_CUT_OFF = 0.1
_BEYOND = 0.025  # probability of a value beyond an end of a 95 % interval
#: A speedup on one of these is a guess: a plain step is modelled, not timed.
GUESSES = (Basis.OBSERVED, Basis.MODELLED)
_ROUNDING = 1e-9  # distance of an end from 1 below which it is 1


class PayoffVerdict(StrEnum):
    """The effect of speculation on speed."""

    HARMFUL = "harmful"
    MARGINAL = "marginal"
    BENEFICIAL = "beneficial"
    UNKNOWN = "unknown"


class Payoff(Struct, frozen=True):
    """Whether speculation pays.

    Attributes:
        verdict: `unknown` if the interval includes 1, unless no drafted token was
            accepted; ``None`` unless the engine is active and a speedup can be
            computed.
        speedup: the speedup that decided: of all tokens, with and without drafts;
            ``None`` if `unknown`.
        speedup_low: lower end of its interval, also if `unknown`.
        speedup_high: upper end of its interval, also if `unknown`.
        basis: where the speedup comes from.
        loss_probability: the probability that the speedup is below 1, by its interval,
            0 to 1.
        likely: which way an `unknown` verdict leans, `harmful` or `beneficial`;
            ``None`` for other verdicts, and where it leans to neither side or its
            interval is too wide to mean something.
        judged_speedup: the speedup that alert rules judge: that of a verdict, or the
            geometric middle of an interval that includes 1, if the probability of a
            loss reaches `probable_loss_probability`; ``None`` otherwise.
        guessed_speedup: the speedup while it is no more than a guess: neither measured
            nor calibrated, or `unknown`; ``None`` otherwise.
        reasons: how the speedup was found, in words.
    """

    verdict: PayoffVerdict | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    basis: Basis | None = None
    loss_probability: float | None = None
    likely: PayoffVerdict | None = None
    judged_speedup: float | None = None
    guessed_speedup: float | None = None
    reasons: tuple[str, ...] = ()

    @property
    def side(self) -> PayoffVerdict | None:
        """Which side is more probable, `harmful` or `beneficial`; ``None`` if neither
        is, or without a verdict. It bounds advice; people are told `likely`.
        """
        if self.loss_probability is None:
            return None
        return _probable_side(self.loss_probability)

    @property
    def harmful(self) -> bool:
        """Whether it loses by its verdict, or likely loses."""
        return PayoffVerdict.HARMFUL in (self.verdict, self.likely)

    @property
    def undecided(self) -> bool:
        """Whether it may be a loss or a gain."""
        return self.verdict is PayoffVerdict.UNKNOWN


def judge_payoff(measures: Measures, thresholds: Thresholds) -> Payoff:
    """Judge whether speculation pays in a window, without the reasons.

    A measured speedup decides, else the estimate; an interval that includes 1 decides
    nothing.
    """
    speedup = measures.measured.interval
    basis = Basis.MEASURED
    if speedup is None:
        speedup = measures.estimate.of_all_tokens(measures.coverage_ratio)
        basis = measures.estimate.basis or Basis.MODELLED
    if speedup is None:
        return Payoff()
    bounded = bounded_by_drafts(speedup, measures)
    low, high = bounded.ends
    loss = loss_probability(bounded)
    likely = leans(loss, bounded.ends)
    judged: float | None = None
    if likely is PayoffVerdict.HARMFUL:
        judged = probable_loss(low, high, loss, thresholds)
    undecided = Payoff(
        verdict=PayoffVerdict.UNKNOWN,
        speedup_low=low,
        speedup_high=high,
        basis=basis,
        loss_probability=loss,
        likely=likely,
        judged_speedup=judged,
        guessed_speedup=bounded.value,
    )
    includes_1 = low <= 1 + _ROUNDING and high >= 1 - _ROUNDING
    certain_loss = gives_nothing(measures) and round(bounded.value, 2) < 1
    if includes_1 and not certain_loss:
        return undecided
    guessed: float | None = None
    if basis in GUESSES:
        guessed = bounded.value
    return replace(
        undecided,
        verdict=_verdict(bounded.value, thresholds),
        speedup=bounded.value,
        likely=None,
        judged_speedup=bounded.value,
        guessed_speedup=guessed,
    )


def gives_nothing(measures: Measures) -> bool:
    """Return whether no draft of the window gave a token that a plain step would not
    have given, within what is shown.

    Rounded, because an answer that the window cuts in two counts its tokens here and
    its first one before.
    """
    length = measures.mean_acceptance_length
    return length is not None and round(length, 2) <= 1


def bounded_by_drafts(speedup: Interval, measures: Measures) -> Interval:
    """Return the interval of a speedup, bounded by what the drafts gave.

    A step with drafts takes at least the time of a plain one, so drafts that give
    nothing cannot gain: how much they lose is then the geometric middle, unless that is
    estimated. A whole interval above 1 contradicts this, and stays.
    """
    low, high = speedup.ends
    if not gives_nothing(measures) or not 0 < low < 1 <= high + _ROUNDING:
        return speedup
    value = speedup.value
    if round(value, 2) >= 1:
        value = math.sqrt(low)
    return Interval(value, low, 1.0)


def _verdict(speedup: float, thresholds: Thresholds) -> PayoffVerdict:
    # Only a loss is rounded, because only a loss calls for action: 0.996 is shown as
    # 1.00, which would contradict it. Of a gain, the alert rules compare the same
    # number with the same threshold, and must come to the same side of it.
    if round(speedup, 2) < thresholds.harmful_speedup:
        return PayoffVerdict.HARMFUL
    if speedup <= thresholds.beneficial_speedup:
        return PayoffVerdict.MARGINAL
    return PayoffVerdict.BENEFICIAL


def estimate_contradicted(measures: Measures, thresholds: Thresholds) -> bool:
    """Return whether the measured speedup contradicts the estimate: in size, or as a
    loss or gain.

    It does not if its interval includes the estimate.
    """
    measured = measures.measured.interval
    if measured is None:
        return False
    estimate = measures.estimate.of_all_tokens(measures.coverage_ratio)
    if estimate is None:
        return False
    low, high = measured.ends
    estimated = estimate.value
    if low <= estimated <= high:
        return False
    apart = abs(measured.value / estimated - 1) > thresholds.disagreement_ratio
    return apart or high < 1 <= estimated or estimated < 1 < low


def correction(measures: Measures) -> float | None:
    """Return the factor on a step's extra cost that explains the measured speedup;
    ``None`` if none does.

    The measured speedup is of all tokens, the cost of a step of those from drafts.
    These may be too few, or cost nothing by the estimate or by the measurement, or the
    interval is too wide: it includes 1 and the estimate.
    """
    measured = measures.measured.interval
    if measured is None:
        return None
    estimate = measures.estimate.of_all_tokens(measures.coverage_ratio)
    length = measures.mean_acceptance_length
    cost = measures.estimate.step_cost or 1.0
    covered = measures.coverage_ratio
    if covered is None:
        covered = 1.0
    if estimate is None or not measured.value or not length:
        return None
    if cost <= 1 or covered < MIN_COVERED:
        return None
    low, high = measured.ends
    uncovered = 1 - covered
    # Time of a token, in plain steps, beyond that of steps without extra cost.
    extra = 1 / measured.value - covered / length - uncovered
    if extra <= 0 or (low <= 1 <= high and low <= estimate.value <= high):
        return None
    extra_estimated = covered * (cost - 1) / length
    extra_estimated += uncovered * (measures.estimate.undrafted_cost - 1)
    return extra / extra_estimated


def probable_loss(
    low: float, high: float, loss: float, thresholds: Thresholds
) -> float | None:
    """Return the geometric middle of an interval, which includes 1, if it is a loss
    with `probable_loss_probability`; ``None`` otherwise.
    """
    if loss < thresholds.probable_loss_probability:
        return None
    return math.sqrt(low * high)


def shows_opposite(newest: Measures, judged: Measures, thresholds: Thresholds) -> bool:
    """Return whether a shorter window shows another side than the judged one, beyond
    the intervals of both.

    By the same basis, it leans to a loss or a gain and the judged one does not, and
    their lengths are further apart than any sample explains. A burst of load alone is
    left to the judged window.
    """
    if not _lengths_differ(newest, judged, thresholds.minimum_drafts):
        return False
    shorter = judge_payoff(newest, thresholds)
    longer = judge_payoff(judged, thresholds)
    if shorter.side is None or longer.loss_probability is None:
        return False
    measured = shorter.basis is Basis.MEASURED
    same_basis = measured is (longer.basis is Basis.MEASURED)
    return same_basis and shorter.side is not longer.side


def _lengths_differ(newest: Measures, judged: Measures, minimum_drafts: float) -> bool:
    length = newest.mean_acceptance_length
    judged_length = judged.mean_acceptance_length
    error = math.hypot(
        newest.mean_acceptance_length_error, judged.mean_acceptance_length_error
    )
    few = (newest.drafts or 0.0) < minimum_drafts
    if few or length is None or judged_length is None or not error:
        return False
    return abs(length - judged_length) >= APART * error


def leans(loss: float, ends: tuple[float, float]) -> PayoffVerdict | None:
    """Return which way an unknown verdict leans; ``None`` to neither side.

    By the probability of a loss, and by the ends of the interval, which must be narrow
    enough to lie mostly on that side of 1.
    """
    low, high = ends
    side = _probable_side(loss)
    below = math.inf
    above = 0.0
    if low > 0:
        below = max(0.0, -math.log(low))
    if high > 0:
        above = max(0.0, math.log(high))
    if side is PayoffVerdict.BENEFICIAL:
        below, above = above, below
    if side is None or not _mostly_on_one_side(below, above):
        return None
    return side


def _probable_side(loss: float) -> PayoffVerdict | None:
    if abs(loss - 0.5) < LEAN:
        return None
    if loss > 0.5:
        return PayoffVerdict.HARMFUL
    return PayoffVerdict.BENEFICIAL


def _mostly_on_one_side(reach: float, other_reach: float) -> bool:
    """Return whether an interval that reaches so far to two sides of 1, in logarithms,
    lies mostly on the first.
    """
    if other_reach > _OTHER_SIDE_REACH:
        return False
    return other_reach <= _OTHER_SIDE_SHARE * (reach + other_reach)


def loss_probability(speedup: Interval) -> float:
    """Return the probability that the speedup is below 1, of a log-normal distribution
    with this interval.

    The deviation is that of the side on which 1 lies; of the other one where this end
    is cut off, as for a step that cannot be cheaper than a plain one. An interval that
    begins at 0 gives one half. One that ends there, a certain loss, gives 1. Beyond an
    end is at most half of what the interval leaves out.
    """
    low, high = speedup.ends
    # Nothing is log-normal at 0, where logarithms end.
    if high <= 0 or speedup.value <= 0:
        return 1.0
    below = math.inf
    if low > 0:
        below = math.log(speedup.value / low)
    above = math.log(high / speedup.value)
    reach = above
    if speedup.value > 1:
        reach = below
    widest = max(below, above)
    if reach <= _CUT_OFF * widest:
        reach = widest
    deviation = reach / Z
    if deviation <= 0:
        return float(speedup.value < 1)
    loss = 0.5 * math.erfc(math.log(speedup.value) / deviation / math.sqrt(2))
    if low >= 1 - _ROUNDING:
        loss = min(_BEYOND, loss)
    if high <= 1 + _ROUNDING:
        loss = max(1 - _BEYOND, loss)
    return loss
