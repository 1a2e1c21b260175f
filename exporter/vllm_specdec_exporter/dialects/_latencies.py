"""Latencies: the histograms of an answer, brought into the normal form."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from ..exposition import MalformedExposition
from ..histogram import Histogram
from ..reading import EngineKey, Latencies, Reading
from ._dialect import MAX_VALUE, Dialect

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..exposition import Line

#: Upper bound to count; the two other parts stand under these keys.
_Parts = dict[float, float]
_COUNT, _SUM = -1.0, -2.0


def histogram_names(dialect: Dialect) -> frozenset[str]:
    """Return the sample names of the dialect's histograms."""
    return frozenset(dialect.histogram_fields)


def read_latencies(dialect: Dialect, lines: Iterable[Line], reading: Reading) -> Reading:
    """Return `reading` with the latencies that `lines` hold.

    Raises:
        MalformedExposition: a value that is negative or not finite, or a bucket without a bound.
    """
    found: dict[EngineKey, dict[str, _Parts]] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    for line in lines:
        entry = dialect.histogram_fields.get(line.name)
        if entry is None:
            continue
        attribute, part = entry
        labels = dict(line.labels)
        if not 0 <= line.value <= MAX_VALUE:
            msg = f"{line.name} is {line.value}: it lies from 0 to {MAX_VALUE:g}"
            raise MalformedExposition(msg)
        key = EngineKey(labels.get("model_name", ""), labels.get("engine", ""))
        place = {"count": _COUNT, "sum": _SUM}.get(part)
        # Series that differ only in labels which mean nothing here, such as pid, add up.
        found[key][attribute][_bound(line, labels) if place is None else place] += line.value
    engines = tuple(
        replace(engine, latencies=_latencies(found.get(engine.key, {}))) for engine in reading.engines
    )
    return replace(reading, engines=engines)


def _bound(line: Line, labels: Mapping[str, str]) -> float:
    try:
        bound = float(labels["le"])
    except (KeyError, ValueError):
        bound = math.nan
    if not bound >= 0:
        msg = f"{line.name} has no usable le label"
        raise MalformedExposition(msg)
    return bound


def _latencies(found: Mapping[str, _Parts]) -> Latencies:
    return Latencies(**{attribute: _histogram(parts) for attribute, parts in found.items()})


def _histogram(parts: _Parts) -> Histogram:
    bounds = tuple(sorted(bound for bound in parts if 0 <= bound < math.inf))
    counts, most = [], 0.0
    for bound in bounds:
        most = max(most, parts[bound])  # an answer may be torn between two of its buckets
        counts.append(most)
    return Histogram(
        bounds=bounds,
        counts=tuple(counts),
        count=max(most, parts.get(_COUNT, 0.0), parts.get(math.inf, 0.0)),
        sum=parts.get(_SUM, 0.0),
    )
