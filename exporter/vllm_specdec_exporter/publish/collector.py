"""The Prometheus collector: the metric families of the latest result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ..exposition.histogram import Histogram
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
    """Publishes the latest result."""

    def __init__(self, latest: Callable[[], ExporterResult]) -> None:
        self._latest = latest

    def collect(self) -> Iterator[Metric]:
        """Yield every family of the metric table that has samples."""
        carriers = _carriers(self._latest())
        for row in METRICS:
            family = _family(row)
            for labels, carrier in carriers[row.scope]:
                if row.kind is Kind.HISTOGRAM:
                    add_histogram(family, labels, row.value(carrier))
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


def add_histogram(family: Metric, labels: LabelPairs, observed: Distribution | Histogram | None) -> None:
    """Add the samples of a histogram to its family: buckets, count and sum; nothing for ``None``."""
    if observed is None:
        return
    own = {name: value for name, value in labels if value}
    histogram = observed if isinstance(observed, Histogram) else _histogram(observed)
    # Prometheus 3 stores bounds as Go formats them: whole numbers with ".0".
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        le = floatToGoString(bound)  # type: ignore[no-untyped-call]
        family.add_sample(f"{family.name}_bucket", {**own, "le": le}, count)
    family.add_sample(f"{family.name}_bucket", {**own, "le": "+Inf"}, histogram.count)
    family.add_sample(f"{family.name}_count", own, histogram.count)
    family.add_sample(f"{family.name}_sum", own, histogram.sum)


def _histogram(distribution: Distribution) -> Histogram:
    """Return a distribution as a histogram: its bucket j counts the drafts with at most j accepted tokens."""
    bounds = tuple(float(accepted) for accepted in range(len(distribution.buckets)))
    return Histogram(bounds, distribution.buckets, distribution.count, distribution.sum)
