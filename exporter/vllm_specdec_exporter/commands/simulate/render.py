"""The text of /metrics of a simulated server."""

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product

from msgspec import Struct
from prometheus_client.utils import floatToGoString

from ...exposition.histogram import Histogram
from ...publish.metrics_text import escape_label_value
from .engine import Engine
from .families import FamilySpec, Measurements, load_families

# The process starts this long before its counters: it loads the model first.
_PROCESS_LEAD_SECONDS = 2.0

_Labels = tuple[tuple[str, str], ...]


class _Series(Struct, frozen=True):
    """One labelled member of a family, and the engines whose values it adds up."""

    labels: _Labels
    engines: tuple[Measurements, ...]
    variant: str
    index: int

    def total(self, name: str, variant: str = "") -> float:
        """Return the sum of a value over the engines."""
        return sum(engine.get(name, variant) for engine in self.engines)

    def exists(self, family: FamilySpec) -> bool:
        """Whether the server publishes the series by now."""
        if family.requires == "drafts":
            return any(e.has(family.key, self.variant) for e in self.engines)
        if family.requires == "traffic":
            return any(e.has("http_requests") for e in self.engines)
        return True


def render(
    model: str, engines: Sequence[Engine], started_at: float, dialect: str
) -> bytes:
    """Return the body of the response to GET /metrics; counters were created at a Unix
    time.
    """
    writer = _Writer(model, engines, started_at, rust=dialect == "vllm-rust")
    lines: list[str] = []
    for number, family in enumerate(load_families(dialect)):
        lines.extend(writer.lines(family, number))
    if dialect == "vllm-rust":
        lines.append("# EOF")
    return "\n".join([*lines, ""]).encode()


class _Writer:
    """Writes the families of one response.

    The Rust front end writes OpenMetrics, counts as integers, the sum of a histogram
    before its buckets, and the labels `model_name` and `engine` first. The Python one
    sorts labels and writes creation times. prometheus_client could write the latter
    only.
    """

    def __init__(
        self, model: str, engines: Sequence[Engine], started_at: float, *, rust: bool
    ) -> None:
        self._rust = rust
        self._model: _Labels = (("model_name", model),)
        self._engines = tuple(engine.measurements for engine in engines)
        self._started_at = started_at
        self._config = engines[0].config
        self._num_speculative_tokens = engines[0].num_speculative_tokens
        self._server_values = {
            "process_start_time_seconds": started_at - _PROCESS_LEAD_SECONDS,
            "process_cpu_seconds": sum(engine.busy_seconds for engine in engines),
        }

    def lines(self, family: FamilySpec, number: int) -> Iterator[str]:
        """Yield a family with its samples; creation times depend on its `number` among
        the families.
        """
        if family.requires == "speculation" and self._num_speculative_tokens is None:
            return
        name = family.name
        if family.type == "counter" and not self._rust:
            name += "_total"  # OpenMetrics has the suffix in samples only
        members = list(self._series(family))
        yield from _header(name, family.type, family.help)
        for series in members:
            yield from self._samples(family, series)
        if family.created and members:
            name = f"{family.name}_created"
            yield from _header(name, "gauge", family.help)
            for series in members:
                # Series are created microseconds apart.
                created = self._started_at + 2e-5 * number + 1e-6 * series.index
                yield f"{name}{self._text(series.labels)} {_format_real(created)}"

    def _samples(self, family: FamilySpec, series: _Series) -> list[str]:
        labels = self._text(series.labels)
        if family.type == "histogram":
            return self._histogram(family, series, labels)
        value = self._number(self._value(family, series), family)
        if family.type == "summary":
            count = self._number(series.total("http_requests"), family)
            return [
                f"{family.name}_count{labels} {count}",
                f"{family.name}_sum{labels} {value}",
            ]
        suffix = "_total" if family.type == "counter" else ""
        return [f"{family.name}{suffix}{labels} {value}"]

    def _value(self, family: FamilySpec, series: _Series) -> float:
        if family.constant:
            return family.constant[series.index % len(family.constant)]
        if family.key in self._server_values:
            return self._server_values[family.key]
        return series.total(family.key, series.variant)

    def _histogram(self, family: FamilySpec, series: _Series, labels: str) -> list[str]:
        histograms = [engine.histogram(family.key) for engine in series.engines]
        histogram = reduce(Histogram.plus, histograms)
        count = self._number(histogram.count, family)
        # The labels of all buckets differ in one value: escaping and sorting them for
        # each would take most of the time of a response.
        bucket = self._text((("le", "{bound}"), *series.labels))
        head, _, tail = bucket.partition("{bound}")
        start = f"{family.name}_bucket{head}"
        counts = dict(zip(histogram.bounds, histogram.counts, strict=True))
        buckets = [
            f"{start}{_format_real(bound)}{tail} {self._number(counts[bound], family)}"
            for bound in family.bounds(self._config.max_model_len)
        ]
        buckets.append(f"{start}+Inf{tail} {count}")
        count_line = f"{family.name}_count{labels} {count}"
        sum_line = f"{family.name}_sum{labels} {_format_real(histogram.sum)}"
        if self._rust:
            return [sum_line, count_line, *buckets]
        return [*buckets, count_line, sum_line]

    def _number(self, value: float, family: FamilySpec) -> str:
        if not self._rust:
            return _format_real(value)
        if family.real:
            return repr(float(value))
        return str(int(value))

    def _text(self, labels: _Labels) -> str:
        if not labels:
            return ""
        if not self._rust:
            labels = tuple(sorted(labels))
        pairs = [f'{name}="{escape_label_value(value)}"' for name, value in labels]
        return f"{{{','.join(pairs)}}}"

    def _series(self, family: FamilySpec) -> Iterator[_Series]:
        """Yield the series of a family in the order in which servers write them."""
        owners = self._owners(family)
        variants = self._variants(family)
        # Positions are grouped by engine, engines by other variants.
        if family.per_position:
            pairs = list(product(owners, variants))
        else:
            pairs = [(owner, variant) for variant, owner in product(variants, owners)]
        constant = self._constant_labels(family)
        for index, ((owner, engines), variant) in enumerate(pairs):
            labels = owner + constant
            if family.variant:
                labels += ((family.variant.label, variant),)
            series = _Series(labels, engines, variant, index)
            if series.exists(family):
                yield series

    def _variants(self, family: FamilySpec) -> Sequence[str]:
        if family.per_position:
            return list(map(str, range(self._num_speculative_tokens or 0)))
        if family.variant:
            return family.variant.values
        return ("",)

    def _owners(
        self, family: FamilySpec
    ) -> list[tuple[_Labels, tuple[Measurements, ...]]]:
        """Return what a sample belongs to: the labels, and the engines."""
        if family.scope == "server":
            return [((), self._engines)]
        if family.scope == "model":
            return [(self._model, self._engines)]
        model = () if family.omit_model_name else self._model
        return [
            ((*model, ("engine", str(index))), (engine,))
            for index, engine in enumerate(self._engines)
        ]

    def _constant_labels(self, family: FamilySpec) -> _Labels:
        labels = family.labels
        if family.key == "cache_config_info":
            config = self._config
            tokens = config.kv_cache_tokens
            simulated = {
                "block_size": str(config.block_size),
                "num_gpu_blocks": str(tokens // config.block_size),
                "kv_cache_size_tokens": str(tokens),
                "kv_cache_max_concurrency": str(tokens / config.max_model_len),
            }
            labels = {name: simulated.get(name, labels[name]) for name in labels}
        return tuple(labels.items())


def _header(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _format_real(value: float) -> str:
    """Format a number like the Python client library: always a float, exponents as in
    Go.
    """
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]
