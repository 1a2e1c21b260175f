"""Speculation in the simulation: random drafts, the cost of steps, and the conditions
of an engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ...economics.hardware import (
    Drafter,
    PhysicalModel,
    parse_machine,
    usual_drafter,
)
from ...economics.model_names import parse_model

# Up to this expected number of successes, counting them one by one is the fastest.
_COUNTING_LIMIT = 10.0


def binomial(rng: Random, trials: int, probability: float) -> int:
    """Draw the number of successes among independent trials; ValueError if there is no
    such distribution.

    The distribution is exact, without a normal approximation, at a cost that hardly
    grows with `trials`.
    """
    if trials < 0 or not 0.0 <= probability <= 1.0:
        raise ValueError(
            f"no binomial distribution has {trials} trials at {probability}"
        )
    if probability > 0.5:
        return trials - binomial(rng, trials, 1.0 - probability)
    successes = 0
    # A trial succeeds if its uniform number lies below the probability. The median of
    # the numbers has a beta distribution, and tells one half of the trials without
    # drawing them (Relles, 1972).
    while trials * probability >= _COUNTING_LIMIT:
        rank = (trials + 1) // 2
        median = rng.betavariate(rank, trials + 1 - rank)
        if median <= probability:
            successes += rank
            trials -= rank
            probability = (probability - median) / (1.0 - median)
        else:
            trials = rank - 1
            probability /= median
    return successes + _count_by_gaps(rng, trials, probability)


def _count_by_gaps(rng: Random, trials: int, probability: float) -> int:
    """Walk from success to success: the gaps between them are geometric (Devroye,
    1986).
    """
    if probability == 0.0:
        return 0
    if probability >= 1.0:
        return trials
    log_failure = math.log1p(-probability)
    successes = position = 0
    while True:
        # 1 - random() lies in (0, 1], so that the logarithm exists. The gap can be
        # infinite.
        gap = math.log(1.0 - rng.random()) / log_failure
        if gap >= trials - position:
            return successes
        position += math.floor(gap) + 1
        successes += 1


def multinomial(rng: Random, trials: int, weights: Sequence[float]) -> list[int]:
    """Split trials at random over categories with these weights, which must not be
    negative or all 0.
    """
    remaining_weight = math.fsum(weights)
    if remaining_weight <= 0.0:
        raise ValueError("a multinomial distribution needs a positive weight")
    counts = []
    for weight in weights[:-1]:
        count = 0
        # Rounding may leave a little less than nothing for the last categories.
        if trials and remaining_weight > 0.0:
            count = binomial(rng, trials, min(1.0, weight / remaining_weight))
        counts.append(count)
        trials -= count
        remaining_weight -= weight
    return [*counts, trials]


class DraftDistribution(Struct, frozen=True):
    """The distribution of drafts and of their acceptance."""

    #: Probability that the token at a position is accepted, given that all before it
    #: were; one value per position, the last one for all later ones.
    acceptance: tuple[float, ...]
    draft_probability: float = 1.0  # probability that a request has a draft in a step
    #: Relative frequency of drafts of 1, 2, 3, ... tokens; empty if all have K.
    length_weights: tuple[float, ...] = ()

    def conditional(self, position: int) -> float:
        """Return the probability of acceptance at a position, given acceptance before
        it.
        """
        return self.acceptance[min(position, len(self.acceptance) - 1)]

    def lengths(self, num_speculative_tokens: int) -> list[float]:
        """Return the relative frequency of each draft length from 1 to K."""
        if num_speculative_tokens <= 0:
            return []
        weights = list(self.length_weights[:num_speculative_tokens])
        if sum(weights) <= 0.0:
            return [0.0] * (num_speculative_tokens - 1) + [1.0]
        return weights + [0.0] * (num_speculative_tokens - len(weights))

    def mean_draft_tokens(self, num_speculative_tokens: int) -> float:
        """Return the expected number of draft tokens per request and step."""
        weights = self.lengths(num_speculative_tokens)
        if not weights:
            return 0.0
        tokens = sum(length * weight for length, weight in enumerate(weights, 1))
        return tokens / sum(weights) * self.draft_probability


class Totals(Struct):
    """Exact totals of what was drafted, accepted and generated."""

    drafts: int = 0  # verifications of one request's draft in one step
    draft_tokens: int = 0
    #: Tokens accepted; the bonus token of each draft is not among them.
    accepted_tokens: int = 0
    #: Drafts in which the token at this position was accepted.
    accepted_per_position: list[int] = []
    generation_tokens: int = 0  # tokens generated, with and without drafts

    @classmethod
    def empty(cls, num_speculative_tokens: int) -> Totals:
        """Return zeros for every position."""
        return cls(accepted_per_position=[0] * num_speculative_tokens)

    def add(self, other: Totals) -> None:
        """Add other totals to these; the number of positions may differ."""
        self.drafts += other.drafts
        self.draft_tokens += other.draft_tokens
        self.accepted_tokens += other.accepted_tokens
        self.generation_tokens += other.generation_tokens
        positions = zip_longest(
            self.accepted_per_position, other.accepted_per_position, fillvalue=0
        )
        self.accepted_per_position = list(map(sum, positions))


def sample_drafts(
    rng: Random,
    request_steps: int,
    distribution: DraftDistribution,
    num_speculative_tokens: int,
) -> Totals:
    """Draw the drafts of a number of requests times steps.

    The drafts accepted at a position are a binomial share of those that reached it.
    This is the same distribution as drawing each draft by itself, at a cost that does
    not grow with their number.
    """
    totals = Totals.empty(num_speculative_tokens)
    if num_speculative_tokens <= 0:
        return totals
    totals.drafts = binomial(rng, request_steps, distribution.draft_probability)
    weights = distribution.lengths(num_speculative_tokens)
    for length, drafts in enumerate(multinomial(rng, totals.drafts, weights), 1):
        if drafts == 0:
            continue
        totals.draft_tokens += drafts * length
        reached = drafts
        for position in range(length):
            reached = binomial(rng, reached, distribution.conditional(position))
            totals.accepted_tokens += reached
            totals.accepted_per_position[position] += reached
    return totals


#: What is simulated, as `--cost.hardware`, `--cost.model` and the method in
#: `--spec.config` name it.
HARDWARE = "h100"
MODEL_SIZE = "8B"
METHOD = "eagle3"
_TARGET = parse_model(MODEL_SIZE)
_DRAFTER = usual_drafter(METHOD, _TARGET) or Drafter()
_PHYSICAL = PhysicalModel(parse_machine(HARDWARE)[1], _TARGET, _DRAFTER)


class EngineConfig(Struct, frozen=True):
    """The fixed properties of an engine.

    Its steps take as long as the roofline model of the hardware says. So the time per
    output token falls as more draft tokens are accepted, and at large batches rejected
    tokens cost more than speculation gains.
    """

    max_num_seqs: int = 256
    #: Prompt tokens after which a step admits no further prompt.
    max_num_batched_tokens: int = 2048
    kv_cache_tokens: int = 65_536
    block_size: int = 16
    #: Maximum sequence length in tokens; bucket bounds depend on it.
    max_model_len: int = 8192
    #: Of a prompt token that is not cached, and what the drafter adds to that.
    prefill_token_seconds: float = _PHYSICAL.prompt_token_seconds()
    draft_prefill_token_seconds: float = _PHYSICAL.draft_prompt_token_seconds()

    def decoding_seconds(self, running: int, drafted: float, context: float) -> float:
        """Return the time of a step without prompts.

        `drafted` are tokens for each of the `running` requests, which attend to
        `context` tokens each.
        """
        batch = max(1, running)
        if not drafted:
            return _PHYSICAL.plain_seconds(batch, context)
        verifying = _PHYSICAL.verification_seconds(drafted, batch, context)
        return verifying + _PHYSICAL.draft_seconds(max(1.0, drafted), batch, context)


# No simulation needs a mean above these.
_MAX_MEAN = 1_000_000.0
_MAX_CLIENTS = 10_000

Probability = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0, le=_MAX_MEAN)]
Length = Annotated[float, Meta(ge=1, le=_MAX_MEAN)]


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic of one engine: clients that send a request, read the answer and
    pause.

    Attributes:
        clients: clients per engine, and so the maximum number of its requests
        think_seconds: mean time between an answer and the next request
        prompt_tokens: mean prompt length in tokens
        output_tokens: mean answer length in tokens
        prefix_hit_ratio: mean share of a prompt in the prefix cache
        repetition_ratio: share of the answers that end by repetition detection
    """

    clients: Annotated[int, Meta(ge=0, le=_MAX_CLIENTS)] = 24
    think_seconds: Amount = 0.5
    prompt_tokens: Length = 600.0
    output_tokens: Length = 200.0
    prefix_hit_ratio: Probability = 0.35
    repetition_ratio: Probability = 0.0


class Conditions(Struct, frozen=True):
    """The drafts and the traffic of an engine at a moment."""

    drafts: DraftDistribution
    traffic: Traffic
