"""Findings on requests: losing requests, which of them to route elsewhere, and gaps in what is observed.

Types are the easiest to route by, so they come first: those of which every judged group loses, except
`OTHER`, whose requests have no type in common. If there are none, temperature buckets. The saving is counted:
drafted tokens that were rejected. Whether the routed requests become faster is estimated by the cost profile,
which depends on the load; the outcomes do not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from ..judgement.findings import Finding, hint, problem
from .grouping import MOST_GROUPS, MOST_MODELS, MOST_TYPES, OTHER, UNSET, GroupOverflow
from .observation import Source
from .recent_window import GroupStats, Slices
from .result import Outcome, Routing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..config.thresholds import Thresholds
    from .grouping import GroupKey
    from .result import GroupWindow, ModelRequests, TapResult


def route(
    recent: Mapping[GroupKey, GroupStats],
    whole: GroupStats,
    groups: Sequence[GroupWindow],
    thresholds: Thresholds,
    speedup: Callable[[GroupStats], float | None],
) -> Routing | None:
    """Return which requests to send to a server without speculation.

    ``None`` with too few requests, if no or every judged group loses, or if the acceptance of the remaining
    requests would not be higher.
    """
    if whole.count < thresholds.minimum_requests:
        return None
    types = tuple(kind for kind in losing(groups, lambda group: group.request_type) if kind != OTHER)
    temperatures = () if types else losing(groups, lambda group: group.temperature)

    def is_routed(group: GroupKey | GroupWindow) -> bool:
        return group.request_type in types or group.temperature in temperatures

    if not (types or temperatures) or not any(group.judged and not is_routed(group) for group in groups):
        return None
    routed = GroupStats()
    for key, group in recent.items():
        if is_routed(key):
            routed.merge(group)
    before = whole.accepted_tokens / whole.draft_tokens
    after = (whole.accepted_tokens - routed.accepted_tokens) / (whole.draft_tokens - routed.draft_tokens)
    if after <= before:
        return None
    rejected = (routed.draft_tokens - routed.accepted_tokens) / (whole.draft_tokens - whole.accepted_tokens)
    return Routing(
        request_types=types,
        temperatures=temperatures,
        requests_ratio=routed.count / whole.count,
        rejected_ratio=rejected,
        acceptance_before=before,
        acceptance_after=after,
        speedup=speedup(routed),
    )


def losing(groups: Iterable[GroupWindow], label: Callable[[GroupWindow], str]) -> tuple[str, ...]:
    """Return the values of a label that have judged groups, all of which lose."""
    found: dict[str, bool] = {}
    for group in groups:
        if group.judged:
            loses = group.outcome is Outcome.LOSES
            found[label(group)] = found.get(label(group), True) and loses
    return tuple(sorted(value for value, loses in found.items() if loses))


#: Share of requests below P10.
_TAIL = 0.1


def with_findings(found: ModelRequests, routing: Routing | None, thresholds: Thresholds) -> ModelRequests:
    """Return `found` with its findings, problems first, and with `routing` if enough requests were seen."""
    judged = found.window_requests >= thresholds.minimum_requests
    unrecorded = _unrecorded(found, thresholds, judged=judged)
    if not judged:
        few = hint(
            f"{found.window_requests} requests in the last {found.window} had something drafted, "
            f"{thresholds.minimum_requests:.0f} are needed to judge them one by one",
            "Wait for more traffic, or judge over a longer requests.window.",
        )
        # If most responses have no record, waiting does not help.
        mostly = found.window_unrecorded_requests > found.window_requests
        return replace(found, findings=tuple(unrecorded) if mostly else (*few, *unrecorded))
    problems = [*_tail(found, thresholds), *_mixed(found, thresholds)]
    hints = [*unrecorded, *_routing(routing), *_untyped(found)]
    return replace(found, findings=(*problems, *hints), routing=routing)


def _unrecorded(found: ModelRequests, thresholds: Thresholds, *, judged: bool) -> list[Finding]:
    """Report that many responses had no record."""
    unrecorded = found.window_unrecorded_requests
    total = unrecorded + found.window_requests
    if not unrecorded or unrecorded / total < thresholds.unrecorded_requests_ratio:
        return []
    return hint(
        f"{unrecorded:,} of {total:,} requests in the last {found.window} ({unrecorded / total:.0%}) "
        f"had no record of speculation{_OTHERS if judged else ''}",
        "Start vLLM (0.29 or newer) with --per-request-spec-decode-metrics detailed. Streams have a record "
        "only with their usage: set --enable-force-include-usage, or include_usage in the requests. "
        "SGLang's records do not tell the drafted tokens of trees and of a K that changes.",
    )


_OTHERS = ": the results cover only the others"


def _tail(found: ModelRequests, thresholds: Thresholds) -> list[Finding]:
    p10, limit = found.acceptance_quantiles.get("0.1"), thresholds.poor_request_acceptance_ratio
    if p10 is None or p10 >= limit or (found.losing_requests_ratio or 0.0) < _TAIL:
        return []
    value, needed = _distinct(p10, limit)
    return problem(
        f"a tenth of the requests has an acceptance of {value} or less (P10, limit {needed}): "
        f"{found.losing_requests_ratio:.0%} of the requests lose",
        "See by temperature and type which they are: route them to a server without speculation, or "
        "lower their temperature.",
    )


def _mixed(found: ModelRequests, thresholds: Thresholds) -> list[Finding]:
    if not found.mixed or found.acceptance_ratio is None:
        return []
    healthy = found.acceptance_ratio >= thresholds.healthy_acceptance_ratio
    looks = "looks healthy and " if healthy else ""
    return problem(
        f"the workload is mixed: {found.gaining_requests_ratio:.0%} of the requests gain and "
        f"{found.losing_requests_ratio:.0%} lose; their mean of {found.acceptance_ratio:.0%} {looks}"
        "describes neither",
        "Judge by groups, not by the mean: serve the two kinds apart, each with the K that suits it.",
    )


def _routing(routing: Routing | None) -> list[Finding]:
    if routing is None or routing.acceptance_before is None or routing.acceptance_after is None:
        return []
    before, after = _distinct(routing.acceptance_before, routing.acceptance_after)
    if routing.request_types:
        which = f"requests of type {' and '.join(routing.request_types)}"
    else:
        named = (f"{UNSET} (not in the request)" if one == UNSET else one for one in routing.temperatures)
        which = f"requests at temperature {' and '.join(named)}"
    rise = f"acceptance here would rise from {before} to {after}"
    action = f"Send them to a server without speculation: {rise}."
    if routing.speedup is not None and routing.speedup >= 1:
        action += (
            f" By the cost profile they still run {routing.speedup:.2f} times as fast at the present load, "
            "and less so with a larger batch: measure first."
        )
    elif routing.speedup is not None:
        action += f" By the cost profile they now run {routing.speedup:.2f} times as fast as without."
    return hint(
        f"{which} lose: {routing.requests_ratio:.0%} of the requests, and {routing.rejected_ratio:.0%} of "
        "the drafted tokens that were verified for nothing",
        action,
    )


def _untyped(found: ModelRequests) -> list[Finding]:
    """Report losing requests that cannot be routed by type, because they have none."""
    if OTHER not in losing(found.groups, lambda group: group.request_type):
        return []
    share = sum(group.requests_ratio for group in found.groups if group.request_type == OTHER)
    return hint(
        f"requests without a type of their own (type other) lose: {share:.0%} of the requests",
        "They cannot be routed by type. Name their types: in the header of requests.type-header, by rules of "
        "requests.type, or as request_type in a push; a name has up to 64 letters, digits and _.:/-.",
    )


def _distinct(less: float, more: float) -> tuple[str, str]:
    """Return both as percentages, with as many digits (up to 2) as they need to differ."""
    for digits in range(3):
        texts = f"{less:.{digits}%}", f"{more:.{digits}%}"
        if texts[0] != texts[1]:
            break
    return texts


#: What to do about requests that pass the tap unobserved, by reason. Cut-off responses and refused requests
#: are not listed: they are no fault of the observation.
_REMEDIES = {
    "busy": "send fewer large bodies at a time",
    "connection": "use HTTP/1.1 without pipelining and without upgrades such as h2c, and send responses with "
    "a Content-Length or chunked",
    "encoded": "do not compress responses behind the tap",
    "internal": "see the log",
    "malformed": "send JSON requests to vLLM's API",
    "too_large": "keep requests and responses below 8 MiB, and events below 4 MiB",
}
_INTERNAL = "internal"

#: Names of the counts in `Coverage` beside reasons and labels: observed requests, and those through the tap.
_OBSERVED, _TAPPED = "observed", "tapped"


class Coverage:
    """Counts observed and unobserved requests within the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._recent: Slices[Counter[str]] = Slices(seconds, Counter)
        self._previous: Counter[str] = Counter()

    def adopt(self, earlier: Coverage, *, reset: bool) -> None:
        """Continue the counts of `earlier`; with `reset`, the window starts empty."""
        self._previous = earlier._previous
        if not reset:
            self._recent = earlier._recent

    def add_observed(self, source: Source, overflow: Iterable[GroupOverflow], time: float) -> None:
        """Count an observed request, and its labels that became `other`."""
        tapped = (_TAPPED,) if source is Source.TAP else ()
        self._recent.at(time).update((_OBSERVED, *tapped, *overflow))

    def add_unobserved(self, tap: TapResult, time: float) -> None:
        """Count the requests that passed the tap unobserved since the last call."""
        now = Counter(tap.unobserved_total)
        self._recent.at(time).update(now - self._previous)
        self._previous = now

    def findings(self, window: str, thresholds: Thresholds, time: float) -> tuple[Finding, ...]:
        """Return the findings at `time`; `window` is the name of the window."""
        counts = sum(self._recent.until(time), Counter[str]())
        return (
            *_defects(counts[_INTERNAL], window),
            *_unobserved(counts, counts[_TAPPED], window, thresholds),
            *_overflows(counts, counts[_OBSERVED], window),
        )


def _defects(count: int, window: str) -> list[Finding]:
    if not count:
        return []
    return hint(
        f"{_requests(count)} in the last {window} met a defect of the tap, and could not be observed",
        "Traffic was not affected. The log has a line for each defect, without any content of a request: "
        "report it.",
    )


def _unobserved(counts: Counter[str], observed: int, window: str, thresholds: Thresholds) -> list[Finding]:
    lost = {name: count for name, count in counts.most_common() if name in _REMEDIES}
    total = sum(lost.values())
    if not total or total / (total + observed) < thresholds.unrecorded_requests_ratio:
        return []
    reasons = ", ".join(f"{name} {count:,}" for name, count in lost.items())
    remedies = "; ".join(f"{_REMEDIES[name]} ({name})" for name in lost)
    return hint(
        f"{total:,} of {_requests(total + observed)} through the tap in the last {window} "
        f"({total / (total + observed):.0%}) could not be observed ({reasons})"
        f"{_OTHERS if observed else ''}",
        f"By reason: {remedies}.",
    )


def _overflows(counts: Counter[str], observed: int, window: str) -> list[Finding]:
    actions = {
        GroupOverflow.TYPE: f"The limit is {MOST_TYPES} types that only clients name, in {MOST_GROUPS} "
        "groups. Types in a rule of requests.type do not count, such as that of "
        "code=header.x-request-type:code; with an empty requests.type-header clients name none.",
        GroupOverflow.MODEL: f"The limit is {MOST_MODELS} models, and fewer with many types and temperature "
        "buckets: run one exporter per vLLM, or use fewer rules and bounds.",
    }
    return [
        finding
        for label, action in actions.items()
        if counts[label]
        for finding in hint(
            f"{counts[label]:,} of {_requests(observed)} in the last {window} count as {label} other, "
            f"because the limit of {label}s is reached",
            action,
        )
    ]


def _requests(count: int) -> str:
    return f"{count:,} request{'' if count == 1 else 's'}"
