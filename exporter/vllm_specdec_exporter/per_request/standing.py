"""Standing: how the requests of a model stand, in one word, and whether that is a problem."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from ..judgement.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .result import ModelRequests

#: Share of the requests that speaks for all of them.
_MOST = 0.5


class Standing(StrEnum):
    """How the requests of a model stand."""

    MIXED = "mixed"
    LOSING = "losing"
    PARTLY_LOSING = "partly losing"
    BREAK_EVEN = "near break-even"
    GAINING = "gaining"
    UNKNOWN = "unknown"


def standing(found: ModelRequests) -> Standing:
    """Return how the requests of a model stand; unknown with too few of them."""
    if found.mixed is None or found.losing_requests_ratio is None or found.gaining_requests_ratio is None:
        return Standing.UNKNOWN
    if found.mixed:
        return Standing.MIXED
    if found.losing_requests_ratio >= _MOST:
        return Standing.LOSING
    if is_problem((found,)):
        return Standing.PARTLY_LOSING
    return Standing.GAINING if found.gaining_requests_ratio >= _MOST else Standing.BREAK_EVEN


def is_problem(models: Iterable[ModelRequests]) -> bool:
    """Tell whether there is a problem with the requests of any of these models."""
    return any(finding.severity is Severity.PROBLEM for found in models for finding in found.findings)
