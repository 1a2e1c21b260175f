"""Histograms as they are exposed: in Prometheus' classic form, and with native buckets where asked for."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import BucketSpan, NativeHistogram
from prometheus_client.utils import floatToGoString

from ..exposition import histogram as native_buckets
from ..exposition.histogram import Histogram
from ..requests.result import Observed
from .metrics import METRICS
from .metrics.metric import Kind, Scope
from .metrics.metric import Metric as Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..measures.measures import Distribution
    from ..observe.result import ExporterResult, TargetResult
    from ..requests.result import RequestsResult


def add_histogram(
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


_FAMILIES: dict[Kind, type[CounterMetricFamily] | type[GaugeMetricFamily]] = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
}

#: A label with its value; an identity label with an empty value is left out, as Prometheus means it.
LabelPairs = tuple[tuple[str, str], ...]


class ResultCollector(Collector):
    """Publishes the latest result.

    Args:
        latest: returns it.
        native: whether histograms get native buckets where they have any; the text formats take none.
    """

    def __init__(self, latest: Callable[[], ExporterResult], *, native: bool = False) -> None:
        self._latest = latest
        self._native = native

    def collect(self) -> Iterator[Metric]:
        """Yield every family of the metric table that has samples."""
        result = self._latest()
        for row in METRICS:
            family = _family(row)
            for labels, thing in _carriers(row.scope, result):
                if row.kind is Kind.HISTOGRAM:
                    add_histogram(family, labels, row.value(thing), self._native)
                else:
                    for values, value in row.samples(thing):
                        own = tuple(zip(row.labels, values, strict=True))
                        _add(family, row, labels + own, value)
            if family.samples:
                yield family

    def describe(self) -> Iterator[Metric]:
        """Yield every family without samples, so that registering does not need a result."""
        for row in METRICS:
            yield _family(row)


def _family(row: Row) -> Metric:
    if row.kind is Kind.HISTOGRAM:
        return HistogramMetricFamily(row.full_name, row.full_help)
    return _FAMILIES[row.kind](row.full_name, row.full_help)


def _add(family: Metric, row: Row, labels: LabelPairs, value: float) -> None:
    # add_metric() would want the same label names of every sample, but identity labels may be absent.
    family.add_sample(row.full_name, {n: v for n, v in labels if v}, value)


def _groups(requests: RequestsResult) -> Iterator[tuple[LabelPairs, object]]:
    for group in requests.groups:
        labels = (
            ("model_name", group.model_name),
            ("temperature", group.temperature),
            ("request_type", group.request_type),
        )
        yield labels, group


#: From what is known of single requests to what samples hang on, with its labels.
_OF_REQUESTS: dict[Scope, Callable[[RequestsResult], Iterable[tuple[LabelPairs, object]]]] = {
    Scope.REQUESTS: lambda requests: [((), requests)],
    Scope.GROUP: _groups,
    Scope.TENANT: lambda requests: [
        ((("model_name", item.model_name), ("tenant", item.tenant)), item) for item in requests.tenants
    ],
    Scope.MODEL: lambda requests: [((("model_name", item.model_name),), item) for item in requests.models],
    Scope.RECENT: lambda requests: [
        ((("model_name", item.model_name), ("window", item.window)), item) for item in requests.models
    ],
}


def _carriers(scope: Scope, result: ExporterResult) -> Iterator[tuple[LabelPairs, object]]:
    """Yield whatever the samples of this scope hang on, with its identity labels."""
    if scope is Scope.EXPORTER:
        yield (), result
        return
    if scope in _OF_REQUESTS:
        if result.requests is not None:
            yield from _OF_REQUESTS[scope](result.requests)
        return
    # With a single target the label would say nothing.
    several = len(result.targets) > 1
    for target in result.targets:
        labels: LabelPairs = (("target", target.target),) if several else ()
        if scope is Scope.TARGET:
            yield labels, target
        else:
            yield from _engines(scope, labels, target)


def _engines(scope: Scope, labels: LabelPairs, target: TargetResult) -> Iterator[tuple[LabelPairs, object]]:
    for engine in target.engines:
        own = (*labels, ("model_name", engine.model_name), ("engine", engine.engine))
        if scope is Scope.ENGINE:
            yield own, engine
        else:
            for window in engine.windows:
                yield (*own, ("window", window.window)), window
