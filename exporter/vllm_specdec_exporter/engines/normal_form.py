"""The conversion of the samples of one response to the normal form, its latency
histograms on demand.
"""

import contextlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from ..exposition.histogram import Histogram
from ..exposition.text import Labels, MalformedExposition, SampleLine
from .dialect import (
    COUNTERS,
    DRAFTED_PER_POSITION,
    DRAFTING,
    LIFETIME_GAUGES,
    LOAD,
    MAX_POSITIONS,
    PER_POSITION,
    STEPS,
    Dialect,
    Unrecognized,
    identify,
)
from .reading import (
    Counters,
    Drafting,
    EngineKey,
    EngineReading,
    Latencies,
    Lifetime,
    Load,
    Reading,
    Steps,
)

#: Engines become label values, so they bound the cardinality; large deployments have 64
#: ranks.
MAX_ENGINES = 256
#: Positions of all engines together, 32 of each of 64: each becomes ten series. With
#: more, none is read.
MAX_ALL_POSITIONS = 2048
MAX_LABEL = 1024  # characters; model names are paths of some 100
#: Characters of labels in all series: an engine has 60, a position ten. 256 names of
#: 100 characters fit in.
MAX_PUBLISHED = 8 * 1024 * 1024
MAX_DEFECTS = 10  # reported defects per engine: enough to see what is wrong
#: A million tokens a second for 30,000 years; squares of more may overflow.
MAX_VALUE = 1e18
_MAX_QUOTED = 400  # characters of a series' labels in an error: four long ones

_PER_POSITION = frozenset({PER_POSITION, DRAFTED_PER_POSITION})

#: Maximum of the gauges that are ratios, or count the tokens of a draft.
_GAUGE_MAXIMUM: Mapping[str, float] = {
    "kv_cache_usage_ratio": 1.0,
    "verified_tokens": MAX_POSITIONS,
    "draft_steps": MAX_POSITIONS,
}

#: Of series of one engine that differ only in its parts, such as ``pid``, the largest
#: of these counts. Others are added.
_MERGED_BY_MAXIMUM = _GAUGE_MAXIMUM.keys() | {
    "created",
    "lifetime_acceptance_ratio",
    "lifetime_efficiency",
}

#: The values of an engine: by field and preference among its names, then by position
#: (or None).
_Values = dict[tuple[str, int], dict[int | None, float]]


def normalise(
    dialect: Dialect, lines: Iterable[SampleLine], process: str = ""
) -> Reading:
    """Return the normal form of the samples of one response.

    Raises MalformedExposition for a counter that is negative or not finite, a duplicate
    series, an invalid position, and beyond a limit; Unrecognized for several servers
    that no label separates.
    """
    lines = tuple(lines)
    parts = dialect.parts_in(lines)
    infos, passive = (
        _said_in_labels(dialect, lines, parts)
        if "engine_type" in dialect.parts
        else ({}, set())
    )
    collected = _Collected(dialect, parts)
    for line in dialect.of_first_rank(lines) if dialect.ranks else lines:
        collected.add(line)
    collected.limit_series()
    return Reading(
        dialect=dialect.name,
        engines=tuple(
            _engine(
                key,
                values,
                collected.defects[key],
                dialect,
                infos.get(key, {}),
                _PASSIVE if key in passive else dialect.uncounted,
            )
            for key, values in sorted(collected.engines.items(), key=itemgetter(0))
        ),
        speculative=dialect.speculative,
        server=dialect.server,
        process=process,
    )


class _Collected:
    """The values and defects of every engine in one response."""

    def __init__(self, dialect: Dialect, parts: frozenset[str]) -> None:
        self.engines: dict[EngineKey, _Values] = {}
        self.defects: defaultdict[EngineKey, list[str]] = defaultdict(list)
        self._dialect = dialect
        self._parts = parts
        self._seen: set[tuple[tuple[str, int], Labels]] = set()

    def add(self, line: SampleLine) -> None:
        """Add a sample, if the dialect reads it; series that differ only in parts of an
        engine are merged.
        """
        entry = self._dialect.fields.get(line.name)
        own = ""
        if entry is None:
            entry = self._dialect.of_category(line)
            own = "category"
        if entry is None:
            return
        # without the name: two spellings of one series must not be added
        series = (entry, line.labels)
        if series in self._seen:
            raise MalformedExposition(
                f"duplicate series {line.name}{_show(line.labels)}"
            )
        self._seen.add(series)
        attribute = entry[0]
        if attribute in _PER_POSITION:
            own = self._dialect.position_label
        key, text = identify(line.labels, self._parts, own)
        values = self._values_of(key, line).setdefault(entry, {})
        if attribute in LIFETIME_GAUGES and math.isnan(line.value):
            return  # V0 before its first draft
        if not 0 <= line.value <= _GAUGE_MAXIMUM.get(attribute, MAX_VALUE):
            self._reject(key, attribute, line)
            return
        position = _position(text) if attribute in _PER_POSITION else None
        if position is None and attribute in _PER_POSITION:
            raise MalformedExposition(
                f"{line.name}{_show(line.labels)} has no valid position label"
            )
        if attribute in _MERGED_BY_MAXIMUM:
            values[position] = max(values.get(position, 0.0), line.value)
        else:
            values[position] = values.get(position, 0.0) + line.value

    def _values_of(self, key: EngineKey, line: SampleLine) -> _Values:
        """Return the values of an engine, within the limits of a response."""
        if max(len(key.model_name), len(key.engine)) > MAX_LABEL:
            raise MalformedExposition(
                f"{line.name}: a label of more than {MAX_LABEL} characters"
            )
        if key not in self.engines and len(self.engines) >= MAX_ENGINES:
            parts = ",".join(own.engine for own in self.engines).split(",")
            labels = ", ".join(
                sorted({part.rpartition("=")[0] or "engine" for part in parts})
            )
            raise MalformedExposition(
                f"more than {MAX_ENGINES} engines in one response, by {labels}"
            )
        return self.engines.setdefault(key, {})

    def _reject(self, key: EngineKey, attribute: str, line: SampleLine) -> None:
        """Refuse the response for an impossible counter; of a gauge, only note it."""
        if attribute in COUNTERS or attribute in self._dialect.terms:
            series = f"{line.name}{_show(line.labels)}"
            raise MalformedExposition(
                f"{series} is {line.value}: a counter must be from 0 to {MAX_VALUE:g}"
            )
        self.defects[key].append(f"{line.name} is {line.value}")

    def limit_series(self) -> None:
        """Drop the values per position if there are too many; MalformedExposition for
        too much text.
        """
        engines = self.engines
        places = [
            (key, entry)
            for key in engines
            for entry in engines[key]
            if entry[0] in _PER_POSITION
        ]
        positions = Counter[EngineKey]()
        for key, entry in places:
            positions[key] += len(engines[key][entry])
        if (
            sum(len("".join(key)) * (60 + 10 * positions[key]) for key in engines)
            > MAX_PUBLISHED
        ):
            raise MalformedExposition(
                f"its labels would take {MAX_PUBLISHED} characters of /metrics or more"
            )
        if positions.total() <= MAX_ALL_POSITIONS:
            return
        for key, entry in places:
            del engines[key][entry]
            self.defects[key].append(
                f"more than {MAX_ALL_POSITIONS} positions in one response: "
                "per-position values ignored"
            )


_PASSIVE = "a prefill worker: the decode workers verify drafts and count them"


def _said_in_labels(
    dialect: Dialect, lines: Iterable[SampleLine], parts: frozenset[str]
) -> tuple[dict[EngineKey, dict[str, str]], set[EngineKey]]:
    """Return the labels of each engine's info series, and the engines that never verify
    a draft.

    Raises Unrecognized for two types of engine that only their type separates.
    """
    infos: dict[EngineKey, Labels] = {}
    types: dict[tuple[EngineKey, str], str] = {}
    identifying = {
        name
        for line in lines
        if line.name not in dialect.info_names
        for name, _ in line.labels
    }
    for line in lines:
        own = "category" if line.name in dialect.category_fields else ""
        key = identify(
            tuple(pair for pair in line.labels if pair[0] in identifying), parts, own
        )[0]
        if line.name in dialect.info_names:
            infos[key] = max(line.labels, infos.get(key, ()))
        kind = dict(line.labels).get("engine_type", "")
        if types.setdefault((key, line.name), kind) != kind:
            raise Unrecognized(
                "several servers in one response, separated by engine_type alone: "
                "poll each of them itself"
            )
    passive = {
        key for (key, _), kind in types.items() if kind and kind == dialect.passive
    }
    return {key: dict(labels) for key, labels in infos.items()}, passive


def _engine(
    key: EngineKey,
    values: _Values,
    defects: list[str],
    dialect: Dialect,
    infos: Mapping[str, str],
    uncounted: str,
) -> EngineReading:
    scalars: dict[str, Any] = {}
    gap = ""
    for (attribute, _), by_position in sorted(
        values.items(), key=itemgetter(0), reverse=True
    ):
        # The preferred name comes last and overwrites the others.
        if attribute in _PER_POSITION:
            present = sorted(p for p in by_position if p is not None)
            if present == list(range(len(present))):
                scalars[attribute] = tuple(by_position[p] for p in present)
            else:
                shown = ", ".join(map(str, present))
                gap = f"positions with gaps ({shown}): per-position values ignored"
                defects.append(gap)
        elif None in by_position:
            scalars[attribute] = by_position[None]
    if gap:
        for attribute in _PER_POSITION:
            scalars.pop(attribute, None)
    if dialect.derived:
        if not gap:  # a total over the other positions would be too low
            _derive(scalars, dialect, infos)
        active = any(
            scalars.get(name) for name in ("generation_tokens", *dialect.terms)
        )
        if active and scalars.get("drafts") is None:
            uncounted = uncounted or gap or dialect.missing
    counted = PER_POSITION in dialect.series
    if (
        scalars.get("accepted_tokens")
        and not scalars.get(PER_POSITION)
        and counted
        and not defects
    ):
        defects.append("accepted tokens without any per-position series")

    def part(names: frozenset[str]) -> dict[str, Any]:
        return {name: scalars[name] for name in names & scalars.keys()}

    return EngineReading(
        key=key,
        counters=Counters(**part(COUNTERS), resolution=dialect.resolution),
        load=Load(**part(LOAD)),
        steps=Steps(**part(STEPS)),
        lifetime=Lifetime(**part(LIFETIME_GAUGES))
        if any(attribute in LIFETIME_GAUGES for attribute, _ in values)
        else None,
        counts_finished_requests=dialect.counts_finished_requests,
        defects=tuple(defects[:MAX_DEFECTS]),
        drafting=Drafting(**part(DRAFTING)) if dialect.derived else None,
        derived="accepted_tokens" in dialect.derived and not counted,
        uncounted=uncounted,
    )


def _derive(
    scalars: dict[str, Any], dialect: Dialect, infos: Mapping[str, str]
) -> None:
    known = {**scalars, **{name: infos[name] for name in dialect.info if name in infos}}
    for attribute, formula in dialect.derived.items():
        with contextlib.suppress(LookupError):
            value = formula(known)
            if value is not None:
                scalars[attribute] = known[attribute] = value


def _position(text: str) -> int | None:
    """Return the position that a label's value says, ``None`` if it is not a valid one."""
    if text.isascii() and text.isdecimal() and len(text) <= 3:
        position = int(text)
    else:
        position = MAX_POSITIONS
    if position < MAX_POSITIONS:
        return position
    return None


def _show(labels: Labels) -> str:
    text = ",".join(f'{name}="{value[:80]}"' for name, value in labels)
    # Untrusted text: no control characters for the terminal, bounded length for the
    # log.
    clean = "".join(c if c.isprintable() else " " for c in text[:_MAX_QUOTED])
    return f"{{{clean}{'…' if len(text) > _MAX_QUOTED else ''}}}"


#: Counts by upper bound; count and sum of the histogram have the keys below.
Parts = dict[float, float]
COUNT = -1.0
SUM = -2.0


def read_latencies(
    dialect: Dialect, lines: Iterable[SampleLine], reading: Reading
) -> Reading:
    """Return `reading` with the latencies in `lines`; MalformedExposition for
    impossible values.
    """
    by_engine: defaultdict[EngineKey, defaultdict[str, Parts]]
    by_engine = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    lines = tuple(lines)
    parts = dialect.parts_in(
        line for line in lines if line.name not in dialect.histogram_fields
    )
    for line in lines:
        entry = dialect.histogram_fields.get(line.name)
        if entry is None:
            continue
        attribute, part = entry
        if not 0 <= line.value <= MAX_VALUE:
            raise MalformedExposition(
                f"{line.name} is {line.value}: it must be from 0 to {MAX_VALUE:g}"
            )
        place = {"count": COUNT, "sum": SUM}.get(part)
        key, bound = identify(line.labels, parts, "le" if place is None else "")
        # Series that differ only in parts of an engine, such as pid, are added.
        by_engine[key][attribute][_bound(line, bound) if place is None else place] += (
            line.value
        )
    engines = tuple(
        replace(engine, latencies=latencies_of(by_engine.get(engine.key, {})))
        for engine in reading.engines
    )
    return replace(reading, engines=engines)


def _bound(line: SampleLine, text: str) -> float:
    try:
        bound = float(text)
    except ValueError:
        bound = math.nan
    if not bound >= 0:
        raise MalformedExposition(f"{line.name} has no valid le label")
    return bound


def latencies_of(histograms: Mapping[str, Parts]) -> Latencies:
    """Return the latencies with these histograms, by their fields.

    One without its sum has no mean: none.
    """
    return Latencies(
        **{
            name: _histogram(parts)
            for name, parts in histograms.items()
            if SUM in parts
        }
    )


def _histogram(parts: Parts) -> Histogram:
    bounds = tuple(sorted(bound for bound in parts if 0 <= bound < math.inf))
    counts = []
    most = 0.0
    for bound in bounds:
        # buckets may have been read at slightly different times
        most = max(most, parts[bound])
        counts.append(most)
    return Histogram(
        bounds=bounds,
        counts=tuple(counts),
        count=max(most, parts.get(COUNT, 0.0), parts.get(math.inf, 0.0)),
        sum=parts[SUM],
    )
