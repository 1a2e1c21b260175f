"""A recorded baseline as a table. Pure."""

import math
from collections.abc import Iterator

from ...economics.baseline import Baseline, LoadBucket
from ...economics.statistics import reach_of
from ...publish.terminal import printable, shown
from ..measuring import ExporterFile


def render(baseline: Baseline, file: ExporterFile, missed: int) -> str:
    """Return the report; `file` is written, `missed` is how many polls failed."""
    return "\n".join(_lines(baseline, file, missed))


def _lines(baseline: Baseline, file: ExporterFile, missed: int) -> Iterator[str]:
    model = printable(baseline.model_name) or "the only model"
    yield f"{model} without speculation, by running requests:"
    yield ""
    yield (
        "  running  requests  tokens/s   ms per output token: mean, ±, P50, P99   "
        "ms to the first"
    )
    for bucket in baseline.buckets:
        yield _row(bucket)
    yield ""
    yield (
        "  (±: 95 % interval of the mean; quantiles are as coarse as the server's "
        "buckets)"
    )
    yield ""
    yield file.written
    if missed:
        yield f"{missed} samples could not be had"


def _row(bucket: LoadBucket) -> str:
    mean: float | None = None
    p50: float | None = None
    p99: float | None = None
    per_token = bucket.latencies.time_per_output_token
    if per_token:
        mean = per_token.mean
        p50 = per_token.quantile(0.5)
        p99 = per_token.quantile(0.99)
    to_first: float | None = None
    if bucket.latencies.time_to_first_token:
        to_first = bucket.latencies.time_to_first_token.mean
    margin = math.expm1(reach_of(bucket.uncertainty))
    return (
        f"  {bucket.requests_running:>7.1f}  {bucket.requests:>8,.0f}  "
        f"{bucket.generation_tokens_per_second:>8,.0f}   "
        f"{_milliseconds(mean)} {margin:>6.0%} {_milliseconds(p50)} "
        f"{_milliseconds(p99)}       {_milliseconds(to_first)}"
    )


def _milliseconds(seconds: float | None) -> str:
    if seconds is not None:
        seconds *= 1000
    return f"{shown(seconds, '{:,.2f}'):>9}"
