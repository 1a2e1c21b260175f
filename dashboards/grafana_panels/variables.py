"""Variables: what can be chosen at the top of a dashboard, and the matchers that use
them.

A label may be absent from a Prometheus: without `cluster` the list is empty, All
matches everything, and every panel works. Any other label is chosen with the ad hoc
filters, which Grafana adds to every query.
"""

from collections.abc import Callable, Iterable

from mixin import CLUSTER

from .field import Json
from .panel import DATASOURCE

#: Headings of the variables that are labels, which narrow each other down in this
#: order.
LABELS = {CLUSTER: "Cluster", "namespace": "Namespace", "model_name": "Model"}
#: Headings of the labels of a scrape target.
PLACES = {
    CLUSTER: "Cluster",
    "namespace": "Namespace",
    "pod": "Pod",
    "instance": "Instance",
}
#: Placeholder that Grafana replaces with the data source chosen at import; see
#: `__inputs`.
INPUT = "DS_PROMETHEUS"


def selector(labels: Iterable[str]) -> str:
    """Return matchers of labels by the variables of the same names."""
    return ",".join(f'{label}=~"${label}"' for label in labels)


#: Matchers of what has a model: the exporter's series of engines, recorded series, and
#: those of vLLM itself.
MODELS = selector(LABELS)
#: Matchers of what belongs to a scrape target: the exporter itself, and the servers
#: that it polls.
TARGETS = selector((CLUSTER, "namespace"))


def datasource() -> Json:
    """Return the variable that chooses the Prometheus."""
    placeholder = f"${{{INPUT}}}"
    return {
        "current": {"text": placeholder, "value": placeholder},
        "hide": 0,
        "includeAll": False,
        "label": "Data source",
        "multi": False,
        "name": "datasource",
        "options": [],
        "query": "prometheus",
        "refresh": 1,
        "type": "datasource",
    }


def query(
    name: str, heading: str, expr: str, *, regex: str = "", every: bool = True
) -> Json:
    """Return a variable whose values come from Prometheus.

    Args:
        name: of the variable.
        heading: its label in Grafana.
        expr: `label_values(...)` or `query_result(...)`.
        regex: selects a part of each result.
        every: whether several values and All can be chosen; else one value is, at first
            the first result.
    """
    several = {
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }
    return {
        **(several if every else {"current": {}}),
        "datasource": DATASOURCE,
        "definition": expr,
        "hide": 0,
        "includeAll": every,
        "label": heading,
        "multi": every,
        "name": name,
        "options": [],
        "query": {"query": expr, "refId": f"Variable-{name}"},
        "refresh": 2,
        **({"regex": regex} if regex else {}),
        "sort": 1 if every else 0,
        "type": "query",
    }


def labels(*names: str) -> list[Json]:
    """Return the variables of labels; each narrows down those after it."""
    queries = []
    chosen = list[str]()
    for name in names:
        if name == "model_name":
            metric = "vllm_specdec_info"
        else:
            metric = "vllm_specdec_up"
        queries.append(
            query(
                name,
                LABELS[name],
                f"label_values({metric}{{{selector(chosen)}}}, {name})",
            )
        )
        chosen.append(name)
    return queries


def window() -> Json:
    """Return the variable that chooses one of the exporter's windows."""
    expr = f"label_values(vllm_specdec_window_span_seconds{{{MODELS}}}, window)"
    chosen = query("window", "Window", expr, every=False)
    return {**chosen, "current": {"selected": True, "text": "5m", "value": "5m"}}


def price() -> Json:
    """Return the variable for what an hour of an engine costs: of all its GPUs, in any
    currency.
    """
    default = {"text": "2", "value": "2"}
    return {
        "current": default,
        "hide": 0,
        "label": "Price of an engine-hour, in your currency",
        "name": "price",
        "options": [{**default, "selected": True}],
        "query": default["value"],
        "type": "textbox",
    }


def filters() -> Json:
    """Return the ad hoc filters: Grafana adds their matchers to every query."""
    return {
        "datasource": DATASOURCE,
        "filters": [],
        "hide": 0,
        "label": "Filters",
        "name": "filters",
        "type": "adhoc",
    }


def of_models() -> list[Json]:
    """Return the variables of a dashboard of models."""
    return [datasource(), *labels(*LABELS), window(), filters()]


def of_one_model(rank: Callable[[str], str]) -> list[Json]:
    """Return the variables of a dashboard of one model: at first the one with the least
    rank, by a selector.
    """
    queries = []
    chosen = list[str]()
    for name, heading in LABELS.items():
        select = selector(chosen)
        ranked = f"min by ({name}) ({rank(select)} > 1)"
        unranked = (
            f"max by ({name}) (99 + 0 * "
            f"last_over_time(vllm_specdec_info{{{select}}}[1h]))"
        )
        expr = f"query_result(sort({ranked} or {unranked}))"
        queries.append(
            query(name, heading, expr, regex=f'/{name}="([^"]*)"/', every=False)
        )
        chosen.append(name)
    engines = f"vllm_specdec_info{{{MODELS}}}"
    queries += [
        query(name, name.capitalize(), f"label_values({engines}, {name})")
        for name in ("pod", "engine")
    ]
    return [datasource(), *queries, window(), filters()]


def of_targets() -> list[Json]:
    """Return the variables of a dashboard of exporters and servers."""
    return [datasource(), *labels(CLUSTER, "namespace"), filters()]
