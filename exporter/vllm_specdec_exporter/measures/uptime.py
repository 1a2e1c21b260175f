"""Uptime: the hours of one life of an engine, to tell whether the acceptance length
decays with it. Pure.

Some servers accept less the longer they run, until a restart. That differs from a
change of load or traffic: the length falls little by little, while draft length, batch
size and context stay alike. The reference is what the exporter saw first: after its own
restart a decayed length, against which only further decay shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from .history import Sample, delta

_HOUR = 3600.0
#: Drafts of an hour that counts. With fewer, the length of an hour is known within a
#: few percent only.
_MIN_DRAFTS = 5000
#: An hour with too few drafts is joined with the next; after this many seconds it is
#: begun anew.
_MAX_JOINED = 4 * _HOUR
#: Hours of the reference and of the present, and the most that are kept beside the
#: reference.
_COMPARED = 2
_KEPT = 24
#: Relative fall of the length that counts, and the largest share of it that one hour
#: may have.
_FALL = 0.05
_STEP = 0.5
#: Relative differences up to which two hours are alike. Another K moves the draft
#: length by more; batch and context vary by so much from hour to hour.
_SAME_DRAFTS = 0.02
_SAME_LOAD = 0.5
_SAME_CONTEXT = 0.2


class Hour(Struct, frozen=True):
    """The drafts of an hour: number, accepted tokens, and means of draft length, batch
    size and context.
    """

    drafts: float
    accepted: float
    draft_length: float
    batch_size: float
    context_tokens: float

    @property
    def length(self) -> float:
        """The mean acceptance length."""
        return 1 + self.accepted / self.drafts

    def alike(self, hour: Hour) -> bool:
        """Return whether K, load and mix of traffic are about the same."""
        return all(
            math.isclose(mine, theirs, rel_tol=difference, abs_tol=0.0)
            for mine, theirs, difference in (
                (self.draft_length, hour.draft_length, _SAME_DRAFTS),
                (self.batch_size, hour.batch_size, _SAME_LOAD),
                (self.context_tokens, hour.context_tokens, _SAME_CONTEXT),
            )
        )


class Uptime(Struct, frozen=True):
    """The hours of one life of an engine; those with few drafts or an unknown load are
    left out.
    """

    begun: Sample | None = None  # the sample at which the present hour began
    first: tuple[Hour, ...] = ()  # the first hours, at most two
    latest: tuple[Hour, ...] = ()  # the latest hours after them, at most a day
    #: The length of the first hours and that of the latest ones that were alike, as far
    #: as there are any.
    lengths: tuple[float, float] | None = None
    #: Whether the length was seen to fall little by little, and did not recover.
    decayed: bool = False

    def add(self, sample: Sample | None, *, interrupted: bool) -> Uptime:
        """Return the uptime after `sample`; `interrupted` is whether an interruption
        precedes it.
        """
        begun = self.begun
        if sample is None or begun is None or interrupted:
            return replace(self, begun=_bare(sample))
        if sample.time - begun.time < _HOUR:
            return self
        hour = _hour(begun, sample)
        if hour is None:
            if sample.time - begun.time < _MAX_JOINED:
                return self
            return replace(self, begun=_bare(sample))
        if len(self.first) < _COMPARED:
            return replace(self, begun=_bare(sample), first=(*self.first, hour))
        latest = (*self.latest[1 - _KEPT :], hour)
        return replace(self, begun=_bare(sample), latest=latest)._compared()

    def _compared(self) -> Uptime:
        """Return the uptime with the first hours compared with the latest ones."""
        reference = _pooled(self.first)
        compared = self.latest[-_COMPARED:]
        if len(compared) < _COMPARED or not all(map(reference.alike, compared)):
            return self  # hours of another load, as at night, say nothing
        length = _pooled(compared).length
        fell = length <= (1 - _FALL) * reference.length
        decayed = fell and (self.decayed or self._gradual())
        return replace(self, lengths=(reference.length, length), decayed=decayed)

    @property
    def decay_ratio(self) -> float | None:
        """The lost share of the length, 0 unless it was lost little by little; ``None``
        if not known yet.
        """
        if self.lengths is None:
            return None
        if self.decayed:
            return 1 - self.lengths[1] / self.lengths[0]
        return 0.0

    def _gradual(self) -> bool:
        """Return whether no hour has most of the fall, as when traffic changes."""
        lengths = [hour.length for hour in (_pooled(self.first), *self.latest)]
        total = lengths[0] - lengths[-1]
        return all(
            earlier - later <= _STEP * total for earlier, later in pairwise(lengths)
        )


def _bare(sample: Sample | None) -> Sample | None:
    """Return `sample` without what it would keep in memory for an hour."""
    if sample is None:
        return None
    return replace(sample, latencies=None, match=None)


def _hour(first: Sample, last: Sample) -> Hour | None:
    within = delta(first, last)
    drafts = within.drafts or 0.0
    accepted = within.accepted_tokens
    if drafts < _MIN_DRAFTS or accepted is None or not within.draft_tokens:
        return None
    if within.batch_size is None or within.context_tokens is None:
        return None
    return Hour(
        drafts=drafts,
        accepted=accepted,
        draft_length=within.draft_tokens / drafts,
        batch_size=within.batch_size,
        context_tokens=within.context_tokens,
    )


def _pooled(hours: Sequence[Hour]) -> Hour:
    weights = [hour.drafts for hour in hours]
    return Hour(
        drafts=sum(weights),
        accepted=sum(hour.accepted for hour in hours),
        draft_length=_mean([hour.draft_length for hour in hours], weights),
        batch_size=_mean([hour.batch_size for hour in hours], weights),
        context_tokens=_mean([hour.context_tokens for hour in hours], weights),
    )


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    pairs = zip(values, weights, strict=True)
    return sum(value * weight for value, weight in pairs) / sum(weights)
