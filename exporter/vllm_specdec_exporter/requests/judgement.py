"""Settings of how requests are grouped and judged."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ..economics.choice import choose
from ..economics.speedup import estimate
from .findings import find, route
from .grouping import Classification, Temperatures
from .recent_window import badness
from .result import GroupWindow, ModelRequests, Outcome, outcome_of
from .tally import Bounds, Recent

if TYPE_CHECKING:
    from ..config.thresholds import Thresholds
    from ..economics.choice import Choice
    from ..economics.cost import CostProfile
    from .grouping import GroupKey
    from .recent_window import Slice
    from .tally import Positions


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """How requests are grouped and judged.

    Attributes:
        classification: which type a request is of, and whose.
        temperatures: buckets of temperature.
        bounds: upper bounds of histograms.
        window_seconds: length of the window that judgement looks at.
    """

    classification: Classification = Classification()
    temperatures: Temperatures = Temperatures()
    bounds: Bounds = Bounds()
    window_seconds: float = 1800.0


#: The quantiles that are published.
QUANTILES = (0.1, 0.5, 0.9)

#: A group needs fewer requests than a model to be judged, for there are many groups.
_GROUP_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class BatchCost:
    """How busy a model's server is, and what a step costs it.

    Attributes:
        batch_size: requests in the batch.
        profile: what steps cost.
    """

    batch_size: float
    profile: CostProfile


def judge(
    model: str,
    window: str,
    recent: Slice,
    positions: Positions,
    thresholds: Thresholds,
    load: BatchCost | None,
) -> ModelRequests:
    """Return what is to be said of the requests of a model.

    Args:
        model: its name.
        window: the name of the window.
        recent: all that the window holds.
        positions: steps since the beginning.
        thresholds: the thresholds in force.
        load: how busy the server is, where that is known.
    """
    whole = Recent()
    for group in recent.groups.values():
        whole.merge(group)
    groups = tuple(
        _group(key, group, whole, thresholds, load)
        for key, group in sorted(recent.groups.items(), key=lambda item: (-item[1].count, item[0]))
    )
    quantiles = {f"{q:g}": value for q in QUANTILES if (value := whole.quantile(q)) is not None}
    losing, gaining = whole.share(Outcome.LOSES), whole.share(Outcome.GAINS)
    mixed = None
    if losing is not None and gaining is not None and whole.count >= thresholds.minimum_requests:
        mixed = min(losing, gaining) >= thresholds.mixed_requests_ratio
    found = ModelRequests(
        model_name=model,
        window=window,
        window_requests=whole.count,
        window_unrecorded_requests=recent.unrecorded,
        acceptance_quantiles=quantiles,
        acceptance_ratio=whole.acceptance_ratio,
        losing_requests_ratio=losing,
        losing_tokens_ratio=whole.token_share(Outcome.LOSES),
        gaining_requests_ratio=gaining,
        mixed=mixed,
        position_acceptance_ratio=recent.positions.ratios,
        mean_draft_length_at=recent.positions.mean_lengths,
        drafted_per_position=positions.drafted,
        accepted_per_position=positions.accepted,
        groups=groups,
        worst=tuple(sorted(recent.worst, key=badness)),
    )
    routing = route(recent.groups, whole, groups, thresholds, _Speedup(load))
    return find(found, routing, thresholds)


def _group(
    key: GroupKey, group: Recent, whole: Recent, thresholds: Thresholds, load: BatchCost | None
) -> GroupWindow:
    ratio, tokens = group.acceptance_ratio, whole.tokens.total()
    rejected = whole.draft_tokens - whole.accepted_tokens
    return GroupWindow(
        temperature=key.temperature,
        request_type=key.request_type,
        requests=group.count,
        requests_ratio=group.count / whole.count,
        tokens_ratio=group.tokens.total() / tokens if tokens else None,
        acceptance_ratio=ratio,
        p10=group.quantile(0.1),
        p50=group.quantile(0.5),
        mean_acceptance_length=1 + group.accepted_tokens / group.drafts if group.drafts else None,
        outcome=outcome_of(ratio, thresholds),
        losing_requests_ratio=group.share(Outcome.LOSES),
        rejected_ratio=(group.draft_tokens - group.accepted_tokens) / rejected if rejected else None,
        estimated_speedup=_Speedup(load)(group),
        judged=group.count >= _GROUP_SHARE * thresholds.minimum_requests,
    )


class _Speedup:
    """Estimates the speedup of the requests of a group at the present load."""

    def __init__(self, load: BatchCost | None) -> None:
        self._load = load

    def __call__(self, group: Recent) -> float | None:
        if self._load is None or not group.drafts:
            return None
        length = 1 + group.accepted_tokens / group.drafts
        drafted = group.draft_tokens / group.drafts
        return estimate(length, drafted, self._load.batch_size, self._load.profile).speedup


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
