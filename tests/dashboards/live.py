"""All dashboards before any Prometheus: what each panel shows, what is empty, and what cannot be right.

    shown = look(prometheus, Viewing(start, end))
    assert not [one for one in shown if one.empty]

The Prometheus may hold a world of the tests as well as what it scrapes of a real vLLM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dashboards.documents import dashboards
from dashboards.grafana import DashboardError, Viewing, ask, panels, questions, resolve
from support.prometheus import PrometheusError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dashboards.grafana import Json
    from support.prometheus import PrometheusServer

#: How the legend of a line begins that is no data: a threshold is always there.
LIMIT = "limit: "
#: The legend of a difference of two ratios, which may be below 0.
DIFFERENCE = "A less B"
#: What rounding may add to a ratio.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Shown:
    """What a panel shows.

    Attributes:
        dashboard: its uid, without the common beginning.
        panel: as in the dashboard.
        results: Prometheus's answers by `refId`.
        error: why Grafana could not ask, or what Prometheus refused; empty where all went well.
    """

    dashboard: str
    panel: Json
    results: Mapping[str, Any]
    error: str = ""

    @property
    def title(self) -> str:
        """The panel's title."""
        return str(self.panel["title"])

    @property
    def name(self) -> str:
        """Dashboard and title, for people."""
        return f"{self.dashboard}: {self.title}"

    @property
    def empty(self) -> bool:
        """Whether it shows nothing but thresholds."""
        answers = (self.results.get(target["refId"]) for target in _data(self.panel))
        return not any(answer["result"] for answer in answers if answer)

    def wrong(self) -> Iterator[str]:
        """Yield what cannot be right: errors, values that are no numbers, and ratios that are none."""
        if self.error:
            yield f"{self.name}: {self.error}"
        legends = {target["refId"]: target.get("legendFormat") for target in self.panel["targets"]}
        for ref, data in self.results.items():
            ratio = unit_of(self.panel, ref) == "percentunit"
            least = -1.0 if legends[ref] == DIFFERENCE else 0.0
            values = list(_values(data))
            if any(math.isnan(value) or math.isinf(value) for value in values):
                yield f"{self.name}, {ref}: NaN or Inf among {len(values)} values"
            elif ratio and not all(least - _TOLERANCE <= value <= 1 + _TOLERANCE for value in values):
                yield f"{self.name}, {ref}: not within {least:g} and 1: {min(values)} to {max(values)}"


def look(
    prometheus: PrometheusServer, viewing: Viewing, *, single: bool = False, only: str = ""
) -> tuple[Shown, ...]:
    """Execute every panel of every dashboard.

    Args:
        prometheus: whom to ask.
        viewing: who looks; values of variables count where a dashboard has the variable.
        single: whether each other variable has its first value instead of All.
        only: uid of the dashboard to look at, unless at all.
    """
    found: list[Shown] = []
    answers: dict[object, Any] = {}
    for uid, dashboard in dashboards().items():
        if only and dashboard["uid"] != only:
            continue
        mine = restricted(viewing, dashboard)
        variables = resolve(prometheus, dashboard, mine, single=single)
        for panel in panels(dashboard):
            results, error = {}, ""
            try:
                for ref, question in questions(panel, mine, variables).items():
                    if question not in answers:
                        answers[question] = ask(prometheus, question, mine)
                    results[ref] = answers[question]
            except (DashboardError, PrometheusError) as refused:
                error = str(refused)
            found.append(Shown(uid, panel, results, error))
    return tuple(found)


def restricted(viewing: Viewing, dashboard: Json) -> Viewing:
    """Return the viewing with values of those variables only that a dashboard has."""
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    values = {name: value for name, value in viewing.values.items() if name in names}
    return Viewing(viewing.start, viewing.end, values, viewing.pixels, viewing.scrape_interval)


def _data(panel: Json) -> list[Json]:
    """Return the targets that are not thresholds, or all where there are no others."""
    targets = panel["targets"]
    return [t for t in targets if not t.get("legendFormat", "").startswith(LIMIT)] or targets


def _values(data: Any) -> Iterator[float]:
    for item in data["result"]:
        for _, value in [item["value"]] if "value" in item else item["values"]:
            yield float(value)


def unit_of(panel: Json, ref: str) -> str:
    """Return the unit in which a target's values are shown."""
    config = panel["fieldConfig"]
    unit = str(config["defaults"].get("unit", ""))
    target = next(target for target in panel["targets"] if target["refId"] == ref)
    names = {target.get("legendFormat"), f"Value #{ref}"}
    for transformation in panel.get("transformations", ()):
        renamed = transformation.get("options", {}).get("renameByName", {})
        names |= {renamed[name] for name in names if name in renamed}
    for override in config["overrides"]:
        matcher = override["matcher"]
        matches = (matcher["id"] == "byName" and matcher["options"] in names) or (
            matcher["id"] == "byFrameRefID" and matcher["options"] == ref
        )
        for own in override["properties"] if matches else ():
            unit = own["value"] if own["id"] == "unit" else unit
    return unit
