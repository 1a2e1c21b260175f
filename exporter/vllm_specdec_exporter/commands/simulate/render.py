"""From the state of a simulated server to the text of its /metrics."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .families import DIALECTS, Dialect, Family, format_python
from .measurements import Histogram, Measurements, combined, combined_histogram
from .speculation import EngineConfig


@dataclass(frozen=True)
class EngineView:
    """What is published about one engine."""

    model: str
    index: int
    measurements: Measurements


@dataclass(frozen=True)
class ServerView:
    """What is published about a server.

    Attributes:
        engines: Its engines, those of a model together.
        num_speculative_tokens: K, or None without speculation.
        started_at: Unix time at which counting began, in seconds.
        process_started_at: Unix time at which the process began, in seconds.
        cpu_seconds: Processor time used.
        engine_config: Properties of the engines.
    """

    engines: tuple[EngineView, ...]
    num_speculative_tokens: int | None
    started_at: float
    process_started_at: float
    cpu_seconds: float
    engine_config: EngineConfig


@dataclass(frozen=True)
class _Child:
    """One labelled member of a family: its labels and where its value comes from."""

    labels: tuple[tuple[str, str], ...]
    parts: tuple[Measurements, ...]
    variant: str
    index: int


def render(view: ServerView, dialect_name: str) -> bytes:
    """Return the body of an answer to GET /metrics.

    Args:
        view: The state of the server.
        dialect_name: A name from `DIALECTS`.
    """
    writer = _Writer(view, DIALECTS[dialect_name])
    for number, family in enumerate(writer.dialect.families()):
        writer.write(family, number)
    return writer.finish()


class _Writer:
    """Collects the lines of one answer."""

    def __init__(self, view: ServerView, dialect: Dialect) -> None:
        self.view = view
        self.dialect = dialect
        self._lines: list[str] = []
        self._server_values = {
            "process_start_time_seconds": view.process_started_at,
            "process_cpu_seconds": view.cpu_seconds,
        }

    def finish(self) -> bytes:
        """Return everything written so far."""
        if self.dialect.openmetrics:
            self._lines.append("# EOF")
        return ("\n".join(self._lines) + "\n").encode()

    def write(self, family: Family, number: int) -> None:
        """Write a family with its samples.

        Args:
            family: The family.
            number: Its place among the families; the creation times depend on it.
        """
        if family.requires == "speculation" and self.view.num_speculative_tokens is None:
            return
        children = list(self._children(family))
        if not children and not self.dialect.empty_families:
            return
        is_counter = family.type == "counter" and not family.bare
        plain = is_counter and not self.dialect.openmetrics
        self._header(f"{family.name}_total" if plain else family.name, family.type, family.help)
        created = family.created and self.dialect.created
        for child in children:
            self._samples(family, child)
            if created and self.dialect.openmetrics:
                self._created(family, child, number)
        if created and not self.dialect.openmetrics and children:
            self._header(f"{family.name}_created", "gauge", family.help)
            for child in children:
                self._created(family, child, number)

    def _header(self, name: str, type_: str, help_: str) -> None:
        self._lines.append(f"# HELP {name} {help_}")
        self._lines.append(f"# TYPE {name} {type_}")

    def _created(self, family: Family, child: _Child, number: int) -> None:
        # Series come into being one after another, microseconds apart.
        value = self.view.started_at + 2e-5 * number + 1e-6 * child.index
        self._sample(family, "_created", child, format_python(value))

    def _samples(self, family: Family, child: _Child) -> None:
        if family.type == "histogram":
            self._histogram(family, child)
        elif family.type == "summary":
            count = combined(child.parts, "http_requests", "", "sum")
            total = combined(child.parts, family.source, child.variant, "sum")
            self._sample(family, "_count", child, self.dialect.number(count, family))
            self._sample(family, "_sum", child, self.dialect.number(total, family))
        else:
            suffix = "_total" if family.type == "counter" and not family.bare else ""
            value = self.dialect.number(self._value(family, child), family)
            self._sample(family, suffix, child, value)

    def _value(self, family: Family, child: _Child) -> float:
        if family.constant:
            return family.constant[child.index % len(family.constant)]
        if family.source in self._server_values:
            return self._server_values[family.source]
        return combined(child.parts, family.source, child.variant, family.combine)

    def _histogram(self, family: Family, child: _Child) -> None:
        histogram = combined_histogram(child.parts, family.source)
        number = self.dialect.number
        for part in self.dialect.histogram:
            if part == "bucket":
                self._buckets(family, child, histogram)
            elif part == "count":
                self._sample(family, "_count", child, number(histogram.count, family))
            else:
                self._sample(family, "_sum", child, format_python(histogram.sum))

    def _buckets(self, family: Family, child: _Child, histogram: Histogram) -> None:
        bounds = family.bounds(self.view.engine_config.max_model_len)
        before, after = self._label_text((("le", "\0"), *child.labels)).split("\0")
        start = f"{self._name(family)}_bucket{before}"
        number = self.dialect.number
        self._lines.extend(
            f"{start}{format_python(bound)}{after} {number(count, family)}"
            for bound, count in zip(bounds, histogram.cumulative(bounds), strict=True)
        )
        self._lines.append(f"{start}+Inf{after} {number(histogram.count, family)}")

    def _sample(self, family: Family, suffix: str, child: _Child, value: str) -> None:
        name, labels = self._name(family), self._label_text(child.labels)
        self._lines.append(f"{name}{suffix}{labels} {value}")

    def _name(self, family: Family) -> str:
        return family.name.replace(":", "_") if self.dialect.underscores else family.name

    def _label_text(self, labels: Sequence[tuple[str, str]]) -> str:
        if not labels:
            return ""
        ordered = labels if self.dialect.identity_first else sorted(labels)
        return "{" + ",".join(f'{name}="{value}"' for name, value in ordered) + "}"

    def _children(self, family: Family) -> Iterator[_Child]:
        """Yield the members of a family in the order in which servers write them."""
        owners = self._owners(family)
        variants = self._variants(family)
        # Positions are grouped by engine, all other variants hold the engines together.
        pairs = (
            [(owner, variant) for owner in owners for variant in variants]
            if family.per_position
            else [(owner, variant) for variant in variants for owner in owners]
        )
        for index, ((labels, parts), variant) in enumerate(pairs):
            if not _present(family, parts, variant):
                continue
            extra = ((family.variant_label, variant),) if family.variant_label else ()
            constant = tuple(self._constant_labels(family).items())
            yield _Child((*labels, *constant, *extra), parts, variant, index)

    def _variants(self, family: Family) -> Sequence[str]:
        if family.per_position:
            return [str(position) for position in range(self.view.num_speculative_tokens or 0)]
        return family.variant_values or ("",)

    def _owners(self, family: Family) -> list[tuple[tuple[tuple[str, str], ...], tuple[Measurements, ...]]]:
        """Return the identity labels and the engines of each owner of a sample."""
        engines = self.view.engines
        if family.scope == "server":
            return [((), tuple(engine.measurements for engine in engines))]
        if family.scope == "model":
            return [
                (
                    (("model_name", _escape(model)),),
                    tuple(e.measurements for e in engines if e.model == model),
                )
                for model in dict.fromkeys(engine.model for engine in engines)
            ]
        first = engines[0].model
        return [
            (
                (("model_name", _escape(engine.model)), ("engine", str(engine.index)))
                if family.names_model
                else (("engine", str(engine.index)),),
                (engine.measurements,),
            )
            for engine in engines
            # Without a model name, a second model's samples would have the same labels.
            if family.names_model or engine.model == first
        ]

    def _constant_labels(self, family: Family) -> dict[str, str]:
        if family.source != "cache_config_info":
            return family.labels
        config = self.view.engine_config
        values = {
            "block_size": str(config.block_size),
            "num_gpu_blocks": str(config.kv_cache_tokens // config.block_size),
            "kv_cache_size_tokens": str(config.kv_cache_tokens),
            "kv_cache_max_concurrency": str(config.kv_cache_tokens / config.max_model_len),
        }
        return {name: values.get(name, value) for name, value in family.labels.items()}


def _present(family: Family, parts: Sequence[Measurements], variant: str) -> bool:
    """Whether a sample is there yet."""
    if family.requires == "drafts":
        return any(part.has(family.source, variant) for part in parts)
    key = {"traffic": "http_requests", "v0_sample": "v0_samples"}.get(family.requires)
    return key is None or any(part.has(key) for part in parts)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
