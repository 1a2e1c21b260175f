"""Findings on requests: losing requests, which of them to route elsewhere, and missing
records.

Types are the easiest to route by, so they come first: those of which every judged group
loses, except `OTHER`, whose requests have no type in common. If there are none,
temperature buckets. The saving is counted: drafted tokens that were rejected. Whether
the routed requests become faster is estimated by the cost profile, which depends on the
load; the outcomes do not.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from ..config.thresholds import Thresholds
from ..judgement.findings import Finding, hint, problem
from ..judgement.messages import message
from .grouping import OTHER, UNSET, GroupKey
from .recent_window import GroupStats
from .summary import GroupWindow, ModelRequests, Outcome, Routing


def route(
    recent: Mapping[GroupKey, GroupStats],
    total: GroupStats,
    groups: Sequence[GroupWindow],
    thresholds: Thresholds,
    speedup: Callable[[GroupStats], float | None],
) -> Routing | None:
    """Return which requests to send to a server without speculation.

    ``None`` with too few requests, if no or every judged group loses, or if the
    acceptance of the remaining requests would not be higher.
    """
    if total.count < thresholds.minimum_requests:
        return None
    losing_types = losing(groups, lambda group: group.request_type)
    types = tuple(name for name in losing_types if name != OTHER)
    temperatures: tuple[str, ...] = ()
    if not types:
        temperatures = losing(groups, lambda group: group.temperature)

    def is_routed(group: GroupKey | GroupWindow) -> bool:
        return group.request_type in types or group.temperature in temperatures

    stays = any(group.judged and not is_routed(group) for group in groups)
    if not stays or not (types or temperatures):
        return None
    routed = GroupStats()
    for key, group in recent.items():
        if is_routed(key):
            routed.change(group)
    acceptance = total.accepted_tokens / total.draft_tokens
    remaining_accepted = total.accepted_tokens - routed.accepted_tokens
    remaining_acceptance = remaining_accepted / (
        total.draft_tokens - routed.draft_tokens
    )
    if remaining_acceptance <= acceptance:
        return None
    return Routing(
        request_types=types,
        temperatures=temperatures,
        requests_ratio=routed.count / total.count,
        rejected_ratio=routed.rejected_tokens / total.rejected_tokens,
        acceptance_before=acceptance,
        acceptance_after=remaining_acceptance,
        speedup=speedup(routed),
    )


def losing(
    groups: Iterable[GroupWindow], label: Callable[[GroupWindow], str]
) -> tuple[str, ...]:
    """Return the values of a label that have judged groups, all of which lose."""
    judged = [group for group in groups if group.judged]
    values = {label(group) for group in judged}
    values -= {label(group) for group in judged if group.outcome is not Outcome.LOSES}
    return tuple(sorted(values))


#: Share of requests below P10.
_TAIL = 0.1


def with_findings(
    requests: ModelRequests, routing: Routing | None, thresholds: Thresholds
) -> ModelRequests:
    """Return `requests` with findings, problems first, and with `routing` if enough
    requests were seen.
    """
    judged = requests.window_requests >= thresholds.minimum_requests
    unrecorded = _unrecorded(requests, thresholds, judged=judged)
    if not judged:
        span = "window" if requests.window else "recorded"
        few = hint(
            "few_requests",
            requests=requests,
            within=_within(requests),
            minimum=thresholds.minimum_requests,
            how=message(f"finding.few_requests.{span}"),
        )
        if requests.window_unrecorded_requests > requests.window_requests:
            # If most responses have no record, waiting does not help.
            few = []
        return replace(requests, findings=(*few, *unrecorded))
    problems = [*_tail(requests, thresholds), *_mixed(requests, thresholds)]
    hints = [*unrecorded, *_routing(routing), *_untyped(requests)]
    return replace(requests, findings=(*problems, *hints), routing=routing)


def _unrecorded(
    requests: ModelRequests, thresholds: Thresholds, *, judged: bool
) -> list[Finding]:
    unrecorded = requests.window_unrecorded_requests
    total = unrecorded + requests.window_requests
    if not unrecorded or unrecorded / total < thresholds.unrecorded_requests_ratio:
        return []
    return hint(
        "unrecorded",
        unrecorded=unrecorded,
        total=total,
        share=unrecorded / total,
        within=_within(requests),
        rest=": the results cover only the others" if judged else "",
    )


def _within(requests: ModelRequests) -> str:
    if requests.window:
        return f" in the last {requests.window}"
    return ""


def _tail(requests: ModelRequests, thresholds: Thresholds) -> list[Finding]:
    p10 = requests.acceptance_quantiles.get("0.1")
    limit = thresholds.poor_request_acceptance_ratio
    if p10 is None or p10 >= limit or (requests.losing_requests_ratio or 0.0) < _TAIL:
        return []
    shown_p10, shown_limit = _distinct(p10, limit)
    return problem("tail", p10=shown_p10, limit=shown_limit, requests=requests)


def _mixed(requests: ModelRequests, thresholds: Thresholds) -> list[Finding]:
    if not requests.mixed or requests.acceptance_ratio is None:
        return []
    looks = ""
    if requests.acceptance_ratio >= thresholds.healthy_acceptance_ratio:
        looks = "looks healthy and "
    return problem("mixed", requests=requests, looks=looks)


def _routing(routing: Routing | None) -> list[Finding]:
    if (
        routing is None
        or routing.acceptance_before is None
        or routing.acceptance_after is None
    ):
        return []
    now_shown, routed_shown = _distinct(
        routing.acceptance_before, routing.acceptance_after
    )
    if routing.request_types:
        routed = f"requests of type {' and '.join(routing.request_types)}"
    else:
        temperatures = " and ".join(routing.temperatures)
        temperatures = temperatures.replace(UNSET, f"{UNSET} (not in the request)")
        routed = f"requests at temperature {temperatures}"
    speedup = ""
    if routing.speedup is not None:
        effect = "faster" if routing.speedup >= 1 else "slower"
        speedup = message(f"finding.route.{effect}", routing=routing)
    return hint(
        "route",
        which=routed,
        routing=routing,
        before=now_shown,
        after=routed_shown,
        speedup=speedup,
    )


def _untyped(requests: ModelRequests) -> list[Finding]:
    """Report losing requests that cannot be routed by type, because they have none."""
    if OTHER not in losing(requests.groups, lambda group: group.request_type):
        return []
    share = sum(
        group.requests_ratio for group in requests.groups if group.request_type == OTHER
    )
    return hint("untyped", share=share)


def _distinct(less: float, more: float) -> tuple[str, str]:
    """Return both as percentages, with up to two digits where they differ in those."""
    for digits in range(3):
        texts = f"{less:.{digits}%}", f"{more:.{digits}%}"
        if texts[0] != texts[1]:
            break
    return texts
