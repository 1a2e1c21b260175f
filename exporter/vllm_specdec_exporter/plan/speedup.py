"""The speedup to expect on paper, over batch sizes.

Expected tokens per step over the cost of a step: E = (1 - a^(K+1)) / (1 - a), Leviathan et al. 2023 (arXiv
2211.17192), equation 1, over `CostProfile.step_cost`. E takes acceptance to be the same at every position;
in practice it falls, so E is a little too high for large K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..economics.formulas import expected_tokens
from ..economics.profiles import fit, for_method
from .methods import Drafter

if TYPE_CHECKING:
    from ..economics.cost import CostProfile
    from .methods import Method
    from .model import Model

#: Batch sizes of the table.
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class Assumption:
    """An acceptance that the table is reckoned with.

    Attributes:
        name: ``given``, or ``cautious`` and ``good`` where none was.
        acceptance: chance that a drafted token is accepted if those before it were, 0 to 1.
        tokens: emitted per step, 1 to 1 + K.
    """

    name: str
    acceptance: float
    tokens: float


@dataclass(frozen=True, slots=True)
class Range:
    """A speedup with the uncertainty of the step's cost; 1 is neither gain nor loss."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """One batch size.

    Attributes:
        batch: requests in a step.
        step_cost: time of a step that drafts over one that does not; also the tokens a step must emit to
            break even.
        speedups: one for each assumption.
    """

    batch: int
    step_cost: float
    speedups: tuple[Range, ...]

    @property
    def low(self) -> float:
        """The least speedup of all assumptions."""
        return min(speedup.low for speedup in self.speedups)

    @property
    def high(self) -> float:
        """The greatest speedup of all assumptions."""
        return max(speedup.high for speedup in self.speedups)


@dataclass(frozen=True, slots=True)
class Outlook:
    """The speedup over batch sizes.

    Attributes:
        k: number of speculative tokens, every step drafting that many.
        profile: name of the cost profile.
        provenance: where its numbers come from.
        uncertainty: relative error to expect of a step's cost.
        context: tokens of context that the profile takes a request to hold.
        assumptions: the acceptances.
        rows: one for each batch size.
    """

    k: int
    profile: str
    provenance: str
    uncertainty: float
    context: float
    assumptions: tuple[Assumption, ...]
    rows: tuple[Row, ...]

    def at(self, batch: int) -> Row:
        """Return the row of `batch`, which must be one of the table."""
        return next(row for row in self.rows if row.batch == batch)


def choose_profile(
    method: Method, target: Model, draft: Model | None, named: CostProfile | None
) -> CostProfile:
    """Return the cost profile of a method, fitted to the sizes of the models.

    The ratio is that of the bytes a step reads: drafting and small batches are bound by memory bandwidth. Of
    a mixture of experts only what one token passes through counts, which is cautious for large batches.

    Args:
        method: the method.
        target: the model that is served.
        draft: the drafter, where its size is known.
        named: a profile to take instead of the method's.
    """
    ratio = None
    if draft is not None and method.drafter is Drafter.MODEL:
        ratio = min(1.0, draft.active_weights / target.active_weights)
    return for_method(method.name, ratio) if named is None else fit(named, ratio)


def usual_depth(method: Method) -> int:
    """Return the K to plan with where none is given."""
    return for_method(method.name).typical_k


def look_ahead(
    method: Method, profile: CostProfile, k: int, acceptance: float | None, batch: int | None
) -> Outlook:
    """Return the speedup over `BATCHES` and `batch`.

    Args:
        method: the method, for its assumed acceptances.
        profile: what a step costs, at the context that it is for.
        k: number of speculative tokens, from 1 up.
        acceptance: expected per token, 0 to 1; without it the method's cautious and good ones are taken.
        batch: a batch size beside those of the table.
    """
    named = (
        {"cautious": method.cautious, "good": method.good} if acceptance is None else {"given": acceptance}
    )
    assumptions = tuple(Assumption(name, a, expected_tokens(a, k)) for name, a in named.items())
    return Outlook(
        k=k,
        profile=profile.name,
        provenance=profile.provenance,
        uncertainty=profile.uncertainty,
        context=profile.context_tokens,
        assumptions=assumptions,
        rows=tuple(_row(profile, k, size, assumptions) for size in sorted({*BATCHES, batch or 1})),
    )


def _row(profile: CostProfile, k: int, batch: int, assumptions: tuple[Assumption, ...]) -> Row:
    cost = profile.step_cost(k, batch)
    return Row(
        batch,
        cost,
        tuple(_range(assumption.tokens, cost, profile.uncertainty) for assumption in assumptions),
    )


def _range(tokens: float, cost: float, uncertainty: float) -> Range:
    # A step that drafts and verifies is never cheaper than one that does neither.
    cheapest = max(1.0, cost * (1 - uncertainty))
    return Range(tokens / (cost * (1 + uncertainty)), tokens / cost, tokens / cheapest)
