"""Dialects as data: sample names, recognition, and the meaning of values."""

from collections.abc import Callable, Iterable, Mapping, Set
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from msgspec import Struct

from ..exposition.text import Labels, LongLabels, SampleLine
from .engine import Engine
from .reading import Counters, Drafting, EngineKey, Latencies, Lifetime, Load, Steps

#: The formula of a computed field. It takes the values of fields, terms and `info` by
#: name; ``None`` or a missing value leaves the field as it is.
Formula = Callable[[Mapping[str, Any]], Any]
#: A field, and the preference among its names; 0 is best.
Entry = tuple[str, int]
_T = TypeVar("_T")

#: Positions become label values; the deepest drafts in use have some 30.
MAX_POSITIONS = 256
#: The counters with one value per position.
PER_POSITION = "accepted_tokens_per_position"
DRAFTED_PER_POSITION = "drafted_tokens_per_position"

#: The labels that identify an engine of a server.
IDENTITY = frozenset({"model_name", "engine"})

#: The fields of the parts of the normal form.
COUNTERS = frozenset(Counters.__struct_fields__)
LOAD = frozenset(Load.__struct_fields__)
LIFETIME_GAUGES = frozenset(Lifetime.__struct_fields__)
_FIELDS = COUNTERS.union(
    LOAD,
    Steps.__struct_fields__,
    LIFETIME_GAUGES,
    Drafting.__struct_fields__,
)
_LATENCIES = frozenset(Latencies.__struct_fields__)


class Unrecognized(ValueError):  # noqa: N818 - named like the metric's reason label
    """The response is an exposition, but of no supported server, or of several that
    cannot be separated.
    """


def identify(
    labels: Labels, parts: frozenset[str], own: str = ""
) -> tuple[EngineKey, str]:
    """Return the engine of a series, and the value of the label `own`, which says what
    the series counts.

    The labels in `parts` name parts of one engine. Each other label separates engines.
    Short labels are remembered, because every poll returns the same ones.
    """
    if isinstance(labels, LongLabels):
        return _identity(labels, parts, own)
    return _remembered_identity(labels, parts, own)


def _identity(labels: Labels, parts: frozenset[str], own: str) -> tuple[EngineKey, str]:
    by_name = dict(labels)
    value = by_name.pop(own, "")
    model_name = by_name.pop("model_name", "")
    separating = []
    engine = by_name.pop("engine", "")
    if engine:
        separating.append(_encoded(engine))
    for name, text in by_name.items():
        if text and name not in parts:
            separating.append(f"{name}={_encoded(text)}")
    return EngineKey(model_name, ",".join(separating)), value


_remembered_identity = lru_cache(maxsize=2048)(_identity)


def _encoded(text: str) -> str:
    return text.replace("%", "%25").replace(",", "%2C").replace("=", "%3D")


class Dialect(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The metric names of one family of inference engines.

    Raises:
        ValueError: a field in `series`, `derived`, `categories` or `histograms` that
            the normal form lacks.
    """

    # `dict=True` is for the cached properties: tables by sample name, made once.

    #: The value of the `dialect` label.
    name: str
    engine: Engine  # what it is the dialect of
    server: str  # the servers that have it, for the documentation
    prefixes: tuple[str, ...]  # prefixes of the sample names, in every known spelling
    #: The sample names (without prefix) of each field of `Counters`, `Load`, `Steps`,
    #: `Drafting` and `Lifetime` in reading.py, the preferred one first. Renamed series
    #: are read under their old names too.
    series: Mapping[str, tuple[str, ...]]
    #: Those of `prefixes` under which the sum of a histogram is not that of what was
    #: observed, so it is not read.
    without_sums: tuple[str, ...] = ()
    #: Sample names that identify this dialect, each on its own; by default all in
    #: `series`.
    identifying: frozenset[str] = frozenset()
    excluding: frozenset[str] = frozenset()  # sample names that rule it out
    priority: int = 0  # dialects are tried in descending order of it
    #: The histogram (without prefix) of each field of `Latencies`.
    histograms: Mapping[str, str] = {}
    #: The histogram (without prefix) of the time from when a request is scheduled to
    #: its first token, which `history` queries; empty if there is none.
    prefill_histogram: str = ""
    #: The series (without prefix) whose labels have the KV cache's configuration, which
    #: `history` queries; empty if there is none.
    cache_info: str = ""
    speculative: bool = True  # whether the counters are those of speculative decoding
    #: Relative rounding step of printed counters; 0 if they are exact.
    resolution: float = 0.0
    #: Whether counters increase only when a request finishes.
    counts_finished_requests: bool = False
    #: Whether a part of the drafts may not be counted, although their tokens are.
    misses_drafts: bool = False
    #: Likewise for totals that are no fields, and that `derived` computes fields from.
    terms: Mapping[str, tuple[str, ...]] = {}
    #: By sample name, the field of each value of `category_label`; series of one field
    #: are added up.
    categories: Mapping[str, Mapping[str, str]] = {}
    #: The formula of each computed field, in this order.
    derived: Mapping[str, Formula] = {}
    info_series: tuple[str, ...] = ()  # series whose labels have values, and
    info: tuple[str, ...] = ()  # the names of these labels
    category_label: str = "category"  # the label whose values are of several fields
    position_label: str = "position"  # the label that has the position
    #: Labels of the processes of one engine, which all print the same. The first
    #: process counts.
    ranks: tuple[str, ...] = ()
    #: Other labels that name a part of one engine, such as one of its processes or a
    #: class of its requests. Their series are added up. `pid` is one in every dialect:
    #: prometheus_client gives it to gauges of several processes. Any label that is in
    #: neither list separates engines.
    parts: frozenset[str] = frozenset()
    #: Value of the label `engine_type` of engines that never verify a draft.
    passive: str = ""
    uncounted: str = ""  # why this dialect does not count drafts, empty if it does
    #: Why the counter of drafts may be missing although tokens were generated.
    missing: str = ""
    #: Whether a Prometheus that has stored its series knows a time per output token, or
    #: one of a step.
    stored: bool = False
    note: str = ""  # what its users need to know, for the documentation

    def __post_init__(self) -> None:
        fields = {*self.series, *self.derived}
        for field_by_category in self.categories.values():
            fields.update(field_by_category.values())
        unknown = (fields - _FIELDS) | (self.histograms.keys() - _LATENCIES)
        if unknown:
            raise ValueError(
                f"dialect {self.name}: no such fields in reading.py: "
                f"{', '.join(sorted(unknown))}"
            )

    @property
    def k_in_records(self) -> bool:
        """Whether records of requests have drafted tokens computed from the K that its
        series show.
        """
        record = self.engine.record
        return record is not None and record.from_configured_k and not self.uncounted

    @cached_property
    def fields(self) -> Mapping[str, Entry]:
        """For each sample name, the field and its preference among the names of that
        field; 0 is best.
        """
        entries = {}
        for field, names in {**self.series, **self.terms}.items():
            for preference, name in enumerate(names):
                entries[name] = (field, preference)
        return self._spelled(entries)

    @cached_property
    def category_fields(self) -> Mapping[str, Mapping[str, str]]:
        """For each sample name with `category_label`, the field of each of its
        values.
        """
        return self._spelled(self.categories)

    @cached_property
    def histogram_fields(self) -> Mapping[str, tuple[str, str]]:
        """For each sample name of a histogram, the field and the part: bucket, count or
        sum.
        """
        entries = {}
        for field, name in self.histograms.items():
            for part in ("bucket", "count", "sum"):
                entries[f"{name}_{part}"] = (field, part)
        return self._spelled(entries)

    @cached_property
    def info_names(self) -> frozenset[str]:
        """The names of the series whose labels have values."""
        return self._spellings(self.info_series)

    @cached_property
    def _identifying(self) -> frozenset[str]:
        return self._spellings(self.identifying) or frozenset(self.fields)

    @cached_property
    def _excluding(self) -> frozenset[str]:
        return self._spellings(self.excluding)

    def _spellings(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(self._spelled(dict.fromkeys(names)))

    def _spelled(self, entries: Mapping[str, _T]) -> Mapping[str, _T]:
        """Return what belongs to names without prefix by sample name, in every
        spelling.
        """
        by_sample_name = {}
        for prefix in self.prefixes:
            for name, entry in entries.items():
                if self.has(prefix, name):
                    by_sample_name[prefix + name] = entry
        return by_sample_name

    def has(self, prefix: str, name: str) -> bool:
        """Return whether a series with one of the prefixes is what its name says."""
        return not (name.endswith("_sum") and prefix in self.without_sums)

    def names(self) -> frozenset[str]:
        """Return every sample name to read, without those of histograms."""
        recognised_by = self._identifying | self._excluding
        return recognised_by.union(self.fields, self.category_fields, self.info_names)

    @cached_property
    def _parts(self) -> frozenset[str]:
        return self.parts.union(self.ranks, {"pid"})

    def may_be(self, names: Set[str]) -> bool:
        """Return whether any of these sample names identifies this dialect."""
        return not self._identifying.isdisjoint(names)

    def recognises(self, names: Set[str]) -> bool:
        """Return whether a response with these sample names is in this dialect."""
        return self.may_be(names) and self._excluding.isdisjoint(names)

    def parts_in(self, lines: Iterable[SampleLine]) -> frozenset[str]:
        """Return the labels in a response that name parts of one engine.

        A server whose processes have ranks may give the requests that it counts labels
        of the client's choice. The series of its ranks lack them, while a label that a
        gateway adds is in all series.
        """
        if not self.ranks:
            return self._parts
        of_ranks: set[str] = set()
        of_requests: set[str] = set()
        # Most series share their labels.
        for labels in {line.labels for line in lines}:
            names = dict(labels).keys()
            if names.isdisjoint(self.ranks):
                of_requests |= names
            else:
                of_ranks |= names
        if not of_ranks:
            return self._parts
        return self._parts | (of_requests - of_ranks - IDENTITY)

    def of_category(self, line: SampleLine) -> Entry | None:
        """Return the field of a series by its `category_label`, ``None`` if it has
        none.
        """
        values = self.category_fields.get(line.name)
        if values is None:
            return None
        field = values.get(dict(line.labels).get(self.category_label, ""))
        if field is None:
            return None
        return field, 0
