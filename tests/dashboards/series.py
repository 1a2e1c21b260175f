"""The series that dashboards query: whose they are, and which labels they have."""

import re
from collections.abc import Mapping
from typing import Any

import promql_parser as promql

from alerts.lint import TARGET, raw_metrics, read_bundle, records
from alerts.lint.bundle import parse, selector_name
from alerts.lint.series import spellings
from dashboards.documents import VARIABLE

#: Series that Prometheus makes for a target, or a client library for its process;
#: labels of a target only.
PROMETHEUS = frozenset(
    {
        "up",
        "scrape_duration_seconds",
        "scrape_samples_scraped",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
    }
)
#: Series of vLLM V1 0.8.5 to 0.10.2 that no capture shows:
#: tests/data/upstream/README.md, at its end.
_OLD_VLLM = (
    "vllm:gpu_cache_usage_perc",
    "vllm:gpu_prefix_cache_hits_total",
    "vllm:gpu_prefix_cache_queries_total",
)
VLLM = frozenset(spelled for name in _OLD_VLLM for spelled in spellings(name))
#: Series of alerts that are pending or firing: that they are, and since when.
ALERTS = frozenset({"ALERTS", "ALERTS_FOR_STATE"})

#: Labels of what is recorded, by its level.
LEVELS = {
    "namespace": frozenset({"cluster", "namespace"}),
    "model": frozenset({"cluster", "namespace", "model_name"}),
    "method": frozenset({"cluster", "namespace", "model_name", "method"}),
    "instance": TARGET | {"model_name"},
    "engine": TARGET | {"model_name", "engine"},
}

#: What stands for a variable outside of strings, in milliseconds: no other duration is
#: as odd.
DURATIONS: Mapping[str, int] = {
    "__rate_interval": 60_001,
    "__interval": 15_002,
    "__range": 10_800_003,
    "window": 300_004,
}
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*")""")


def tree(expr: str) -> promql.Expr:
    """Parse a query: variables in strings stay, others become odd durations, or 3.

    Raises:
        ValueError: it is no PromQL.
    """
    parts = _QUOTED.split(expr)
    # Every second part is a string.
    parts[::2] = [VARIABLE.sub(_value, part) for part in parts[::2]]
    return parse("".join(parts))


def _value(match: re.Match[str]) -> str:
    name = match["plain"] or match["braced"]
    if name in DURATIONS:
        return f"{DURATIONS[name]}ms"
    return "3"


def exists(name: str) -> bool:
    """Return whether there are series of this name."""
    return (
        name in PROMETHEUS | VLLM | ALERTS
        or name in raw_metrics()
        or name in records(read_bundle())
    )


def labels(selector: promql.VectorSelector) -> frozenset[str]:
    """Return the labels that the series of a selector can have, for a record by its
    level.
    """
    name = selector_name(selector)
    level, colon, _ = name.partition(":")
    if colon and name in records(read_bundle()):
        return LEVELS[level]
    if name in raw_metrics():
        return TARGET | raw_metrics()[name]
    if name in PROMETHEUS:
        return TARGET
    return TARGET | {"model_name", "engine"}


def matchers(selector: promql.VectorSelector) -> list[Any]:
    """Return the matchers of a selector but for that of its name."""
    return [
        matcher for matcher in selector.matchers.matchers if matcher.name != "__name__"
    ]
