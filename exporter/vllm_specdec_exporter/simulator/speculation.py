"""Drafting and verifying tokens: what speculative decoding does in a number of steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from .sampling import binomial, multinomial


@dataclass(frozen=True)
class DraftModel:
    """How drafts come about and how well they fare.

    Attributes:
        acceptance: Chance that the token at a position is accepted, given that all tokens
            before it were; one value per position, the last one holding for all later ones.
        draft_probability: Chance that a request has a draft in a step at all.
        length_weights: Relative frequency of drafts of 1, 2, 3, ... tokens; empty if every
            draft is as long as it may be.
    """

    acceptance: tuple[float, ...]
    draft_probability: float = 1.0
    length_weights: tuple[float, ...] = ()

    def conditional(self, position: int) -> float:
        """Return the chance of acceptance at a position, given acceptance before it."""
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
        mean = sum(length * weight for length, weight in enumerate(weights, 1)) / sum(weights)
        return mean * self.draft_probability


@dataclass
class DraftTotals:
    """Exact totals of what was drafted and accepted.

    Attributes:
        drafts: Verifications of one request's draft in one step.
        draft_tokens: Tokens in those drafts.
        accepted_tokens: Tokens accepted; the bonus token of each draft is not among them.
        accepted_per_position: Drafts in which the token at this position was accepted.
        accepted_per_draft: Drafts of which exactly 0, 1, 2, ... tokens were accepted.
        accepted_anywhere: Draft tokens the target model agrees with, also after a rejection;
            the V0 engine called these accepted.
    """

    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    accepted_per_draft: list[int] = field(default_factory=list)
    accepted_anywhere: int = 0

    @classmethod
    def empty(cls, num_speculative_tokens: int) -> "DraftTotals":
        """Return totals of nothing, with a place for every position."""
        return cls(
            accepted_per_position=[0] * num_speculative_tokens,
            accepted_per_draft=[0] * (num_speculative_tokens + 1),
        )

    def add(self, other: "DraftTotals") -> None:
        """Add other totals to these; the number of positions may differ."""
        self.drafts += other.drafts
        self.draft_tokens += other.draft_tokens
        self.accepted_tokens += other.accepted_tokens
        self.accepted_anywhere += other.accepted_anywhere
        _add_each(self.accepted_per_position, other.accepted_per_position)
        _add_each(self.accepted_per_draft, other.accepted_per_draft)


def _add_each(totals: list[int], amounts: Sequence[int]) -> None:
    totals.extend([0] * (len(amounts) - len(totals)))
    for index, amount in enumerate(amounts):
        totals[index] += amount


def sample_drafts(
    rng: Random, request_steps: int, model: DraftModel, num_speculative_tokens: int
) -> DraftTotals:
    """Draw what happens to the drafts of a number of requests and steps.

    Acceptance is decided position by position: the drafts that survive a position are a
    binomial share of those that reached it. This gives the same distribution as deciding each
    draft by itself, at a cost that does not grow with their number.

    Args:
        rng: Source of randomness.
        request_steps: Requests in the batch times steps.
        model: How drafts come about and how well they fare.
        num_speculative_tokens: K, the most tokens a draft may have; 0 drafts nothing.
    """
    totals = DraftTotals.empty(num_speculative_tokens)
    if num_speculative_tokens <= 0:
        return totals
    drafts = binomial(rng, request_steps, model.draft_probability)
    if drafts == 0:
        return totals
    by_length = multinomial(rng, drafts, model.lengths(num_speculative_tokens))
    for length, group in enumerate(by_length, 1):
        if group:
            _sample_group(rng, totals, model, length, group)
    return totals


def _sample_group(rng: Random, totals: DraftTotals, model: DraftModel, length: int, drafts: int) -> None:
    """Draw what happens to drafts of one length."""
    totals.drafts += drafts
    totals.draft_tokens += drafts * length
    reached = drafts
    for position in range(length):
        chance = model.conditional(position)
        survivors = binomial(rng, reached, chance)
        totals.accepted_tokens += survivors
        totals.accepted_per_position[position] += survivors
        totals.accepted_per_draft[position] += reached - survivors
        totals.accepted_anywhere += survivors + binomial(rng, drafts - reached, chance)
        reached = survivors
    totals.accepted_per_draft[length] += reached
