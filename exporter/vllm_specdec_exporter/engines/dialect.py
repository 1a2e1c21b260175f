"""Dialects as data: sample names, recognition, and the meaning of values."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from ..exposition.text import Labels, SampleLine
from .reading import (
    VLLM,
    Counters,
    Drafting,
    EngineKey,
    Latencies,
    Lifetime,
    Load,
    Server,
    Steps,
)

#: Positions become label values; the deepest drafts in use have some 30.
MAX_POSITIONS = 256
#: The counters with one value per position.
PER_POSITION = "accepted_tokens_per_position"
DRAFTED_PER_POSITION = "drafted_tokens_per_position"

#: The labels that identify an engine of a server.
IDENTITY = frozenset({"model_name", "engine"})

#: The fields of the parts of the normal form.
COUNTERS, LOAD, STEPS, LIFETIME_GAUGES, DRAFTING = (
    frozenset(part.__struct_fields__)
    for part in (Counters, Load, Steps, Lifetime, Drafting)
)


class Unrecognized(ValueError):  # noqa: N818 - named like the metric's reason label
    """The response is an exposition, but of no supported server, or of several that
    cannot be separated.
    """


@lru_cache(maxsize=2048)
def identify(
    labels: Labels, parts: frozenset[str], own: str = ""
) -> tuple[EngineKey, str]:
    """Return the engine of a series, and the value of the label `own`, which says what
    the series counts.

    The labels in `parts` name parts of one engine. Each other label separates engines.
    """
    by_name = dict(labels)
    value = by_name.pop(own, "")
    model_name = by_name.pop("model_name", "")
    engine = _encoded(by_name.pop("engine", ""))
    separating = [
        f"{name}={_encoded(text)}"
        for name, text in by_name.items()
        if text and name not in parts
    ]
    return EngineKey(
        model_name, ",".join([engine, *separating] if engine else separating)
    ), value


def _encoded(text: str) -> str:
    return text.replace("%", "%25").replace(",", "%2C").replace("=", "%3D")


@dataclass(frozen=True)
class Dialect:
    """The metric names of one family of inference engines.

    Raises:
        ValueError: a field in `series`, `derived`, `categories` or `histograms` that
            the normal form lacks.
    """

    #: The value of the `dialect` label; begins with `vllm` for vLLM, and for nothing
    #: else.
    name: str
    prefixes: tuple[str, ...]  # prefixes of the sample names, in every known spelling
    #: The sample names (without prefix) of each field of `Counters`, `Load`, `Steps`,
    #: `Drafting` and `Lifetime` in reading.py, the preferred one first. Renamed series
    #: are read under their old names too.
    series: Mapping[str, tuple[str, ...]]
    #: Sample names that identify this dialect, each on its own; by default all in
    #: `series`.
    identifying: frozenset[str] = frozenset()
    excluding: frozenset[str] = frozenset()  # sample names that rule it out
    priority: int = 0  # dialects are tried in descending order of it
    #: The histogram (without prefix) of each field of `Latencies`.
    histograms: Mapping[str, str] = field(default_factory=dict)
    speculative: bool = True  # whether the counters are those of speculative decoding
    #: Relative rounding step of printed counters; 0 if they are exact.
    resolution: float = 0.0
    #: Whether counters increase only when a request finishes.
    counts_finished_requests: bool = False
    #: Likewise for totals that are no fields, and that `derived` computes fields from.
    terms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: By sample name, the field of each value of the label `category`; series of one
    #: field are added up.
    categories: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: The formula of each computed field, in this order. It takes the values of fields,
    #: terms and `info` by name; ``None`` or a missing value leaves the field as it is.
    derived: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(
        default_factory=dict
    )
    info_series: str = ""  # a series whose labels have values, and
    info: tuple[str, ...] = ()  # the names of these labels
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
    server: Server = VLLM  # the kind of server

    def __post_init__(self) -> None:
        unknown = {*self.series, *self.derived}
        unknown.update(*(fields.values() for fields in self.categories.values()))
        unknown -= COUNTERS | LOAD | STEPS | LIFETIME_GAUGES | DRAFTING
        unknown |= set(self.histograms) - set(Latencies.__struct_fields__)
        if unknown:
            raise ValueError(
                f"dialect {self.name}: no such fields in reading.py: "
                f"{', '.join(sorted(unknown))}"
            )

    @cached_property
    def fields(self) -> Mapping[str, tuple[str, int]]:
        """For each sample name, the field and its preference among the names of that
        field; 0 is best.
        """
        return {
            prefix + name: (attribute, preference)
            for attribute, names in (*self.series.items(), *self.terms.items())
            for preference, name in enumerate(names)
            for prefix in self.prefixes
        }

    @cached_property
    def category_fields(self) -> Mapping[str, Mapping[str, str]]:
        """For each sample name with the label `category`, the field of each of its
        values.
        """
        return {
            prefix + name: values
            for name, values in self.categories.items()
            for prefix in self.prefixes
        }

    @cached_property
    def histogram_fields(self) -> Mapping[str, tuple[str, str]]:
        """For each sample name of a histogram, the field and the part: bucket, count or
        sum.
        """
        return {
            f"{prefix}{name}_{part}": (attribute, part)
            for attribute, name in self.histograms.items()
            for part in ("bucket", "count", "sum")
            for prefix in self.prefixes
        }

    @cached_property
    def _identifying(self) -> frozenset[str]:
        return self._prefixed(self.identifying) or frozenset(self.fields)

    @cached_property
    def _excluding(self) -> frozenset[str]:
        return self._prefixed(self.excluding)

    def _prefixed(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(prefix + name for prefix in self.prefixes for name in names)

    @cached_property
    def info_names(self) -> frozenset[str]:
        """The names of the series whose labels have values."""
        return self._prefixed([self.info_series] if self.info_series else [])

    def names(self) -> frozenset[str]:
        """Return every sample name to read, without those of histograms."""
        names = (
            self._identifying
            | self._excluding
            | frozenset(self.fields)
            | self.info_names
        )
        return names | frozenset(self.category_fields)

    @cached_property
    def _parts(self) -> frozenset[str]:
        return self.parts.union(self.ranks, {"pid"})

    def may_be(self, seen: set[str]) -> bool:
        """Return whether any of these sample names identifies this dialect."""
        return not self._identifying.isdisjoint(seen)

    def recognises(self, seen: set[str]) -> bool:
        """Return whether a response with these sample names is in this dialect."""
        return self.may_be(seen) and self._excluding.isdisjoint(seen)

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
        for labels in {line.labels for line in lines}:
            names = {name for name, _ in labels}
            (of_requests if names.isdisjoint(self.ranks) else of_ranks).update(names)
        requests = of_requests - of_ranks if of_ranks else set()
        requests -= IDENTITY
        if requests:
            return self._parts | requests
        return self._parts

    def of_category(self, line: SampleLine) -> tuple[str, int] | None:
        """Return the field of a series by its label `category`, ``None`` if it has
        none.
        """
        values = self.category_fields.get(line.name)
        if values:
            attribute = values.get(dict(line.labels).get("category", ""))
        else:
            attribute = None
        if attribute:
            return (attribute, 0)
        return None

    def of_first_rank(self, lines: Iterable[SampleLine]) -> Iterable[SampleLine]:
        """Return `lines` with one of each set of series that differ only in their
        ranks: the lowest.

        Of a gauge by priority, the series without one is the total, so the others are
        left out. Of a counter it is one more class of requests.
        """
        kept: dict[tuple[str, Labels], tuple[tuple[int, ...], SampleLine]] = {}
        totals = set()
        duplicates = []
        for line in lines:
            by_name = dict(line.labels)
            texts = [by_name.pop(name, "") for name in self.ranks]
            rank = tuple(
                int(text) if text.isascii() and text.isdecimal() else 0
                for text in texts
            )
            series = (line.name, tuple(by_name.items()))
            if series not in kept or rank < kept[series][0]:
                kept[series] = rank, line
            elif rank == kept[series][0]:
                duplicates.append(line)
            gauge = self.fields.get(line.name, ("",))[0] in LOAD
            if by_name.pop("priority", None) == "" and gauge:
                totals.add((line.name, tuple(by_name.items())))
        first = []
        for (name, labels), (_, line) in kept.items():
            without = tuple(pair for pair in labels if pair[0] != "priority")
            if (name, without) not in totals or ("priority", "") in labels:
                first.append(line)
        return first + duplicates
