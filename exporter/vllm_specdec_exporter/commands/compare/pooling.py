"""Pooling: the engines of a side combined, for data parallelism.

Counts and rates are added. Values derived from counts are derived from the sums. Quantiles cannot be
combined, so several engines have none.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from ...economics.speedup import Estimate
from ...engines.reading import sum_known
from ...measures.history import Delta, Latency
from ...measures.measures import Measures, derive

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def pool(measures: Sequence[Measures]) -> Measures:
    """Return the measures of several engines combined; of a single one unchanged.

    Of several, `step_seconds`, `measured` and `returns` are left out: `compare` shows none of them.

    Args:
        measures: one window of each engine, at least one.
    """
    if len(measures) == 1:
        return measures[0]
    depth = max(len(m.position_acceptance_ratio) for m in measures)
    drafts = sum_known(m.drafts for m in measures)
    delta = Delta(
        span=max(m.span_seconds or 0.0 for m in measures),
        drafts=drafts,
        draft_tokens=sum_known(_increase(m.draft_tokens_per_second, m) for m in measures),
        accepted_tokens=sum_known(_increase(m.accepted_tokens_per_second, m) for m in measures),
        accepted_tokens_per_position=tuple(
            math.fsum(
                m.position_acceptance_ratio[i] * (m.drafts or 0.0)
                for m in measures
                if i < len(m.position_acceptance_ratio)
            )
            for i in range(depth)
        ),
        generation_tokens=sum_known(_increase(m.generation_tokens_per_second, m) for m in measures),
        batch_size=_by_drafts([(m.batch_size, m) for m in measures]),
        latencies=pool_latencies(latency for m in measures for latency in m.latencies),
    )
    return replace(
        derive(measures[0].window, delta),
        drafts=drafts,
        drafts_per_second=sum_known(m.drafts_per_second for m in measures),
        draft_tokens_per_second=sum_known(m.draft_tokens_per_second for m in measures),
        accepted_tokens_per_second=sum_known(m.accepted_tokens_per_second for m in measures),
        generation_tokens_per_second=sum_known(m.generation_tokens_per_second for m in measures),
        estimate=Estimate(
            **{
                item.name: _by_drafts([(getattr(m.estimate, item.name), m) for m in measures])
                for item in fields(Estimate)
                if item.name != "basis"
            },
            basis=next((m.estimate.basis for m in measures if m.estimate.basis), None),
        ),
    )


def pool_latencies(latencies: Iterable[Latency]) -> tuple[Latency, ...]:
    """Return the latencies of each name combined: mean and deviation exactly, quantiles only of one."""
    found: dict[str, list[Latency]] = {}
    for latency in latencies:
        if latency.requests > 0:
            found.setdefault(latency.name, []).append(latency)
    return tuple(parts[0] if len(parts) == 1 else _together(parts) for parts in found.values())


def _together(parts: Sequence[Latency]) -> Latency:
    requests = math.fsum(part.requests for part in parts)
    mean = math.fsum(part.requests * part.mean_seconds for part in parts) / requests
    deviation = None
    if all(part.deviation_seconds is not None for part in parts):
        square = math.fsum(
            part.requests * ((part.deviation_seconds or 0.0) ** 2 + (part.mean_seconds - mean) ** 2)
            for part in parts
        )
        deviation = math.sqrt(square / requests)
    return Latency(parts[0].name, requests, mean, deviation)


def _increase(rate: float | None, measures: Measures) -> float | None:
    return None if rate is None else rate * (measures.span_seconds or 0.0)


def _by_drafts(values: Sequence[tuple[float | None, Measures]]) -> float | None:
    """Return the mean of known values, weighted with drafts."""
    known = [(value, m.drafts or 0.0) for value, m in values if value is not None]
    weight = math.fsum(drafts for _, drafts in known)
    return math.fsum(value * drafts for value, drafts in known) / weight if weight > 0 else None
