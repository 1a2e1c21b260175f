"""The series of inference servers in a Prometheus, and the queries for them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...engines import DIALECTS, ENGINES
from ...engines.dialect import PER_POSITION, Dialect

#: Dialects whose series have a time per output token, or one of a step.
READ_DIALECTS = tuple(dialect for dialect in DIALECTS if dialect.stored)
_READ_ENGINES = [dialect.engine for dialect in READ_DIALECTS]
#: Their engines, and the gauges that show them, for errors.
ENGINE_NAMES = [engine.name for engine in ENGINES if engine in _READ_ENGINES]
GAUGES = [
    f"{dialect.prefixes[0]}{dialect.series['requests_running'][0]}"
    for dialect in READ_DIALECTS
]
#: Labels that tell replicas apart, `exported_` after federation without `honor_labels`.
#: Series that differ only in others, such as `node` or `host`, are of several
#: Prometheus servers with the same targets.
_REPLICA_LABELS = (
    "cluster, namespace, job, pod, instance, ReplicaId, engine, model_name, "
    "exported_namespace, exported_job, exported_pod, exported_instance"
)
#: Counters whose increases are read: fields of the normal form, and the time per output
#: token by requests.
COUNTERS = (
    "generation_tokens",
    "requests",
    "prompt_tokens",
    "step_seconds",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "tpot_sum",
    "tpot_count",
)


@dataclass(frozen=True, slots=True, eq=False)
class SeriesFamily:
    """The series of a dialect, by one of its prefixes."""

    dialect: Dialect
    prefix: str
    matchers: str
    #: Whether histograms are, or were for a time, native: without series for sum and
    #: count.
    native: bool

    def names(self, field: str) -> tuple[str, ...]:
        """Return the sample names of a field, the preferred one first; none if the
        dialect lacks it.
        """
        names = self.dialect.series.get(field, ())
        if field.startswith("tpot"):
            histogram = self.dialect.histograms["time_per_output_token"]
            names = (histogram + field.removeprefix("tpot"),)
        return tuple(f"{self.prefix}{name}" for name in names)

    def by_replica(self, function: str, name: str, *labels: str) -> str:
        """Return the expression of a function of a sample over a step, by further
        labels.

        Increases and loads of the parts of an engine are added up.
        """
        together = "max"
        if function in ("increase", "avg_over_time"):
            together = "sum"
        values = [f"{function}({self._samples(name)})"]
        histogram, _, part = name.rpartition("_")
        if self.native and part in ("sum", "count"):
            values.append(f"histogram_{part}({function}({self._samples(histogram)}))")
        of_engine = ", ".join(sorted(self.dialect.parts))
        by = ", ".join((_REPLICA_LABELS, *labels))
        return (
            f"max by ({by}) ({together} without ({of_engine}) ({' or '.join(values)}))"
        )

    def _samples(self, name: str) -> str:
        matchers = [f'__name__="{name}"']
        if self.matchers:
            matchers.append(self.matchers)
        return f"{{{','.join(matchers)}}}[$step]"

    def field(self, function: str, field: str) -> str:
        """Return the expression of a function of a field over a step, with its
        preferred name.
        """
        return " or ".join(
            self.by_replica(function, name) for name in self.names(field)
        )

    def k(self) -> str:
        """Return the expression of K: 0 without speculation, and -1 for one with an
        unknown K.

        vLLM has these series as soon as it starts: one for each position, but V0 only
        its draft tokens.
        """
        none = f"0 * {self.field('last_over_time', 'requests_running')}"
        if PER_POSITION not in self.dialect.series:
            k = self.field("last_over_time", "verified_tokens")
            return f"clamp_min({k} - 1, 0) or {none}"
        (name,) = self.names(PER_POSITION)
        by_position = self.by_replica("last_over_time", name, "position")
        positions = f"count by ({_REPLICA_LABELS}) ({by_position})"
        unknown = f"(0 * {self.field('last_over_time', 'draft_tokens')} - 1)"
        return f"{positions} or {unknown} or {none}"


def common_keys(labels: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield what a replica and the exporter's series of it have in common, the surest
    first.
    """
    model = labels.get("model_name", "")
    namespace = labels.get("namespace", "")
    target = labels.get("target", "").partition("://")[2].partition("/")[0]
    yield (model, "target", target or labels.get("instance", ""))
    yield (model, "pod", namespace, labels.get("pod", ""))
    yield (model, "namespace", namespace)
    yield (model,)
