"""All dashboards over one Prometheus: what each panel shows, what is empty, and what
cannot be right.

shown = look(prometheus, Viewing(start, end))
assert [wrong for one in shown for wrong in one.wrong()] == []
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.documents import columns, dashboards, fields, placed
from dashboards.grafana import (
    DashboardError,
    Json,
    Query,
    Viewing,
    ask,
    panels,
    queries,
    resolve,
)
from support.prometheus import PrometheusError, PrometheusServer

#: How the legend of a threshold begins: it is there without data, too.
LIMIT = "limit: "
#: Columns of relative differences, which may be below 0 and above 1.
DIFFERENCES = frozenset({"Gain, est.", "Measured"})
#: What rounding may add to a ratio.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Shown:
    """What a panel shows."""

    dashboard: str  # its uid, without the common beginning
    panel: Json  # as in the dashboard
    results: Mapping[str, Any]  # Prometheus's responses by `refId`
    #: Why Grafana could not query, or what Prometheus refused; empty where all went
    #: well.
    error: str = ""

    @property
    def name(self) -> str:
        """Dashboard and title."""
        return f"{self.dashboard}: {self.panel['title']}"

    @property
    def empty(self) -> bool:
        """Whether it shows nothing but thresholds."""
        targets = (target["legendFormat"] for target, _ in self.series())
        return all(name.startswith(LIMIT) for name in targets)

    def series(self) -> Iterator[tuple[Json, Json]]:
        """Yield each target with each series of its results."""
        for target in self.panel["targets"]:
            if target["refId"] in self.results:
                for series in self.results[target["refId"]]["result"]:
                    yield target, series

    def values(self) -> dict[str, float]:
        """Return the newest value of each series by its legend."""
        assert not self.error, self.error
        return {
            legend(target["legendFormat"], series["metric"]): newest(series)
            for target, series in self.series()
        }

    def rows(self, *labels: str) -> dict[tuple[str, ...], dict[str, str]]:
        """Return the cells of a table, with words for codes and texts, by labels and
        headings.
        """
        table: dict[tuple[str, ...], dict[str, str]] = {}
        assert not self.error, self.error
        headings = columns(self.panel)
        for target, series in self.series():
            ref = target["refId"]
            heading = headings.get(f"Value #{ref}", headings.get("Value", ""))
            metric = series["metric"]
            key = tuple(metric.get(label, "") for label in labels)
            cells = table.setdefault(key, {})
            cells[heading] = self.word(newest(series), ref)
            for label in headings.keys() & metric.keys() - {*labels}:
                name = headings[label]
                cells[name] = _said(_named(self.panel, {name}), metric[label])
        return table

    def word(self, value: float, ref: str = "A") -> str:
        """Return the word that a value is mapped to, or the number; no symbols."""
        return _said(_properties(self.panel, ref), f"{value:g}")

    def wrong(self) -> Iterator[str]:
        """Yield what cannot be right: errors, values that are none, codes without
        words, equal names.
        """
        if self.error:
            yield f"{self.name}: {self.error}"
        for ref in self.results:
            for complaint in self._wrong_values(ref):
                yield f"{self.name}, {ref}: {complaint}"
        names = Counter(
            legend(target["legendFormat"], series["metric"])
            for target, series in self.series()
        )
        is_drawn = self.panel["type"] in ("timeseries", "state-timeline")
        if is_drawn and names.total() > len(names):
            yield f"{self.name}: two series of one name: {names}"

    def _wrong_values(self, ref: str) -> Iterator[str]:
        properties = _properties(self.panel, ref)
        values = []
        labels: set[str] = set()
        for line in self.results[ref]["result"]:
            points = line.get("values", [line.get("value")])
            values += [float(number) for _, number in points]
            labels |= line["metric"].keys()
        codes: set[str] = set()
        for mapping in properties.get("mappings", ()):
            if mapping["type"] == "value":
                codes |= mapping["options"].keys()
        unit = properties.get("unit")
        signed = {columns(self.panel).get(f"Value #{ref}")} & DIFFERENCES
        if not all(map(math.isfinite, values)):
            yield f"NaN or Inf among {len(values)} values"
        elif unit == "percentunit" and not signed:
            if not all(-_TOLERANCE <= value <= 1 + _TOLERANCE for value in values):
                yield f"not within 0 and 1: {min(values)} to {max(values)}"
        elif len(codes) > 1 and unit != "short":
            for code in {f"{value:g}" for value in values if value < 10} - codes:
                yield f"a code without a word: {code}"
        unplaced = labels - placed(self.panel) - columns(self.panel).keys()
        if unplaced and self.panel["type"] == "table":
            yield f"columns without a place: {', '.join(sorted(unplaced))}"


def newest(series: Json) -> float:
    """Return the newest value of a series."""
    if "value" in series:
        return float(series["value"][1])
    return float(series["values"][-1][1])


def legend(pattern: str, labels: Mapping[str, str]) -> str:
    """Return the name of a series."""
    named = re.sub(r"\{\{(\w+)\}\}", lambda label: labels.get(label[1], ""), pattern)
    return " ".join(named.split())


def look(
    prometheus: PrometheusServer, viewing: Viewing, only: Iterable[str] = ()
) -> tuple[Shown, ...]:
    """Execute every panel of every dashboard, or of those named (`overview`); equal
    queries are sent once.
    """
    looked_at: list[Shown] = []
    answers: dict[Query, Any] = {}
    for uid in only or dashboards():
        variables = resolve(prometheus, dashboards()[uid], viewing)
        for panel in panels(dashboards()[uid]):
            results = {}
            error = ""
            try:
                for ref, query in queries(panel, viewing, variables).items():
                    if query not in answers:
                        answers[query] = ask(prometheus, query, viewing)
                    results[ref] = answers[query]
            except (DashboardError, PrometheusError) as refused:
                error = str(refused)
            looked_at.append(Shown(uid, panel, results, error))
    return tuple(looked_at)


def _properties(panel: Json, ref: str) -> dict[str, Any]:
    """Return the field options of a target's values."""
    target = next(target for target in panel["targets"] if target["refId"] == ref)
    names = {
        columns(panel)[name]
        for name in (f"Value #{ref}", "Value")
        if name in columns(panel)
    }
    return _named(panel, {target["legendFormat"], *names})


def _named(panel: Json, names: set[str]) -> dict[str, Any]:
    """Return the field options of the fields of these names."""
    (_, merged), *overrides = fields(panel)
    for name, options in overrides:
        if name in names:
            merged = {**merged, **options}
    return merged


def _said(properties: Json, text: str) -> str:
    """Return what a text is mapped to, as Grafana's `getValueMappingResult` does,
    without its symbol.
    """
    mapped = (_mapped(mapping, text) for mapping in properties.get("mappings", ()))
    return next(filter(None, mapped), text).lstrip("▲▼●✖ ")


def _mapped(mapping: Json, text: str) -> str:
    """Return what one mapping makes of a text; empty where it does not apply."""
    options = mapping["options"]
    match mapping["type"]:
        case "value":
            return str(options.get(text, {}).get("text", ""))
        case "range":
            low, high = options.get("from", -math.inf), options.get("to", math.inf)
            return options["result"]["text"] if low <= float(text) <= high else ""
        case "regex" if found := re.fullmatch(options["pattern"], text):
            groups = dict(enumerate(found.groups(""), 1))
            shown = options["result"]["text"]
            return re.sub(r"\$(\d)", lambda number: groups[int(number[1])], shown)
    return ""
