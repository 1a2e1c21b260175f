"""vLLM's own series: what only the server itself knows of requests. Another job scrapes them."""

from __future__ import annotations

from . import promql
from .field import colored
from .palette import BLUE, GREY, ORANGE, SKY, VERMILION
from .panel import TimeSeries
from .target import over_time
from .variables import VLLM

#: What stands where Prometheus does not scrape vLLM itself.
UNSEEN = "vLLM itself is not scraped, or had no requests"
#: Why requests end, and a colour each.
ENDINGS = {"stop": BLUE, "length": SKY, "abort": GREY, "error": VERMILION, "repetition": ORANGE}


def counted(name: str, by: str = "", **matchers: str) -> str:
    """Return the rate of a counter, summed."""
    return promql.counted(f"vllm:{name}", VLLM, by, **matchers)


#: Where the first bucket of vLLM's histograms ends, in seconds, if it is wide: a quantile within is made up.
FIRST_BUCKET = {
    "request_time_per_output_token_seconds": 0.01,
    "e2e_request_latency_seconds": 0.3,
    "request_queue_time_seconds": 0.3,
}


def quantile(name: str, share: float) -> str:
    """Return a quantile of a histogram, where it lies above the first bucket."""
    return promql.quantile(f"vllm:{name}", VLLM, share, above=FIRST_BUCKET.get(name, 0))


def mean(name: str) -> str:
    """Return the mean of a histogram, which no bucket blurs."""
    return f"{counted(name + '_sum')} / ({counted(name + '_count')} > 0)"


def endings(title: str, description: str, width: int) -> TimeSeries:
    """Return the panel with the reasons for which requests end."""
    return TimeSeries(
        title=title,
        description=description,
        targets=[over_time(counted("request_success_total", "finished_reason"), "{{finished_reason}}")],
        unit="reqps",
        least=0,
        overrides=colored(ENDINGS),
        no_value=UNSEEN,
        width=width,
    )
