"""The Prometheus collector: the latest result, published through the metric table.

It builds the families anew for each scrape from an immutable result, so concurrent scrapes cannot race and
no label value outlives its source. It does no I/O: a scrape never waits for vLLM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from .metric import Kind, Scope
from .metric import Metric as Row
from .metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .distribution import Distribution
    from .result import ExporterResult, TargetResult

_FAMILIES: dict[Kind, type[CounterMetricFamily] | type[GaugeMetricFamily]] = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
}

#: A label with its value; an identity label with an empty value is left out, as Prometheus means it.
LabelPairs = tuple[tuple[str, str], ...]


class ResultCollector(Collector):
    """Publishes the latest result that `latest` returns."""

    def __init__(self, latest: Callable[[], ExporterResult]) -> None:
        self._latest = latest

    def collect(self) -> Iterator[Metric]:
        """Yield every family of the metric table that has samples."""
        result = self._latest()
        for row in METRICS:
            family = _family(row)
            for labels, thing in _carriers(row.scope, result):
                if row.kind is Kind.HISTOGRAM:
                    _add_distribution(family, labels, row.value(thing))
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


def _add_distribution(family: Metric, labels: LabelPairs, found: Distribution | None) -> None:
    if found is None:
        return
    own = {name: value for name, value in labels if value}
    # Prometheus 3 writes whole bounds with ".0" whatever was exposed; so do we, for old and new alike.
    for accepted, drafts in enumerate(found.buckets):
        family.add_sample(f"{family.name}_bucket", {**own, "le": f"{accepted}.0"}, drafts)
    family.add_sample(f"{family.name}_bucket", {**own, "le": "+Inf"}, found.count)
    family.add_sample(f"{family.name}_count", own, found.count)
    family.add_sample(f"{family.name}_sum", own, found.sum)


def _carriers(scope: Scope, result: ExporterResult) -> Iterator[tuple[LabelPairs, object]]:
    """Yield whatever the samples of this scope hang on, with its identity labels."""
    if scope is Scope.EXPORTER:
        yield (), result
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
