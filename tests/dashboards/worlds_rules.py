"""The rules over a world's series: what they record, and which alerts are pending or
firing.

Each rule is asked over the whole history at once, those first that others are made of,
and what it gives is written back. `for` and `keep_firing_for` go as in Prometheus
(rules/alerting.go).
"""

from collections.abc import Iterable, Iterator

import numpy as np

from alerts.lint import Rule
from alerts.lint.bundle import names
from alerts.promtool import needed_groups
from dashboards import worlds_write
from dashboards.worlds_pods import Storage
from dashboards.worlds_traffic import Key, Labels, Samples, pairs_of
from support.prometheus import PrometheusServer
from vllm_specdec_exporter.config.values import parse_duration

Rows = dict[Key, Samples]


def evaluate(
    prometheus: PrometheusServer,
    scrapes: Samples,
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
    def __init__(self, prometheus: PrometheusServer, times: Samples) -> None:
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
                    new[rule.name, pairs_of(labels)] = rows
        worlds_write.push(self._prometheus.url, self._times, new)
        self.found.series.update(new)

    def _ask(self, expression: str) -> Iterator[tuple[dict[str, str], Samples]]:
        data = self._prometheus.api(
            "query_range",
            query=expression,
            start=f"{self._times[0]:.3f}",
            end=f"{self._times[-1]:.3f}",
            step=f"{self._times[1] - self._times[0]:g}",
        )
        by_labels: dict[Labels, Samples] = {}
        for item in data["result"]:
            # `or` of what has a name and what has none is one series of the rule.
            labels = pairs_of({**item["metric"], "__name__": ""})
            rows = by_labels.setdefault(labels, np.full(len(self._times), np.nan))
            for time, value in item["values"]:
                rows[self._place[round(time)]] = float(value)
        for labels, rows in by_labels.items():
            yield dict(labels), rows

    def _alert(self, rule: Rule, labels: dict[str, str], rows: Samples) -> Rows:
        """Return ALERTS and ALERTS_FOR_STATE of one alert."""
        wait, keep = (
            parse_duration(rule.body.get(name, "0s"))
            for name in ("for", "keep_firing_for")
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
            ("ALERTS", pairs_of({**named, "alertstate": state})): values
            for state, values in states
            if not np.isnan(values).all()
        }
        series["ALERTS_FOR_STATE", pairs_of(named)] = since
        return series
