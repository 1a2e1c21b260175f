"""The baseline file: latencies and throughput without speculation, by load, as
versioned JSON.

Load is the number of running requests. Its buckets double in width; within and between
them, the observed mean load counts.
"""

import json
import math
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import msgspec

from ..engines.reading import Latencies
from ..exposition.histogram import Histogram
from .statistics import Uncertainty, over_time

#: Format of the file; the number rises with incompatible changes.
FORMAT = "vllm-specdec-baseline/1"
#: Upper bound of each load bucket, in running requests; the last bucket has no bound.
LOADS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_REACH = 1.25  # a load matches a bucket within this factor of the bucket's mean load
#: Largest factor between the mean loads of two buckets for interpolation.
_GAP = 4.5
LATENCIES = Latencies.__struct_fields__


def bucket_of(load: float) -> int:
    """Return the place in `LOADS` of the bucket for so many running requests."""
    return next(
        (place for place, limit in enumerate(LOADS) if load <= limit), len(LOADS) - 1
    )


class BaselineError(ValueError):
    """A baseline that cannot be used.

    The message is one line with the reason and what to do.
    """


@dataclass(frozen=True, slots=True)
class LoadBucket:
    """Measurements in one load bucket."""

    requests_running: float  # mean number of running requests, at least 1
    seconds: float  # time at this load
    generation_tokens: float  # tokens generated meanwhile
    requests: float  # requests that finished meanwhile
    latencies: Latencies  # of those requests
    #: Requests and their seconds per output token in each block of time, in order;
    #: empty in older files.
    blocks: tuple[tuple[float, float], ...] = ()

    @property
    def uncertainty(self) -> Uncertainty:
        """How well the mean time per output token is known.

        Without blocks, as in older files, requests that ran together count as one.
        """
        found = self.latencies.time_per_output_token or Histogram()
        seconds = tuple((seconds, requests) for requests, seconds in self.blocks)
        return over_time(
            seconds, max(1.0, found.count), self.requests_running, found.spread
        )

    @property
    def generation_tokens_per_second(self) -> float:
        """Throughput at this load."""
        return self.generation_tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Baseline:
    """Speed of a server without speculation."""

    format: str  # `FORMAT`
    model_name: str  # the model, as the server labels it
    upstream_version: str  # the server's version, empty if not known
    dialect: str  # the dialect of its metrics
    recorded_at: str  # when the recording ended, ISO 8601 in UTC
    #: One entry per load bucket with requests, by rising load.
    buckets: tuple[LoadBucket, ...]

    def at(self, load: float) -> tuple[tuple[float, LoadBucket], ...]:
        """Return the buckets near this load, if any, with weights that add up to 1,
        never extrapolated.
        """
        load = max(1.0, load)
        lower = [b for b in self.buckets if b.requests_running <= load]
        upper = [b for b in self.buckets if b.requests_running > load]
        if (
            lower
            and upper
            and upper[0].requests_running <= _GAP * lower[-1].requests_running
        ):
            left = lower[-1]
            right = upper[0]
            share = (load - left.requests_running) / (
                right.requests_running - left.requests_running
            )
            return ((1 - share, left), (share, right))
        near = [
            b
            for b in (*lower[-1:], *upper[:1])
            if 1 / _REACH <= load / b.requests_running <= _REACH
        ]
        if near:
            return ((1.0, near[0]),)
        return ()

    def why_nothing(self, load: float) -> str:
        """Return why no bucket matches this load, empty if one does."""
        if self.at(load):
            return ""
        known = ", ".join(f"{bucket.requests_running:.1f}" for bucket in self.buckets)
        return (
            f"the baseline has nothing near {load:.1f} running requests (it has "
            f"{known}): "
            "record that load as well, with --append"
        )

    def why_not(self, model_name: str, upstream_version: str) -> str:
        """Return why this baseline does not fit such a server, empty if it does."""
        if self.model_name != model_name:
            return (
                f"the baseline is of model {self.model_name!r}, and this server "
                f"serves {model_name!r}: "
                "record one for it, or set model_name in the file if it is the same "
                "model"
            )
        mine = _release(self.upstream_version)
        theirs = _release(upstream_version)
        if mine and theirs and mine != theirs:
            return (
                f"the baseline is of version {self.upstream_version}, and this "
                "server has "
                f"{upstream_version}: record a new one"
            )
        return ""


def _release(version: str) -> tuple[str, ...]:
    """Return the part of a version that must agree: 0.32 of 0.32.1+cpu."""
    if version:
        return tuple(version.split(".")[:2])
    return ()


def encode(baseline: Baseline) -> bytes:
    """Return the content of the file."""
    return msgspec.json.format(msgspec.json.encode(baseline), indent=1) + b"\n"


def decode(body: bytes) -> Baseline:
    """Return the baseline in a file's content; raise BaselineError also for impossible
    values.
    """
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"not JSON: {error}") from error
    if isinstance(document, dict):
        stated = document.get("format")
    else:
        stated = None
    if stated != FORMAT:
        raise BaselineError(
            f"its format is {json.dumps(stated)}, and this exporter reads "
            f"{FORMAT}: record it anew"
        )
    try:
        baseline = msgspec.convert(document, Baseline)
    except ValueError as error:
        raise BaselineError(f"not a baseline: {error}") from error
    _check(baseline)
    return baseline


def _check(baseline: Baseline) -> None:
    if not any(b.latencies.time_per_output_token for b in baseline.buckets):
        raise BaselineError(
            "no load bucket holds a time per output token: nothing was recorded"
        )
    loads = [bucket.requests_running for bucket in baseline.buckets]
    rising = all(before < after for before, after in pairwise(loads))
    if not rising or not all(1 <= load < math.inf for load in loads):
        raise BaselineError(f"its loads do not rise from 1 up: {loads}")
    for bucket in baseline.buckets:
        for name in LATENCIES:
            histogram: Histogram | None = getattr(bucket.latencies, name)
            if histogram is not None and not _sound(histogram):
                raise BaselineError(
                    f"{name} at {bucket.requests_running:g} running requests is no "
                    "histogram"
                )
        numbers = (
            bucket.seconds,
            bucket.generation_tokens,
            bucket.requests,
            *chain(*bucket.blocks),
        )
        if not all(0 <= number < math.inf for number in numbers) or bucket.seconds == 0:
            raise BaselineError(
                f"impossible values at {bucket.requests_running:g} running requests"
            )
    for name in LATENCIES:
        bounds = {
            histogram.bounds
            for bucket in baseline.buckets
            if (histogram := getattr(bucket.latencies, name)) is not None
        }
        if len(bounds) > 1:
            raise BaselineError(f"the buckets of {name} have different bounds")


def _sound(histogram: Histogram) -> bool:
    bounds = histogram.bounds
    counts = (0.0, *histogram.counts, histogram.count)
    return (
        len(bounds) == len(histogram.counts)
        and all(a < b for a, b in pairwise(bounds))
        and all(0 <= bound < math.inf for bound in bounds)
        and all(a <= b for a, b in pairwise(counts))
        and 0 <= histogram.sum < math.inf
        and histogram.count < math.inf
    )
