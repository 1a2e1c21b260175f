"""Small dashboards and answers of Prometheus, to try the renderer with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dashboards.rendering import Document

#: When the samples end.
END = 1_750_000_020.0
START = END - 3600
#: Seconds between two samples.
STEP = 30
RED = "#ff0000"
#: Places of some panels, one beside the other.
PLACES = [(x, y, 6, 4) for y in (0, 4, 8, 12) for x in (0, 6, 12, 18)]

Labels = dict[str, str]
Answer = dict[str, Any]


def vector(*values: tuple[Labels, float | str]) -> Answer:
    """Answer of an instant query."""
    result = [{"metric": labels, "value": [END, str(value)]} for labels, value in values]
    return {"resultType": "vector", "result": result}


def matrix(*series: tuple[Labels, Callable[[int], float | None]]) -> Answer:
    """Answer of a range query: for each series its value after so many seconds, None for no sample."""
    result = []
    for labels, function in series:
        values = [(after, function(after)) for after in range(0, 3601, STEP)]
        known = [[START + after, str(value)] for after, value in values if value is not None]
        result.append({"metric": labels, "values": known})
    return {"resultType": "matrix", "result": result}


def target(ref: str = "A", legend: str = "{{name}}", **more: Any) -> dict[str, Any]:
    """A query."""
    return {"refId": ref, "expr": "some_metric", "legendFormat": legend, **more}


def table_target(ref: str = "A") -> dict[str, Any]:
    """A query whose answer is a table."""
    return target(ref, "__auto", format="table", instant=True)


def override(matcher: str, options: Any, **properties: Any) -> dict[str, Any]:
    """An override; two underscores in a property's name stand for a dot."""
    return {
        "matcher": {"id": matcher, "options": options},
        "properties": [{"id": name.replace("__", "."), "value": value} for name, value in properties.items()],
    }


def words(**by_value: str) -> list[dict[str, Any]]:
    """Mappings of values to words: `words(_1="good")`."""
    options = {
        name.lstrip("_"): {"text": word, "index": i} for i, (name, word) in enumerate(by_value.items())
    }
    return [{"type": "value", "options": options}]


def panel(
    type_: str,
    answers: Mapping[str, Answer] | None = None,
    *,
    at: tuple[int, int, int, int] = (0, 0, 12, 8),
    defaults: Mapping[str, Any] | None = None,
    overrides: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> tuple[dict[str, Any], Mapping[str, Answer]]:
    """A panel, and the answers to its queries."""
    answers = answers or {}
    x, y, w, h = at
    whole = {
        "type": type_,
        "title": "A panel",
        "gridPos": {"x": x, "y": y, "w": w, "h": h},
        "targets": [target(ref) for ref in answers],
        "fieldConfig": {"defaults": defaults or {}, "overrides": list(overrides)},
        "options": {},
        **more,
    }
    return whole, answers


def sample(
    *panels: tuple[dict[str, Any], Mapping[str, Answer]],
    theme: str = "dark",
    variables: Mapping[str, str | list[str]] | None = None,
    **more: Any,
) -> Document:
    """A dashboard of these panels, numbered from 1, with answers to their queries."""
    names = variables or {}
    dashboard = {
        "uid": "sample",
        "title": "A dashboard",
        "panels": [{**whole, "id": number} for number, (whole, _) in enumerate(panels, 1)],
        "templating": {"list": [{"name": name, "label": name.title(), "type": "query"} for name in names]},
    }
    results = {str(number): dict(answers) for number, (_, answers) in enumerate(panels, 1)}
    return {
        "dashboard": dashboard,
        "from": START,
        "to": END,
        "results": results,
        "theme": theme,
        "width": 1200,
        "variables": names,
        **more,
    }


def line(of: Callable[[int], float | None] = lambda _: 0.5, *, name: str = "line", **more: Any) -> Any:
    """A time series in red."""
    defaults = {"color": {"mode": "fixed", "fixedColor": RED}, "custom": {"lineWidth": 2}}
    return panel("timeseries", {"A": matrix(({"name": name}, of))}, defaults=defaults, **more)
