"""What is known of raw series: the exporter's metric table, and what vLLM's captures
show.
"""

import gzip
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from vllm_specdec_exporter.engines.tables import DIALECT_NAMED
from vllm_specdec_exporter.publish.metrics import METRICS, Kind, MetricScope

CAPTURES = Path(__file__).parents[2] / "data" / "captures"

#: What Prometheus attaches to a target, as far as the rules may name it.
TARGET = frozenset({"cluster", "namespace", "job", "instance", "pod"})
#: Prometheus's own series, which runbooks may ask for, and rules may not: not every
#: rule server has them.
PROMETHEUS = frozenset(
    {
        "scrape_duration_seconds",
        "prometheus_rule_group_last_evaluation_timestamp_seconds",
        "prometheus_rule_evaluation_failures_total",
        "prometheus_notifications_alertmanagers_discovered",
        "prometheus_notifications_dropped_total",
    }
)
#: How the names of vLLM's series may begin, and those of SGLang's.
SPELLINGS = tuple(DIALECT_NAMED[name].prefixes for name in ("vllm-v1", "sglang"))
_COUNTER = re.compile(r"[a-z0-9_:]+_(total|bucket|count|sum)")
_SAMPLE = re.compile(r"^((?:vllm|sglang):[a-z0-9_]+)(?:\{(.*)\})? \S+", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="(?:[^"\\]|\\.)*"')
_SCOPES: Mapping[MetricScope, tuple[str, ...]] = {
    MetricScope.EXPORTER: (),
    MetricScope.TARGET: ("target",),
    MetricScope.ENGINE: ("target", "model_name", "engine"),
    MetricScope.WINDOW: ("target", "model_name", "engine", "window"),
    MetricScope.REQUESTS: (),
    MetricScope.GROUP: ("model_name", "temperature", "request_type"),
    MetricScope.TENANT: ("model_name", "tenant"),
    MetricScope.MODEL: ("model_name",),
    MetricScope.RECENT: ("model_name", "window"),
}


@cache
def raw_metrics() -> dict[str, frozenset[str]]:
    """Return the labels of every raw series that a rule may use, without those of the
    target.
    """
    texts = [path.read_text("utf-8") for path in CAPTURES.glob("*/metrics-final.txt")]
    rendered = CAPTURES.glob("rendered/*.classic.txt.gz")
    texts += [gzip.decompress(path.read_bytes()).decode() for path in rendered]
    texts.append((CAPTURES.parent / "upstream" / "sglang-k3.txt").read_text("utf-8"))
    known: dict[str, frozenset[str]] = defaultdict(frozenset, {"up": frozenset()})
    for name, labels in set(_SAMPLE.findall("\n".join(texts))):
        for spelled in spellings(name):
            known[spelled] |= frozenset(_LABEL.findall(labels))
            known[spelled.removesuffix("_bucket")] |= known[spelled] - {"le"}
    for row in METRICS:
        own = frozenset((*_SCOPES[row.scope], *row.labels))
        if row.kind is Kind.HISTOGRAM:
            known[f"{row.full_name}_bucket"] = own | {"le"}
            known[f"{row.full_name}_count"] = known[f"{row.full_name}_sum"] = own
            known[row.full_name] = own  # converted into a native one
        else:
            known[row.full_name] = own
    return dict(known)


def spellings(name: str) -> list[str]:
    """Return a series of an engine as everyone who renames it calls it."""
    for prefixes in SPELLINGS:
        if name.startswith(prefixes[0]):
            return [prefix + name.removeprefix(prefixes[0]) for prefix in prefixes]
    return [name]


def is_counter(name: str) -> bool:
    """Return whether a raw series only grows, by its name."""
    return bool(_COUNTER.fullmatch(name))
