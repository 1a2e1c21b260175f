"""Values of requests, counted as the exporter counts them."""

import math
from collections.abc import Sequence

from vllm_specdec_exporter.exposition.histogram import Histogram


def observed(values: Sequence[float], bounds: tuple[float, ...] = (0.05, 0.5, 1.0, 30.0)) -> Histogram:
    """Return the histogram of `values`, one looked at after the other."""
    return Histogram(
        bounds,
        tuple(float(sum(value <= bound for value in values)) for bound in bounds),
        float(len(values)),
        math.fsum(values),
    )
