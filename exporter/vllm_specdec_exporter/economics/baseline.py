"""The baseline file: latencies and throughput without speculation, by load, as
versioned JSON.

Load is the number of running requests. Its buckets double in width; within and between
them, the observed mean load counts.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ..engines.reading import Latencies
from ..exposition.histogram import Histogram
from .equal_load import (
    MAX_BLOCKS,
    Block,
    FinishedRequests,
    prefix_cache_share,
    uncertainty_of_mean,
)
from .latency_sums import LATENCIES
from .statistics import Uncertainty

#: Format of the file; the number rises with incompatible changes.
FORMAT = "vllm-specdec-baseline/1"
#: Upper bound of each load bucket, in running requests; the last bucket has no bound.
LOADS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
#: Blocks of time that a load bucket keeps. A recording lasts longer than a window, so
#: that more of them are still long.
RECORDED_BLOCKS = 2 * MAX_BLOCKS
_REACH = 1.25  # a load matches a bucket within this factor of the bucket's mean load
#: Largest factor between the mean loads of two buckets for interpolation.
_GAP = 4.5


_LOAD = attrgetter("requests_running")


def bucket_of(load: float) -> int:
    """Return the place in `LOADS` of the bucket for so many running requests."""
    return min(bisect_left(LOADS, load), len(LOADS) - 1)


class BaselineError(ValueError):
    """A baseline that cannot be used.

    The message is one line with the reason and what to do.
    """


_Amount = Annotated[float, Meta(ge=0)]


class LoadBucket(Struct, frozen=True):
    """Measurements in one load bucket."""

    #: Mean number of running requests.
    requests_running: Annotated[float, Meta(ge=1)]
    seconds: Annotated[float, Meta(gt=0)]  # time at this load
    generation_tokens: _Amount  # tokens generated meanwhile
    requests: _Amount  # requests that finished meanwhile
    latencies: Latencies  # of those requests
    #: Of requests and their seconds per output token, in the order of time; empty in
    #: older files.
    blocks: tuple[Block, ...] = ()
    #: Prompt tokens looked up in the prefix cache, and those found there; 0 in older
    #: files, and of servers that do not count them.
    prefix_cache_queries: _Amount = 0.0
    prefix_cache_hits: _Amount = 0.0

    @classmethod
    def of_interval(
        cls, load: float, seconds: float, tokens: float, latencies: Latencies
    ) -> LoadBucket:
        """Return the bucket of an interval of time, which is its only block, without
        the prefix cache.
        """
        finished = latencies.time_per_output_token or Histogram()
        return cls(
            requests_running=load,
            seconds=seconds,
            generation_tokens=tokens,
            requests=finished.count,
            latencies=latencies,
            blocks=(Block(finished.count, finished.sum),),
        )

    @property
    def time_per_output_token(self) -> Histogram:
        """Of its requests; without observations where the server has none."""
        return self.latencies.time_per_output_token or Histogram()

    @property
    def uncertainty(self) -> Uncertainty:
        """How well the mean time per output token is known.

        Without blocks, as in older files, requests that ran together count as one.
        """
        requests = FinishedRequests(
            count=max(1.0, self.time_per_output_token.count),
            at_a_time=self.requests_running,
            spread=self.time_per_output_token.spread,
        )
        return uncertainty_of_mean(self.blocks, requests, max_blocks=RECORDED_BLOCKS)

    @property
    def generation_tokens_per_second(self) -> float:
        """Throughput at this load."""
        return self.generation_tokens / self.seconds


class Baseline(Struct, frozen=True):
    """Speed of a server without speculation."""

    format: str  # `FORMAT`
    model_name: str  # the model, as the server labels it
    upstream_version: str  # the server's version, empty if not known
    dialect: str  # the dialect of its metrics
    recorded_at: str  # when the recording ended, ISO 8601 in UTC
    #: One entry per load bucket with requests, by rising load.
    buckets: tuple[LoadBucket, ...]

    @property
    def prefix_cache_hit_ratio(self) -> float | None:
        """Share of the prompt tokens that were found in the prefix cache, 0 to 1;
        ``None`` if none was looked up there.
        """
        return prefix_cache_share(
            sum(bucket.prefix_cache_hits for bucket in self.buckets),
            sum(bucket.prefix_cache_queries for bucket in self.buckets),
        )

    def at(self, load: float) -> tuple[tuple[float, LoadBucket], ...]:
        """Return the buckets near this load, if any, with weights that add up to 1,
        never extrapolated.
        """
        load = max(1.0, load)
        above = bisect_right(self.buckets, load, key=_LOAD)
        nearest = self.buckets[max(0, above - 1) : above + 1]
        if 0 < above < len(self.buckets):
            lower, upper = nearest
            gap = upper.requests_running - lower.requests_running
            if upper.requests_running <= _GAP * lower.requests_running:
                share = (load - lower.requests_running) / gap
                return ((1 - share, lower), (share, upper))
        for bucket in nearest:
            if 1 / _REACH <= load / bucket.requests_running <= _REACH:
                return ((1.0, bucket),)
        return ()

    def why_nothing(self, load: float) -> str:
        """Return why no bucket matches this load, empty if one does."""
        if self.at(load):
            return ""
        loads = ", ".join(map("{:.1f}".format, map(_LOAD, self.buckets)))
        return (
            f"the baseline has nothing near {load:.1f} running requests (it has "
            f"{loads}): record that load as well, with --append"
        )

    def why_not(self, model_name: str, upstream_version: str) -> str:
        """Return why this baseline does not fit such a server, empty if it does."""
        if self.model_name != model_name:
            return (
                f"the baseline is of model {self.model_name!r}, and this server "
                f"serves {model_name!r}: record one for it, or set model_name in the "
                "file if it is the same model"
            )
        if not self.upstream_version or not upstream_version:
            return ""
        if _release(self.upstream_version) == _release(upstream_version):
            return ""
        return (
            f"the baseline is of version {self.upstream_version}, and this server has "
            f"{upstream_version}: record a new one"
        )


def _release(version: str) -> list[str]:
    """Return the part of a version that must agree: 0.32 of 0.32.1+cpu."""
    return version.split(".")[:2]


def encode(baseline: Baseline) -> bytes:
    """Return the content of the file."""
    return msgspec.json.format(msgspec.json.encode(baseline), indent=1) + b"\n"


def decode(body: bytes) -> Baseline:
    """Return the baseline in a file's content; raise BaselineError also for impossible
    values.
    """
    try:
        # Unlike the `json` of Python, it takes no NaN and no infinity.
        document = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"not JSON: {error}") from error
    stated = document.get("format") if isinstance(document, dict) else None
    if stated != FORMAT:
        raise BaselineError(
            f"its format is {json.dumps(stated)}, and this exporter reads {FORMAT}: "
            "record it anew"
        )
    try:
        baseline = msgspec.convert(document, Baseline)
    except ValueError as error:
        raise BaselineError(f"not a baseline: {error}") from error
    _check(baseline)
    return baseline


def _check(baseline: Baseline) -> None:
    if not any(bucket.latencies.time_per_output_token for bucket in baseline.buckets):
        raise BaselineError(
            "no load bucket holds a time per output token: nothing was recorded"
        )
    loads = list(map(_LOAD, baseline.buckets))
    if loads != sorted(set(loads)):
        raise BaselineError(f"its loads do not rise: {loads}")
    for name in LATENCIES:
        bounds = set()
        for bucket in baseline.buckets:
            histogram: Histogram | None = getattr(bucket.latencies, name)
            if histogram is None:
                continue
            bounds.add(histogram.bounds)
            if not _sound(histogram):
                raise BaselineError(
                    f"{name} at {bucket.requests_running:g} running requests is no "
                    "histogram"
                )
        if len(bounds) > 1:
            raise BaselineError(f"the buckets of {name} have different bounds")


def _sound(histogram: Histogram) -> bool:
    bounds = list(histogram.bounds)
    counts = [*histogram.counts, histogram.count]
    return (
        len(bounds) == len(histogram.counts)
        # Bounds rise, and counts, which are cumulative, do not fall.
        and bounds == sorted(set(bounds))
        and counts == sorted(counts)
        and min([*bounds, *counts, histogram.sum]) >= 0
    )
