"""Differences and sums of cumulative latencies, for all histograms at once."""

from ..engines.reading import Latencies
from ..exposition.histogram import Histogram

LATENCIES = Latencies.__struct_fields__


def latencies_between(
    before: Latencies | None, after: Latencies | None
) -> Latencies | None:
    """Return the latencies of requests that finished between two samples; ``None`` if
    they are not known.
    """
    if before is None or after is None:
        return None
    increases: dict[str, Histogram] = {}
    for name in LATENCIES:
        earlier: Histogram | None = getattr(before, name)
        later: Histogram | None = getattr(after, name)
        if earlier is None or later is None:
            continue
        finished = later.since(earlier)
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
