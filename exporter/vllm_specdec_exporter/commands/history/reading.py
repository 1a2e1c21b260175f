"""Reading a past: which series there are, and their values, in queries of limited size."""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from itertools import product
from statistics import fmean

from ...economics.baseline import FORMAT, Baseline, BaselineError, LoadBucket, bucket_of
from ...engines import DIALECTS, ENGINES
from ...engines.dialect import MAX_POSITIONS, PER_POSITION, Dialect
from ...engines.latencies import SUM, Parts, latencies_of
from ...engines.tables import listed
from ...exposition.histogram import Histogram
from ..baseline.recorder import Recorder
from .past import Configuration, Grid, Past, Replica, Summary, Times, runs_of
from .source import Prometheus, PrometheusError, queries

#: Dialects whose series have a time per output token, or one of a step.
_READ = tuple(dialect for dialect in DIALECTS if dialect.stored)
#: Their engines, and the gauges that show them, for errors.
_ENGINES = [e.name for e in ENGINES if any(d.engine is e for d in _READ)]
_GAUGES = [f"{d.prefixes[0]}{d.series['requests_running'][0]}" for d in _READ]
#: Labels that tell replicas apart, `exported_` after federation without `honor_labels`.
#: Series that differ only in others, such as `node` or `host`, are of several
#: Prometheus servers with the same targets.
_BY = (
    "cluster, namespace, job, pod, instance, ReplicaId, engine, model_name, "
    "exported_namespace, exported_job, exported_pod, exported_instance"
)
#: Counters whose increases are read: fields of the normal form, and the time per output
#: token by requests.
_COUNTERS = (
    "generation_tokens",
    "requests",
    "prompt_tokens",
    "step_seconds",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "tpot_sum",
    "tpot_count",
)
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
#: Seconds of the newest part of a configuration that a baseline is made of: a week has
#: every hour and day.
_BASELINE_SECONDS = 7 * 86400.0
_BUCKETS = 25  # series of a histogram, for the size of a query; vLLM's has some 20
#: Names in an error, so that it stays readable.
_MAX_NAMES = 8
#: Method and version by each of `_keys`, at each time of the grid.
_Deployments = dict[tuple[str, ...], list[tuple[str, str] | None]]
#: Equal configurations are one object: there is one for each replica and time.
_configuration = cache(Configuration)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which series, and of which time: Unix times in seconds."""

    since: float
    until: float
    match: str = ""  # matchers of PromQL, separated by commas
    model_name: str = ""
    by_instance: bool = False
    block: float | None = None  # seconds; ``None`` for a length by the data
    #: Times to compare instead of configurations.
    ranges: Mapping[str, tuple[float, float]] | None = None

    @property
    def of_model(self) -> str:
        """The matcher of the model, empty for all."""
        if self.model_name:
            return f"model_name={json.dumps(self.model_name)}"
        return ""

    @property
    def matchers(self) -> str:
        """The matchers of every selector of an engine."""
        return ",".join(filter(None, (self.of_model, self.match.strip().strip(","))))

    def chosen(self, time: float, shown: Configuration) -> Configuration | None:
        """Return the configuration at a time: what is shown, or if ranges are compared,
        the one it is in.
        """
        if self.ranges is None:
            return shown
        names = (
            name for name, (begin, end) in self.ranges.items() if begin <= time <= end
        )
        return next((_configuration(None, name=name) for name in names), None)

    def group(self, replica: Replica) -> str:
        """Return the name of what a replica belongs to."""
        labels = defaultdict(str, replica)
        pods = (
            labels[f"{of}pod"] or labels[f"{of}instance"] for of in ("", "exported_")
        )
        where = (
            *(labels[name] for name in ("cluster", "namespace", "exported_namespace")),
            *pods,
        )
        within = (*where, labels["ReplicaId"]) if self.by_instance else ()
        return " ".join(
            filter(None, (labels["model_name"] or "the only model", *within))
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Family:
    """The series of a dialect, by one of its prefixes."""

    dialect: Dialect
    prefix: str
    matchers: str
    #: Whether histograms are, or were for a time, native: without series for sum and
    #: count.
    native: bool

    def names(self, field: str) -> tuple[str, ...]:
        """Return the sample names of a field, the preferred one first; none if the
        dialect lacks it.
        """
        names = self.dialect.series.get(field, ())
        if field.startswith("tpot"):
            names = (
                self.dialect.histograms["time_per_output_token"]
                + field.removeprefix("tpot"),
            )
        return tuple(f"{self.prefix}{name}" for name in names)

    def by_replica(self, function: str, name: str, *labels: str) -> str:
        """Return the expression of a function of a sample over a step, by further
        labels.

        Increases and loads of the parts of an engine are added up.
        """
        if function in ("increase", "avg_over_time"):
            together = "sum"
        else:
            together = "max"
        values = [f"{function}({self._samples(name)})"]
        histogram, _, part = name.rpartition("_")
        if self.native and part in ("sum", "count"):
            values.append(f"histogram_{part}({function}({self._samples(histogram)}))")
        parts = ", ".join(sorted(self.dialect.parts))
        return (
            f"max by ({', '.join((_BY, *labels))}) ({together} without ({parts}) "
            f"({' or '.join(values)}))"
        )

    def _samples(self, name: str) -> str:
        return f'{{__name__="{name}"{self.matchers and ","}{self.matchers}}}[$step]'

    def field(self, function: str, field: str) -> str:
        """Return the expression of a function of a field over a step, with its
        preferred name.
        """
        return " or ".join(
            self.by_replica(function, name) for name in self.names(field)
        )

    def k(self) -> str:
        """Return the expression of K: 0 without speculation, and -1 for one with an
        unknown K.

        vLLM has these series as soon as it starts: one for each position, but V0 only
        its draft tokens.
        """
        none = f"0 * {self.field('last_over_time', 'requests_running')}"
        if PER_POSITION not in self.dialect.series:
            k = self.field("last_over_time", "verified_tokens")
            return f"clamp_min({k} - 1, 0) or {none}"
        (name,) = self.names(PER_POSITION)
        positions = (
            f"count by ({_BY}) ({self.by_replica('last_over_time', name, 'position')})"
        )
        return (
            f"{positions} or (0 * {self.field('last_over_time', 'draft_tokens')} - 1) "
            f"or {none}"
        )


class Reader:
    """Reads the past of a scope from a server."""

    def __init__(self, prometheus: Prometheus, scope: Scope) -> None:
        self._prometheus = prometheus
        self._scope = scope
        self._families: dict[_Family, int] = {}  # with the number of their replicas
        self._keys: set[tuple[str, ...]] = set()  # of these replicas
        self.block = 0.0  # seconds of a block

    async def past(self) -> Past:
        """Return the past. Raises PrometheusError."""
        await self._find()
        self._times = times = await self._grid()
        parts = [
            (family, q)
            for family, number in self._families.items()
            for q in queries(times, number)
        ]
        # without --match, which is for servers
        info = f"vllm_specdec_info{{{self._scope.of_model}}}"
        exporters = await self._prometheus.series(
            info, self._scope.since, self._scope.until
        )
        of_exporters = queries(times, len(exporters))
        self._prometheus.expect(len(parts) * (len(_COUNTERS) + 2) + len(of_exporters))
        known: _Deployments = {}
        for part in of_exporters:
            await self._deployments(info, part, known)
        # Configurations by number: replicas that are gone soon may be thousands.
        shown: dict[Replica, array[int]] = defaultdict(
            lambda: array("H", (0,)) * times.number
        )
        numbers: dict[Configuration | None, int] = {None: 0}
        for family, part in parts:
            await self._configurations(family, part, known, shown, numbers)
        each = list(numbers)
        runs = {
            replica: runs_of([each[number] for number in own])
            for replica, own in shown.items()
        }
        self._past = Past(times, self.block, self._scope.group, runs)
        for family, part in parts:
            self._past.add(part, await self._values(family, part, _COUNTERS))
        return self._past

    async def _values(
        self, family: _Family, times: Times, counters: Iterable[str]
    ) -> dict[str, Grid]:
        """Return the increases of counters, and the mean of the running requests."""
        functions = {"requests_running": "avg_over_time"} | dict.fromkeys(
            counters, "increase"
        )
        expressions = {
            n: family.field(function, n)
            for n, function in functions.items()
            if family.names(n)
        }
        return {
            name: await self._prometheus.grid(query, times)
            for name, query in expressions.items()
        }

    async def _find(self) -> None:
        """Find the families that have series, and their replicas."""
        scope = self._scope
        source = self._prometheus
        both = [(dialect, prefix) for dialect in _READ for prefix in dialect.prefixes]
        gauges = {
            f"{prefix}{d.series['requests_running'][0]}": (d, prefix)
            for d, prefix in both
        }
        histograms = {
            f"{prefix}{d.histograms['time_to_first_token']}": prefix
            for d, prefix in both
        }
        every = f'{{__name__=~"{"|".join((*gauges, *histograms))}",{scope.matchers}}}'
        found = await source.series(every, scope.since, scope.until)
        number = Counter(labels.get("__name__", "") for labels in found)
        native = {prefix for name, prefix in histograms.items() if number[name]}
        self._families = {
            _Family(dialect, prefix, scope.matchers, native=prefix in native): number[
                name
            ]
            for name, (dialect, prefix) in gauges.items()
            if number[name]
        }
        self._keys = {key for labels in found for key in _keys(labels)}
        if self._families:
            return
        others = await source.series(
            f'{{__name__=~"{"|".join(gauges)}"}}', scope.since, scope.until
        )
        if others:
            models = ", ".join(
                sorted({labels.get("model_name", "") for labels in others})[:_MAX_NAMES]
            )
            raise PrometheusError(
                f"no series of {listed(_ENGINES, 'or')} "
                f"with {{{scope.matchers}}} in that "
                "time; without it there are "
                f"{len(others)}, of the models {models}"
            )
        names = await source.names(scope.since, scope.until)
        stems = [engine.lower() for engine in _ENGINES]
        near = [name for name in names if any(stem in name for stem in stems)]
        near = near[:_MAX_NAMES]
        raise PrometheusError(
            f"no {listed(_GAUGES, 'or')} in that time: "
            "the server has "
            f"{', '.join(near) or f'{len(names)} other metrics'}; does it scrape "
            "vLLM, and is --since long "
            "enough?"
        )

    async def _grid(self) -> Times:
        """Return the times to read, by where the data are; set the length of a block."""
        since = self._scope.since
        until = self._scope.until
        while True:
            step = max(_OUTLINE_SECONDS, math.ceil((until - since) / _OUTLINE_POINTS))
            times = Times(since + step, step, max(1, math.ceil((until - since) / step)))
            samples = (
                f.field("count_over_time", "requests_running") for f in self._families
            )
            query = f"max({' or '.join(samples)})"
            (counts,) = (await self._prometheus.grid(query, times)).values() or [()]
            seen = [
                (times.at(place), count)
                for place, count in enumerate(counts)
                if count > 0
            ]
            if not seen:
                raise PrometheusError(
                    f"no samples of {listed(_ENGINES, 'or')} in that time"
                )
            first = seen[0][0] - step
            last = seen[-1][0]
            if last - first > (until - since) / 4 or step == _OUTLINE_SECONDS:
                break
            since = first
            until = last
        interval = step / max(count for _, count in seen)
        span = last - first
        block = self._scope.block or next(
            (b for b in _LENGTHS if b * _BLOCKS <= span), _LENGTHS[-1]
        )
        step = math.ceil(max(block / _STEPS_IN_BLOCK, _SAMPLES_IN_STEP * interval))
        # Blocks consist of whole steps.
        self.block = float(step * max(1, round(block / step)))
        start = math.ceil(first / step) * step
        return Times(
            float(start), float(step), max(1, math.floor((last - start) / step) + 1)
        )

    async def _deployments(self, info: str, part: Times, known: _Deployments) -> None:
        """Add method and version at these times, by each of `_keys`; empty if not
        unique.
        """
        by = "target, namespace, pod, model_name, method, upstream_version"
        grid = await self._prometheus.grid(
            f"max by ({by}) (last_over_time({info}[$step]))", part
        )
        offset = self._times.place(part.start)
        for series, column in grid.items():
            labels = dict(series)
            shown = method, version = (
                labels.get("method", ""),
                labels.get("upstream_version", ""),
            )
            for key in self._keys.intersection(_keys(labels)):
                of_key = known.setdefault(key, [None] * self._times.number)
                for place in (
                    place for place, one in enumerate(column, offset) if one > 0
                ):
                    before = of_key[place] or shown
                    both = (
                        method * (before[0] == method),
                        version * (before[1] == version),
                    )
                    of_key[place] = shown if before == shown else both

    async def _configurations(
        self,
        family: _Family,
        part: Times,
        known: _Deployments,
        shown: dict[Replica, array[int]],
        numbers: dict[Configuration | None, int],
    ) -> None:
        """Add what the replicas of a family show at these times."""
        ks = await self._prometheus.grid(family.k(), part)
        offset = self._times.place(part.start)
        for replica, column in ks.items():
            own = shown[replica]
            names = next(
                (known[key] for key in _keys(dict(replica)) if key in known), None
            )
            for place, k in enumerate(column, offset):
                if not math.isnan(k):
                    method, version = (names and names[place]) or ("", "")
                    depth = int(k) if 0 <= k <= MAX_POSITIONS else None
                    seen = _configuration(depth, method if k else "", version)
                    chosen = self._scope.chosen(self._times.at(place), seen)
                    own[place] = numbers.setdefault(chosen, len(numbers))

    async def baseline(self, model: str, summary: Summary) -> Baseline:
        """Return the newest week of a configuration as a baseline; raise BaselineError
        if it has none.
        """
        recorder = Recorder()
        dialect = ""
        end = summary.last_seconds
        grid = self._times
        first = grid.place(max(summary.first_seconds, end - _BASELINE_SECONDS))
        week = Times(grid.at(first), grid.step, grid.place(end) + 1 - first)
        for family, number in self._families.items():
            for part in queries(week, number * _BUCKETS):
                if await self._record(
                    recorder, family, part, model, summary.configuration
                ):
                    dialect = family.dialect.name
        try:
            buckets = recorder.buckets()
        except BaselineError as error:
            raise BaselineError(
                "no request finished without speculation, or the server has not stored "
                "request_time_per_output_token_seconds_bucket (not in vLLM before "
                "0.11 or native histograms)"
            ) from error
        recorded = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Baseline(
            FORMAT, model, summary.configuration.version, dialect, recorded, buckets
        )

    async def _record(
        self,
        recorder: Recorder,
        family: _Family,
        times: Times,
        model: str,
        configuration: Configuration,
    ) -> bool:
        """Add what a configuration did at these times to a recorder; return whether it
        ran.
        """
        values = await self._values(family, times, ("generation_tokens", "requests"))
        histograms: dict[tuple[Replica, str], list[tuple[float, Sequence[float]]]] = (
            defaultdict(list)
        )
        # native histograms have no buckets that PromQL returns
        classic = replace(family, native=False)
        for latency, name in family.dialect.histograms.items():
            for part, by in (("sum", ()), ("bucket", ("le",))):
                query = classic.by_replica(
                    "increase", f"{family.prefix}{name}_{part}", *by
                )
                for series, column in (
                    await self._prometheus.grid(query, times)
                ).items():
                    le = self._prometheus.number(
                        dict(series).get("le", str(SUM)), math.inf
                    )
                    replica = tuple(pair for pair in series if pair[0] != "le")
                    histograms[replica, latency].append((le, column))
        # Replicas with about the same load at a time are added up before a histogram is
        # made of them.
        points: dict[tuple[int, int], list[tuple[Replica, dict[str, float]]]] = (
            defaultdict(list)
        )
        for replica, shown, place, point in self._past.decoding(times, values):
            if shown == configuration and self._past.groups[replica] == model:
                points[place, bucket_of(point["requests_running"])].append(
                    (replica, point)
                )
        for (place, _), alike in sorted(points.items()):
            parts: dict[str, Parts] = defaultdict(lambda: defaultdict(float))
            for (replica, _), latency in product(alike, family.dialect.histograms):
                columns = histograms[replica, latency]
                if {SUM, math.inf} <= {
                    le for le, column in columns if column[place] >= 0
                }:
                    for le, column in columns:
                        parts[latency][le] += max(0.0, column[place])
            latencies = latencies_of(parts)
            seconds = len(alike) * times.step
            mean = fmean(max(1.0, point["requests_running"]) for _, point in alike)
            generated = math.fsum(point["generation_tokens"] for _, point in alike)
            done = latencies.time_per_output_token or Histogram()
            blocks = ((done.count, done.sum),)
            recorder.include(
                [LoadBucket(mean, seconds, generated, done.count, latencies, blocks)]
            )
        return bool(points)


def _keys(labels: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield what a replica and the exporter's series of it have in common, the surest
    first.
    """
    model = labels.get("model_name", "")
    namespace = labels.get("namespace", "")
    target = labels.get("target", "").partition("://")[2].partition("/")[0]
    address = target or labels.get("instance", "")
    yield from (
        (model, "target", address),
        (model, "pod", namespace, labels.get("pod", "")),
    )
    yield from ((model, "namespace", namespace), (model,))
