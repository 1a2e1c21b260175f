"""Annotations: what happened, drawn into every panel; and the alerts that fire."""

from mixin import CLUSTER

from .field import Json
from .palette import BLUE, GREY, VERMILION
from .panel import DATASOURCE
from .promql import IDENTITY, MODEL, MODEL_LEGEND, metric
from .variables import TARGETS

#: Firing alerts of the selection; "or nothing", because alerts of an exporter have no
#: model.
FIRING = (
    'ALERTS{alertname=~"VLLMSpecDecode.+",alertstate="firing",severity!="none",'
    f'{TARGETS},model_name=~"$model_name|"}}'
)


def marks() -> list[Json]:
    """Return the annotations of every dashboard.

    A step back is `$__interval`, whatever the range. Changes are those of an engine,
    and those of a model: a rollout makes new pods, each with a K that never changes.
    """
    firing = (
        f"max by (alertname, severity, {CLUSTER}, namespace, model_name) ({FIRING})"
    )
    k = metric("num_speculative_tokens")
    # The label must come last in the alphabet: Prometheus 2.42 loses those behind it.
    each = f'count_values by ({MODEL}) ("value", {k})'
    changed = (
        f'count_values by ({MODEL}) ("value", {k} != last_over_time({k}[1h] offset '
        "$__interval))"
    )
    another = (
        f"{each} unless last_over_time({each}[1h:1m] offset $__interval) "
        f"and on ({MODEL}) last_over_time({k}[1h] offset $__interval)"
    )
    resets = metric("engine_resets_total")
    info = metric("info")
    info_before = f"last_over_time({info}[1h] offset $__interval)"
    restarted = f"{resets} > last_over_time({resets}[1h] offset $__interval)"
    started = (
        f"{info} unless on ({IDENTITY}) {info_before} "
        f"and on ({MODEL}) count by ({MODEL}) ({info_before})"
    )
    return [
        _grafana(),
        _query(
            "Alerts",
            color=VERMILION,
            expr=f"{firing} unless {firing.removesuffix(')')} offset $__interval)",
            title="{{alertname}} began",
            text="{{severity}} {{namespace}} {{model_name}}",
        ),
        _query(
            "Starts",
            color=GREY,
            expr=f"count by ({MODEL}) ({restarted} or on ({IDENTITY}) ({started}))",
            title="Engine started",
            text=MODEL_LEGEND,
        ),
        _query(
            "K changes",
            color=BLUE,
            expr=f"{changed} or {another}",
            title="K is {{value}} now",
            text=MODEL_LEGEND,
        ),
    ]


def _grafana() -> Json:
    """Return Grafana's own annotations and alerts, which every dashboard has."""
    return {
        "builtIn": 1,
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
        "enable": True,
        "hide": True,
        "iconColor": GREY,
        "name": "Annotations & Alerts",
        "type": "dashboard",
    }


def _query(name: str, color: str, expr: str, title: str, text: str) -> Json:
    return {
        "datasource": DATASOURCE,
        "enable": True,
        "expr": expr,
        "hide": False,
        "iconColor": color,
        "name": name,
        "step": "60s",
        "tagKeys": "severity",
        "textFormat": text,
        "titleFormat": title,
    }
