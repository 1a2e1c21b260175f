"""The estimated speedup of a window: what its drafts delivered, for the time of their
steps.
"""

from __future__ import annotations

import math
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from ..economics.cost import CostProfile
from ..economics.speedup import Estimate, break_even_length, estimate
from .delivered import Delivered, batch_size_high
from .history import Delta


class DraftTree(Struct, frozen=True):
    """The size of drafts that are trees, or blocks."""

    steps: float  # passes of the drafter; 0 without a model
    tokens: float  # drafted tokens that are verified, in all branches, above 0


class DraftSample(Struct, frozen=True):
    """The drafts of a window; ``None`` for what is not known."""

    length: float | None  # mean acceptance length, of delivered tokens
    error: float  # its standard error
    drafted: float | None  # tokens of a draft; none of trees


def estimate_window(
    delta: Delta,
    profile: CostProfile,
    sample: DraftSample,
    *,
    gained: Delivered | None,
    tree: DraftTree | None = None,
) -> Estimate:
    """Return the speedup of the drafts of a window, which delivered this.

    Its interval includes what its counters do not show: requests that ended since the
    gauge of the batch was set, and tokens behind stop strings.
    """
    if sample.drafted is None and tree is not None:
        estimated = _estimate_of_tree(
            tree, sample, batch=delta.batch_size, profile=profile
        )
    else:
        at_batch = partial(
            estimate,
            sample.length,
            sample.drafted,
            profile=profile,
            length_error=sample.error,
            first_tokens=_first_share(delta, gained),
        )
        estimated = at_batch(delta.batch_size)
        high = batch_size_high(delta, gained)
        if high is not None:
            estimated = _widened(estimated, at_batch(high))
    if gained is None:
        return estimated
    return _without_tokens_behind_stops(estimated, gained)


def _estimate_of_tree(
    tree: DraftTree,
    sample: DraftSample,
    *,
    batch: float | None,
    profile: CostProfile,
) -> Estimate:
    """Return the speedup of drafts that are trees, with an interval from that of a
    chain of their tokens to that of a chain of their steps.

    A tree is verified like the former, and drafted in the steps of the latter.
    """
    chain, cheapest = (
        estimate(sample.length, drafted, batch, profile, length_error=sample.error)
        for drafted in (tree.tokens, tree.steps)
    )
    slowest = chain.interval
    fastest = cheapest.interval
    # Of n-gram drafts no steps are known, and a lookup has none that would cost.
    if slowest is None or fastest is None or not chain.step_cost:
        return replace(chain, break_even_acceptance_ratio=None)
    cost = math.sqrt(chain.step_cost * (cheapest.step_cost or chain.step_cost))
    return replace(
        chain,
        speedup=math.sqrt(slowest.value * fastest.value),
        speedup_low=min(slowest.ends[0], fastest.ends[0]),
        speedup_high=max(slowest.ends[1], fastest.ends[1]),
        step_cost=cost,
        break_even_acceptance_length=break_even_length(
            cost, profile.prompt_times(chain.batch_size or 1.0)
        ),
        break_even_acceptance_ratio=None,
    )


def _first_share(delta: Delta, gained: Delivered | None) -> float:
    """Return the share of first tokens among those that no draft gave; 0 where they
    are not counted.
    """
    undrafted = delta.generation_tokens or 0.0
    if gained is not None:
        undrafted -= gained.tokens
    if undrafted <= 0:
        return 0.0
    return min(1.0, (delta.first_tokens or 0.0) / undrafted)


def _without_tokens_behind_stops(estimated: Estimate, gained: Delivered) -> Estimate:
    """Return the estimate with an interval that begins at the speedup without what may
    lie behind stop strings.
    """
    lowest = estimated.speedup_low
    if lowest is None or not gained.length or gained.least_length is None:
        return estimated
    return replace(estimated, speedup_low=lowest * gained.least_length / gained.length)


def _widened(estimated: Estimate, at_high: Estimate) -> Estimate:
    """Return the estimate with an interval that includes that at the largest batch."""
    intervals = (estimated.interval, at_high.interval)
    lows = [interval.ends[0] for interval in intervals if interval is not None]
    highs = [interval.ends[1] for interval in intervals if interval is not None]
    if not lows:
        return estimated
    return replace(estimated, speedup_low=min(lows), speedup_high=max(highs))
