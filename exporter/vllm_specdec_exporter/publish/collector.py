"""The Prometheus collector: the metric families of the latest result, with classic and native histograms."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import BucketSpan, NativeHistogram
from prometheus_client.utils import floatToGoString

from ..exposition.histogram import SCHEMA, ZERO_THRESHOLD, Histogram
from ..requests.result import Observed
from .metrics import METRICS, Kind, Scope
from .metrics import Metric as MetricRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..measures.measures import Distribution
    from ..observe.result import ExporterResult

#: Labels with their values. An identity label with an empty value is left out: to Prometheus it is the same.
LabelPairs = tuple[tuple[str, str], ...]

_FAMILIES: dict[Kind, Callable[[str, str], Metric]] = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


class ResultCollector(Collector):
    """Publishes the latest result; with `native`, histograms get native buckets, which no text can carry."""

    def __init__(self, latest: Callable[[], ExporterResult], *, native: bool = False) -> None:
        self._latest = latest
        self._native = native

    def collect(self) -> Iterator[Metric]:
        """Yield every family of the metric table that has samples."""
        carriers = _carriers(self._latest())
        for row in METRICS:
            family = _family(row)
            for labels, carrier in carriers[row.scope]:
                if row.kind is Kind.HISTOGRAM:
                    add_histogram(family, labels, row.value(carrier), self._native)
                    continue
                for values, value in row.samples(carrier):
                    # add_metric() requires the same label names in every sample, but identity labels vary.
                    pairs = (*labels, *zip(row.labels, values, strict=True))
                    family.add_sample(row.full_name, {name: text for name, text in pairs if text}, value)
            if family.samples:
                yield family

    def describe(self) -> Iterator[Metric]:
        """Yield every family without samples, so that registration does not need a result."""
        yield from map(_family, METRICS)


def _family(row: MetricRow) -> Metric:
    return _FAMILIES[row.kind](row.full_name, row.full_help)


def _carriers(result: ExporterResult) -> dict[Scope, list[tuple[LabelPairs, object]]]:
    """Return by scope the objects that have its samples, with their identity labels."""
    carriers: dict[Scope, list[tuple[LabelPairs, object]]] = {scope: [] for scope in Scope}
    carriers[Scope.EXPORTER].append(((), result))
    several = result.several_targets
    for target in result.targets:
        labels: LabelPairs = (("target", target.target),) if several else ()
        carriers[Scope.TARGET].append((labels, target))
        for engine in target.engines:
            own = (*labels, ("model_name", engine.model_name), ("engine", engine.engine))
            carriers[Scope.ENGINE].append((own, engine))
            carriers[Scope.WINDOW] += [((*own, ("window", w.window)), w) for w in engine.windows]
    requests = result.requests
    if requests is None:
        return carriers
    carriers[Scope.REQUESTS].append(((), requests))
    for group in requests.groups:
        model = ("model_name", group.model_name)
        own = (model, ("temperature", group.temperature), ("request_type", group.request_type))
        carriers[Scope.GROUP].append((own, group))
    for tenant in requests.tenants:
        own = (("model_name", tenant.model_name), ("tenant", tenant.tenant))
        carriers[Scope.TENANT].append((own, tenant))
    for item in requests.models:
        model = ("model_name", item.model_name)
        carriers[Scope.MODEL].append(((model,), item))
        carriers[Scope.RECENT].append(((model, ("window", item.window)), item))
    return carriers


def add_histogram(
    family: Metric, labels: LabelPairs, histogram: Distribution | Observed | None, native: bool
) -> None:
    """Add the samples of a histogram to its family: buckets, count and sum; nothing for ``None``.

    With `native`, an `Observed` also gets a sample with its native buckets, under the name of the family.
    """
    if histogram is None:
        return
    own = {name: value for name, value in labels if value}
    classic = histogram.classic if isinstance(histogram, Observed) else _histogram(histogram)
    # Prometheus 3 stores bounds as Go formats them: whole numbers with ".0".
    for bound, count in zip(classic.bounds, classic.counts, strict=True):
        le = floatToGoString(bound)  # type: ignore[no-untyped-call]
        family.add_sample(f"{family.name}_bucket", {**own, "le": le}, count)
    family.add_sample(f"{family.name}_bucket", {**own, "le": "+Inf"}, classic.count)
    family.add_sample(f"{family.name}_count", own, classic.count)
    family.add_sample(f"{family.name}_sum", own, classic.sum)
    if native and isinstance(histogram, Observed):
        family.add_sample(family.name, own, classic.count, native_histogram=_native(histogram))


def _histogram(distribution: Distribution) -> Histogram:
    """Return a distribution as a histogram: its bucket j counts the drafts with at most j accepted tokens."""
    bounds = tuple(float(accepted) for accepted in range(len(distribution.buckets)))
    return Histogram(bounds, distribution.buckets, distribution.count, distribution.sum)


def _native(observed: Observed) -> NativeHistogram:
    buckets = sorted(observed.native)
    counts = [count for _, count in buckets]
    return NativeHistogram(
        count_value=observed.classic.count,
        sum_value=observed.classic.sum,
        schema=SCHEMA,
        zero_threshold=ZERO_THRESHOLD,
        zero_count=observed.zero,
        pos_spans=_spans([index for index, _ in buckets]),
        pos_deltas=[count - before for before, count in pairwise([0, *counts])],
    )


def _spans(indices: list[int]) -> list[BucketSpan]:
    """Return the runs of consecutive indices, each with its gap to the previous run."""
    spans, end = [], 0
    # Within a run, the difference of an index and its place in the list is constant.
    for _, run in groupby(enumerate(indices), key=lambda item: item[1] - item[0]):
        own = [index for _, index in run]
        spans.append(BucketSpan(own[0] - end, len(own)))
        end = own[-1] + 1
    return spans
