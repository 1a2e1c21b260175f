"""Routing: which requests to send to a server without speculation, and what that would save.

A whole type is the easiest to route, so types come first: those of which every judged group loses, but for
`OTHER`, whose requests have nothing in common that one could route by. Where no type does, buckets of
temperature. What is spared is counted, not estimated: drafted tokens that were verified for nothing. What the
requests themselves gain or lose at the present load is estimated by the cost profile, which may say that they
still gain: the zones of acceptance do not look at the load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .classification import OTHER
from .result import Outcome, Routing
from .tally import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..thresholds import Thresholds
    from .grouping import GroupKey
    from .result import GroupWindow


def route(
    recent: Mapping[GroupKey, Recent],
    whole: Recent,
    groups: Sequence[GroupWindow],
    thresholds: Thresholds,
    speedup: Callable[[Recent], float | None],
) -> Routing | None:
    """Return which requests to route away.

    Args:
        recent: the groups of a model within the window.
        whole: all of them together.
        groups: each of them, judged.
        thresholds: the thresholds in force.
        speedup: estimates the speedup of the requests of a group.

    Returns:
        ``None`` where too few requests were seen, none lose, all that can be judged do, or those that stay
        would have no higher acceptance.
    """
    if whole.count < thresholds.minimum_requests:
        return None
    types = tuple(kind for kind in losing(groups, lambda group: group.request_type) if kind != OTHER)
    temperatures = () if types else losing(groups, lambda group: group.temperature)

    def goes(group: GroupKey | GroupWindow) -> bool:
        return group.request_type in types or group.temperature in temperatures

    if not (types or temperatures) or not any(group.judged and not goes(group) for group in groups):
        return None
    gone = Recent()
    for key, group in recent.items():
        if goes(key):
            gone.merge(group)
    before = whole.accepted_tokens / whole.draft_tokens
    after = (whole.accepted_tokens - gone.accepted_tokens) / (whole.draft_tokens - gone.draft_tokens)
    if after <= before:
        return None
    return Routing(
        request_types=types,
        temperatures=temperatures,
        requests_ratio=gone.count / whole.count,
        rejected_ratio=(gone.draft_tokens - gone.accepted_tokens)
        / (whole.draft_tokens - whole.accepted_tokens),
        acceptance_before=before,
        acceptance_after=after,
        speedup=speedup(gone),
    )


def losing(groups: Iterable[GroupWindow], label: Callable[[GroupWindow], str]) -> tuple[str, ...]:
    """Return the values of a label of which some group is judged, and every judged one loses."""
    found: dict[str, bool] = {}
    for group in groups:
        if group.judged:
            loses = group.outcome is Outcome.LOSES
            found[label(group)] = found.get(label(group), True) and loses
    return tuple(sorted(value for value, loses in found.items() if loses))
