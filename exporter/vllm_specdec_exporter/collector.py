"""The Prometheus collector: the latest result, published through the metric table.

It builds the families anew for each scrape from an immutable result, so concurrent scrapes cannot race and
no label value outlives its source. It does no I/O: a scrape never waits for vLLM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from . import exposed_histogram
from .metric import Kind, Scope
from .metric import Metric as Row
from .metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .per_request.result import RequestsResult
    from .result import ExporterResult, TargetResult

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
                    exposed_histogram.add(family, labels, row.value(thing), self._native)
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
