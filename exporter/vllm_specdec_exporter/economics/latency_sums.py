"""Differences and sums of cumulative latencies, for all histograms at once."""

from ..engines.reading import Latencies
from ..exposition.histogram import Histogram

LATENCIES = Latencies.__struct_fields__


def latencies_between(
    earlier: Latencies | None, later: Latencies | None
) -> Latencies | None:
    """Return the latencies of requests that finished between two samples; ``None`` if
    they are not known.
    """
    if earlier is None or later is None:
        return None
    increases: dict[str, Histogram] = {}
    for name in LATENCIES:
        start: Histogram | None = getattr(earlier, name)
        end: Histogram | None = getattr(later, name)
        if start is None or end is None:
            continue
        finished = end.since(start)
        if finished is None:
            return None
        increases[name] = finished
    return Latencies(**increases)


def latencies_together(first: Latencies, second: Latencies) -> Latencies:
    """Return the latencies of the requests of both; ValueError if their histograms
    have other bounds.
    """
    together: dict[str, Histogram | None] = {}
    for name in LATENCIES:
        histogram: Histogram | None = getattr(first, name)
        added: Histogram | None = getattr(second, name)
        if histogram and added:
            together[name] = histogram.plus(added)
        else:
            together[name] = histogram or added
    return Latencies(**together)
