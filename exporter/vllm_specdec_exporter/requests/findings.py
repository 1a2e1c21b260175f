"""Routing: which requests to send to a server without speculation, and what that would save.

A whole type is the easiest to route, so types come first: those of which every judged group loses, but for
`OTHER`, whose requests have nothing in common that one could route by. Where no type does, buckets of
temperature. What is spared is counted, not estimated: drafted tokens that were verified for nothing. What the
requests themselves gain or lose at the present load is estimated by the cost profile, which may say that they
still gain: the zones of acceptance do not look at the load.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..judgement.findings import Finding, Severity
from .grouping import MOST_GROUPS, MOST_MODELS, MOST_TYPES, OTHER, UNSET, GroupOverflow
from .observation import Source
from .recent_window import RecentCounts, growth
from .result import Outcome, Routing
from .tally import Recent

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..config.thresholds import Thresholds
    from .grouping import GroupKey
    from .result import GroupWindow, ModelRequests, TapResult


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


#: What to do where requests pass the tap unobserved, by reason. Not among them: answers that were cut off and
#: requests that were refused, which say nothing of what the tap can see.
_REMEDIES = {
    "busy": "let fewer large bodies be on their way at a time",
    "connection": "let clients speak HTTP/1.1, without pipelining or offering upgrades such as h2c, and "
    "let answers tell their length or come in chunks",
    "encoded": "let nothing behind the tap compress answers",
    "internal": "see the log",
    "malformed": "let clients send JSON, and vLLM's API answer them",
    "too_large": "let requests and answers have at most 8 MiB, and events 4 MiB",
}
_INTERNAL = "internal"

#: What is counted of what is observed: all of it, and what came through the tap.
_OBSERVED, _TAPPED = "observed", "tapped"


class Coverage:
    """Counts what is observed within the window, and what is not.

    Args:
        seconds: length of the window.
    """

    def __init__(self, seconds: float) -> None:
        self._seen = RecentCounts(seconds)
        self._crowded = RecentCounts(seconds)
        self._unobserved = RecentCounts(seconds)
        self._told: Mapping[str, int] = {}

    def follow(self, earlier: Coverage, *, anew: bool) -> None:
        """Go on from `earlier`, but for what the window holds where it begins `anew`."""
        self._told = earlier._told
        if not anew:
            self._seen, self._crowded = earlier._seen, earlier._crowded
            self._unobserved = earlier._unobserved

    def see(self, source: Source, crowded: Iterable[GroupOverflow], time: float) -> None:
        """Count a request that was observed; what is `crowded` in it had to become `other`."""
        self._seen.add(_OBSERVED, time)
        if source is Source.TAP:
            self._seen.add(_TAPPED, time)
        for what in crowded:
            self._crowded.add(what, time)

    def hear(self, tap: TapResult, time: float) -> None:
        """Count what passed the tap unobserved since it was heard of last."""
        for reason, count in growth(self._told, tap.unobserved_total).items():
            self._unobserved.add(reason, time, count)
        self._told = dict(tap.unobserved_total)

    def find(self, window: str, thresholds: Thresholds, time: float) -> tuple[Finding, ...]:
        """Return what is to be said of it.

        Args:
            window: the name of the window.
            thresholds: the thresholds in force.
            time: now.
        """
        seen, crowded = self._seen.counts(time), self._crowded.counts(time)
        unobserved = self._unobserved.counts(time)
        return (
            *_defects(unobserved[_INTERNAL], window),
            *_unobserved(unobserved, seen[_TAPPED], window, thresholds),
            *_crowded(crowded, seen[_OBSERVED], window),
        )


def _defects(count: int, window: str) -> list[Finding]:
    if not count:
        return []
    return [
        Finding(
            Severity.HINT,
            f"{_requests(count)} in the last {window} met a defect of the tap, and could not be observed",
            "Traffic was not touched. The log has a line for each defect, without anything of a request: "
            "report it.",
        )
    ]


def _unobserved(counts: Counter[str], observed: int, window: str, thresholds: Thresholds) -> list[Finding]:
    lost = {name: count for name, count in counts.most_common() if name in _REMEDIES}
    total = sum(lost.values())
    if not total or total / (total + observed) < thresholds.unrecorded_requests_ratio:
        return []
    reasons = ", ".join(f"{name} {count:,}" for name, count in lost.items())
    text = (
        f"{total:,} of {_requests(total + observed)} through the tap in the last {window} "
        f"({total / (total + observed):.0%}) could not be observed ({reasons})"
        f"{': what is said is of the others' if observed else ''}"
    )
    remedies = "; ".join(f"{_REMEDIES[name]} ({name})" for name in lost)
    return [Finding(Severity.HINT, text, f"To mend it, by reason: {remedies}.")]


def _crowded(counts: Counter[str], observed: int, window: str) -> list[Finding]:
    actions = {
        GroupOverflow.TYPE: f"There is room for {MOST_TYPES} types that only clients name, in {MOST_GROUPS} "
        "groups. Types that a rule of requests.type names always have their own, such as that of "
        "code=header.x-request-type:code; with an empty requests.type-header clients name none.",
        GroupOverflow.MODEL: f"There is room for {MOST_MODELS} models, and for fewer where types and buckets "
        "of temperature are many: have an exporter for each vLLM, or fewer rules and bounds.",
    }
    return [
        Finding(
            Severity.HINT,
            f"{counts[what]:,} of {_requests(observed)} in the last {window} count as {what} other, for want "
            f"of room for the name of their {what}",
            action,
        )
        for what, action in actions.items()
        if counts[what]
    ]


def _requests(count: int) -> str:
    return f"{count:,} request{'' if count == 1 else 's'}"
