"""The text of /metrics of a simulated server."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from prometheus_client.utils import floatToGoString

from ...exposition.histogram import Histogram
from .engine import Engine
from .families import FamilySpec, Measurements, load_families

# The process starts this long before its counters: it loads the model first.
_PROCESS_LEAD_SECONDS = 2.0

# Labels with the model and the engine of a sample, and the engines that it adds up.
_Owner = tuple[tuple[tuple[str, str], ...], tuple[Measurements, ...]]


@dataclass(frozen=True)
class _Series:
    """One labelled member of a family: its labels, and where its value comes from."""

    labels: tuple[tuple[str, str], ...]
    parts: tuple[Measurements, ...]
    variant: str
    index: int

    def total(self, name: str, variant: str = "") -> float:
        """Return the sum of a value over the engines."""
        return sum(part.get(name, variant) for part in self.parts)


def render(
    model: str, engines: Sequence[Engine], started_at: float, dialect: str
) -> bytes:
    """Return the body of the response to GET /metrics; counters were created at a Unix
    time.
    """
    writer = _Writer(model, engines, started_at, rust=dialect == "vllm-rust")
    for number, family in enumerate(load_families(dialect)):
        writer.write(family, number)
    return writer.finish()


class _Writer:
    """Collects the lines of one response.

    The Rust front end writes OpenMetrics, counts as integers, the sum of a histogram
    before its buckets, and the labels `model_name` and `engine` first. The Python one
    sorts labels and writes creation times.
    """

    def __init__(
        self, model: str, engines: Sequence[Engine], started_at: float, *, rust: bool
    ) -> None:
        self._rust = rust
        self._model = (
            "model_name",
            model.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"'),
        )
        self._parts = tuple(engine.measurements for engine in engines)
        self._started_at = started_at
        self._lines: list[str] = []
        self._config = engines[0].config
        self._num_speculative_tokens = engines[0].num_speculative_tokens
        self._server_values = {
            "process_start_time_seconds": started_at - _PROCESS_LEAD_SECONDS,
            "process_cpu_seconds": sum(engine.busy_seconds for engine in engines),
        }

    def finish(self) -> bytes:
        """Return everything written so far."""
        if self._rust:
            self._lines.append("# EOF")
        return ("\n".join(self._lines) + "\n").encode()

    def write(self, family: FamilySpec, number: int) -> None:
        """Write a family with its samples; creation times depend on its `number` among
        the families.
        """
        if family.requires == "speculation" and self._num_speculative_tokens is None:
            return
        members = list(self._series(family))
        suffix = "_total" if family.type == "counter" else ""
        # OpenMetrics has the suffix in samples only.
        self._header(
            f"{family.name}{'' if self._rust else suffix}", family.type, family.help
        )
        for series in members:
            self._samples(family, series, suffix)
        if family.created and members:
            self._header(f"{family.name}_created", "gauge", family.help)
            for series in members:
                # Series are created microseconds apart.
                created = self._started_at + 2e-5 * number + 1e-6 * series.index
                self._sample(family, "_created", series, _format_real(created))

    def _header(self, name: str, type_: str, help_: str) -> None:
        self._lines.append(f"# HELP {name} {help_}")
        self._lines.append(f"# TYPE {name} {type_}")

    def _samples(self, family: FamilySpec, series: _Series, suffix: str) -> None:
        if family.type == "histogram":
            self._histogram(family, series)
        elif family.type == "summary":
            count = series.total("http_requests")
            self._sample(family, "_count", series, self._number(count, family))
            total = series.total(family.key, series.variant)
            self._sample(family, "_sum", series, self._number(total, family))
        else:
            self._sample(
                family,
                suffix,
                series,
                self._number(self._value(family, series), family),
            )

    def _value(self, family: FamilySpec, series: _Series) -> float:
        if family.constant:
            return family.constant[series.index % len(family.constant)]
        if family.key in self._server_values:
            return self._server_values[family.key]
        return series.total(family.key, series.variant)

    def _histogram(self, family: FamilySpec, series: _Series) -> None:
        histogram = reduce(
            Histogram.plus, (part.histogram(family.key) for part in series.parts)
        )
        count = self._number(histogram.count, family)
        total = _format_real(histogram.sum)
        if self._rust:
            self._sample(family, "_sum", series, total)
            self._sample(family, "_count", series, count)
            self._buckets(family, series, histogram)
        else:
            self._buckets(family, series, histogram)
            self._sample(family, "_count", series, count)
            self._sample(family, "_sum", series, total)

    def _buckets(
        self, family: FamilySpec, series: _Series, histogram: Histogram
    ) -> None:
        counts = dict(zip(histogram.bounds, histogram.counts, strict=True))
        before, after = self._label_text((("le", "\0"), *series.labels)).split("\0")
        start = f"{family.name}_bucket{before}"
        self._lines.extend(
            f"{start}{_format_real(bound)}{after} {self._number(counts[bound], family)}"
            for bound in family.bounds(self._config.max_model_len)
        )
        self._lines.append(
            f"{start}+Inf{after} {self._number(histogram.count, family)}"
        )

    def _sample(
        self, family: FamilySpec, suffix: str, series: _Series, value: str
    ) -> None:
        self._lines.append(
            f"{family.name}{suffix}{self._label_text(series.labels)} {value}"
        )

    def _number(self, value: float, family: FamilySpec) -> str:
        if not self._rust:
            return _format_real(value)
        if family.real:
            return repr(float(value))
        return str(int(value))

    def _label_text(self, labels: Sequence[tuple[str, str]]) -> str:
        if not labels:
            return ""
        ordered = labels if self._rust else sorted(labels)
        return "{" + ",".join(f'{name}="{value}"' for name, value in ordered) + "}"

    def _series(self, family: FamilySpec) -> Iterator[_Series]:
        """Yield the series of a family in the order in which servers write them."""
        owners = self._owners(family)
        variants = self._variants(family)
        # Positions are grouped by engine, engines by other variants.
        if family.per_position:
            pairs = [(owner, variant) for owner in owners for variant in variants]
        else:
            pairs = [(owner, variant) for variant in variants for owner in owners]
        for index, ((labels, parts), variant) in enumerate(pairs):
            if not _present(family, parts, variant):
                continue
            extra = ((family.variant.label, variant),) if family.variant else ()
            constant = tuple(self._constant_labels(family).items())
            yield _Series((*labels, *constant, *extra), parts, variant, index)

    def _variants(self, family: FamilySpec) -> Sequence[str]:
        if family.per_position:
            return [
                str(position) for position in range(self._num_speculative_tokens or 0)
            ]
        if family.variant:
            return family.variant.values
        return ("",)

    def _owners(self, family: FamilySpec) -> list[_Owner]:
        if family.scope != "engine":
            return [((self._model,) if family.scope == "model" else (), self._parts)]
        model = () if family.omit_model_name else (self._model,)
        return [
            ((*model, ("engine", str(index))), (part,))
            for index, part in enumerate(self._parts)
        ]

    def _constant_labels(self, family: FamilySpec) -> dict[str, str]:
        if family.key != "cache_config_info":
            return family.labels
        config = self._config
        values = {
            "block_size": str(config.block_size),
            "num_gpu_blocks": str(config.kv_cache_tokens // config.block_size),
            "kv_cache_size_tokens": str(config.kv_cache_tokens),
            "kv_cache_max_concurrency": str(
                config.kv_cache_tokens / config.max_model_len
            ),
        }
        return {name: values.get(name, value) for name, value in family.labels.items()}


def _present(family: FamilySpec, parts: Sequence[Measurements], variant: str) -> bool:
    if family.requires == "drafts":
        return any(part.has(family.key, variant) for part in parts)
    return family.requires != "traffic" or any(
        part.has("http_requests") for part in parts
    )


def _format_real(value: float) -> str:
    """Format a number like the Python client library: always a float, exponents as in
    Go.
    """
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]
