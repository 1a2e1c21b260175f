"""Reading a past: which series there are, and their values.

Queries are of limited size.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from ...engines.dialect import MAX_POSITIONS
from ...engines.tables import listed
from .configuration import Configuration, Replica, runs_of
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


#: Method and version by the series of the exporter, by each of `common_keys`, at each
#: time of the grid; empty where several servers disagree.
_Deployments = dict[tuple[str, ...], list[Configuration | None]]


class Reader:
    """Reads the past of a scope from a server."""

    def __init__(self, prometheus: Prometheus, scope: PastScope) -> None:
        self.prometheus = prometheus
        #: With the number of their replicas.
        self.families: dict[SeriesFamily, int] = {}
        self.block = 0.0  # seconds of a block
        self._scope = scope
        self._keys: set[tuple[str, ...]] = set()  # of the replicas
        #: Numbers of the configurations, and those of each replica at each time, 0 for
        #: none: replicas that are gone soon may be thousands.
        self._numbers: dict[Configuration | None, int] = {None: 0}
        self._shown: dict[Replica, array[int]] = {}

    async def past(self) -> Past:
        """Return the past. Raises PrometheusError."""
        await self._find()
        self.grid = await self._find_grid()
        parts = [
            (family, part)
            for family, replicas in self.families.items()
            for part in queries(self.grid, replicas)
        ]
        # without --match, which is for servers
        info = f"vllm_specdec_info{{{self._scope.of_model}}}"
        exporters = await self.prometheus.series(
            info, self._scope.since, self._scope.until
        )
        parts_of_info = queries(self.grid, len(exporters))
        # Of each part, the counters, K and the running requests.
        queries_of_part = len(COUNTERS) + 2
        self.prometheus.expect(len(parts) * queries_of_part + len(parts_of_info))
        deployments: _Deployments = {}
        for part in parts_of_info:
            await self._add_deployments(info, part, deployments)
        for family, part in parts:
            await self._add_configurations(family, part, deployments)
        configurations = list(self._numbers)
        runs = {
            replica: runs_of(map(configurations.__getitem__, numbers))
            for replica, numbers in self._shown.items()
        }
        self.collected = Past(self.grid, self.block, self._scope.group, runs)
        for family, part in parts:
            self.collected.add(part, await self.values(family, part, COUNTERS))
        return self.collected

    async def values(
        self, family: SeriesFamily, grid: TimeGrid, counters: Iterable[str]
    ) -> dict[str, GridValues]:
        """Return the increases of counters, and the mean of the running requests."""
        functions = {"requests_running": "avg_over_time"}
        functions |= dict.fromkeys(counters, "increase")
        values = {}
        for field, function in functions.items():
            if family.names(field):
                expression = family.field(function, field)
                values[field] = await self.prometheus.grid(expression, grid)
        return values

    async def _find(self) -> None:
        """Find the families that have series, and their replicas."""
        scope = self._scope
        gauges: dict[str, SeriesFamily] = {}
        for dialect in READ_DIALECTS:
            for prefix in dialect.prefixes:
                family = SeriesFamily(dialect, prefix, scope.matchers)
                gauges[family.gauge] = family
        histograms = [family.native_histogram for family in gauges.values()]
        names = "|".join((*gauges, *histograms))
        series = await self.prometheus.series(
            f'{{__name__=~"{names}",{scope.matchers}}}', scope.since, scope.until
        )
        replicas = Counter(labels.get("__name__", "") for labels in series)
        for gauge, family in gauges.items():
            if replicas[gauge]:
                native = replicas[family.native_histogram] > 0
                self.families[replace(family, native=native)] = replicas[gauge]
        for labels in series:
            self._keys.update(common_keys(labels))
        if not self.families:
            raise await self._nothing_found(gauges)

    async def _nothing_found(self, gauges: Iterable[str]) -> PrometheusError:
        """Return an error that names what the server has instead."""
        scope = self._scope
        every_gauge = f'{{__name__=~"{"|".join(gauges)}"}}'
        others = await self.prometheus.series(every_gauge, scope.since, scope.until)
        if others:
            models = sorted({labels.get("model_name", "") for labels in others})
            return PrometheusError(
                f"no series of {listed(ENGINE_NAMES, 'or')} with {{{scope.matchers}}} "
                "in that time; "
                f"without it there are {len(others)}, of the models "
                f"{', '.join(models[:_MAX_NAMES])}"
            )
        names = await self.prometheus.names(scope.since, scope.until)
        stems = list(map(str.lower, ENGINE_NAMES))
        similar = [name for name in names if any(stem in name for stem in stems)]
        has = ", ".join(similar[:_MAX_NAMES]) or f"{len(names)} other metrics"
        return PrometheusError(
            f"no {listed(GAUGES, 'or')} in that time: "
            f"the server has {has}; does it scrape vLLM, and is --since long enough?"
        )

    async def _find_grid(self) -> TimeGrid:
        """Return the times to read, where there are data; set the length of a block."""
        first, last, interval = await self._extent()
        block = self._scope.block
        for length in _LENGTHS:
            if block is None and length * _BLOCKS <= last - first:
                block = length
        block = block or _LENGTHS[-1]
        least_step = _SAMPLES_IN_STEP * interval
        step = math.ceil(max(block / _STEPS_IN_BLOCK, least_step))
        # Blocks consist of whole steps.
        self.block = float(step * max(1, round(block / step)))
        start = math.ceil(first / step) * step
        number = max(1, math.floor((last - start) / step) + 1)
        return TimeGrid(float(start), float(step), number)

    async def _extent(self) -> tuple[float, float, float]:
        """Return the Unix times of the first and the last sample, and the seconds
        between two, at least half of the real ones.

        They are queried again where the data fill but a little of the time.
        """
        since = self._scope.since
        until = self._scope.until
        samples = " or ".join(
            family.field("count_over_time", "requests_running")
            for family in self.families
        )
        while True:
            span = until - since
            step = max(_OUTLINE_SECONDS, math.ceil(span / _OUTLINE_POINTS))
            grid = TimeGrid(since + step, step, max(1, math.ceil(span / step)))
            outline = await self.prometheus.grid(f"max({samples})", grid)
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

    async def _add_deployments(
        self, info: str, part: TimeGrid, deployments: _Deployments
    ) -> None:
        """Add method and version at these times, by each of `common_keys`."""
        by = "target, namespace, pod, model_name, method, upstream_version"
        values = await self.prometheus.grid(
            f"max by ({by}) (last_over_time({info}[$step]))", part
        )
        offset = self.grid.index_of(part.start)
        for series, column in values.items():
            labels = dict(series)
            shown = Configuration(
                None, labels.get("method", ""), labels.get("upstream_version", "")
            )
            indices = [index for index, value in enumerate(column, offset) if value > 0]
            for key in self._keys.intersection(common_keys(labels)):
                at_times = deployments.setdefault(key, [None] * self.grid.number)
                for index in indices:
                    at_times[index] = shown.agreed(at_times[index])

    async def _add_configurations(
        self, family: SeriesFamily, part: TimeGrid, deployments: _Deployments
    ) -> None:
        """Add what the replicas of a family show at these times."""
        ks = await self.prometheus.grid(family.k(), part)
        offset = self.grid.index_of(part.start)
        none_known = [None] * self.grid.number
        for replica, column in ks.items():
            found = map(deployments.get, common_keys(dict(replica)))
            of_replica = next(filter(None, found), none_known)
            shown = self._shown.setdefault(replica, array("H", (0,)) * self.grid.number)
            for index, k in enumerate(column, offset):
                if math.isnan(k):
                    continue
                configuration = self._scope.chosen(
                    self.grid.at(index), _configuration(k, of_replica[index])
                )
                shown[index] = self._numbers.setdefault(
                    configuration, len(self._numbers)
                )


def _configuration(k: float, deployment: Configuration | None) -> Configuration:
    deployment = deployment or Configuration(None)
    depth: int | None = None
    if 0 <= k <= MAX_POSITIONS:
        depth = int(k)
    method = ""
    if k:
        method = deployment.method
    return Configuration(depth, method, deployment.version)
