"""What is known of raw series: the exporter's metric table, and what vLLM's captures show."""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.baseline_match import QUANTILES
from vllm_specdec_exporter.economics.cost import Basis
from vllm_specdec_exporter.engines.reading import Latencies
from vllm_specdec_exporter.observe.result import REASONS
from vllm_specdec_exporter.per_request.observation import RecordState, Source
from vllm_specdec_exporter.per_request.summary import Outcome
from vllm_specdec_exporter.publish.metrics import METRICS, Kind, Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

    #: The values that a label can have; ``None`` for any.
    Values = frozenset[str] | None

CAPTURES = Path(__file__).parents[2] / "data" / "captures"

#: Prometheus's own series, which runbooks may ask for, and rules may not: not every rule server has them.
PROMETHEUS = frozenset(
    {
        "scrape_duration_seconds",
        "prometheus_rule_group_last_evaluation_timestamp_seconds",
        "prometheus_rule_evaluation_failures_total",
        "prometheus_notifications_alertmanagers_discovered",
        "prometheus_notifications_dropped_total",
    }
)

COUNTER = re.compile(r"[a-z0-9_:]+_(total|bucket|count|sum)\Z")


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a raw metric.

    Attributes:
        labels: its own labels and those that say what it hangs on, by their values; ``None`` for any.
        origin: whose scrape target it has.
        counter: whether it only grows.
    """

    labels: Mapping[str, Values]
    origin: str
    counter: bool


_VALUES: Mapping[tuple[str, str], Values] = {
    ("threshold", "name"): frozenset(item.name for item in fields(Thresholds)),
    ("poll_errors_total", "reason"): frozenset(REASONS),
    ("speedup", "basis"): frozenset(basis.value for basis in Basis),
    ("request_outcomes_total", "outcome"): frozenset(outcome.value for outcome in Outcome),
    ("request_generation_tokens_total", "outcome"): frozenset(outcome.value for outcome in Outcome),
    ("tenant_requests_total", "outcome"): frozenset(outcome.value for outcome in Outcome),
    ("request_observations_total", "source"): frozenset(source.value for source in Source),
    ("request_observations_total", "record"): frozenset(state.value for state in RecordState),
    ("latency_ratio", "latency"): frozenset(Latencies.__struct_fields__),
    ("latency_ratio", "percentile"): frozenset(f"{100 * quantile:g}" for quantile in QUANTILES),
}
_SCOPES: Mapping[Scope, tuple[str, ...]] = {
    Scope.EXPORTER: (),
    Scope.TARGET: ("target",),
    Scope.ENGINE: ("target", "model_name", "engine"),
    Scope.WINDOW: ("target", "model_name", "engine", "window"),
    Scope.REQUESTS: (),
    Scope.GROUP: ("model_name", "temperature", "request_type"),
    Scope.TENANT: ("model_name", "tenant"),
    Scope.MODEL: ("model_name",),
    Scope.RECENT: ("model_name", "window"),
}


def exporter_metrics() -> dict[str, Known]:
    """Return what the exporter's metric table declares, by exposed name."""
    found = {}
    for row in METRICS:
        labels = dict.fromkeys(_SCOPES[row.scope]) | _own_values(row)
        if row.kind is Kind.HISTOGRAM:
            found[f"{row.full_name}_bucket"] = Known(labels | {"le": None}, "exporter", counter=True)
            for suffix in ("_count", "_sum"):
                found[row.full_name + suffix] = Known(labels, "exporter", counter=True)
        else:
            found[row.full_name] = Known(labels, "exporter", row.kind is Kind.COUNTER)
    return found


def _own_values(row: Any) -> dict[str, Values]:
    if getattr(row.expand, "__qualname__", "").startswith("one_hot."):
        return {row.labels[0]: frozenset(values[0] for values, _ in row.expand(None))}
    return {label: _VALUES.get((row.name, label)) for label in row.labels}


_SAMPLE = re.compile(r"(?P<name>vllm:[a-z0-9_]+)(?:\{(?P<labels>.*)\})? \S+")
_PAIR = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
#: Labels of vLLM with few values, all of which a capture shows.
_SHOWN = frozenset({"finished_reason"})


def server_metrics(text: str) -> dict[str, Known]:
    """Return the vLLM metrics that a scrape shows; a label's values only where it shows all of them."""
    labels: dict[str, dict[str, set[str]]] = {}
    for line in text.splitlines():
        if match := _SAMPLE.match(line):
            seen = labels.setdefault(match["name"], {})
            for name, value in _PAIR.findall(match["labels"] or ""):
                seen.setdefault(name, set()).add(value)
    return {
        name: Known(
            {label: frozenset(values) if label in _SHOWN else None for label, values in seen.items()},
            "server",
            counter=bool(COUNTER.match(name)),
        )
        for name, seen in labels.items()
    }


@cache
def raw_metrics() -> dict[str, Known]:
    """Return every raw metric that a rule may use."""
    texts = [path.read_text("utf-8") for path in CAPTURES.glob("*/metrics-final.txt")]
    rendered = CAPTURES.glob("rendered/*.classic.txt.gz")
    texts += [gzip.decompress(path.read_bytes()).decode() for path in rendered]
    found = server_metrics("\n".join(texts)) | exporter_metrics()
    found["up"] = Known({}, "exporter", counter=False)
    return found


def is_counter(name: str) -> bool:
    """Return whether a raw metric only grows; of an unknown one its name tells."""
    known = raw_metrics().get(name)
    return known.counter if known else bool(COUNTER.match(name))
