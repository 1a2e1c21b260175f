"""Variables: what can be chosen at the top of a dashboard, and the selectors that go by it.

Each may be absent as a label: without `cluster` the list is empty, All stands for anything or nothing, and
every panel works. `job` and `instance` are always there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .target import DATASOURCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .field import Json

#: Variables by name, which is that of their label: heading, and what All stands for.
LABELS = {
    "cluster": ("Cluster", ".*"),
    "namespace": ("Namespace", ".*"),
    "job": ("Job", ".+"),
    "instance": ("Instance", ".+"),
    "pod": ("Pod", ".*"),
    "target": ("Server", ".*"),
    "model_name": ("Model", ".*"),
    "engine": ("Engine", ".*"),
}
#: Labels of a scrape target, in the order in which they narrow each other down.
TARGET_LABELS = ("cluster", "namespace", "job", "instance", "pod")
#: Of a server that an exporter polls; one that polls a single server does not name it.
SERVER_LABELS = (*TARGET_LABELS, "target")
ENGINE_LABELS = (*SERVER_LABELS, "model_name", "engine")


def selector(labels: Iterable[str], prefix: str = "", **renamed: str) -> str:
    """Return matchers of labels with the variables of their names.

    Args:
        labels: the labels.
        prefix: of the variables' names.
        renamed: other names of variables, by label.
    """
    return ",".join(f'{label}=~"${renamed.get(label, prefix + label)}"' for label in labels)


#: What selects the exporter's series of an engine, of a server, and of the exporter itself.
ENGINE = selector(ENGINE_LABELS)
SERVER = selector(SERVER_LABELS)
TARGET = selector(TARGET_LABELS)
#: What selects recorded series of models.
MODELS = selector(("cluster", "namespace", "model_name"))
#: What selects vLLM's own series, which another job scrapes at another port.
VLLM = selector(
    ("cluster", "namespace", "pod", "job", "instance", "model_name", "engine"),
    job="vllm_job",
    instance="vllm_instance",
)


def datasource() -> Json:
    """Return the variable that chooses the Prometheus."""
    return {
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
    name: str, label: str, expr: str, *, every: str = "", regex: str = "", several: bool = True, sort: int = 1
) -> Json:
    """Return a variable whose values come from Prometheus.

    Args:
        name: of the variable.
        label: its heading.
        expr: `label_values(...)` or `query_result(...)`.
        every: what All stands for; without it there is no All.
        regex: what to take of a result.
        several: whether several values can be chosen.
        sort: 1 by the alphabet, 3 by number.
    """
    return {
        **({"allValue": every, "current": _all(several=several)} if every else {}),
        "datasource": DATASOURCE,
        "definition": expr,
        "hide": 0,
        "includeAll": bool(every),
        "label": label,
        "multi": several,
        "name": name,
        "options": [],
        "query": {"query": expr, "refId": f"Variable-{name}"},
        "refresh": 2,
        **({"regex": regex} if regex else {}),
        "sort": sort,
        "type": "query",
    }


def choice(name: str, label: str, values: Sequence[str], first: str) -> Json:
    """Return a variable with values of its own, of which one is chosen.

    Args:
        name: of the variable.
        label: its heading.
        values: what there is to choose.
        first: what is chosen at first.
    """
    return {
        "current": {"selected": True, "text": first, "value": first},
        "hide": 0,
        "includeAll": False,
        "label": label,
        "multi": False,
        "name": name,
        "options": [{"selected": value == first, "text": value, "value": value} for value in values],
        "query": ",".join(values),
        "type": "custom",
    }


def _all(*, several: bool) -> Json:
    text, value = "All", "$__all"
    return {
        "selected": True,
        "text": [text] if several else text,
        "value": [value] if several else value,
    }


def labels(names: Iterable[str] = ENGINE_LABELS) -> list[Json]:
    """Return the variables of the exporter's labels; each narrows down those behind it."""
    found, before = [], list[str]()
    for name in names:
        text, every = LABELS[name]
        metric = "vllm_specdec_info" if name in ("model_name", "engine") else "vllm_specdec_up"
        found.append(query(name, text, f"label_values({metric}{{{selector(before)}}}, {name})", every=every))
        before.append(name)
    return found


def window(select: str = ENGINE) -> Json:
    """Return the variable that chooses the exporter's window."""
    expr = f"label_values(vllm_specdec_window_span_seconds{{{select}}}, window)"
    found = query("window", "Window", expr, several=False)
    return {**found, "current": {"selected": True, "text": "5m", "value": "5m"}}


def vllm() -> list[Json]:
    """Return the variables of vLLM's own series, which are scraped as another job."""
    among = selector(("cluster", "namespace", "pod", "model_name", "engine"))
    job = f'job=~"$vllm_job",{among}'
    metric = "vllm:num_requests_running"
    return [
        query("vllm_job", "vLLM job", f"label_values({metric}{{{among}}}, job)", every=".+"),
        query("vllm_instance", "vLLM instance", f"label_values({metric}{{{job}}}, instance)", every=".+"),
    ]


def usual(*, windowed: bool = True) -> list[Json]:
    """Return the variables that most dashboards have; `windowed` where panels go by the exporter's window."""
    return [datasource(), *labels(), *([window()] if windowed else [])]
