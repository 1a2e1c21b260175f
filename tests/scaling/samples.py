"""Samples of histories of alerts, as servers of several kinds are given them."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from alerts.world import MISSING, World
from dashboards.worlds_pods import Storage
from dashboards.worlds_traffic import Key, Samples, pairs_of
from vllm_specdec_exporter.publish.metrics import METRICS

_KINDS = {row.full_name: row.kind.value for row in METRICS}


def of_worlds(worlds: Mapping[str, World], start: float, minutes: int) -> Storage:
    """Return the samples of worlds, one a minute, each world in a cluster of its
    name.
    """
    scraped = Storage(start + 60.0 * np.arange(minutes))
    for cluster, world in worlds.items():
        for series, samples in world.samples().items():
            scraped.series[_key(series, cluster)] = _rows(samples, minutes)
    return scraped


def _rows(samples: Sequence[str], minutes: int) -> Samples:
    """Return one sample a minute, NaN where there is none."""
    rows = np.full(minutes, np.nan)
    values = [np.nan if each == MISSING else float(each) for each in samples[:minutes]]
    rows[: len(values)] = values
    return rows


def _key(series: str, cluster: str) -> Key:
    name, _, labels = series.partition("{")
    return name, tuple(
        sorted([("cluster", cluster), *re.findall(r'(\w+)="([^"]*)"', labels)])
    )


def every_quarter(world: World, minutes: int) -> dict[Key, Samples]:
    """Return the samples of a world, four a minute: counters rise evenly, and gauges
    stay until the next minute.
    """
    series = {}
    at = np.arange(0, minutes, 0.25)
    for text, samples in world.samples().items():
        name, _, labels = text.partition("{")
        rows = _rows(samples, minutes)
        key = (name, pairs_of(dict(re.findall(r'(\w+)="([^"]*)"', labels))))
        if name.endswith("_total"):
            series[key] = np.interp(at, np.arange(minutes), rows)
        else:
            series[key] = np.repeat(rows, 4)
    return series


def typed(series: Mapping[Key, Samples]) -> dict[Key, Samples]:
    """Return series as a Prometheus has scraped them that adds their types."""
    return {
        (name, pairs_of({**dict(labels), "__type__": _KINDS.get(name, "")})): rows
        for (name, labels), rows in series.items()
    }
