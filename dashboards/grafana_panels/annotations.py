"""Annotations: what happened, drawn into every panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .palette import BLUE, GREY, VERMILION
from .promql import IDENTITY, gauge
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

    Args:
        select: what selects the engines whose changes and restarts are drawn.
        places: what selects the alerts that are drawn.
    """
    k, resets = gauge("num_speculative_tokens", select), gauge("engine_resets_total", select)
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
            "Restarts",
            GREY,
            f"{resets} > last_over_time({resets}[1h] offset $__interval)",
            "Engine restarted",
            "{{namespace}} {{instance}} {{model_name}} {{engine}}",
        ),
        _query(
            "K changes",
            BLUE,
            f'count_values by ({IDENTITY}) ("k", {k} != last_over_time({k}[1h] offset $__interval))',
            "K is {{k}} now",
            "{{namespace}} {{instance}} {{model_name}} {{engine}}",
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
