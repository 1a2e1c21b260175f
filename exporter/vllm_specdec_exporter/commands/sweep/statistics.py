"""The statistics of a cell: percentiles of times, and acceptance with an interval that can be believed.

Drafts are not independent of each other: those of one answer continue the same text. An interval that
counted drafts would be far too narrow. So the unit is the request, or the prompt where prompts recur in a
cell, because two answers to one prompt are alike, at temperature 0 even equal. The ratio estimator over
clusters and its linearised variance are those of Cochran, "Sampling Techniques" (3rd ed. 1977, 6.3)::

    r = sum(a) / sum(d),   var(r) = m / (m - 1) * sum((a_i - r d_i)^2) / sum(d)^2

with a_i of d_i draft tokens accepted in cluster i of m, and Student's t with m - 1 degrees of freedom.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ...economics.choice import CLUSTERING
from ...measures.history import Delta

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .stream import StreamedAnswer, StreamedDrafts

#: 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_Z = 1.959964


@dataclass(frozen=True, slots=True)
class TimeSummary:
    """Times in seconds: how many, their mean and percentiles; ``None`` where there were none."""

    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % confidence interval.

    Attributes:
        low: its lower end.
        high: its upper end.
        unit: what was taken as independent: ``prompt``, ``request`` or ``draft``. By drafts, the interval is
            too narrow.
        units: how many of these there were.
    """

    low: float
    high: float
    unit: str
    units: int


def distribution(values: Iterable[float | None]) -> TimeSummary:
    """Return the distribution of the values that are known."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return TimeSummary()
    return TimeSummary(
        count=len(known),
        mean=math.fsum(known) / len(known),
        p50=percentile(known, 0.50),
        p95=percentile(known, 0.95),
        p99=percentile(known, 0.99),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0 to 1) of the ordered values lie, interpolated linearly."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def pooled(records: Sequence[StreamedDrafts], generation_tokens: float, span: float) -> Delta:
    """Return the requests' own records added up, in the form of a window's increase."""
    depth = max((len(record.histogram) for record in records), default=0)
    histogram = [sum(r.histogram[j] for r in records if j < len(r.histogram)) for j in range(depth)]
    return Delta(
        span=span,
        drafts=sum(record.drafts for record in records),
        draft_tokens=sum(record.draft_tokens for record in records),
        accepted_tokens=sum(record.accepted_tokens for record in records),
        accepted_tokens_per_position=tuple(float(sum(histogram[j:])) for j in range(1, depth)),
        generation_tokens=generation_tokens,
    )


def acceptance_interval(answers: Sequence[StreamedAnswer]) -> Interval | None:
    """Return the interval of the acceptance ratio from the requests' own records.

    ``None`` where there are fewer than two units, or no drafts. Where nothing or everything was accepted, the
    clusters do not vary, which is no certainty: then it is Wilson's interval by drafts.
    """
    prompts = {answer.prompt for answer in answers}
    recur = 1 < len(prompts) < len(answers)
    clusters: dict[int, list[int]] = {}
    for answer in answers:
        if answer.drafts is not None and answer.drafts.draft_tokens:
            cluster = clusters.setdefault(answer.prompt if recur else answer.request, [0, 0])
            cluster[0] += answer.drafts.accepted_tokens
            cluster[1] += answer.drafts.draft_tokens
    found = cluster_interval([(a, d) for a, d in clusters.values()], "prompt" if recur else "request")
    drafts = sum(answer.drafts.drafts for answer in answers if answer.drafts is not None)
    accepted, drafted = (
        (sum(column) for column in zip(*clusters.values(), strict=True)) if clusters else (0, 0)
    )
    if found is not None and accepted in (0, drafted):
        low, high = wilson(accepted / drafted, drafts)
        return Interval(low, high, found.unit, found.units)
    return found


def cluster_interval(clusters: Sequence[tuple[float, float]], unit: str) -> Interval | None:
    """Return the interval of the ratio of sums over clusters of (part, whole); see the module's text."""
    m = len(clusters)
    whole = math.fsum(d for _, d in clusters)
    if m < 2 or whole <= 0:
        return None
    ratio = math.fsum(a for a, _ in clusters) / whole
    residuals = math.fsum((a - ratio * d) ** 2 for a, d in clusters)
    reach = t_quantile(m - 1) * math.sqrt(m / (m - 1) * residuals) / whole
    return Interval(max(0.0, ratio - reach), min(1.0, ratio + reach), unit, m)


def wilson(ratio: float, number: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval for a ratio over `number` independent trials (Wilson 1927)."""
    spread = _Z**2 / number
    centre = (ratio + spread / 2) / (1 + spread)
    reach = _Z * math.sqrt(ratio * (1 - ratio) / number + spread / (4 * number)) / (1 + spread)
    return max(0.0, centre - reach), min(1.0, centre + reach)


def draft_interval(delta: Delta) -> Interval | None:
    """Return the interval of the acceptance ratio from the counters alone.

    The position counters are the distribution of accepted tokens per draft, which gives their variance.
    Drafts of one request resemble each other, so it is widened as everywhere (`economics.choice`).
    """
    drafts, drafted = delta.drafts or 0.0, delta.draft_tokens or 0.0
    positions = delta.accepted_tokens_per_position
    if drafts < 2 or drafted <= 0 or not positions:
        return None
    exactly = [max(0.0, here - deeper) for here, deeper in pairwise((drafts, *positions, 0.0))]
    mean = math.fsum(j * n for j, n in enumerate(exactly)) / drafts
    variance = math.fsum(n * (j - mean) ** 2 for j, n in enumerate(exactly)) / (drafts - 1)
    length = drafted / drafts
    ratio = min(1.0, mean / length)
    if ratio in (0.0, 1.0):
        return Interval(*wilson(ratio, drafts / CLUSTERING), "draft", round(drafts))
    reach = _Z * math.sqrt(CLUSTERING * variance / drafts) / length
    return Interval(max(0.0, ratio - reach), min(1.0, ratio + reach), "draft", round(drafts))


def t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t.

    From a table up to 30 degrees of freedom, then by the first terms of its expansion around the normal one
    (Abramowitz and Stegun, 26.7.5).
    """
    if freedom <= len(_T):
        return _T[freedom - 1]
    return _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)
