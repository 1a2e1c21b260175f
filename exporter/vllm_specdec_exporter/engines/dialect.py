"""Dialects as data (sample names, recognition, meaning of values), and the conversion to the normal form."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from ..exposition.histogram import Histogram
from ..exposition.text import MalformedExposition, SampleLine
from .reading import Counters, EngineKey, EngineReading, Latencies, Lifetime, Load, Reading, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


Labels = tuple[tuple[str, str], ...]

#: Limits of a response. Positions and engines become label values, so they bound the cardinality.
MAX_POSITIONS = 256
MAX_ENGINES = 256
#: Positions of all engines together: each becomes ten series. With more, none is read.
MAX_ALL_POSITIONS = 2048
MAX_LABEL = 1024
#: Reported defects per engine.
MAX_DEFECTS = 10
#: Largest count; sums of larger ones may overflow.
MAX_VALUE = 1e18

_MAX_QUOTED = 400  # characters of a series' labels in an error

#: The counter with one value per position.
PER_POSITION = "accepted_tokens_per_position"

#: The fields of the parts of the normal form.
COUNTERS, LOAD, STEPS, LIFETIME_GAUGES = (
    frozenset(f.name for f in fields(part)) for part in (Counters, Load, Steps, Lifetime)
)
#: Maximum of the gauges that are ratios.
_GAUGE_MAXIMUM: Mapping[str, float] = {"kv_cache_usage_ratio": 1.0}

#: How to merge series of one engine that differ only in ignored labels, such as ``pid``. Others are added.
_MERGE: Mapping[str, Callable[[float, float], float]] = {
    "kv_cache_usage_ratio": max,
    "created": max,
    "lifetime_acceptance_ratio": max,
    "lifetime_efficiency": max,
}


@dataclass(frozen=True)
class Dialect:
    """The metric names of one family of inference engines.

    Attributes:
        name: the value of the `dialect` label; begins with `vllm` for vLLM, and for nothing else.
        prefixes: prefixes of the sample names, in every known spelling.
        series: the sample names (without prefix) of each field of `Counters`, `Load`, `Steps` and `Lifetime`
            in reading.py, the preferred one first. Renamed series are read under their old names too.
        identifying: sample names that identify this dialect, each on its own; by default all in `series`.
        excluding: sample names that rule it out.
        priority: dialects are tried in descending order of it.
        histograms: the histogram (without prefix) of each field of `Latencies`.
        speculative: whether the counters are those of speculative decoding.
        resolution: relative rounding step of printed counters; 0 if they are exact.
        counts_finished_requests: whether counters increase only when a request finishes.

    Raises:
        ValueError: a key of `series` or `histograms` that is no field of the normal form.
    """

    name: str
    prefixes: tuple[str, ...]
    series: Mapping[str, tuple[str, ...]]
    identifying: frozenset[str] = frozenset()
    excluding: frozenset[str] = frozenset()
    priority: int = 0
    histograms: Mapping[str, str] = field(default_factory=dict)
    speculative: bool = True
    resolution: float = 0.0
    counts_finished_requests: bool = False

    def __post_init__(self) -> None:
        unknown = set(self.series) - COUNTERS - LOAD - STEPS - LIFETIME_GAUGES
        unknown |= set(self.histograms) - {f.name for f in fields(Latencies)}
        if unknown:
            raise ValueError(
                f"dialect {self.name}: no such fields in reading.py: {', '.join(sorted(unknown))}"
            )

    @cached_property
    def fields(self) -> Mapping[str, tuple[str, int]]:
        """For each sample name, the field and its preference among the names of that field; 0 is best."""
        return {
            prefix + name: (attribute, preference)
            for attribute, names in self.series.items()
            for preference, name in enumerate(names)
            for prefix in self.prefixes
        }

    @cached_property
    def histogram_fields(self) -> Mapping[str, tuple[str, str]]:
        """For each sample name of a histogram, the field and the part: bucket, count or sum."""
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

    def names(self) -> frozenset[str]:
        """Return every sample name to read, without those of histograms."""
        return self._identifying | self._excluding | frozenset(self.fields)

    def recognises(self, seen: set[str]) -> bool:
        """Return whether a response with these sample names is in this dialect."""
        return not self._identifying.isdisjoint(seen) and self._excluding.isdisjoint(seen)


#: The values of an engine: by field and preference among its names, then by position (or None).
_Found = dict[tuple[str, int], dict[int | None, float]]


def normalise(dialect: Dialect, lines: Iterable[SampleLine]) -> Reading:
    """Return the normal form of the samples of one response.

    Raises:
        MalformedExposition: a counter that is negative or not finite, a duplicate series, an invalid
            position, or a limit is exceeded.
    """
    engines: dict[EngineKey, _Found] = {}
    seen: set[tuple[tuple[str, int], Labels]] = set()
    defects: dict[EngineKey, list[str]] = {}
    for line in lines:
        entry = dialect.fields.get(line.name)
        if entry is None:
            continue
        series = (entry, line.labels)  # without the name: two spellings of one series must not be added
        if series in seen:
            raise MalformedExposition(f"duplicate series {line.name}{_show(line.labels)}")
        seen.add(series)
        attribute = entry[0]
        key, position = _identify(line.labels)
        if max(len(key.model_name), len(key.engine)) > MAX_LABEL:
            raise MalformedExposition(f"{line.name}: a label of more than {MAX_LABEL} characters")
        if key not in engines and len(engines) >= MAX_ENGINES:
            raise MalformedExposition(f"more than {MAX_ENGINES} engines in one response")
        values = engines.setdefault(key, {}).setdefault(entry, {})
        if attribute in LIFETIME_GAUGES and math.isnan(line.value):
            continue  # V0 before its first draft
        if not 0 <= line.value <= _GAUGE_MAXIMUM.get(attribute, MAX_VALUE):
            if attribute in COUNTERS:
                series_text = f"{line.name}{_show(line.labels)}"
                raise MalformedExposition(
                    f"{series_text} is {line.value}: a counter must be from 0 to {MAX_VALUE:g}"
                )
            defects.setdefault(key, []).append(f"{line.name} is {line.value}")
            continue
        if attribute != PER_POSITION:
            position = None
        elif position is None:
            raise MalformedExposition(f"{line.name}{_show(line.labels)} has no valid position label")
        if position in values:
            merge = _MERGE.get(attribute)
            values[position] = merge(values[position], line.value) if merge else values[position] + line.value
        else:
            values[position] = line.value
    _limit_positions(engines, defects)
    return Reading(
        dialect=dialect.name,
        engines=tuple(_engine(key, engines[key], defects.get(key, []), dialect) for key in sorted(engines)),
        speculative=dialect.speculative,
    )


def _limit_positions(engines: dict[EngineKey, _Found], defects: dict[EngineKey, list[str]]) -> None:
    """Drop the values per position of all engines if there are too many."""
    places = [(key, entry) for key, found in engines.items() for entry in found if entry[0] == PER_POSITION]
    if sum(len(engines[key][entry]) for key, entry in places) <= MAX_ALL_POSITIONS:
        return
    for key, entry in places:
        del engines[key][entry]
        defects.setdefault(key, []).append(
            f"more than {MAX_ALL_POSITIONS} positions in one response: per-position values ignored"
        )


def _engine(
    key: EngineKey,
    found: _Found,
    defects: list[str],
    dialect: Dialect,
) -> EngineReading:
    scalars: dict[str, float] = {}
    positions: tuple[float, ...] = ()
    for (attribute, _), values in sorted(found.items(), key=lambda item: item[0], reverse=True):
        # The preferred name comes last and overwrites the others.
        if attribute == PER_POSITION:
            present = sorted(p for p in values if p is not None)
            if present == list(range(len(present))):
                positions = tuple(values[p] for p in present)
            else:
                shown = ", ".join(map(str, present))
                defects.append(f"positions with gaps ({shown}): per-position values ignored")
        elif None in values:
            scalars[attribute] = values[None]
    if scalars.get("accepted_tokens") and not positions and not defects:
        defects.append("accepted tokens without any per-position series")

    def part(names: frozenset[str]) -> dict[str, float]:
        return {name: scalars[name] for name in names & scalars.keys()}

    return EngineReading(
        key=key,
        counters=Counters(
            accepted_tokens_per_position=positions, resolution=dialect.resolution, **part(COUNTERS)
        ),
        load=Load(**part(LOAD)),
        steps=Steps(**part(STEPS)),
        lifetime=Lifetime(**part(LIFETIME_GAUGES))
        if any(attribute in LIFETIME_GAUGES for attribute, _ in found)
        else None,
        counts_finished_requests=dialect.counts_finished_requests,
        defects=tuple(defects[:MAX_DEFECTS]),
    )


@lru_cache(maxsize=1024)
def _identify(labels: Labels) -> tuple[EngineKey, int | None]:
    """Return the engine of a series, and its position if it has a valid one."""
    by_name = dict(labels)
    text = by_name.get("position", "")
    position = int(text) if text.isascii() and text.isdecimal() and len(text) <= 3 else None
    if position is not None and position >= MAX_POSITIONS:
        position = None
    return EngineKey(by_name.get("model_name", ""), by_name.get("engine", "")), position


def _show(labels: Labels) -> str:
    text = ",".join(f'{name}="{value[:80]}"' for name, value in labels)
    # Untrusted text: no control characters for the terminal, bounded length for the log.
    clean = "".join(c if c.isprintable() else " " for c in text[:_MAX_QUOTED])
    return f"{{{clean}{'…' if len(text) > _MAX_QUOTED else ''}}}"


#: Counts by upper bound; count and sum of the histogram have the keys below.
_Parts = dict[float, float]
_COUNT, _SUM = -1.0, -2.0


def read_latencies(dialect: Dialect, lines: Iterable[SampleLine], reading: Reading) -> Reading:
    """Return `reading` with the latencies in `lines`.

    Raises:
        MalformedExposition: a value that is negative or not finite, or a bucket without a valid bound.
    """
    found: dict[EngineKey, dict[str, _Parts]] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    for line in lines:
        entry = dialect.histogram_fields.get(line.name)
        if entry is None:
            continue
        attribute, part = entry
        labels = dict(line.labels)
        if not 0 <= line.value <= MAX_VALUE:
            raise MalformedExposition(f"{line.name} is {line.value}: it must be from 0 to {MAX_VALUE:g}")
        key = EngineKey(labels.get("model_name", ""), labels.get("engine", ""))
        place = {"count": _COUNT, "sum": _SUM}.get(part)
        # Series that differ only in ignored labels, such as pid, are added.
        found[key][attribute][_bound(line, labels) if place is None else place] += line.value
    engines = tuple(
        replace(engine, latencies=_latencies(found.get(engine.key, {}))) for engine in reading.engines
    )
    return replace(reading, engines=engines)


def _bound(line: SampleLine, labels: Mapping[str, str]) -> float:
    try:
        bound = float(labels["le"])
    except (KeyError, ValueError):
        bound = math.nan
    if not bound >= 0:
        raise MalformedExposition(f"{line.name} has no valid le label")
    return bound


def _latencies(found: Mapping[str, _Parts]) -> Latencies:
    return Latencies(**{attribute: _histogram(parts) for attribute, parts in found.items()})


def _histogram(parts: _Parts) -> Histogram:
    bounds = tuple(sorted(bound for bound in parts if 0 <= bound < math.inf))
    counts, most = [], 0.0
    for bound in bounds:
        most = max(most, parts[bound])  # buckets may have been read at slightly different times
        counts.append(most)
    return Histogram(
        bounds=bounds,
        counts=tuple(counts),
        count=max(most, parts.get(_COUNT, 0.0), parts.get(math.inf, 0.0)),
        sum=parts.get(_SUM, 0.0),
    )
