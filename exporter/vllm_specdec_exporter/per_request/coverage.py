"""Coverage: how much of the traffic is judged at all, and under the names that it came with.

What the tap could not observe is in no group and no share of requests, so nothing else here would show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..judgement.finding import Finding, Severity
from .grouping import MOST_GROUPS, MOST_MODELS, MOST_TYPES
from .lately import Lately, growth
from .observation import Source
from .room import Crowded

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping

    from ..thresholds import Thresholds
    from .result import TapResult

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
        self._seen = Lately(seconds)
        self._crowded = Lately(seconds)
        self._unobserved = Lately(seconds)
        self._told: Mapping[str, int] = {}

    def follow(self, earlier: Coverage, *, anew: bool) -> None:
        """Go on from `earlier`, but for what the window holds where it begins `anew`."""
        self._told = earlier._told
        if not anew:
            self._seen, self._crowded = earlier._seen, earlier._crowded
            self._unobserved = earlier._unobserved

    def see(self, source: Source, crowded: Iterable[Crowded], time: float) -> None:
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
        Crowded.TYPE: f"There is room for {MOST_TYPES} types that only clients name, in {MOST_GROUPS} "
        "groups. Types that a rule of requests.type names always have their own, such as that of "
        "code=header.x-request-type:code; with an empty requests.type-header clients name none.",
        Crowded.MODEL: f"There is room for {MOST_MODELS} models, and for fewer where types and buckets of "
        "temperature are many: have an exporter for each vLLM, or fewer rules and bounds.",
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
