"""The distribution of accepted tokens per draft, recovered exactly from the position counters.

Position i is accepted in a draft exactly when the draft had more than i tokens accepted. So the drafts with
at most j accepted tokens are those in which position j was not accepted::

    bucket(le=j) = drafts - accepted at position j      for j = 0 .. K-1
    bucket(le=K) = drafts                               count = drafts, sum = accepted tokens

These are the cumulative buckets of a Prometheus histogram, with nothing estimated.

Prometheus takes any fall of a bucket for a restart and adds the whole bucket to its rate. An answer that
was torn between two counters can make `drafts - accepted` fall by a few, so each bucket is held at its
highest value within a life. What a torn answer overstates, one engine step at most, stays until the true
value has caught up; nothing ever falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .reading import Counters


@dataclass(frozen=True, slots=True)
class Distribution:
    """Cumulative counts of drafts by accepted tokens.

    Attributes:
        buckets: at index j, the drafts with at most j accepted tokens; j runs from 0 to K.
        count: all drafts.
        sum: all accepted tokens.
    """

    buckets: tuple[float, ...]
    count: float
    sum: float


def recover(counters: Counters, earlier: Distribution | None = None) -> Distribution | None:
    """Return the distribution at `counters`, or ``None`` where there are no position counters.

    Args:
        counters: cumulative counters.
        earlier: the distribution at the sample before, in the same life: buckets never fall below it.
    """
    positions = counters.accepted_tokens_per_position
    if not positions or counters.drafts is None or counters.accepted_tokens is None:
        return None
    drafts = counters.drafts
    floor = earlier.buckets if earlier else ()
    raw = (
        max(drafts - accepted, floor[j] if j < len(floor) else 0.0) for j, accepted in enumerate(positions)
    )
    # Cumulative buckets rise with j by their meaning; a torn answer may say otherwise.
    rising = tuple(min(bucket, drafts) for bucket in accumulate(raw, max))
    return Distribution(buckets=(*rising, drafts), count=drafts, sum=counters.accepted_tokens)
