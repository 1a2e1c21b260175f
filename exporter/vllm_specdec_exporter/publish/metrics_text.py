"""The text of `/metrics`: every metric of the latest result, in blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Set
from functools import cached_property, lru_cache

from prometheus_client.utils import floatToGoString

from ..exposition.histogram import Histogram
from ..measures.measures import Distribution
from ..observe.result import ExporterResult
from ..per_request.summary import RequestsResult
from .metrics import METRICS, Kind, Metric, MetricScope

#: Lines of a block, or the lines of one object if those are more: they take a
#: millisecond, for which other requests may wait.
BLOCK_LINES = 256


def metrics_text(
    result: ExporterResult, names: Collection[str] = (), *, open_metrics: bool = False
) -> Iterator[str]:
    """Yield the text in blocks: Prometheus' text format, or OpenMetrics without its
    last line.

    With `names`, only the samples with these names. Labels are sorted by name, as
    prometheus_client does.
    """
    rows = [row for row in METRICS if not names or _sample_names(row) & set(names)]
    carriers = _carriers(result, {row.scope for row in rows})
    for row in rows:
        head = _head(row, open_metrics=open_metrics)
        block = list[str]()
        for labels, carrier in carriers[row.scope]:
            block += _lines(row, labels, carrier, names)
            if len(block) >= BLOCK_LINES:
                yield "".join((head, *block))
                head = ""
                block = []
        if block:
            yield "".join((head, *block))


def _head(row: Metric, *, open_metrics: bool) -> str:
    # OpenMetrics names the family of a counter without the suffix, and quotes in help
    # are escaped there alone.
    name = row.full_name
    text = row.full_help.replace("\\", "\\\\").replace("\n", "\\n")
    if open_metrics:
        name = name.removesuffix("_total")
        text = text.replace('"', '\\"')
    return f"# HELP {name} {text}\n# TYPE {name} {row.kind}\n"


def _sample_names(row: Metric) -> set[str]:
    name = row.full_name
    if row.kind is Kind.HISTOGRAM:
        return {f"{name}_bucket", f"{name}_count", f"{name}_sum"}
    return {name}


def _samples(
    row: Metric, carrier: object
) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Yield the samples of a metric in an object of its scope: name, values of its own
    labels, and value.
    """
    name = row.full_name
    if row.kind is not Kind.HISTOGRAM:
        for values, value in row.samples(carrier):
            yield name, values, value
        return
    observed: Distribution | Histogram | None = row.value(carrier)
    if observed is None:
        return
    # The exact distribution of an engine has no bounds of its own.
    histogram = observed if isinstance(observed, Histogram) else _histogram(observed)
    # Prometheus 3 stores bounds as Go formats them: whole numbers with ".0".
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        yield f"{name}_bucket", (floatToGoString(bound),), count  # type: ignore[no-untyped-call]
    yield f"{name}_bucket", ("+Inf",), histogram.count
    yield f"{name}_count", ("",), histogram.count
    yield f"{name}_sum", ("",), histogram.sum


def _lines(
    row: Metric, labels: _Labels, carrier: object, names: Collection[str]
) -> Iterator[str]:
    label_names = ("le",) if row.kind is Kind.HISTOGRAM else row.labels
    # Of a metric with one label of its own, only its value changes from line to line.
    prefix = ""
    suffix = ""
    for name, values, value in _samples(row, carrier):
        if names and name not in names:
            continue
        if not any(values):
            text = labels.text
        elif len(values) > 1:
            text = labels.plus(label_names, values).text
        else:
            if not prefix:
                prefix, suffix = labels.around(label_names[0])
            text = f"{prefix}{escape_label_value(values[0])}{suffix}"
        yield f"{name}{text} {floatToGoString(value)}\n"  # type: ignore[no-untyped-call]


class _Labels:
    """Labels, sorted by name.

    One with an empty value is left out: to Prometheus it is the same.
    """

    def __init__(self, *pairs: tuple[str, str]) -> None:
        self._pairs = sorted(pair for pair in pairs if pair[1])

    def plus(self, names: Iterable[str], values: Iterable[str]) -> _Labels:
        """Return these labels and others."""
        return _Labels(*self._pairs, *zip(names, values, strict=True))

    @cached_property
    def text(self) -> str:
        """The labels in braces."""
        if not self._pairs:
            return ""
        return f"{{{','.join(map(_label, self._pairs))}}}"

    def around(self, name: str) -> tuple[str, str]:
        """Return what comes before and after the value of one more label."""
        lower = [f"{_label(pair)}," for pair in self._pairs if pair[0] < name]
        higher = [f",{_label(pair)}" for pair in self._pairs if pair[0] > name]
        return f'{{{"".join(lower)}{name}="', f'"{"".join(higher)}}}'


def _label(pair: tuple[str, str]) -> str:
    name, value = pair
    return f'{name}="{escape_label_value(value)}"'


# Labels hold few different values, but each of them in every scrape.
@lru_cache(maxsize=1024)
def escape_label_value(value: str) -> str:
    """Return the value of a label, escaped for its quotes in both text formats."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


#: By scope, the objects that have its samples, with their identity labels.
_Carriers = defaultdict[MetricScope, list[tuple[_Labels, object]]]


def _carriers(result: ExporterResult, scopes: Set[MetricScope]) -> _Carriers:
    """Return the objects of the scopes; a page of few names costs what those have."""
    carriers: _Carriers = defaultdict(list)
    carriers[MetricScope.EXPORTER].append((_Labels(), result))
    for target in result.targets:
        target_labels = _Labels()
        if result.several_targets:
            target_labels = _Labels(("target", target.target))
        carriers[MetricScope.TARGET].append((target_labels, target))
        if scopes.isdisjoint((MetricScope.ENGINE, MetricScope.WINDOW)):
            continue
        for engine in target.engines:
            labels = target_labels.plus(
                ("model_name", "engine"), (engine.model_name, engine.engine)
            )
            carriers[MetricScope.ENGINE].append((labels, engine))
            if MetricScope.WINDOW not in scopes:
                continue
            for window in engine.windows:
                window_labels = labels.plus(("window",), (window.window,))
                carriers[MetricScope.WINDOW].append((window_labels, window))
    if result.requests is not None:
        _add_requests(carriers, result.requests)
    return carriers


def _add_requests(carriers: _Carriers, requests: RequestsResult) -> None:
    carriers[MetricScope.REQUESTS].append((_Labels(), requests))
    for group in requests.groups:
        labels = _Labels(
            ("model_name", group.model_name),
            ("request_type", group.request_type),
            ("temperature", group.temperature),
        )
        carriers[MetricScope.GROUP].append((labels, group))
    for tenant in requests.tenants:
        labels = _Labels(("model_name", tenant.model_name), ("tenant", tenant.tenant))
        carriers[MetricScope.TENANT].append((labels, tenant))
    for model in requests.models:
        labels = _Labels(("model_name", model.model_name))
        carriers[MetricScope.MODEL].append((labels, model))
        recent_labels = labels.plus(("window",), (model.window,))
        carriers[MetricScope.RECENT].append((recent_labels, model))


def _histogram(distribution: Distribution) -> Histogram:
    """Return a distribution as a histogram: its bucket j counts the drafts with at most
    j accepted tokens.
    """
    bounds = tuple(map(float, range(len(distribution.buckets))))
    return Histogram(bounds, distribution.buckets, distribution.count, distribution.sum)
