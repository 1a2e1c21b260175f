"""Findings on single requests: what is wrong, in words, and what to do about it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..judgement.finding import Finding, Severity
from .classification import OTHER
from .grouping import UNSET
from .routing import losing

if TYPE_CHECKING:
    from ..thresholds import Thresholds
    from .result import ModelRequests, Routing

#: Share of the requests that P10 speaks of.
_TAIL = 0.1


def find(found: ModelRequests, routing: Routing | None, thresholds: Thresholds) -> ModelRequests:
    """Return `found` with what is to be said of it, the gravest first."""
    judged = found.window_requests >= thresholds.minimum_requests
    unseen = _unseen(found, thresholds, judged=judged)
    if not judged:
        few = Finding(
            Severity.HINT,
            f"{found.window_requests} requests in the last {found.window} had something drafted, "
            f"{thresholds.minimum_requests:.0f} are needed to judge them one by one",
            "Wait for more traffic, or judge over a longer requests.window.",
        )
        # Where most answers tell nothing, waiting is no advice.
        mostly = found.window_unrecorded_requests > found.window_requests
        return replace(found, findings=tuple(unseen) if mostly else (few, *unseen))
    problems = [*_tail(found, thresholds), *_mixed(found, thresholds)]
    hints = [*unseen, *_routing(routing), *_untyped(found)]
    return replace(found, findings=(*problems, *hints), routing=routing)


def _unseen(found: ModelRequests, thresholds: Thresholds, *, judged: bool) -> list[Finding]:
    """Say that what is seen, and what is `judged`, is only a part of the traffic, where that is so."""
    unseen = found.window_unrecorded_requests
    if not unseen:
        return []
    share = unseen / (unseen + found.window_requests)
    if share < thresholds.unrecorded_requests_ratio:
        return []
    text = (
        f"{unseen:,} of {unseen + found.window_requests:,} requests in the last {found.window} ({share:.0%}) "
    )
    return [
        Finding(
            Severity.HINT,
            text + f"had no record of speculation{': what is said is of the others' if judged else ''}",
            "Start vLLM (0.29 or newer) with --per-request-spec-decode-metrics detailed. Streams have a "
            "record only with their usage: set --tap.ask-for-usage true, or include_usage in the requests.",
        )
    ]


def _tail(found: ModelRequests, thresholds: Thresholds) -> list[Finding]:
    p10, limit = found.acceptance_quantiles.get("0.1"), thresholds.poor_request_acceptance_ratio
    if p10 is None or p10 >= limit or (found.losing_requests_ratio or 0.0) < _TAIL:
        return []
    has, needs = _apart(p10, limit)
    text = (
        f"a tenth of the requests has an acceptance of {has} or less (P10, limit {needs}): "
        f"{found.losing_requests_ratio:.0%} of the requests lose"
    )
    return [
        Finding(
            Severity.PROBLEM,
            text,
            "See by temperature and type which they are: route them to a server without speculation, or "
            "lower their temperature.",
        )
    ]


def _mixed(found: ModelRequests, thresholds: Thresholds) -> list[Finding]:
    if not found.mixed or found.acceptance_ratio is None:
        return []
    healthy = found.acceptance_ratio >= thresholds.healthy_acceptance_ratio
    looks = "looks healthy and " if healthy else ""
    text = (
        f"the workload is mixed: {found.gaining_requests_ratio:.0%} of the requests gain and "
        f"{found.losing_requests_ratio:.0%} lose; their mean of {found.acceptance_ratio:.0%} {looks}"
        "describes neither"
    )
    return [
        Finding(
            Severity.PROBLEM,
            text,
            "Judge by groups, not by the mean: serve the two kinds apart, each with the K that suits it.",
        )
    ]


def _routing(routing: Routing | None) -> list[Finding]:
    if routing is None or routing.acceptance_before is None or routing.acceptance_after is None:
        return []
    before, after = _apart(routing.acceptance_before, routing.acceptance_after)
    if routing.request_types:
        who = f"requests of type {' and '.join(routing.request_types)}"
    else:
        who = f"requests at temperature {' and '.join(map(_temperature, routing.temperatures))}"
    text = (
        f"{who} lose: {routing.requests_ratio:.0%} of the requests, and {routing.rejected_ratio:.0%} of the "
        "drafted tokens that were verified for nothing"
    )
    action = (
        f"Send them to a server without speculation: acceptance here would rise from {before} to {after}."
    )
    if routing.speedup is not None and routing.speedup >= 1:
        action += (
            f" By the cost profile they still run {routing.speedup:.2f} times as fast at the present load: "
            "measure before you do. A fuller batch takes that away first."
        )
    elif routing.speedup is not None:
        action += f" By the cost profile they now run {routing.speedup:.2f} times as fast as without."
    return [Finding(Severity.HINT, text, action)]


def _temperature(bucket: str) -> str:
    return "unset (that name none)" if bucket == UNSET else bucket


def _untyped(found: ModelRequests) -> list[Finding]:
    """Say what keeps losing requests from being routed by type: that they have none."""
    if OTHER not in losing(found.groups, lambda group: group.request_type):
        return []
    share = sum(group.requests_ratio for group in found.groups if group.request_type == OTHER)
    return [
        Finding(
            Severity.HINT,
            f"requests without a type of their own (type other) lose: {share:.0%} of the requests",
            "Nothing tells them apart, so nobody can route them by type. Name their types: in the header of "
            "requests.type-header, by rules of requests.type, or as request_type in a push; a name has up to "
            "64 letters, digits and _.:/-.",
        )
    ]


def _apart(less: float, more: float) -> tuple[str, str]:
    """Return both as percentages, with as many digits as it takes to tell them apart."""
    for digits in range(3):
        texts = f"{less:.{digits}%}", f"{more:.{digits}%}"
        if texts[0] != texts[1]:
            break
    return texts
