"""The rules over a world's series: what they record, and which alerts are pending or
firing.

Each rule is asked over the whole history at once, those first that others are made of,
and what it gives is written back. `for` and `keep_firing_for` go as in Prometheus
(rules/alerting.go).
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from alerts.lint import Rule
from alerts.lint.bundle import names
from alerts.promtool import needed_groups
from dashboards import worlds_write
from dashboards.worlds_pods import Storage
from dashboards.worlds_traffic import Key
from support.prometheus import PrometheusServer

Rows = dict[Key, NDArray[np.float64]]


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def evaluate(
    prometheus: PrometheusServer,
    scrapes: NDArray[np.float64],
    wanted: Iterable[str],
    every: int,
) -> Storage:
    """Evaluate rules every so many scrapes; write what they give into the Prometheus,
    and return it.
    """
    rules: list[Rule] = []
    for group in needed_groups(wanted, texts=False):
        rules += map(Rule, group["rules"])
    evaluation = _Evaluation(prometheus, scrapes[(len(scrapes) - 1) % every :: every])
    for level in _levels(rules):
        evaluation.run(level)
    return evaluation.found


def _levels(rules: list[Rule]) -> Iterator[list[Rule]]:
    """Yield rules that can be evaluated together; those that ask for alerts come last,
    and twice.

    A rule that goes on as long as its own alert fires is true for longer the second
    time.
    """
    left = [rule for rule in rules if "ALERTS" not in names(rule.tree)]
    while left:
        waiting = {rule.name for rule in left}
        ready = [
            rule for rule in left if not names(rule.tree) & (waiting - {rule.name})
        ]
        yield ready
        left = [rule for rule in left if rule not in ready]
    last = [rule for rule in rules if "ALERTS" in names(rule.tree)]
    yield last
    yield last


class _Evaluation:
    def __init__(
        self, prometheus: PrometheusServer, times: NDArray[np.float64]
    ) -> None:
        self.found = Storage(times)
        self._prometheus = prometheus
        self._times = times
        self._place = {round(time): index for index, time in enumerate(times)}

    def run(self, rules: list[Rule]) -> None:
        """Evaluate rules that do not build on each other."""
        new: Rows = {}
        for rule in rules:
            for labels, rows in self._ask(rule.body["expr"]):
                labels.update(rule.labels)
                if rule.is_alert:
                    new.update(self._alert(rule, labels, rows))
                else:
                    new[rule.name, _pairs(labels)] = rows
        worlds_write.push(self._prometheus.url, self._times, new)
        self.found.series.update(new)

    def _ask(
        self, expression: str
    ) -> Iterator[tuple[dict[str, str], NDArray[np.float64]]]:
        data = self._prometheus.api(
            "query_range",
            query=expression,
            start=f"{self._times[0]:.3f}",
            end=f"{self._times[-1]:.3f}",
            step=f"{self._times[1] - self._times[0]:g}",
        )
        by_labels: dict[tuple[tuple[str, str], ...], NDArray[np.float64]] = {}
        for item in data["result"]:
            # `or` of what has a name and what has none is one series of the rule.
            labels = _pairs(
                {
                    name: value
                    for name, value in item["metric"].items()
                    if name != "__name__"
                }
            )
            rows = by_labels.setdefault(labels, np.full(len(self._times), np.nan))
            for time, value in item["values"]:
                rows[self._place[round(time)]] = float(value)
        for labels, rows in by_labels.items():
            yield dict(labels), rows

    def _alert(
        self, rule: Rule, labels: dict[str, str], rows: NDArray[np.float64]
    ) -> Rows:
        """Return ALERTS and ALERTS_FOR_STATE of one alert."""
        wait, keep = (
            _seconds(rule.body.get(name, "0s")) for name in ("for", "keep_firing_for")
        )
        named = {**labels, "alertname": rule.name}
        pending, firing, since = (np.full(len(rows), np.nan) for _ in range(3))
        began: float | None = None  # when it became active
        lapsed: float | None = None  # when it was no longer active
        fires = False
        for index, (time, value) in enumerate(
            zip(self._times.tolist(), rows.tolist(), strict=True)
        ):
            if value == value:
                began = time if began is None else began
                lapsed = None
                fires = fires or time - began >= wait
            else:
                lapsed = time if lapsed is None else lapsed
                if not (fires and time - lapsed < keep):
                    began = None
                    fires = False
            if began is not None:
                (firing if fires else pending)[index] = 1.0
                since[index] = began
        states = (("pending", pending), ("firing", firing))
        series: Rows = {
            ("ALERTS", _pairs({**named, "alertstate": state})): values
            for state, values in states
            if not np.isnan(values).all()
        }
        series["ALERTS_FOR_STATE", _pairs(named)] = since
        return series


def _pairs(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in labels.items() if value))


def _seconds(text: str) -> float:
    return sum(
        int(number) * _UNITS[unit]
        for number, unit in re.findall(r"(\d+)([smhd])", text)
    )
