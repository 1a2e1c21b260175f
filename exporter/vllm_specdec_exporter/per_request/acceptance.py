"""Acceptance of the requests of one model: by request, group, position and K."""

from functools import partial
from itertools import pairwise

from msgspec import Struct

from ..config.thresholds import Thresholds
from ..economics.choice import Choice, choose
from ..economics.cost import CostProfile
from ..economics.speedup import estimate
from .grouping import GroupKey
from .hints import route, with_findings
from .recent_window import GroupStats, Slice, StepCounts
from .summary import GroupWindow, ModelRequests, Outcome, outcome_of

#: The published quantiles of the acceptance ratio.
QUANTILES = (0.1, 0.5, 0.9)

#: Share of `minimum_requests` that a group needs to be judged.
_GROUP_SHARE = 0.4


class BatchCost(Struct, frozen=True):
    """The load of a model's server: requests in the batch, and the cost of a step."""

    batch_size: float
    profile: CostProfile


def summarise(
    model: str,
    window: str,
    recent: Slice,
    positions: StepCounts,
    thresholds: Thresholds,
    load: BatchCost | None,
) -> ModelRequests:
    """Return a model's numbers and findings; `positions` has all steps, `recent` those
    of the window.
    """
    total = GroupStats()
    for group in recent.groups.values():
        total.change(group)
    groups = _group_windows(recent, total, thresholds, load)
    losing = total.share(Outcome.LOSES)
    gaining = total.share(Outcome.GAINS)
    mixed = None
    enough = total.count >= thresholds.minimum_requests
    if enough and losing is not None and gaining is not None:
        mixed = min(losing, gaining) >= thresholds.mixed_requests_ratio
    requests = ModelRequests(
        model_name=model,
        window=window,
        window_requests=total.count,
        window_unrecorded_requests=recent.unrecorded,
        acceptance_quantiles=_quantiles(total),
        acceptance_ratio=total.acceptance_ratio,
        losing_requests_ratio=losing,
        losing_tokens_ratio=total.token_share(Outcome.LOSES),
        gaining_requests_ratio=gaining,
        mixed=mixed,
        position_acceptance_ratio=recent.positions.ratios,
        mean_draft_length_at=recent.positions.mean_lengths,
        drafted_per_position=positions.drafted,
        accepted_per_position=positions.accepted,
        groups=groups,
        worst=tuple(recent.worst),
    )
    routing = route(
        recent.groups,
        total=total,
        groups=groups,
        thresholds=thresholds,
        speedup=partial(_speedup, load),
    )
    return with_findings(requests, routing, thresholds)


def _quantiles(total: GroupStats) -> dict[str, float]:
    quantiles = {}
    for quantile in QUANTILES:
        ratio = total.quantile(quantile)
        if ratio is not None:
            quantiles[f"{quantile:g}"] = ratio
    return quantiles


def _group_windows(
    recent: Slice, total: GroupStats, thresholds: Thresholds, load: BatchCost | None
) -> tuple[GroupWindow, ...]:
    """Return the groups of the window, those with most requests first."""
    by_requests = sorted(
        recent.groups.items(), key=lambda item: (-item[1].count, item[0])
    )
    return tuple(
        _group_window(key, group, total, thresholds=thresholds, load=load)
        for key, group in by_requests
    )


def _group_window(
    key: GroupKey,
    group: GroupStats,
    total: GroupStats,
    *,
    thresholds: Thresholds,
    load: BatchCost | None,
) -> GroupWindow:
    rejected_ratio = None
    if total.rejected_tokens:
        rejected_ratio = group.rejected_tokens / total.rejected_tokens
    return GroupWindow(
        temperature=key.temperature,
        request_type=key.request_type,
        requests=group.count,
        requests_ratio=group.count / total.count,
        acceptance_ratio=group.acceptance_ratio,
        p10=group.quantile(0.1),
        p50=group.quantile(0.5),
        mean_acceptance_length=group.mean_acceptance_length,
        outcome=outcome_of(group.delivered_ratio, thresholds),
        losing_requests_ratio=group.share(Outcome.LOSES),
        rejected_ratio=rejected_ratio,
        estimated_speedup=_speedup(load, group),
        judged=group.count >= _GROUP_SHARE * thresholds.minimum_requests,
    )


def _speedup(load: BatchCost | None, group: GroupStats) -> float | None:
    length = group.mean_acceptance_length
    if load is None or length is None:
        return None
    drafted = group.draft_tokens / group.counted_drafts
    return estimate(length, drafted, load.batch_size, load.profile).speedup


class PositionAcceptance(Struct, frozen=True):
    """The acceptance of a position, by two denominators."""

    where_drafted: float  # over the drafts that had it drafted, 0 to 1
    #: Over all drafts, as in vLLM's `/metrics`, 0 to 1: a position that is not always
    #: drafted looks worse.
    of_all_drafts: float


#: Drafts that are expected to accept one more position, of which none did: e^-10 by
#: chance.
_EXPECTED = 10


def ends_early(requests: ModelRequests) -> bool:
    """Return whether drafts are shorter than recorded: many reach one position, and
    none the next.
    """
    reached = [count for count in requests.accepted_per_position if count]
    if not reached or len(reached) == len(requests.accepted_per_position):
        return False
    *_, last_but_one, last = (requests.drafted_per_position[0], *reached)
    # If the next position were accepted as often as the last one.
    return last * last / last_but_one >= _EXPECTED


class SmallerK(Struct, frozen=True):
    """Lengths with a K up to the current one; a smaller one accepts at least this
    (`economics.choice`).
    """

    num_speculative_tokens: int  # the K
    draft_length: float  # mean drafted tokens per draft
    acceptance_length: float  # mean tokens per draft, 1 to 1 + K


def position_acceptances(requests: ModelRequests) -> tuple[PositionAcceptance, ...]:
    """Return both acceptances of every position; empty without detailed records."""
    lengths = pairwise((0.0, *requests.mean_draft_length_at))
    rows = zip(requests.position_acceptance_ratio, lengths, strict=True)
    acceptances = []
    for ratio, (without, length) in rows:
        where_drafted = ratio or 0.0
        # The mean length grows by the share of the drafts that have the position.
        of_all_drafts = where_drafted * (length - without)
        acceptances.append(PositionAcceptance(where_drafted, of_all_drafts))
    return tuple(acceptances)


def every_k(requests: ModelRequests) -> tuple[SmallerK, ...]:
    """Return the lengths for every K up to the current one; empty without detailed
    records.
    """
    rows = zip(
        requests.mean_draft_length_at, position_acceptances(requests), strict=True
    )
    acceptance_length = 1.0
    choices = []
    for k, (draft_length, position) in enumerate(rows, 1):
        acceptance_length += position.of_all_drafts
        choices.append(SmallerK(k, draft_length, acceptance_length))
    return tuple(choices)


def choice_at(
    requests: ModelRequests, profile: CostProfile, batch: float
) -> Choice | None:
    """Return the speedup of every K up to the current one, ``None`` without detailed
    records.
    """
    survival = [position.of_all_drafts for position in position_acceptances(requests)]
    if not survival:
        return None

    def cost(k: int) -> float:
        return profile.step_cost(requests.mean_draft_length_at[k - 1], batch)

    return choose(survival, requests.drafted_per_position[0], cost, reach=len(survival))
