"""Child process of the benchmarks: an exporter as one writes it in an hour, on
prometheus_client's client and parser.

Its arguments are a port, the seconds between polls, and the URLs of the servers. It has
one thread for all polls, and keeps nothing from one to the next but two totals.
"""

import sys
import time
import urllib.request

from prometheus_client import Gauge, start_http_server
from prometheus_client.parser import text_string_to_metric_families

_DRAFTS = "vllm:spec_decode_num_drafts_total"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
_LENGTH = Gauge("mean_acceptance_length", "tokens per draft since the last poll", ["t"])


def _totals(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    totals = {_DRAFTS: 0.0, _ACCEPTED: 0.0}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in totals:
                totals[sample.name] += sample.value
    return totals


def main(port: int, interval: float, urls: list[str]) -> None:
    """Poll for ever."""
    start_http_server(port, addr="127.0.0.1")
    last_totals: dict[str, dict[str, float]] = {}
    while True:
        due = time.monotonic() + interval
        for url in urls:
            totals = _totals(url)
            previous = last_totals.get(url, totals)
            drafts = totals[_DRAFTS] - previous[_DRAFTS]
            if drafts > 0:
                accepted = totals[_ACCEPTED] - previous[_ACCEPTED]
                _LENGTH.labels(url).set(1 + accepted / drafts)
            last_totals[url] = totals
        time.sleep(max(0.0, due - time.monotonic()))


main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
