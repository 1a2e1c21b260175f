"""The exporter that one would write in an afternoon, for `peers`: fetch, parse, set gauges, serve.

Arguments: the URL of vLLM's metrics, and the port. It polls every five seconds, as ours does by default, and
publishes the counters of speculative decoding and two ratios of them since the last poll.
"""

from __future__ import annotations

import sys
import time
import urllib.request

from prometheus_client import Gauge, start_http_server
from prometheus_client.parser import text_string_to_metric_families

POLL_SECONDS = 5.0
LABELS = ("model_name", "engine")
RATIOS = {
    "acceptance": Gauge("direct_acceptance_ratio", "Accepted tokens by drafted tokens.", LABELS),
    "length": Gauge("direct_mean_acceptance_length", "Tokens per draft, the bonus token included.", LABELS),
}
COUNTS: dict[str, Gauge] = {}


def poll(url: str, before: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """Read the metrics once and publish them; returns the counters for the next time."""
    with urllib.request.urlopen(url, timeout=4) as answer:
        text = answer.read().decode()
    now: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(text):
        if not family.name.startswith("vllm:spec_decode"):
            continue
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue
            labels = {**sample.labels}
            position = labels.pop("position", "")
            key = (sample.name, labels.get("model_name", ""), labels.get("engine", ""), position)
            now[key] = sample.value
            name = "direct_" + sample.name.removeprefix("vllm:")
            names = (*LABELS, "position") if position else LABELS
            if name not in COUNTS:
                COUNTS[name] = Gauge(name, family.documentation, names)
            COUNTS[name].labels(*key[1 : 1 + len(names)]).set(sample.value)

    def grown(name: str, own: tuple[str, ...]) -> float:
        key = (f"vllm:spec_decode_num_{name}_total", *own, "")
        return now.get(key, 0.0) - before.get(key, 0.0)

    for own in {key[1:3] for key in now}:
        drafts, drafted, accepted = (grown(n, own) for n in ("drafts", "draft_tokens", "accepted_tokens"))
        if drafts > 0 and drafted > 0:
            RATIOS["acceptance"].labels(*own).set(accepted / drafted)
            RATIOS["length"].labels(*own).set(1 + accepted / drafts)
    return now


if __name__ == "__main__":
    start_http_server(int(sys.argv[2]), "127.0.0.1")
    seen: dict[tuple[str, ...], float] = {}
    while True:
        try:
            seen = poll(sys.argv[1], seen)
        except OSError as error:
            sys.stderr.write(f"{error}\n")
        time.sleep(POLL_SECONDS)
