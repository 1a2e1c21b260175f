"""Values of requests, counted as the exporter counts them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_specdec_exporter.exposition.histogram import Histogram
from vllm_specdec_exporter.per_request.observation import Observation, parse_record


def observed(values: Sequence[float], bounds: tuple[float, ...] = (0.05, 0.5, 1.0, 30.0)) -> Histogram:
    """Return the histogram of `values`, one looked at after the other."""
    return Histogram(
        bounds,
        tuple(float(sum(value <= bound for value in values)) for bound in bounds),
        float(len(values)),
        math.fsum(values),
    )


def captured(row: Mapping[str, Any]) -> Observation:
    """Return the observation of a request that a client of a real server took down (data/captures)."""
    tokens = row["usage"]["completion_tokens"]
    return Observation(
        time=row["end"],
        temperature=row["temperature"],
        stream=True,
        completion_tokens=tokens,
        record=parse_record(row["spec"]) if row["spec"] else None,
        ttft_seconds=row["ttft"],
        tpot_seconds=row["decode_s"] / (tokens - 1) if tokens > 1 else None,
    )
