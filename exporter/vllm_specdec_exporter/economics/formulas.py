"""The theory of speculative decoding, for acceptance that is the same at every position.

Source: Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding" (2023,
arXiv 2211.17192), equation 1. It serves planning on paper (`plan`). Real acceptance falls from position to
position, so where a server counts by position, `estimate` and `choice` use the counts and not this.
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
