"""The latency histograms of one response, which are read on demand."""

import math
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate

from msgspec.structs import replace

from ..exposition.histogram import Histogram
from ..exposition.text import MalformedExposition, SampleLine
from .dialect import Dialect, identify
from .limits import MAX_BOUNDS, MAX_VALUE
from .reading import EngineKey, Latencies, Reading

#: Counts by upper bound; count and sum of the histogram have the keys below.
Parts = dict[float, float]
COUNT = -1.0
SUM = -2.0
_KEYS = {"count": COUNT, "sum": SUM}


def read_latencies(
    dialect: Dialect, lines: tuple[SampleLine, ...], reading: Reading
) -> Reading:
    """Return `reading` with the latencies in `lines`; MalformedExposition for
    impossible values.
    """
    by_engine = _collect(dialect, lines)
    engines = []
    for engine in reading.engines:
        latencies = latencies_of(by_engine.get(engine.key, {}))
        engines.append(replace(engine, latencies=latencies))
    return replace(reading, engines=tuple(engines))


def _collect(
    dialect: Dialect, lines: tuple[SampleLine, ...]
) -> Mapping[EngineKey, Mapping[str, Parts]]:
    by_engine: defaultdict[EngineKey, defaultdict[str, Parts]]
    by_engine = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    parts = dialect.parts_in(
        line for line in lines if line.name not in dialect.histogram_fields
    )
    for line in lines:
        entry = dialect.histogram_fields.get(line.name)
        if entry is None:
            continue
        field, part = entry
        if not 0 <= line.value <= MAX_VALUE:
            raise MalformedExposition(
                f"{line.name} is {line.value}: it must be from 0 to {MAX_VALUE:g}"
            )
        if part == "bucket":
            engine, text = identify(line.labels, parts, "le")
            key = _bound(line, text)
        else:
            engine, _ = identify(line.labels, parts)
            key = _KEYS[part]
        # Series that differ only in parts of an engine, such as pid, are added.
        histogram = by_engine[engine][field]
        histogram[key] += line.value
        if len(histogram) > MAX_BOUNDS + len(_KEYS):
            raise MalformedExposition(f"{line.name}: more than {MAX_BOUNDS} buckets")
    return by_engine


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
    complete = {}
    for field, parts in histograms.items():
        if SUM in parts:
            complete[field] = _histogram(parts)
    return Latencies(**complete)


@lru_cache(maxsize=64)
def _shared(bounds: tuple[float, ...]) -> tuple[float, ...]:
    """Return the same object for equal bounds: every sample of an engine has them."""
    return bounds


def _histogram(parts: Parts) -> Histogram:
    bounds = _shared(tuple(sorted(parts.keys() - {COUNT, SUM, math.inf})))
    # Buckets may have been read at slightly different times, so one may have more
    # than the next.
    counts = tuple(accumulate(map(parts.__getitem__, bounds), max))
    total = max(parts.get(COUNT, 0.0), parts.get(math.inf, 0.0), *counts[-1:])
    return Histogram(bounds=bounds, counts=counts, count=total, sum=parts[SUM])
