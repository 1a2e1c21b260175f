"""Load: whether two sides were under the same one, and how far a difference can mislead. Pure.

What is compared is requests at a time and engine (Little 1961: finished per second times mean time end to
end). A step takes longer with a larger batch, but at most in proportion to it, because it has a fixed part.
So a side with twice the requests can look up to twice as slow as it would be at the other's load, and never
more: that bounds what the difference explains, without a model of the hardware.

A faster side has fewer requests at a time even where both are sent the very same. So sides that finish about
as many requests a second, of about as many tokens, count as equally loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .side import Side

#: Sides whose loads differ by more than this factor are not at the same load.
TOLERANCE = 1.25


@dataclass(frozen=True, slots=True)
class LoadComparison:
    """The load of a side over that of the reference.

    Attributes:
        basis: what was compared, in words; empty where nothing could be.
        side: requests at a time and engine of the side, or what else the basis says.
        reference: the same of the reference.
        same: whether they count as equally loaded; ``None`` where that cannot be told.
        same_requests: whether the same requests arrive, though more of them are in the server at a time.
        overstated: by which factor the side's speed may be overstated at the most, from 1 up.
        understated: by which factor it may be understated at the most, from 1 up.
    """

    basis: str = ""
    side: float | None = None
    reference: float | None = None
    same: bool | None = None
    same_requests: bool = False
    overstated: float = 1.0
    understated: float = 1.0


def compare_load(side: Side, reference: Side) -> LoadComparison:
    """Return how the load of `side` compares to that of `reference`."""
    here, there = (
        _per_engine(side.requests_at_a_time, side),
        _per_engine(reference.requests_at_a_time, reference),
    )
    if here and there:
        same = _near(here, there)
        steady = _near(side.requests_per_second, reference.requests_per_second) and _near(
            side.tokens_per_request, reference.tokens_per_request
        )
        apart = not same and not steady
        return LoadComparison(
            "requests at a time" + (" and engine" if max(side.engines, reference.engines) > 1 else ""),
            here,
            there,
            same=same or steady,
            same_requests=steady and not same,
            overstated=max(1.0, there / here) if apart else 1.0,
            understated=max(1.0, here / there) if apart else 1.0,
        )
    for basis, one, other in (
        ("requests running at the end", side.requests_running, reference.requests_running),
        ("generated tokens/s", side.generation_tokens_per_second, reference.generation_tokens_per_second),
    ):
        if one and other:
            return LoadComparison(basis, one, other, same=_near(one, other))
    return LoadComparison()


def _per_engine(value: float | None, side: Side) -> float | None:
    return value / max(1, side.engines) if value else None


def _near(one: float | None, other: float | None) -> bool:
    if not one or not other:
        return False
    # The same both ways round, whatever floats make of a ratio and its inverse.
    return max(one, other) <= TOLERANCE * min(one, other)
