"""Reading a past: which series there are, and their values.

Queries are of limited size.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from ...engines.dialect import MAX_POSITIONS
from ...engines.tables import listed
from .cells import BlockLength
from .configuration import Configuration, Replica, Runs, runs_of
from .past import GridValues, Past, TimeGrid
from .series import (
    COUNTERS,
    ENGINE_NAMES,
    GAUGES,
    READ_DIALECTS,
    PastScope,
    SeriesFamily,
    common_keys,
)
from .source import Prometheus, PrometheusError, queries

#: Points of the query that finds out where the data begin and how often they are
#: scraped, and the least seconds between them: the interval found is at least half of
#: one of up to twenty minutes.
_OUTLINE_POINTS = 500
_OUTLINE_SECONDS = 600.0
#: Intervals found in a step: at least two real ones, which `increase` needs, and mostly
#: more, for gauges.
_SAMPLES_IN_STEP = 4
#: Steps of a block, and lengths of blocks in seconds, the longest one that gives
#: `_BLOCKS` of them.
_STEPS_IN_BLOCK = 12
_BLOCKS = 48
_LENGTHS = (3600.0, 1800.0, 600.0, 300.0, 60.0, 30.0, 15.0)
#: Names in an error, so that it stays readable.
_MAX_NAMES = 8


class StoredPast(Struct, frozen=True):
    """A past that was read, and the server that has more of it."""

    prometheus: Prometheus
    families: Mapping[SeriesFamily, int]  # with the number of their replicas
    past: Past


async def read_stored(prometheus: Prometheus, scope: PastScope) -> StoredPast:
    """Return the past of a scope. Raises PrometheusError."""
    families, keys = await _find_series(prometheus, scope)
    grid, block = await _find_grid(prometheus, scope, families)
    parts = [
        (family, part)
        for family, replicas in families.items()
        for part in queries(grid, replicas)
    ]
    # without --match, which is for servers
    info = f"vllm_specdec_info{{{scope.of_model}}}"
    exporters = await prometheus.series(info, scope.since, scope.until)
    parts_of_info = queries(grid, len(exporters))
    # Of each part, the counters, K, the running requests and the cache.
    queries_of_part = len(COUNTERS) + 3
    prometheus.expect(len(parts) * queries_of_part + len(parts_of_info))
    configurations = _Configurations(prometheus, scope, grid, keys)
    for part in parts_of_info:
        await configurations.add_deployments(info, part)
    for family, part in parts:
        await configurations.add_replicas(family, part)
    past = Past(grid, block, scope.group, configurations.runs())
    for family, part in parts:
        past.add(part, await field_values(prometheus, family, part, COUNTERS))
        if family.cache():
            past.add_facts(part, await prometheus.grid(family.cache(), part))
    return StoredPast(prometheus, families, past)


async def field_values(
    prometheus: Prometheus,
    family: SeriesFamily,
    grid: TimeGrid,
    counters: Iterable[str],
) -> dict[str, GridValues]:
    """Return the increases of counters, and the mean of the running requests, of the
    replicas of a family.
    """
    functions = {"requests_running": "avg_over_time"}
    functions |= dict.fromkeys(counters, "increase")
    values = {}
    for field, function in functions.items():
        if family.names(field):
            expression = family.field(function, field)
            values[field] = await prometheus.grid(expression, grid)
    return values


async def _find_series(
    prometheus: Prometheus, scope: PastScope
) -> tuple[dict[SeriesFamily, int], frozenset[tuple[str, ...]]]:
    """Return the families that have series, with the number of their replicas, and
    what these have in common with series of the exporter: `common_keys`.
    """
    gauges: dict[str, SeriesFamily] = {}
    for dialect in READ_DIALECTS:
        for prefix in dialect.prefixes:
            family = SeriesFamily(
                dialect, prefix, scope.matchers, scope.matchers_of_server
            )
            gauges[family.gauge] = family
    histograms = [family.native_histogram for family in gauges.values()]
    names = "|".join((*gauges, *histograms))
    series = await prometheus.series(
        f'{{__name__=~"{names}",{scope.matchers}}}', scope.since, scope.until
    )
    replicas = Counter(labels.get("__name__", "") for labels in series)
    families = {}
    for gauge, family in gauges.items():
        if replicas[gauge]:
            native = replicas[family.native_histogram] > 0
            families[replace(family, native=native)] = replicas[gauge]
    if not families:
        raise await _nothing_found(prometheus, scope, gauges)
    return families, frozenset(chain.from_iterable(map(common_keys, series)))


async def _nothing_found(
    prometheus: Prometheus, scope: PastScope, gauges: Iterable[str]
) -> PrometheusError:
    """Return an error that names what the server has instead."""
    every_gauge = f'{{__name__=~"{"|".join(gauges)}"}}'
    others = await prometheus.series(every_gauge, scope.since, scope.until)
    if others:
        models = sorted({labels.get("model_name", "") for labels in others})
        return PrometheusError(
            f"no series of {listed(ENGINE_NAMES, 'or')} with {{{scope.matchers}}} in "
            f"that time; without it there are {len(others)}, of the models "
            f"{', '.join(models[:_MAX_NAMES])}"
        )
    names = await prometheus.names(scope.since, scope.until)
    stems = list(map(str.lower, ENGINE_NAMES))
    similar = [name for name in names if any(stem in name for stem in stems)]
    has = ", ".join(similar[:_MAX_NAMES]) or f"{len(names)} other metrics"
    return PrometheusError(
        f"no {listed(GAUGES, 'or')} in that time: the server has {has}; does it scrape "
        "vLLM, and is --since long enough?"
    )


async def _find_grid(
    prometheus: Prometheus, scope: PastScope, families: Iterable[SeriesFamily]
) -> tuple[TimeGrid, BlockLength]:
    """Return the times to read, where there are data, and how long blocks are."""
    first, last, interval = await _extent(prometheus, scope, families)
    block = scope.block
    for length in _LENGTHS:
        if block is None and length * _BLOCKS <= last - first:
            block = length
    block = block or _LENGTHS[-1]
    least_step = _SAMPLES_IN_STEP * interval
    step = math.ceil(max(block / _STEPS_IN_BLOCK, least_step))
    start = math.ceil(first / step) * step
    number = max(1, math.floor((last - start) / step) + 1)
    # Blocks consist of whole steps.
    steps_in_block = max(1, round(block / step))
    shortest = 0.0 if scope.ranges else max(_LENGTHS[-1], least_step)
    grid = TimeGrid(float(start), float(step), number)
    return grid, BlockLength(float(step * steps_in_block), shortest)


async def _extent(
    prometheus: Prometheus, scope: PastScope, families: Iterable[SeriesFamily]
) -> tuple[float, float, float]:
    """Return the Unix times of the first and the last sample, and the seconds between
    two, at least half of the real ones.

    They are queried again where the data fill but a little of the time.
    """
    since = scope.since
    until = scope.until
    samples = " or ".join(
        family.field("count_over_time", "requests_running") for family in families
    )
    while True:
        span = until - since
        step = max(_OUTLINE_SECONDS, math.ceil(span / _OUTLINE_POINTS))
        grid = TimeGrid(since + step, step, max(1, math.ceil(span / step)))
        outline = await prometheus.grid(f"max({samples})", grid)
        (counts,) = outline.values() or [()]
        indices = [index for index, count in enumerate(counts) if count > 0]
        if not indices:
            raise PrometheusError(
                f"no samples of {listed(ENGINE_NAMES, 'or')} in that time"
            )
        first = grid.at(indices[0]) - step
        last = grid.at(indices[-1])
        if last - first > span / 4 or step == _OUTLINE_SECONDS:
            most_samples = max(counts[index] for index in indices)
            return first, last, step / most_samples
        since = first
        until = last


class _Configurations:
    """Collects the configuration of each replica at each time of a grid."""

    def __init__(
        self,
        prometheus: Prometheus,
        scope: PastScope,
        grid: TimeGrid,
        keys: frozenset[tuple[str, ...]],
    ) -> None:
        self._prometheus = prometheus
        self._scope = scope
        self._grid = grid
        self._keys = keys
        #: Method and version by the series of the exporter, by each of `common_keys`;
        #: empty where several servers disagree.
        self._deployments: dict[tuple[str, ...], list[Configuration | None]] = {}
        #: Numbers of the configurations, and those of each replica, 0 for none:
        #: replicas that are gone soon may be thousands.
        self._numbers: dict[Configuration | None, int] = {None: 0}
        self._shown: dict[Replica, array[int]] = {}

    async def add_deployments(self, info: str, part: TimeGrid) -> None:
        """Add the method and version that exporters show at these times."""
        by = "target, namespace, pod, model_name, method, upstream_version"
        values = await self._prometheus.grid(
            f"max by ({by}) (last_over_time({info}[$step]))", part
        )
        offset = self._grid.index_of(part.start)
        for series, column in values.items():
            labels = dict(series)
            shown = Configuration(
                None, labels.get("method", ""), labels.get("upstream_version", "")
            )
            indices = [index for index, value in enumerate(column, offset) if value > 0]
            for key in self._keys.intersection(common_keys(labels)):
                at_times = self._deployments.setdefault(key, [None] * self._grid.number)
                for index in indices:
                    at_times[index] = shown.agreed(at_times[index])

    async def add_replicas(self, family: SeriesFamily, part: TimeGrid) -> None:
        """Add what the replicas of a family show at these times."""
        ks = await self._prometheus.grid(family.k(), part)
        offset = self._grid.index_of(part.start)
        number = self._grid.number
        none_known = [None] * number
        for replica, column in ks.items():
            found = map(self._deployments.get, common_keys(dict(replica)))
            deployments = next(filter(None, found), none_known)
            shown = self._shown.setdefault(replica, array("H", (0,)) * number)
            for index, k in enumerate(column, offset):
                if math.isnan(k):
                    continue
                configuration = self._scope.chosen(
                    self._grid.at(index), _configuration(k, deployments[index])
                )
                shown[index] = self._numbers.setdefault(
                    configuration, len(self._numbers)
                )

    def runs(self) -> dict[Replica, Runs]:
        """Return the runs of each replica."""
        configurations = list(self._numbers)
        return {
            replica: runs_of(map(configurations.__getitem__, numbers))
            for replica, numbers in self._shown.items()
        }


def _configuration(k: float, deployment: Configuration | None) -> Configuration:
    deployment = deployment or Configuration(None)
    depth = int(k) if 0 <= k <= MAX_POSITIONS else None
    method = deployment.method if k else ""
    return Configuration(depth, method, deployment.version)
