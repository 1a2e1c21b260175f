"""Values of requests, counted as the exporter counts them."""

import math
from collections import Counter
from collections.abc import Sequence

from vllm_specdec_exporter.exposition.histogram import Histogram, index_of
from vllm_specdec_exporter.requests.result import Observed


def observed(values: Sequence[float], bounds: tuple[float, ...] = (0.05, 0.5, 1.0, 30.0)) -> Observed:
    """Return the histogram of `values`, one looked at after the other."""
    indices = [index_of(value) for value in values]
    classic = Histogram(
        bounds,
        tuple(float(sum(value <= bound for value in values)) for bound in bounds),
        float(len(values)),
        math.fsum(values),
    )
    return Observed(
        classic,
        zero=indices.count(None),
        native=tuple(Counter(index for index in indices if index is not None).items()),
    )
