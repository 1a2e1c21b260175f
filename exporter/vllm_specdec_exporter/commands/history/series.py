"""What of a past is asked for, and the queries for it: the series of inference servers
in a Prometheus. Pure.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping

from msgspec import Struct

from ...engines import DIALECTS, ENGINES
from ...engines.dialect import PER_POSITION, Dialect
from .configuration import Configuration, Replica

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
#: The same of a server as a whole.
_SERVER_LABELS = _REPLICA_LABELS.replace(" model_name,", "")
#: What `cache_config_info` says that a change of drafts leaves as it is: all but the
#: number of blocks.
CACHE_LABELS = (
    "block_size",
    "cache_dtype",
    "enable_prefix_caching",
    "gpu_memory_utilization",
    "num_gpu_blocks",
)
#: Counters whose increases are read: fields of the normal form, the time per output
#: token by requests, the time of their prefills, and the prompt tokens that were looked
#: up in the prefix cache and found there.
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
    "prefill_seconds",
    "prefix_cache_queries",
    "prefix_cache_hits",
)


class PastScope(Struct, frozen=True):
    """Which series, and of which time: Unix times in seconds."""

    since: float
    until: float
    match: str = ""  # matchers of PromQL, separated by commas
    model_name: str = ""
    by_instance: bool = False
    block: float | None = None  # seconds; ``None`` for a length by the data
    #: Times to compare instead of configurations.
    ranges: Mapping[str, tuple[float, float]] | None = None

    @property
    def of_model(self) -> str:
        """The matcher of the model, empty for all."""
        if self.model_name:
            return f"model_name={json.dumps(self.model_name)}"
        return ""

    @property
    def matchers(self) -> str:
        """The matchers of every selector of an engine."""
        return ",".join(filter(None, (self.of_model, self.matchers_of_server)))

    @property
    def matchers_of_server(self) -> str:
        """The chosen matchers, with or without braces as PromQL's selectors have."""
        chosen = self.match.strip().removeprefix("{").removesuffix("}")
        return chosen.strip(" ,")

    def chosen(self, time: float, shown: Configuration) -> Configuration | None:
        """Return the configuration at a time: what is shown, or if ranges are compared,
        the one it is in.
        """
        if self.ranges is None:
            return shown
        for name, (begin, end) in self.ranges.items():
            if begin <= time <= end:
                return Configuration(None, name=name)
        return None

    def group(self, replica: Replica) -> str:
        """Return the name of what a replica belongs to."""
        labels = defaultdict(str, replica)
        names = [labels["model_name"] or "the only model"]
        if self.by_instance:
            names += [
                labels["cluster"],
                labels["namespace"],
                labels["exported_namespace"],
                labels["pod"] or labels["instance"],
                labels["exported_pod"] or labels["exported_instance"],
                labels["ReplicaId"],
            ]
        return " ".join(filter(None, names))


class SeriesFamily(Struct, frozen=True, eq=False):
    """The series of a dialect, by one of its prefixes."""

    dialect: Dialect
    prefix: str
    matchers: str
    matchers_of_server: str = ""  # without the model
    #: Whether histograms are, or were for a time, native: without series for sum and
    #: count.
    native: bool = False

    @property
    def gauge(self) -> str:
        """The gauge that each replica has."""
        return self.names("requests_running")[0]

    @property
    def native_histogram(self) -> str:
        """The series that a native histogram has, and a classic one lacks."""
        return f"{self.prefix}{self.dialect.histograms['time_to_first_token']}"

    def names(self, field: str) -> tuple[str, ...]:
        """Return the sample names of a field, the preferred one first; none if the
        dialect lacks it.
        """
        names = self.dialect.series.get(field, ())
        if field.startswith("tpot"):
            histogram = self.dialect.histograms["time_per_output_token"]
            names = (histogram + field.removeprefix("tpot"),)
        elif field == "prefill_seconds" and self.dialect.prefill_histogram:
            names = (f"{self.dialect.prefill_histogram}_sum",)
        return tuple(
            f"{self.prefix}{name}"
            for name in names
            if self.dialect.has(self.prefix, name)
        )

    def by_replica(self, function: str, name: str, *labels: str) -> str:
        """Return the expression of a function of a sample over a step, by further
        labels.

        Increases and loads of the parts of an engine are added up.
        """
        together = "sum" if function in ("increase", "avg_over_time") else "max"
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
        return _selected(name, self.matchers)

    def field(self, function: str, field: str) -> str:
        """Return the expression of a function of a field over a step, with its
        preferred name.
        """
        return " or ".join(
            self.by_replica(function, name) for name in self.names(field)
        )

    def cache(self) -> str:
        """Return the expression of the configurations of the KV cache, which have no
        model's name; empty if the dialect has none.
        """
        if not self.dialect.cache_info:
            return ""
        name = f"{self.prefix}{self.dialect.cache_info}"
        by = ", ".join((_SERVER_LABELS, *CACHE_LABELS))
        samples = _selected(name, self.matchers_of_server)
        return f"max by ({by}) (last_over_time({samples}))"

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


def _selected(name: str, matchers: str) -> str:
    """Return the samples of a series within a step."""
    of_series = ",".join(filter(None, (f'__name__="{name}"', matchers)))
    return f"{{{of_series}}}[$step]"


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
