"""The theory of speculative decoding, for acceptance that is the same at every position.

Source: Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding" (2023,
arXiv 2211.17192); equation, theorem and corollary numbers are theirs. They serve planning on paper. Real
acceptance falls from position to position, so where a server counts by position, `estimate` and `choice`
use the counts and none of these.
"""

from __future__ import annotations


def expected_tokens(acceptance: float, k: int) -> float:
    """Return the tokens that a draft of `k` is expected to emit, 1 to 1 + k (equation 1).

    Args:
        acceptance: chance of a drafted token to be accepted, given that those before it were; 0 to 1.
        k: tokens drafted.

    Raises:
        ValueError: an acceptance outside 0 to 1, or a negative k.
    """
    if not 0 <= acceptance <= 1 or k < 0:
        msg = f"acceptance lies from 0 to 1 and k from 0 up, not {acceptance:g} and {k}"
        raise ValueError(msg)
    if acceptance == 1:
        return k + 1.0
    return float((1 - acceptance ** (k + 1)) / (1 - acceptance))


def speedup(acceptance: float, k: int, cost: float) -> float:
    """Return how much faster tokens come than without speculation (theorem 3.8).

    Args:
        acceptance: as for `expected_tokens`.
        k: tokens drafted.
        cost: time of one drafting step over time of one plain step, from 0 up. Verifying is taken to cost
            no more than a plain step, which holds for small batches only.
    """
    return expected_tokens(acceptance, k) / (1 + k * _not_negative(cost))


def guaranteed_speedup(acceptance: float, cost: float) -> float:
    """Return a speedup that some k reaches, 1 where none is sure to gain (corollary 3.9)."""
    return (1 + acceptance) / (1 + _not_negative(cost)) if acceptance > cost else 1.0


def operations_ratio(acceptance: float, k: int, draft_operations: float = 0.0) -> float:
    """Return arithmetic operations per emitted token over those without speculation (theorem 3.11).

    Args:
        acceptance: as for `expected_tokens`.
        k: tokens drafted.
        draft_operations: operations of the drafter per token over those of the target, from 0 up.
    """
    return (k * _not_negative(draft_operations) + k + 1) / expected_tokens(acceptance, k)


def _not_negative(cost: float) -> float:
    if cost < 0:
        msg = f"a cost lies from 0 up, not {cost:g}"
        raise ValueError(msg)
    return cost
