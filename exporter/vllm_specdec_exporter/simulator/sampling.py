"""Random draws the standard library of Python 3.11 lacks: binomial and multinomial numbers."""

import math
from collections.abc import Sequence
from random import Random

# Up to this expected number of successes, counting the successes one by one is the fastest.
_COUNTING_LIMIT = 10.0


def binomial(rng: Random, trials: int, probability: float) -> int:
    """Draw the number of successes among independent trials.

    The result follows the binomial distribution exactly for every `trials`; no normal
    approximation is used. The cost does not grow with `trials`.

    Args:
        rng: Source of randomness.
        trials: Number of trials, at least 0.
        probability: Chance of success of each trial, from 0 to 1.
    """
    if trials < 0 or not 0.0 <= probability <= 1.0:
        raise ValueError(f"no binomial distribution has {trials} trials at {probability}")
    if trials == 0 or probability == 0.0:
        return 0
    if probability == 1.0:
        return trials
    if probability > 0.5:
        return trials - binomial(rng, trials, 1.0 - probability)
    if trials * probability < _COUNTING_LIMIT:
        return _count_by_gaps(rng, trials, probability)
    return _transformed_rejection(rng, trials, probability)


def _count_by_gaps(rng: Random, trials: int, probability: float) -> int:
    """Walk from success to success: the gaps between them are geometric (Devroye, 1986)."""
    log_failure = math.log1p(-probability)
    successes = position = 0
    while True:
        # 1 - random() lies in (0, 1], so that the logarithm exists. The gap can be infinite.
        gap = math.log(1.0 - rng.random()) / log_failure
        if gap >= trials - position:
            return successes
        position += math.floor(gap) + 1
        successes += 1


def _transformed_rejection(rng: Random, trials: int, probability: float) -> int:
    """Draw by the algorithm BTRS of Hörmann (1993), for `trials * probability` of at least 10."""
    deviation = math.sqrt(trials * probability * (1.0 - probability))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * probability
    center = trials * probability + 0.5
    squeeze = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * deviation
    log_odds = math.log(probability / (1.0 - probability))
    mode = math.floor((trials + 1) * probability)
    at_mode = math.lgamma(mode + 1) + math.lgamma(trials - mode + 1)
    while True:
        u = rng.random() - 0.5
        distance = 0.5 - abs(u)
        v = 1.0 - rng.random()
        if distance == 0.0:
            continue
        k = math.floor((2.0 * a / distance + b) * u + center)
        if not 0 <= k <= trials:
            continue
        if distance >= 0.07 and v <= squeeze:
            return k
        bound = at_mode - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + (k - mode) * log_odds
        if math.log(v * alpha / (a / (distance * distance) + b)) <= bound:
            return k


def multinomial(rng: Random, trials: int, weights: Sequence[float]) -> list[int]:
    """Split trials at random over categories in proportion to their weights.

    Args:
        rng: Source of randomness.
        trials: Number of trials to split.
        weights: One weight of at least 0 per category, not all of them 0.
    """
    remaining_weight = math.fsum(weights)
    if remaining_weight <= 0.0:
        raise ValueError("a multinomial distribution needs a positive weight")
    counts = []
    for index, weight in enumerate(weights):
        if trials == 0 or index == len(weights) - 1:
            counts.append(trials)
            trials = 0
            continue
        share = min(1.0, weight / remaining_weight) if remaining_weight > 0.0 else 0.0
        count = binomial(rng, trials, share)
        counts.append(count)
        trials -= count
        remaining_weight -= weight
    return counts
