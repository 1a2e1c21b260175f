"""All dashboards before any Prometheus: what each panel shows, what is empty, and what cannot be right.

    shown = look(prometheus, Viewing(start, end))
    assert not [one for one in shown if one.empty]

The Prometheus may hold a world of the tests as well as what it scrapes of a real vLLM.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dashboards.documents import columns, dashboards, placed
from dashboards.grafana import ask, panels, questions
from dashboards.grafana_timing import DashboardError, Viewing
from dashboards.grafana_variables import resolve
from support.prometheus import PrometheusError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dashboards.documents import Json
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
        """Yield what cannot be right: errors, values that are none, codes without words, equal names."""
        if self.error:
            yield f"{self.name}: {self.error}"
        for target in self.panel["targets"]:
            ref = target["refId"]
            for words in self._wrong_values(ref, target) if ref in self.results else ():
                yield f"{self.name}, {ref}: {words}"
        names = self.names()
        if self.panel["type"] in ("timeseries", "state-timeline") and len(set(names)) < len(names):
            yield f"{self.name}: two series of one name: {sorted(names)}"

    def names(self) -> list[str]:
        """Return the names of all series."""
        return [
            legend(target.get("legendFormat", ""), series["metric"])
            for target in self.panel["targets"]
            for series in self.results.get(target["refId"], {"result": ()})["result"]
        ]

    def _wrong_values(self, ref: str, target: Json) -> Iterator[str]:
        data, properties = self.results[ref], properties_of(self.panel, ref)
        least = -1.0 if target.get("legendFormat") == DIFFERENCE else 0.0
        values = list(_values(data))
        codes = {
            code
            for mapping in properties.get("mappings", ())
            if mapping["type"] == "value"
            for code in mapping["options"]
        }
        if any(math.isnan(value) or math.isinf(value) for value in values):
            yield f"NaN or Inf among {len(values)} values"
        elif properties.get("unit") == "percentunit" and not all(
            least - _TOLERANCE <= value <= 1 + _TOLERANCE for value in values
        ):
            yield f"not within {least:g} and 1: {min(values)} to {max(values)}"
        elif len(codes) > 1 and (unknown := {f"{value:g}" for value in values} - codes):
            yield f"codes without a word: {', '.join(sorted(unknown))}"
        if self.panel["type"] == "table":
            labels = {label for series in data["result"] for label in series["metric"]}
            if unplaced := labels - placed(self.panel) - columns(self.panel).keys():
                yield f"columns without a place: {', '.join(sorted(unplaced))}"


def legend(pattern: str, labels: Mapping[str, str]) -> str:
    """Return the name of a series."""
    return " ".join(re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), pattern).split())


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


def properties_of(panel: Json, ref: str) -> dict[str, Any]:
    """Return the field options of a target's values."""
    found = dict(panel["fieldConfig"]["defaults"])
    target = next(target for target in panel["targets"] if target["refId"] == ref)
    names = {target.get("legendFormat"), f"Value #{ref}"}
    names |= {columns(panel)[name] for name in (*names, "Value") if name in columns(panel)}
    for override in panel["fieldConfig"]["overrides"]:
        matcher = override["matcher"]
        if (matcher["id"], matcher["options"]) == ("byFrameRefID", ref) or (
            matcher["id"] == "byName" and matcher["options"] in names
        ):
            found |= {item["id"]: item["value"] for item in override["properties"]}
    return found
