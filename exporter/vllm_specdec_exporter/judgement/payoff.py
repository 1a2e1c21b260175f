"""Payoff: is speculation worth it right now?

The speedup of all generated tokens decides: harmful below 1.0, marginal up to 1.2,
beneficial above. A speedup measured against a baseline at the same load takes
precedence over an estimate by the cost profile, and none decides while its interval
includes 1. The estimate is of tokens from drafts, so it is weighted with the share of
tokens that come from drafts (coverage).
"""

import math
from enum import StrEnum

from msgspec import Struct

from ..config.thresholds import Thresholds

# Imported at run time: annotations are read to decode and document the JSON.
from ..economics.cost import Basis, CostProfile
from ..economics.speedup import MIN_COVERED
from ..economics.statistics import Z, times
from ..measures.measures import Measures

#: Least distance of a probability from one half with which a verdict leans to a side.
LEAN = 0.1
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
        verdict: `unknown` if the interval includes 1; ``None`` unless the engine is
            active and a speedup can be computed.
        speedup: the speedup that decided: of all tokens, with and without drafts;
            ``None`` if `unknown`.
        speedup_low: lower end of its interval, also if `unknown`.
        speedup_high: upper end of its interval, also if `unknown`.
        basis: where the speedup comes from.
        loss_probability: the probability that the speedup is below 1, by its interval,
            0 to 1.
        likely: which way an `unknown` verdict leans, `harmful` or `beneficial`;
            ``None`` for other verdicts and where it leans to neither side.
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
        """Which way it leans:

        `harmful` or `beneficial`; ``None`` to neither side, or without a verdict.
        """
        if self.loss_probability is None:
            return None
        return leans(self.loss_probability)

    @property
    def harmful(self) -> bool:
        """Whether it loses by its verdict, or likely loses."""
        return PayoffVerdict.HARMFUL in (self.verdict, self.likely)

    @property
    def undecided(self) -> bool:
        """Whether it may be a loss or a gain."""
        return self.verdict is PayoffVerdict.UNKNOWN


def judge_payoff(
    measures: Measures,
    profile: CostProfile,
    thresholds: Thresholds,
    unmeasured: str = "",
) -> Payoff:
    """Judge whether speculation pays in a window; `unmeasured` is why a baseline gives
    no speedup.

    A measured speedup decides, else the estimate.
    """
    if measures.measured.speedup is not None:
        return _by_measurement(measures, measures.measured.speedup, profile, thresholds)
    if measures.estimate.speedup is None:
        return Payoff(reasons=(why_unknown(measures),))
    reasons = _of_estimate(measures, profile)
    if unmeasured:
        reasons.append(f"not measured: {unmeasured}")
    if profile.contradiction:
        reasons.append(profile.contradiction)
    whole = measures.estimate.of_all(measures.coverage_ratio)
    return _judged(
        *whole, measures.estimate.basis or Basis.MODELLED, reasons, thresholds
    )


def _by_measurement(
    measures: Measures, speedup: float, profile: CostProfile, thresholds: Thresholds
) -> Payoff:
    measured = measures.measured
    estimated = measures.estimate.speedup
    text = (
        f"measured {speedup:.2f} times as fast per output token as the baseline at "
        "the same "
        f"load ({times(measured.speedup_low or 0.0)} to "
        f"{times(measured.speedup_high or 0.0)}, "
        f"{measured.requests:,.0f} requests)"
    )
    reasons = [text]
    if estimated is not None:
        reasons += _of_estimate(measures, profile)
        if contradicted(measures, thresholds):
            none = correction(measures) is None
            if none:
                advice = "there is no advice on K"
            else:
                advice = "advice on K is corrected by it"
            reasons.append(
                f"the cost profile {profile.name} does not fit this deployment: what "
                "is measured counts, and "
                f"{advice}"
            )
    low = measured.speedup_low
    high = measured.speedup_high
    return _judged(
        speedup, low or speedup, high or speedup, Basis.MEASURED, reasons, thresholds
    )


def contradicted(measures: Measures, thresholds: Thresholds) -> bool:
    """Return whether the measured speedup contradicts the estimate: in size, or as a
    loss or gain.

    It does not if its interval includes the estimate.
    """
    speedup = measures.measured.speedup
    if speedup is None or measures.estimate.speedup is None:
        return False
    low, high, whole = _beside_estimate(measures)
    apart = abs(speedup / whole - 1) > thresholds.disagreement_ratio
    return not low <= whole <= high and (apart or high < 1 <= whole or whole < 1 < low)


def _beside_estimate(measures: Measures) -> tuple[float, float, float]:
    """Return the interval of the measured speedup, and the estimate of all tokens."""
    low = measures.measured.speedup_low or 0.0
    high = measures.measured.speedup_high or math.inf
    return low, high, measures.estimate.of_all(measures.coverage_ratio)[0]


def correction(measures: Measures) -> float | None:
    """Return the factor on a step's extra cost that explains the measured speedup;
    ``None`` if none does.

    The measured speedup is of all tokens, the cost of a step of those from drafts.
    These may be too few, or cost nothing by the estimate or by the measurement, or the
    interval is too wide: it includes 1 and the estimate.
    """
    estimate = measures.estimate
    speedup = measures.measured.speedup
    length = measures.mean_acceptance_length
    cost = estimate.step_cost or 1.0
    covered = measures.coverage_ratio
    covered = 1.0 if covered is None else covered
    if not speedup or not length or cost <= 1 or covered < MIN_COVERED:
        return None
    low, high, whole = _beside_estimate(measures)
    # Time of a token, in plain steps, beyond that of steps without extra cost.
    extra = 1 / speedup - covered / length - (1 - covered)
    if extra <= 0 or (low <= 1 <= high and low <= whole <= high):
        return None
    return extra / (
        covered * (cost - 1) / length + (1 - covered) * (estimate.undrafted_cost - 1)
    )


def _judged(
    speedup: float,
    low: float,
    high: float,
    basis: Basis,
    reasons: list[str],
    thresholds: Thresholds,
) -> Payoff:
    """Return the payoff of a speedup of all output; an interval that includes 1 decides
    nothing.
    """
    loss = loss_probability(speedup, low, high)
    if low <= 1 + _ROUNDING and high >= 1 - _ROUNDING:
        reasons.append(
            "the interval includes 1, so it is not known whether speculation pays "
            "(it loses with a "
            f"probability of {loss:.0%})"
        )
        return Payoff(
            verdict=PayoffVerdict.UNKNOWN,
            speedup_low=low,
            speedup_high=high,
            basis=basis,
            loss_probability=loss,
            likely=leans(loss),
            judged_speedup=probable_loss(low, high, loss, thresholds),
            guessed_speedup=speedup,
            reasons=tuple(reasons),
        )
    return Payoff(
        verdict=_verdict(speedup, thresholds),
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        basis=basis,
        loss_probability=loss,
        judged_speedup=speedup,
        guessed_speedup=speedup if basis in GUESSES else None,
        reasons=tuple(reasons),
    )


def probable_loss(
    low: float, high: float, loss: float, thresholds: Thresholds
) -> float | None:
    """Return the geometric middle of an interval, which includes 1, if it is a loss
    with `probable_loss_probability`; ``None`` otherwise.
    """
    if loss < thresholds.probable_loss_probability:
        return None
    return math.sqrt(low * high)


def contradicts(
    newest: Measures, judged: Measures, profile: CostProfile, thresholds: Thresholds
) -> bool:
    """Return whether a shorter window shows another side than the judged one, beyond
    the intervals of both.

    By the same basis, it leans to a loss or a gain and the judged one does not, and
    their lengths are further apart than any sample explains. A burst of load alone is
    left to the judged window.
    """
    one = newest.mean_acceptance_length
    other = judged.mean_acceptance_length
    error = math.hypot(
        newest.mean_acceptance_length_error, judged.mean_acceptance_length_error
    )
    few = (newest.drafts or 0.0) < thresholds.minimum_drafts
    if (
        few
        or one is None
        or other is None
        or not error
        or abs(one - other) < APART * error
    ):
        return False
    now, before = (
        judge_payoff(window, profile, thresholds) for window in (newest, judged)
    )
    if now.loss_probability is None or before.loss_probability is None:
        return False
    same_basis = (now.basis is Basis.MEASURED) is (before.basis is Basis.MEASURED)
    return same_basis and now.side is not None and now.side is not before.side


def leans(loss: float) -> PayoffVerdict | None:
    """Return which way an unknown verdict leans, by the probability of a loss; ``None``
    to neither side.
    """
    if abs(loss - 0.5) < LEAN:
        return None
    if loss > 0.5:
        return PayoffVerdict.HARMFUL
    return PayoffVerdict.BENEFICIAL


def loss_probability(speedup: float, low: float, high: float) -> float:
    """Return the probability that the speedup is below 1, of a log-normal distribution
    with this interval.

    The deviation is that of the side on which 1 lies; of the other one where this end
    is cut off, as for a step that cannot be cheaper than a plain one. An interval that
    begins at 0 gives one half. Beyond an end is at most half of what the interval
    leaves out.
    """
    sides = (math.log(speedup / low) if low > 0 else math.inf, math.log(high / speedup))
    reach = sides[0] if speedup > 1 else sides[1]
    deviation = (reach if reach > _CUT_OFF * max(sides) else max(sides)) / Z
    if deviation <= 0:
        return float(speedup < 1)
    loss = 0.5 * math.erfc(math.log(speedup) / deviation / math.sqrt(2))
    least = 1 - _BEYOND if high <= 1 + _ROUNDING else 0.0
    return max(least, loss if low < 1 - _ROUNDING else min(_BEYOND, loss))


def _of_estimate(measures: Measures, profile: CostProfile) -> list[str]:
    estimate = measures.estimate
    covered = measures.coverage_ratio
    text = (
        f"{estimate.basis} {estimate.speedup:.2f} times as fast "
        f"({times(estimate.speedup_low or 0.0)} to "
        f"{times(estimate.speedup_high or 0.0)}): "
        f"{measures.mean_acceptance_length:.2f} tokens a draft for the time of "
        f"{estimate.step_cost:.2f} plain steps, at {estimate.batch_size:.1f} "
        "requests a batch and "
        f"{profile.context_tokens:,.0f} tokens of context, by the cost profile "
        f"{profile.name}"
    )
    if covered is not None and estimate.speedup is not None:
        from_drafts = f"{estimate.speedup:.2f}"
        of_all_tokens = f"{estimate.of_all(covered)[0]:.2f}"
        if from_drafts != of_all_tokens:
            text += (
                f"; {covered:.0%} of the tokens came out of drafts, so over all tokens "
                f"{of_all_tokens} times"
            )
            if estimate.undrafted_cost > 1:
                text += (
                    ": a step without drafts takes the time of "
                    f"{estimate.undrafted_cost:.2f} plain ones"
                )
    reasons = [text]
    if (
        profile.basis is Basis.CALIBRATED
        and estimate.basis is Basis.MODELLED
        and profile.batches
    ):
        least, most = profile.contexts or (
            profile.context_tokens,
            profile.context_tokens,
        )
        reasons.append(
            f"calibrated with {profile.batches[0]:g} to {profile.batches[1]:g} "
            "requests a batch and "
            f"{least:,.0f} to {most:,.0f} tokens of context: beyond that it is "
            "extrapolated"
        )
    return reasons


def how_to_know(basis: Basis, profile: CostProfile) -> str:
    """Return what to do about an unknown verdict, in words."""
    if basis is Basis.MEASURED:
        return "measure for longer, or record the baseline for longer (--append)"
    if profile.basis is Basis.CALIBRATED:
        return "run calibrate at this batch size and context, or record a baseline"
    option = f"give {profile.lacking}, " if profile.lacking else ""
    if profile.contradiction and profile.basis is Basis.MODELLED:
        option = "check --cost.hardware and --cost.model, "
    return (
        f"{option}run history on the Prometheus that scrapes vLLM, calibrate, or "
        "record a baseline"
    )


def _verdict(speedup: float, thresholds: Thresholds) -> PayoffVerdict:
    # As it is shown: a loss of less than half a percent is none.
    if round(speedup, 2) < thresholds.harmful_speedup:
        return PayoffVerdict.HARMFUL
    if speedup <= thresholds.beneficial_speedup:
        return PayoffVerdict.MARGINAL
    return PayoffVerdict.BENEFICIAL


def why_unknown(measures: Measures) -> str:
    """Return what is missing for an estimate of the speedup."""
    if measures.mean_acceptance_length is None:
        return "the mean acceptance length is not known"
    if not measures.mean_draft_length:
        return "the mean draft length is not known"
    return (
        "the number of running requests is missing, so the cost of a step is not known"
    )


RAISE_K = "raise_k"
LOWER_K = "lower_k"
DISABLE = "disable"
MEASURE = "measure"
NOTHING = ""


class Rule(Struct, frozen=True):
    """One rule, applied.

    Attributes:
        name: which rule. says: `raise_k`, `lower_k`, `disable`, `measure` (under real
            load first), or empty
        if it does not apply. text: with the numbers, in words.
    """

    name: str
    says: str
    text: str


def apply_rules(
    measures: Measures, profile: CostProfile, thresholds: Thresholds
) -> tuple[Rule, ...]:
    """Return the published rules applied to a window, without those on deep positions
    if drafts vary.
    """
    rules = []
    positions = measures.position_acceptance_ratio
    if positions and not measures.drafts_vary:
        rules.append(_last_position(positions[-1], len(positions), thresholds))
        rules.append(_marginal_benefit(measures, profile))
    if measures.mean_acceptance_length is not None:
        rules.append(_length(measures.mean_acceptance_length, thresholds))
    if measures.acceptance_ratio is not None:
        rules.append(_ratio(measures.acceptance_ratio, thresholds))
    return tuple(rules)


def _last_position(ratio: float, k: int, thresholds: Thresholds) -> Rule:
    lower = thresholds.lower_k_last_position_acceptance_ratio
    upper = thresholds.raise_k_last_position_acceptance_ratio
    if ratio > upper:
        says = RAISE_K
    elif ratio < lower:
        says = LOWER_K
    else:
        says = NOTHING
    text = (
        f"position {k - 1} is accepted in {ratio:.0%} of drafts "
        f"(raise K above {upper:.0%}, lower it below {lower:.0%})"
    )
    return Rule("last_position", says, text)


def _marginal_benefit(measures: Measures, profile: CostProfile) -> Rule:
    """Apply: raise K while acceptance(k) x cost of a verification / cost of a draft
    token exceeds 1.
    """
    k = len(measures.position_acceptance_ratio)
    batch = measures.estimate.batch_size or 1.0
    ratio = measures.position_acceptance_ratio[-1]
    cost = max(0.0, profile.step_cost(k, batch) - profile.step_cost(k - 1, batch))
    benefit = ratio / cost if cost > 0 else float("inf")
    text = (
        f"position {k - 1} gives {ratio:.2f} tokens for the time of {cost:.2f} plain "
        "steps"
    )
    return Rule("marginal_benefit", RAISE_K if benefit > 1 else NOTHING, text)


def _length(length: float, thresholds: Thresholds) -> Rule:
    least = thresholds.disable_mean_acceptance_length
    text = f"mean acceptance length {length:.2f} (disable below {least:.3g})"
    return Rule("mean_acceptance_length", DISABLE if length < least else NOTHING, text)


def _ratio(ratio: float, thresholds: Thresholds) -> Rule:
    least = thresholds.disable_acceptance_ratio
    near = thresholds.break_even_acceptance_ratio
    if ratio < least:
        says = DISABLE
    elif ratio <= near:
        says = MEASURE
    else:
        says = NOTHING
    levels = (
        f"disable below {100 * least:.3g}%, near break-even up to {100 * near:.3g}%"
    )
    text = f"acceptance ratio {ratio:.1%} ({levels})"
    return Rule("acceptance_ratio", says, text)
