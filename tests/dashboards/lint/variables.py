"""Checks of the variables of a dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_specdec_exporter.settings import DEFAULT_WINDOWS

from .queries import asked, asked_label, variables_in
from .targets import DATASOURCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .document import Dashboard, Variable

#: The exporter's windows, unless told otherwise.
WINDOWS = tuple(window.name for window in DEFAULT_WINDOWS)
#: Labels that every series has, and those that may be absent.
KINDS = ("custom", "datasource", "query", "textbox")
SURE = ("job", "instance")
OPTIONAL = ("cluster", "namespace", "pod", "model_name", "engine", "temperature", "request_type")


def template_datasource(dashboard: Dashboard) -> list[str]:
    """The first variable is the data source, a Prometheus."""
    first = dashboard.variables[0].body if dashboard.variables else {}
    wanted = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return [
        f"{key} of the first variable is {first.get(key)!r}, not {value!r}"
        for key, value in wanted.items()
        if first.get(key) != value
    ]


def template_job(dashboard: Dashboard) -> list[str]:
    """There is a variable for the job; where two sides are compared, for that of each."""
    return list(_template(dashboard, "job", "Job"))


def template_instance(dashboard: Dashboard) -> list[str]:
    """There is a variable for the instance; where two sides are compared, for that of each."""
    return list(_template(dashboard, "instance", "Instance"))


def _template(dashboard: Dashboard, name: str, label: str) -> Iterator[str]:
    found = [one for one in dashboard.variables if one.name == name]
    if not found:
        found = [one for one in dashboard.variables if _base(one) == name]
    if not found:
        yield f"no variable {name}"
    for one in found:
        side = one.name.removesuffix(name)
        heading = str(one.body.get("label", ""))
        if heading != label and not (side and heading.casefold().endswith(label.casefold())):
            yield f"{one.name} is headed {heading!r}, not {label!r}"


def _base(variable: Variable) -> str:
    """Return the label that a variable is for, without the side that it is of."""
    return variable.name.partition("_")[2] if variable.name[:2] in ("a_", "b_") else variable.name


def template_choice(dashboard: Dashboard) -> list[str]:
    """Several values can be chosen, and All: anything for labels that are sure, or nothing for the others."""
    found = []
    for variable in dashboard.variables:
        label = asked_label(variable)
        if variable.kind != "query" or label not in SURE + OPTIONAL:
            continue
        every = ".+" if label in SURE else ".*"
        wanted = {"multi": True, "includeAll": True, "allValue": every}
        found += [
            f"{key} of {variable.name} is {variable.body.get(key)!r}, not {value!r}"
            for key, value in wanted.items()
            if variable.body.get(key) != value
        ]
    return found


def template_label(dashboard: Dashboard) -> list[str]:
    """A variable of a label is called after it, and asks for it by PromQL."""
    found = []
    for variable in dashboard.variables:
        if variable.kind != "query":
            continue
        label = asked_label(variable)
        if label and _base(variable).removeprefix("vllm_") != label:
            found.append(f"{variable.name} has the values of {label}")
        if not asked(variable):
            found.append(f"{variable.name} asks all series there are")
        if variable.body.get("datasource") != DATASOURCE:
            found.append(f"{variable.name} does not ask the data source that was chosen")
        if variable.body.get("definition") != variable.query:
            found.append(f"{variable.name} shows another definition than its query")
    return found


def template_on_time_change_reload(dashboard: Dashboard) -> list[str]:
    """The values of a variable are looked up anew when the time range changes."""
    return [
        f"refresh of {variable.name} is {variable.body.get('refresh')}, not 2"
        for variable in dashboard.variables
        if variable.kind == "query" and variable.body.get("refresh") != 2
    ]


def variable_names(dashboard: Dashboard) -> list[str]:
    """Every variable has a name of its own, a heading, and a type."""
    names = dashboard.names
    twice = [f"{name} stands twice" for name in sorted(set(names)) if names.count(name) > 1]
    strange = [f"{one.name} is of type {one.kind!r}" for one in dashboard.variables if one.kind not in KINDS]
    bare = [f"{one.name} has no heading" for one in dashboard.variables if not one.body.get("label")]
    return twice + strange + bare


def unused_variables(dashboard: Dashboard) -> list[str]:
    """Every variable is used: by a panel, an annotation or a link. That another is chosen by it is no use."""
    asked_for: set[str] = set()
    for key in ("panels", "annotations"):
        asked_for |= set(variables_in(str(dashboard.body.get(key))))
    return [f"{name} is used by nothing" for name in dashboard.names if name not in asked_for]


def chosen_at_first(dashboard: Dashboard) -> list[str]:
    """What can be All is All at first; what cannot has a value that is named."""
    found = []
    for variable in dashboard.variables:
        current = variable.body.get("current", {}).get("value")
        if variable.kind != "query":
            continue
        if variable.body.get("includeAll") and current not in ("$__all", ["$__all"]):
            found.append(f"{variable.name} is not All at first but {current!r}")
        if variable.name == "window" and current not in WINDOWS:
            found.append(f"the window is {current!r} at first, which the exporter does not have")
    return found
