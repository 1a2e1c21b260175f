"""vLLM's own series: what only the server knows of requests.

Prometheus scrapes them as another job.
"""

from . import promql

#: Shown where Prometheus does not scrape vLLM itself.
UNSEEN = "vLLM itself is not scraped, or had no requests"
#: Of every server that speculates.
SPECULATES = "«vllm»spec_decode_num_drafts_total{}"
#: Upper bound of the first bucket of vLLM's histograms, in seconds, if it is wide: a
#: quantile within is made up.
FIRST_BUCKET = {
    "request_time_per_output_token_seconds": 0.01,
    "e2e_request_latency_seconds": 0.3,
    "request_queue_time_seconds": 0.3,
}


def growth(name: str, by: str = "", **matchers: str) -> str:
    """Return the increase of a counter, summed."""
    return promql.growth(f"«vllm»{name}", by=by, **matchers)


def summed_rate(name: str) -> str:
    """Return the rate of a counter, summed."""
    return promql.summed_rate(f"«vllm»{name}")


def quantile(name: str, share: float) -> str:
    """Return a quantile of a histogram, where it is above the first bucket."""
    return promql.quantile(f"«vllm»{name}", share, above=FIRST_BUCKET.get(name, 0))


def mean(name: str) -> str:
    """Return the mean of a histogram, which does not depend on buckets."""
    return f"{growth(name + '_sum')} / ({growth(name + '_count')} > 0)"
