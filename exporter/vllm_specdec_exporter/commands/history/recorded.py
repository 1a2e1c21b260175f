"""A baseline from a past: what a configuration did in its newest week."""

import math
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import fmean

from msgspec.structs import replace

from ...economics.baseline import FORMAT, Baseline, BaselineError, LoadBucket, bucket_of
from ...engines.latencies import SUM, Parts, latencies_of
from ..baseline.recorder import Recorder
from .configuration import Replica
from .document import Summary
from .past import DecodingStep, TimeGrid
from .reading import StoredPast, field_values
from .series import SeriesFamily
from .source import queries

#: Seconds of the newest part of a configuration that a baseline is made of: a week has
#: every hour and day.
_BASELINE_SECONDS = 7 * 86400.0
_BUCKETS = 25  # series of a histogram, for the size of a query; vLLM's has some 20

#: By replica and latency: the columns of each bucket with its bound, and of the sum.
_HistogramColumns = dict[tuple[Replica, str], list[tuple[float, Sequence[float]]]]


async def baseline_of(stored: StoredPast, model: str, summary: Summary) -> Baseline:
    """Return the newest week of a configuration as a baseline, from a past that was
    read; raise BaselineError if it has none.
    """
    recorder = Recorder()
    dialect = ""
    past = stored.past
    grid = past.grid
    end = summary.last_seconds
    first = grid.index_of(max(summary.first_seconds, end - _BASELINE_SECONDS))
    week = TimeGrid(grid.at(first), grid.step, grid.index_of(end) + 1 - first)
    for family, replicas in stored.families.items():
        for part in queries(week, replicas * _BUCKETS):
            values = await field_values(
                stored.prometheus, family, part, ("generation_tokens", "requests")
            )
            histograms = await _histograms(stored, family, part)
            # Replicas with about the same load at a time are added up before a
            # histogram is made of them.
            alike: dict[tuple[int, int], list[DecodingStep]] = defaultdict(list)
            for step in past.decoding(part, values):
                same_model = past.groups[step.replica] == model
                if step.configuration == summary.configuration and same_model:
                    alike[step.index, bucket_of(step.running)].append(step)
            for _, steps in sorted(alike.items()):
                recorder.include([_bucket(steps, family, histograms, grid.step)])
                dialect = family.dialect.name
    try:
        buckets = recorder.buckets()
    except BaselineError as error:
        raise BaselineError(
            "no request finished without speculation, or the server has not stored "
            "request_time_per_output_token_seconds_bucket (not in vLLM before "
            "0.11 or native histograms; of Ray Serve it has no true sum)"
        ) from error
    return Baseline(
        format=FORMAT,
        model_name=model,
        upstream_version=summary.configuration.version,
        dialect=dialect,
        recorded_at=datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        buckets=buckets,
    )


async def _histograms(
    stored: StoredPast, family: SeriesFamily, grid: TimeGrid
) -> _HistogramColumns:
    """Return the increases of all histograms of latencies at these times."""
    histograms: _HistogramColumns = defaultdict(list)
    # Native histograms have no buckets that PromQL returns.
    classic = replace(family, native=False)
    for latency, name in family.dialect.histograms.items():
        if not family.dialect.has(family.prefix, f"{name}_sum"):
            continue
        sums = classic.by_replica("increase", f"{family.prefix}{name}_sum")
        buckets = classic.by_replica("increase", f"{family.prefix}{name}_bucket", "le")
        for query in (sums, buckets):
            columns = await stored.prometheus.grid(query, grid)
            for series, column in columns.items():
                bound = dict(series).get("le", str(SUM))
                replica = tuple(pair for pair in series if pair[0] != "le")
                histograms[replica, latency].append(
                    (stored.prometheus.number(bound, math.inf), column)
                )
    return histograms


def _bucket(
    steps: Sequence[DecodingStep],
    family: SeriesFamily,
    histograms: _HistogramColumns,
    seconds: float,
) -> LoadBucket:
    """Return what replicas with about the same load did in so many seconds."""
    parts: dict[str, Parts] = defaultdict(lambda: defaultdict(float))
    for step in steps:
        for latency in family.dialect.histograms:
            columns = [
                (bound, column[step.index])
                for bound, column in histograms[step.replica, latency]
            ]
            bounds = {bound for bound, value in columns if value >= 0}
            # Without its sum or its count, a histogram says nothing.
            if SUM in bounds and math.inf in bounds:
                for bound, value in columns:
                    parts[latency][bound] += max(0.0, value)
    return LoadBucket.of_interval(
        load=fmean(max(1.0, step.running) for step in steps),
        seconds=len(steps) * seconds,
        tokens=math.fsum(step.values["generation_tokens"] for step in steps),
        latencies=latencies_of(parts),
    )
