"""What Grafana does with a dashboard before it asks Prometheus: variables, intervals, and the questions.

viewing = Viewing(now - 3600, now, {"model_name": ("a", "b")})
variables = resolve(prometheus, dashboard, viewing)
for panel in panels(dashboard):
    results = execute(prometheus, dashboard, panel, viewing, variables)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dashboards.grafana_timing import DashboardError, timing
from dashboards.grafana_variables import interpolate, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dashboards.grafana_timing import Json, Viewing
    from dashboards.grafana_variables import Variable
    from support.prometheus import PrometheusServer

#: Panels that ask nothing.
SILENT = frozenset({"row", "text"})


def panels(dashboard: Json) -> list[Json]:
    """Return the panels that ask something, also those folded into rows."""
    found: list[Json] = []
    for panel in dashboard["panels"]:
        if panel.get("repeat"):
            msg = f"{panel.get('title')}: repeated panels are not known here"
            raise DashboardError(msg)
        if panel["type"] not in SILENT:
            found.append(panel)
        found.extend(inner for inner in panel.get("panels", ()) if inner["type"] not in SILENT)
    return found


def unfolded(dashboard: Json) -> Json:
    """Return a dashboard as it looks once somebody has opened its last row.

    Raises:
        DashboardError: another row is folded, below which Grafana would move everything down.
    """
    *above, last = dashboard["panels"]
    if any(panel.get("collapsed") for panel in above):
        msg = f"{dashboard['uid']}: a row is folded that is not the last one"
        raise DashboardError(msg)
    if not last.get("collapsed"):
        return dashboard
    return {**dashboard, "panels": [*above, {**last, "collapsed": False, "panels": []}, *last["panels"]]}


@dataclass(frozen=True)
class Question:
    """A query as Prometheus gets it.

    Attributes:
        expression: without variables.
        instant: whether it is asked at the end of the range only.
        step: between two points, in milliseconds.
    """

    expression: str
    instant: bool
    step: int


def questions(panel: Json, viewing: Viewing, variables: Mapping[str, Variable]) -> dict[str, Question]:
    """Return what a panel asks, by `refId`.

    Raises:
        DashboardError: it would not ask, or not what it says.
    """
    found: dict[str, Question] = {}
    for target in panel.get("targets", ()):
        if target.get("hide"):
            continue
        ref, instant = target["refId"], bool(target.get("instant"))
        if instant == bool(target.get("range")) or ref in found:
            msg = f"{panel.get('title')}: {ref} is not one query, either instant or over the range"
            raise DashboardError(msg)
        when = timing(viewing, panel, target)
        expression = interpolate(target["expr"], variables, when.values())
        found[ref] = Question(expression, instant, when.step)
    return found


def ask(prometheus: PrometheusServer, question: Question, viewing: Viewing) -> Any:
    """Return the `data` that Prometheus answers; a range begins and ends at multiples of the step."""
    if question.instant:
        return prometheus.api("query", query=question.expression, time=f"{viewing.end:.3f}")
    step = question.step / 1000
    return prometheus.api(
        "query_range",
        query=question.expression,
        start=f"{viewing.start // step * step:.3f}",
        end=f"{viewing.end // step * step:.3f}",
        step=f"{step:g}",
    )


def execute(
    prometheus: PrometheusServer,
    dashboard: Json,
    panel: Json,
    viewing: Viewing,
    variables: Mapping[str, Variable] | None = None,
) -> dict[str, Any]:
    """Ask what a panel asks; return the `data` of the answers by `refId`.

    Args:
        prometheus: whom to ask.
        dashboard: the panel's.
        panel: one of `panels(dashboard)`.
        viewing: who looks.
        variables: of `resolve`, where it has been called already.
    """
    if variables is None:
        variables = resolve(prometheus, dashboard, viewing)
    asked = questions(panel, viewing, variables)
    return {ref: ask(prometheus, question, viewing) for ref, question in asked.items()}


def execute_annotations(
    prometheus: PrometheusServer,
    dashboard: Json,
    viewing: Viewing,
    variables: Mapping[str, Variable] | None = None,
) -> dict[str, Any]:
    """Ask what a dashboard's own annotations ask; return the `data` of the answers by name."""
    if variables is None:
        variables = resolve(prometheus, dashboard, viewing)
    found: dict[str, Any] = {}
    for annotation in dashboard.get("annotations", {}).get("list", ()):
        if annotation.get("builtIn") or not annotation.get("enable", True):
            continue
        target = annotation.get("target") or {}
        when = timing(viewing, {}, {"interval": target.get("interval") or annotation.get("step")})
        expression = interpolate(target.get("expr") or annotation["expr"], variables, when.values())
        found[annotation["name"]] = ask(prometheus, Question(expression, False, when.step), viewing)
    return found
