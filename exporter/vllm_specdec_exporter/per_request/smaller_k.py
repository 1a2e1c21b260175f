"""What a smaller K would have given, and how far acceptance counted over all drafts is off. Pure.

A draft that is cut off behind position K has min(accepted, K) of its tokens accepted and costs what
min(drafted, K) tokens cost. Detailed records have both of every step, so nothing is assumed for any K up to
the present one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ..economics.choice import choose

if TYPE_CHECKING:
    from ..economics.choice import Choice
    from ..economics.cost import CostProfile
    from .result import ModelRequests


@dataclass(frozen=True, slots=True)
class Position:
    """How often a position is accepted, counted in two ways.

    Attributes:
        where_drafted: of the drafts that had it drafted, 0 to 1.
        of_all_drafts: of all drafts, as `/metrics` has it, 0 to 1.
    """

    where_drafted: float
    of_all_drafts: float

    @property
    def bias(self) -> float:
        """How much counting over all drafts adds, -1 to 0: it understates what is not always drafted."""
        return self.of_all_drafts - self.where_drafted


@dataclass(frozen=True, slots=True)
class SmallerK:
    """What a K gives, up to the present one.

    Attributes:
        num_speculative_tokens: the K.
        draft_length: tokens that a draft holds with it.
        acceptance_length: tokens a draft, 1 to 1 + K.
    """

    num_speculative_tokens: int
    draft_length: float
    acceptance_length: float


def positions(found: ModelRequests) -> tuple[Position, ...]:
    """Return both acceptances of every position; empty without detailed records."""
    reached = [here - before for before, here in pairwise((0.0, *found.mean_draft_length_at))]
    return tuple(
        Position(ratio or 0.0, (ratio or 0.0) * share)
        for ratio, share in zip(found.position_acceptance_ratio, reached, strict=True)
    )


def every_k(found: ModelRequests) -> tuple[SmallerK, ...]:
    """Return what every K up to the present one gives; empty without detailed records."""
    lengths = accumulate((position.of_all_drafts for position in positions(found)), initial=1.0)
    return tuple(
        SmallerK(k, drafted, length)
        for k, (drafted, length) in enumerate(
            zip(found.mean_draft_length_at, list(lengths)[1:], strict=True), 1
        )
    )


def choice_at(found: ModelRequests, profile: CostProfile, batch: float) -> Choice | None:
    """Return the speedup of every K up to the present one, ``None`` without detailed records.

    Args:
        found: the requests of a model, all that were counted.
        profile: what steps cost.
        batch: requests in the batch, at least 1.
    """
    survival = [position.of_all_drafts for position in positions(found)]
    if not survival:
        return None

    def cost(k: int) -> float:
        return profile.step_cost(found.mean_draft_length_at[k - 1], batch)

    return choose(survival, found.drafted_per_position[0], cost, reach=len(survival))
