"""What is known of series: what the linter of the rules knows, and what only dashboards ask for."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import promql_parser as promql

from alerts.lint import TARGET as TARGET_LABELS
from alerts.lint import Bundle, raw_metrics, read_bundle, records, shape
from alerts.lint.expressions import selector_name
from alerts.lint.shapes import selected

from .queries import matchers

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Series that Prometheus makes for a target, or a client library for its process; labels of a target only.
PROMETHEUS: Mapping[str, str] = {
    "up": "Prometheus, for each target",
    "scrape_duration_seconds": "Prometheus, for each target",
    "scrape_samples_scraped": "Prometheus, for each target",
    "scrape_samples_post_metric_relabeling": "Prometheus, for each target",
    "scrape_series_added": "Prometheus, for each target",
    "process_cpu_seconds_total": "prometheus_client, for the exporter's process",
    "process_resident_memory_bytes": "prometheus_client, for the exporter's process",
    "process_virtual_memory_bytes": "prometheus_client, for the exporter's process",
    "process_start_time_seconds": "prometheus_client, for the exporter's process",
    "process_open_fds": "prometheus_client, for the exporter's process",
    "process_max_fds": "prometheus_client, for the exporter's process",
}
#: Series of vLLM that no capture shows, with their labels and where they are from.
VLLM: Mapping[str, tuple[frozenset[str], str]] = {
    name: (frozenset({"model_name", "engine"}), "V1 0.8.5 to 0.10.2; tests/data/upstream/README.md, 7")
    for name in (
        "vllm:gpu_cache_usage_perc",
        "vllm:gpu_prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_queries_total",
    )
}
#: Series of alerts that are pending or firing: that they are, and since when.
ALERTS = frozenset({"ALERTS", "ALERTS_FOR_STATE"})


@cache
def bundle() -> Bundle:
    """Return the rules whose records and alerts dashboards show."""
    return read_bundle()


@cache
def unknown_to_rules() -> frozenset[str]:
    """Return the series that dashboards may ask for and rules may not."""
    return frozenset({*PROMETHEUS, *VLLM, *ALERTS})


def exists(name: str) -> bool:
    """Return whether there are series of this name."""
    return name in unknown_to_rules() or name in raw_metrics() or name in records(bundle())


def labels(selector: promql.VectorSelector) -> frozenset[str]:
    """Return the labels that the series of a selector can have."""
    name = selector_name(selector)
    if name in ALERTS:
        return _alert_labels(selector)
    if name in PROMETHEUS:
        return TARGET_LABELS
    if name in VLLM:
        return TARGET_LABELS | VLLM[name][0]
    return selected(selector, bundle()).all_labels


def origin(name: str) -> str:
    """Return whose series these are: `exporter`, `server`, `record`, `alert`, or "" for nobody's."""
    if name in ALERTS:
        return "alert"
    if name in records(bundle()):
        return "record"
    if name in PROMETHEUS:
        return "exporter"
    if name in VLLM:
        return "server"
    return raw_metrics()[name].origin if name in raw_metrics() else ""


def _alert_labels(selector: promql.VectorSelector) -> frozenset[str]:
    """Return the labels of the alerts that the matchers of `alertname` leave."""
    rules = bundle().alerts
    for matcher in matchers(selector):
        if matcher.name == "alertname" and matcher.op == promql.MatchOp.Equal:
            rules = tuple(rule for rule in rules if rule.name == matcher.value)
        elif matcher.name == "alertname" and matcher.op == promql.MatchOp.Re:
            rules = tuple(rule for rule in rules if re.fullmatch(matcher.value, rule.name))
    found = frozenset({"alertname", "alertstate"}) if rules else frozenset[str]()
    for rule in rules:
        inner = shape(rule.tree, bundle())
        found |= frozenset(rule.labels) | (inner.all_labels if inner else frozenset())
    return found
