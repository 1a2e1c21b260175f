"""Annotations: what happened, drawn into every panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .palette import BLUE, GREY, VERMILION
from .promql import IDENTITY, MODEL, gauge
from .target import DATASOURCE
from .variables import ENGINE, selector

if TYPE_CHECKING:
    from .field import Json

#: What is chosen, as far as alerts name it; "or nothing", because alerts of an exporter name no model.
PLACES = f'{selector(("cluster", "namespace"))},model_name=~"$model_name|"'
#: What all alerts begin with; see alerts/.
ALERTS = 'alertname=~"VLLMSpecDecode.+"'


def firing(places: str = PLACES, *more: str) -> str:
    """Return the alerts that fire for what is chosen. One of a model has no engine, so that is no filter."""
    matchers = (ALERTS, 'alertstate="firing"', 'severity!="none"', places, *more)
    return f"ALERTS{{{','.join(matchers)}}}"


def usual(select: str = ENGINE, places: str = PLACES) -> list[Json]:
    """Return the annotations of every dashboard.

    A step back is `$__interval`, whatever the range. Changes are those of an engine, and those of a model: a
    rollout makes new pods, each with a K that never changes.

    Args:
        select: what selects the engines whose changes and starts are drawn.
        places: what selects the alerts that are drawn.
    """
    k = gauge("num_speculative_tokens", select)
    # The label must come last in the alphabet: Prometheus 2.42 loses those behind it.
    each = f'count_values by ({MODEL}) ("value", {k})'
    changed = f'count_values by ({MODEL}) ("value", {k} != last_over_time({k}[1h] offset $__interval))'
    another = (
        f"{each} unless last_over_time({each}[1h:1m] offset $__interval) "
        f"and on ({MODEL}) count by ({MODEL}) (last_over_time({k}[1h] offset $__interval))"
    )
    resets, info = gauge("engine_resets_total", select), gauge("info", select)
    before = f"last_over_time({info}[1h] offset $__interval)"
    restarted = f"{resets} > last_over_time({resets}[1h] offset $__interval)"
    started = f"{info} unless on ({IDENTITY}) {before} and on ({MODEL}) count by ({MODEL}) ({before})"
    return [
        _grafana(),
        _query(
            "Alerts",
            VERMILION,
            f"{_by_alert(firing(places))} unless {_by_alert(firing(places) + ' offset $__interval')}",
            "{{alertname}} began",
            "{{severity}} {{namespace}} {{model_name}}",
        ),
        _query(
            "Starts",
            GREY,
            f"count by ({MODEL}) ({restarted} or on ({IDENTITY}) ({started}))",
            "Engine started",
            "{{cluster}} {{namespace}} {{model_name}}",
        ),
        _query(
            "K changes",
            BLUE,
            f"{changed} or {another}",
            "K is {{value}} now",
            "{{cluster}} {{namespace}} {{model_name}}",
        ),
    ]


def _by_alert(firing: str) -> str:
    return f"max by (alertname, severity, cluster, namespace, model_name) ({firing})"


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
