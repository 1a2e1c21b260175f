"""The latency histograms of a response, which are read only on demand."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from ..exposition.histogram import Histogram
from ..exposition.text import MalformedExposition
from .normal_form import MAX_VALUE
from .reading import EngineKey, Latencies

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..exposition.text import SampleLine
    from .dialect import Dialect
    from .reading import Reading

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
