"""Histograms as they are exposed: in Prometheus' classic form, and with native buckets where asked for."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from prometheus_client.samples import BucketSpan, NativeHistogram
from prometheus_client.utils import floatToGoString

from .histogram import Histogram
from .per_request import native as native_buckets
from .per_request.result import Observed

if TYPE_CHECKING:
    from prometheus_client import Metric

    from .distribution import Distribution


def add(
    family: Metric, labels: tuple[tuple[str, str], ...], found: Distribution | Observed | None, native: bool
) -> None:
    """Add what was found to its family: samples of the buckets, the count and the sum.

    Args:
        family: of type histogram.
        labels: identity labels; one with an empty value is left out, as Prometheus means it.
        found: ``None`` adds nothing.
        native: whether to add one more sample, named as the family, that carries the native buckets, where
            there are any. The text formats have no place for it.
    """
    if found is None:
        return
    own = {name: value for name, value in labels if value}
    classic = found.classic if isinstance(found, Observed) else _histogram(found)
    # Prometheus 3 writes bounds as Go does, whole ones with ".0", whatever was exposed; so do we, for old and
    # new alike.
    for bound, count in zip(classic.bounds, classic.counts, strict=True):
        le = floatToGoString(bound)  # type: ignore[no-untyped-call]
        family.add_sample(f"{family.name}_bucket", {**own, "le": le}, count)
    family.add_sample(f"{family.name}_bucket", {**own, "le": "+Inf"}, classic.count)
    family.add_sample(f"{family.name}_count", own, classic.count)
    family.add_sample(f"{family.name}_sum", own, classic.sum)
    if native and isinstance(found, Observed):
        family.add_sample(family.name, own, classic.count, native_histogram=_native(found))


def _histogram(found: Distribution) -> Histogram:
    """A bucket of a distribution holds the drafts with at most so many accepted tokens as its index says."""
    bounds = tuple(float(accepted) for accepted in range(len(found.buckets)))
    return Histogram(bounds, found.buckets, found.count, found.sum)


def _native(found: Observed) -> NativeHistogram:
    buckets = sorted(found.native)
    counts = [count for _, count in buckets]
    return NativeHistogram(
        count_value=found.classic.count,
        sum_value=found.classic.sum,
        schema=native_buckets.SCHEMA,
        zero_threshold=native_buckets.ZERO_THRESHOLD,
        zero_count=found.zero,
        pos_spans=_spans([index for index, _ in buckets]),
        pos_deltas=[count - before for before, count in pairwise([0, *counts])],
    )


def _spans(indices: list[int]) -> list[BucketSpan]:
    """Return the runs of neighbours among rising indices, each with the gap to the one before."""
    spans, end = [], 0
    # What an index is ahead of its place in the list stays the same within a run.
    for _, run in groupby(enumerate(indices), key=lambda item: item[1] - item[0]):
        own = [index for _, index in run]
        spans.append(BucketSpan(own[0] - end, len(own)))
        end = own[-1] + 1
    return spans
